"""The guarded files: they control how shells, tools, git and agents behave, even after the session that changes them.

One table serves the tools that write, the rules for commands, and the sandbox.
"""

import os
import unicodedata
from collections.abc import Sequence
from itertools import pairwise, starmap
from pathlib import Path
from typing import Final

from tui_agent.regex import regex
from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.patterns import matches

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files that agents take their instructions from."""

_LINES: Final = Path(__file__).with_name("guarded_names.txt").read_text("utf-8").splitlines()
_WORDS: Final = frozenset(
    word.casefold() for line in (*_LINES, *INSTRUCTION_FILES) if not line.startswith("#") for word in line.split()
)
_TOOLS: Final = frozenset(word.removesuffix(".*") for word in _WORDS if word.endswith(".*"))
_ENDINGS: Final = (".code-workspace", ".sublime-project", ".sublime-workspace")
_FORM: Final = regex(
    r"(?:[.-](?:local|user|override|dev|development|prod|production|staging|test|d|config"
    r"|toml|ya?ml|json[c5]?|pkl|nix|ini|cfg|conf|xml"
    r"|(?P<code>[cm]?[jt]s|py|lua|rb|sh)))+\Z"
)
"""What tools put behind the name of their configuration."""

_PLACES: Final = frozenset(word.partition("/")[::2] for word in _WORDS if "/" in word)
_PATTERNS: Final = tuple(place for place in _PLACES if "*" in place[1])
GUARDED_PARENTS: Final = frozenset(parent for parent, _ in _PLACES)
"""Folders with entries that are guarded in them only."""


def is_guarded(real: Path, workspace: WorkspaceView, written: str = "") -> bool:
    """Whether the user is always asked before the resolved path `real`, given as `written`, is changed."""
    root = workspace.root
    # The project's own folder may be below a guarded one.
    parts = (root.name, *real.relative_to(root).parts) if real.is_relative_to(root) else real.parts
    asked = Path(written)
    if is_guarded_name(parts) or (not asked.is_absolute() and is_guarded_name(asked.parts)):
        return True
    if any(real.is_relative_to(folder) for folder in workspace.guarded):
        return True
    return any(Path(os.path.realpath(workspace.root / name)) == real for name in INSTRUCTION_FILES)


def folded(name: str) -> str:
    """`name` as the most lenient file system compares it: without case, invisible characters and trailing dots."""
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ")


def guards(name: str) -> bool:
    """Whether files and folders of this `folded` name are guarded in any folder: it stands in the table, or is another
    form of a name there that begins with a dot, or of one with ``.*``, if that does not look like code of the project.
    """
    if name in _WORDS or name.endswith(_ENDINGS):
        return True
    # No file has a longer name; a search in one would take the square of its length.
    form = _FORM.search(name, 1) if len(name) < 256 else None
    if form is None:
        return False
    base = name[: form.start()]
    if base.startswith("."):
        return base in _WORDS or base[1:] in _TOOLS
    return base in _TOOLS and (form["code"] is None or ".config." in form[0])


def guards_in(parent: str, name: str) -> bool:
    """Whether entries of this `folded` name are guarded in folders of the name `parent`."""
    return (parent, name) in _PLACES or any(parent == place and matches(like, name) for place, like in _PATTERNS)


def is_guarded_name(parts: Sequence[str]) -> bool:
    """Whether a path of these parts is guarded wherever it is."""
    names = [folded(part) for part in parts]
    return any(map(guards, names)) or any(starmap(guards_in, pairwise(names)))
