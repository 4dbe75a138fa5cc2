"""The guarded files: they control how shells, tools, git and agents behave, even after the session that changes them.

One table serves the tools that write, the rules for commands, and the sandbox.
"""

import os
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tui_agent.tools.base import WorkspaceView

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files that agents take their instructions from."""

_LINES: Final = Path(__file__).with_name("guarded_names.txt").read_text("utf-8").splitlines()
GUARDED_NAMES: Final = frozenset(
    word.casefold() for line in (*_LINES, *INSTRUCTION_FILES) if not line.startswith("#") for word in line.split()
)
"""Names of files and folders that are guarded in any folder, in lower case; those with a slash are `GUARDED_PLACES`."""

GUARDED_ENDINGS: Final = (".code-workspace", ".sublime-project", ".sublime-workspace")
"""Ends of further such names."""

GUARDED_PLACES: Final = frozenset(word.partition("/")[::2] for word in GUARDED_NAMES if "/" in word)
"""Guarded pairs of folder and entry."""


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


def is_guarded_name(parts: Sequence[str]) -> bool:
    """Whether a path of these parts is guarded wherever it is."""
    names = [folded(part) for part in parts]
    if any(name in GUARDED_NAMES or name.endswith(GUARDED_ENDINGS) for name in names):
        return True
    return any(pair in GUARDED_PLACES for pair in pairwise(names))
