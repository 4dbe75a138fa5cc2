"""What comes on standard input: the prompt itself, or data that goes after it."""

import select
import sys
from typing import Final

from tui_agent.arguments import UsageError

MAX_BYTES = 16 * 1024 * 1024
"""Bytes that are read; more is refused."""

SILENT_S: Final = 3.0
"""Seconds until the first byte of data beside a prompt. A pipe that was only inherited, from a scheduler or a program
that never closes it, says nothing for ever."""


def read_prompt() -> str:
    """The prompt from standard input, to its end. Raises `UsageError`, also where a terminal would have to be read."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-p needs a PROMPT, or text on standard input")
    return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1))


def read_data(*, wait: bool) -> tuple[str, str]:
    """The data that came beside a prompt, and what the user should be told of it (either may be empty).

    A terminal is not read. With `wait`, data may begin as late as it likes; else nothing is read where none has begun
    within `SILENT_S`. Data that has begun is read to its end. Raises `UsageError`.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return "", ""
    if not wait and not _begins(sys.stdin.fileno()):
        told = (
            f"nothing came on standard input within {SILENT_S:.0f} s: going on without it. "
            "`-p PROMPT -` waits for data; `< /dev/null` says there is none."
        )
        return "", told
    data = _decoded(sys.stdin.buffer.read(MAX_BYTES + 1))
    return (data if data.strip() else ""), ""


def with_data(prompt: str, data: str) -> str:
    """The prompt and, clearly set off, the data after it; nothing in the data can look like its end."""
    if not data:
        return prompt
    mark, number = "standard_input", 1
    while f"</{mark}>" in data:
        number += 1
        mark = f"standard_input_{number}"
    return f"{prompt}\n\n<{mark}>\n{data.removesuffix(chr(10))}\n</{mark}>"


def _begins(descriptor: int) -> bool:
    """Whether there is a byte, or the end, within the time."""
    try:
        return bool(select.select([descriptor], [], [], SILENT_S)[0])
    except (OSError, ValueError):
        # Not a thing that can be waited for here: a file, or a pipe of Windows. It is read to its end.
        return True


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"standard input is longer than {MAX_BYTES:,} bytes; put it in a file and name the file")
    return data.decode("utf-8-sig", "surrogateescape")
