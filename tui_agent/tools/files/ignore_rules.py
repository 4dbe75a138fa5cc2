"""What a project's ignore rules surely say of a name, so that not every new file needs a listing by ripgrep.

The rules are those of gitignore(5). Here they are only bounded: which names some rule might be about, and which names
the simplest rules of the project's own folder ignore. Between the two, ripgrep decides.
"""

import os
import re
from collections.abc import Iterable
from fnmatch import translate
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.regex import regex
from tui_agent.system.regular import read_text

IGNORE_FILES: Final = frozenset({".gitignore", ".ignore", ".rgignore"})
"""Files that say what ripgrep leaves out."""
_MOST_BYTES: Final = 200_000
_SIMPLE: Final = regex(r"[\w.?-]*\*?[\w.?-]*/?")
_UNSURE: Final = regex(r"[\[{\\]")


class IgnoreRules(msgspec.Struct, frozen=True):
    """`any_rule` matches each name that a rule might be about, `kept` those that one might not ignore after all;
    `files` and `folders` the names that are ignored at any depth.
    """

    any_rule: re.Pattern[str]
    kept: re.Pattern[str]
    files: re.Pattern[str]
    folders: re.Pattern[str]

    def ignore(self, name: str, *, folder: bool) -> bool | None:
        """Whether a name in a folder that is not ignored is; None if that is not sure."""
        if not self.any_rule.match(name):
            return False
        surely = (self.folders if folder else self.files).match(name) and not self.kept.match(name)
        return True if surely else None


def read_rules(root: Path, files: Iterable[str]) -> IgnoreRules | None:
    """The rules in these files, by their paths below `root` or absolute ones, and in the user's own; a folder ``.git``
    stands for its list. None if not all of them are known.
    """
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git"
    every: list[tuple[bool, str]] = []
    try:
        for place in (own / "config", Path.home() / ".gitconfig"):
            if place.exists() and "excludesfile" in read_text(place, _MOST_BYTES).casefold():
                return None
        for file in (*files, *([str(own / "ignore")] if (own / "ignore").exists() else ())):
            path = root / file / "info/exclude" if file.rpartition("/")[2] == ".git" else root / file
            every += (("/" not in file, line) for line in read_text(path, _MOST_BYTES).split("\n"))
    except OSError:
        return None
    any_rule, kept, ignored, folders = list[str](), list[str](), list[str](), list[str]()
    for at_root, line in every:
        rule = line.lstrip("\ufeff").rstrip()
        if not rule or rule.startswith("#"):
            continue
        last = "*" if _UNSURE.search(rule) else rule.removeprefix("!").rstrip("/").rpartition("/")[2]
        any_rule.append(last)
        if rule.startswith("!"):
            kept.append(last)
        elif at_root and _SIMPLE.fullmatch(rule):
            folders.append(last)
            ignored += [] if rule.endswith("/") else [last]
    return IgnoreRules(_matching(any_rule), _matching(kept), _matching(ignored), _matching(folders))


def _matching(globs: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, dict.fromkeys(globs))) or r"(?!)")
