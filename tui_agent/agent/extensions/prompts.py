"""The user's own slash commands: Markdown files whose text is sent to the model, with arguments filled in.

``$ARGUMENTS`` stands for everything typed after the name, ``$1`` to ``$9`` for single words of it, `` !`command` `` for
a command's output, and ``@path`` for a file's contents. Typed arguments are never expanded themselves.
"""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.agent.extensions.files import Shelf, Source, written

ROOM: Final = "commands"

_SIGNS: Final = re.compile(
    r"!`(?P<command>[^`\n]+)`|(?<![\w`$])(?P<argument>\$ARGUMENTS\b|\$[1-9](?!\d))|(?<![\w@/.`])@(?P<path>[\w./~-]*[\w/])"
)
_ARGUMENT: Final = re.compile(r"\$ARGUMENTS\b|\$[1-9](?!\d)")
_PLAIN: Final = re.compile(r"[\w./:=@%+,-]+")

Call = Callable[[str, str], Awaitable[str]]
"""Calls a tool by name and arguments and returns its result. Raises `ToolFailure`, `NobodyToAsk`."""


class OwnPrompt(NamedTuple):
    """One of the user's own slash commands.

    hint: the argument's name in the help. problem: why it cannot be used; empty if it can. model: answers the turn that
    the command starts; empty: the session's.
    """

    name: str
    description: str
    hint: str
    text: str
    file: Path
    source: Source
    problem: str = ""
    server: str = ""
    """The MCP server that offers it; empty: it is a file."""
    model: str = ""


def own_prompts(shelves: tuple[Shelf, ...]) -> tuple[OwnPrompt, ...]:
    """All commands. Reads files: call it in a thread. Never raises."""
    return tuple(
        OwnPrompt(
            found.name,
            found.key("description") or _first_line(found.text),
            found.key("argument-hint", "argument_hint", "arguments") or ("[…]" if _takes(found.text) else ""),
            found.text,
            found.file,
            found.source,
            found.problem,
            model=found.key("model"),
        )
        for found in written(shelves, ROOM)
    )


async def expanded(prompt: OwnPrompt, argument: str, folder: Path, call: Call) -> str:
    """The text to send for the command. Shell commands and files in it pass the gate. Raises as `call`."""
    words = _words(argument)
    parts: list[str] = []
    end = 0
    for found in _SIGNS.finditer(prompt.text):
        parts.append(prompt.text[end : found.start()])
        end = found.end()
        if found["command"]:
            line = _ARGUMENT.sub(lambda sign: _quoted(_put(sign[0], argument, words)), found["command"])
            parts.append(await call("run_command", _json({"command": line})))
        elif found["path"]:
            parts.append(await _file(found["path"], found[0], folder, call))
        else:
            parts.append(_put(found["argument"], argument, words))
    parts.append(prompt.text[end:])
    whole = "".join(parts).strip()
    return f"{whole}\n\nArguments: {argument}" if argument and not _takes(prompt.text) else whole


async def _file(path: str, mention: str, folder: Path, call: Call) -> str:
    """The mention followed by the file's contents; if it is no file, the mention alone, for the model to look up."""
    if not await asyncio.to_thread(_is_file, folder, path):
        return mention
    return f"{mention}\n{await call('read_file', _json({'path': path}))}\n"


def _is_file(folder: Path, path: str) -> bool:
    return (folder / Path(path).expanduser()).is_file()


def _put(sign: str, argument: str, words: list[str]) -> str:
    if sign == "$ARGUMENTS":
        return argument
    place = int(sign[1:]) - 1
    return words[place] if place < len(words) else ""


def _quoted(text: str) -> str:
    """An argument quoted for the shell."""
    return text if _PLAIN.fullmatch(text) else shlex.quote(text) if text else ""


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:
        return argument.split()


def _takes(text: str) -> bool:
    return _ARGUMENT.search(text) is not None


def _first_line(text: str) -> str:
    return next((line.strip("# ").strip() for line in text.splitlines() if line.strip("# ").strip()), "")[:100]


def _json(arguments: dict[str, str]) -> str:
    return msgspec.json.encode(arguments).decode()
