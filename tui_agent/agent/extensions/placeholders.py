"""What stands for something else in commands and skills, filled in by the rules of Claude Code."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.extensions.files import ExtensionFolder, skill_folders, with_places
from tui_agent.regex import regex
from tui_agent.tools.notes.skills import SKILL_FILE, find_skills

_PLAIN: Final = regex(r"[\w./:=@%+,-]+")
_SIGNS: Final = (
    r"^```!\s*\n(?P<script>.*?)\n```[ \t]*$|(?<!\S)!`(?P<command>[^`\n]+)`"
    r"|(?P<argument>{argument})|(?<![\w@/.`])@(?P<path>[\w./~-]*[\w/])"
)
_ARGUMENT: Final = (
    r"(?P<escape>(?<!\\)\\)?(?<!\$)\$(?:ARGUMENTS(?:\[(?P<index>\d+)\]|\b)|(?P<place>\d+)|(?P<name>(?:{names})\b))"
)
_COUNTS_FROM_ZERO: Final = regex(r"(?<!\\)\$(?:0(?!\d)|ARGUMENTS\[)")


class Here(msgspec.Struct, frozen=True):
    """The session that a text is for."""

    folder: Path
    session: str
    effort: Callable[[], str]

    def filled(self, text: str) -> str:
        effort = self.effort() if "${CLAUDE_EFFORT}" in text else ""
        text = text.replace("${CLAUDE_EFFORT}", "high" if effort == "default" else effort)
        text = text.replace("${CLAUDE_SESSION_ID}", self.session)
        return text.replace("${CLAUDE_PROJECT_DIR}", str(self.folder))


class Placeholders:
    """The placeholders of a command's text: for arguments, with the `names` that it gives them, for output and files.

    Places of arguments count from 1, or from 0 in a skill and in a text that says ``$0`` or ``$ARGUMENTS[N]``.
    """

    def __init__(self, text: str, names: Sequence[str] = (), *, skill: bool = False) -> None:
        self._names = tuple(names)
        self._first = 0 if skill or _COUNTS_FROM_ZERO.search(text) else 1
        argument = _ARGUMENT.replace("{names}", "|".join(map(re.escape, names)) or "(?!)")
        self._argument = re.compile(argument)
        self.signs: Final = re.compile(_SIGNS.replace("{argument}", argument), re.MULTILINE | re.DOTALL)
        self.takes_arguments: Final = any(not sign["escape"] for sign in self._argument.finditer(text))

    def value(self, sign: re.Match[str], typed: str) -> str | None:
        """What one of the arguments' signs stands for, given what was typed; None: it stays as it is."""
        if sign["escape"]:
            return None
        if sign["index"] is None and sign["place"] is None and sign["name"] is None:
            return typed
        words = _words(typed)
        if sign["name"] is not None:
            place = self._names.index(sign["name"])
            return words[place] if place < len(words) else ""
        place = int(sign["place"]) - self._first if sign["index"] is None else int(sign["index"])
        return words[place] if 0 <= place < len(words) else None

    def in_command(self, command: str, typed: str) -> str:
        """A command line with its arguments, quoted for the shell."""

        def quoted(sign: re.Match[str]) -> str:
            text = self.value(sign, typed)
            if text is None:
                return as_it_stands(sign)
            return text if _PLAIN.fullmatch(text) else shlex.quote(text) if text else ""

        return self._argument.sub(quoted, command)


def names_in(listed: str) -> tuple[str, ...]:
    """The names that a front matter lists for arguments; none if it says something else there, such as a hint."""
    names = tuple(filter(None, re.split(r"[,\s]+", listed)))
    return names if all(name.isidentifier() for name in names) else ()


def as_it_stands(sign: re.Match[str]) -> str:
    """An argument's sign that stands for nothing, without the backslash that says so."""
    return sign[0].removeprefix("\\") if sign["escape"] else sign[0]


def skill_as_read(extensions: Sequence[ExtensionFolder], here: Here, file: Path, text: str) -> str:
    """The text of a skill that the model reads by itself, with its places filled in; any other text as it is."""
    if file.name != SKILL_FILE or "${CLAUDE_" not in text:
        return text
    for root in extensions:
        if any(each.file == file for each in find_skills(skill_folders(root))):
            said = here.filled(with_places(text, root, file.parent))
            return f"{said}\n[Places such as ${{CLAUDE_SKILL_DIR}} are filled in.]" if said != text else text
    return text


def _words(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError:
        return typed.split()
