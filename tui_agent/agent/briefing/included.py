"""Files that an instruction file names with an `@`, which Claude Code and Gemini CLI read as a part of it."""

import re
from pathlib import Path
from typing import Final

from tui_agent.regex import regex
from tui_agent.settings.brought import RULES
from tui_agent.system.regular import read_bytes
from tui_agent.text import expanded

MOST_FILES: Final = 20
"""The most files that belong to one."""
MOST_DEEP: Final = 5
"""How many files may lead to one."""
_MOST_BYTES: Final = 1_000_000

_QUOTED: Final = regex(r"^[ \t]*(?P<fence>```+|~~~+).*?^[ \t]*(?P=fence)[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_NAMED: Final = regex(r"(?<![\w`@./~-])@(?P<path>(?:~/|/|(?:\.{1,2}/)+)?[\w.-]+(?:/[\w.-]+)*)")


def included(file: Path, within: Path | None = None) -> list[Path]:
    """The text files that `file` names with an `@`, and those that these name, each once and with all links followed.

    within: the folder that they may be in; None: any. Reads files, and raises nothing for those that cannot be read.
    """
    found: dict[Path, None] = {}
    top = within.resolve() if within is not None else None
    if top is None or file.resolve().is_relative_to(top):
        _add(file.resolve(), found, top, MOST_DEEP)
    found.pop(file.resolve(), None)
    return list(found)[:MOST_FILES]


def rules_in(place: Path, within: Path) -> list[Path]:
    """The files of rules in a folder of the project `within`, with all links followed. Reads the folder."""
    top = within.resolve()
    found = (path.resolve() for path in sorted((place / RULES).rglob("*.md")))
    return [path for path in found if path.is_file() and path.is_relative_to(top)][:MOST_FILES]


def rebased(text: str, folder: Path, shown: str) -> str:
    """A text that was in `folder`, for another place: what it names from there begins with `shown`, say ``~/notes``."""

    def named(match: re.Match[str]) -> str:
        path = match["path"]
        is_there = not path.startswith(("~", "/")) and _file(path, folder) is not None
        return f"@{shown}/{path.removeprefix('./')}" if is_there else match[0]

    parts, end = [], 0
    for quoted in (*_QUOTED.finditer(text), None):
        start = len(text) if quoted is None else quoted.start()
        parts.append(_NAMED.sub(named, text[end:start]))
        if quoted is not None:
            parts.append(quoted[0])
            end = quoted.end()
    return "".join(parts)


def _add(file: Path, found: dict[Path, None], within: Path | None, deep: int) -> None:
    if (text := _text(file)) is None or file in found:
        return
    found[file] = None
    if deep and len(found) <= MOST_FILES:
        for named in _NAMED.finditer(_QUOTED.sub(" ", text)):
            inner = _file(named["path"], file.parent)
            if inner is not None and (within is None or inner.is_relative_to(within)):
                _add(inner, found, within, deep - 1)


def _file(path: str, folder: Path) -> Path | None:
    """The file that a path in a text means, without a full stop behind it; None if there is none."""
    for each in dict.fromkeys((path, path.rstrip("."))):
        try:
            place = (folder / expanded(each)).resolve()
            if each and place.is_file():
                return place
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def _text(file: Path) -> str | None:
    try:
        data = read_bytes(file, _MOST_BYTES)
    except OSError:
        return None
    return None if b"\0" in data else data.decode(errors="replace")
