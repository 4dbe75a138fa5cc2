"""Reading standard input: the prompt itself, or data to append to it."""

import select
import sys
from typing import Final

from tui_agent.arguments import UsageError

MAX_BYTES = 16 * 1024 * 1024
"""The most bytes that are accepted."""

SILENT_S: Final = 3.0
"""Seconds to wait for the first byte of data in addition to a prompt. A pipe that was merely inherited, from a
scheduler or a program that never closes it, may stay silent for ever."""


def read_prompt() -> str:
    """Read the prompt from standard input. Raises `UsageError`, also if that is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-p needs a PROMPT, or text on standard input")
    return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1))


def read_data(*, wait: bool) -> tuple[str, str]:
    """Read the data given in addition to a prompt; returns it and a notice for the user (either may be empty).

    A terminal is not read. Without `wait`, gives up if nothing has arrived within `SILENT_S` seconds. Once data has
    begun to arrive, it is read to its end. Raises `UsageError`.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return "", ""
    if not wait and not _begins(sys.stdin.fileno()):
        problem = (
            f"nothing came on standard input within {SILENT_S:.0f} s: going on without it. "
            "`-p PROMPT -` waits for data; `< /dev/null` says there is none."
        )
        return "", problem
    data = _decoded(sys.stdin.buffer.read(MAX_BYTES + 1))
    return (data if data.strip() else ""), ""


def with_data(prompt: str, data: str) -> str:
    """The prompt followed by the data, between delimiters that do not occur in the data."""
    if not data:
        return prompt
    mark, number = "standard_input", 1
    while f"</{mark}>" in data:
        number += 1
        mark = f"standard_input_{number}"
    return f"{prompt}\n\n<{mark}>\n{data.removesuffix(chr(10))}\n</{mark}>"


def _begins(descriptor: int) -> bool:
    """Whether a byte or the end of input arrives in time."""
    try:
        return bool(select.select([descriptor], [], [], SILENT_S)[0])
    except (OSError, ValueError):
        # A file, or a pipe of Windows, cannot be waited for here; just read it.
        return True


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"standard input is longer than {MAX_BYTES:,} bytes; put it in a file and name the file")
    return data.decode("utf-8-sig", "surrogateescape")
