"""The guarded files: they control how shells, tools, git and agents behave, even after the session that changes them.

One table serves the tools that write, the rules for commands, and the sandbox.
"""

import os
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Final

from tui_agent.tools.base import WorkspaceView

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files that agents take their instructions from."""

GUARDED_NAMES: Final = frozenset(
    {
        # Configuration of git and of agents.
        *(".git", ".gitmodules", ".gitconfig", ".agents", ".claude", ".gemini", ".codex", ".cursor", ".mcp.json"),
        *(name.casefold() for name in INSTRUCTION_FILES),
        # Read by a shell or a desktop when it starts.
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".envrc", ".tmux.conf", ".vimrc", ".xprofile"),
        # Keys, and configuration that names programs or servers to tools.
        *(".ssh", ".gnupg", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".aws", ".kube", ".docker"),
        # Run by editors, hooks and continuous integration.
        *(".husky", ".pre-commit-config.yaml", ".vscode", ".idea", ".gitlab-ci.yml", ".circleci"),
    }
)
"""Names of files and folders that are guarded in any folder; in lower case."""

GUARDED_PLACES: Final = (
    (".github", "workflows"),
    (".config", "git"),
    (".config", "fish"),
    (".config", "autostart"),
    (".config", "systemd"),
    (".cargo", "config.toml"),
    (".local", "bin"),
    ("library", "launchagents"),
)
"""Guarded pairs of folder and entry."""


def is_guarded(real: Path, workspace: WorkspaceView, written: str = "") -> bool:
    """Whether the user is always asked before the resolved path `real`, given as `written`, is changed."""
    root = workspace.root
    # The project's own folder may be below a guarded one.
    parts = (root.name, *real.relative_to(root).parts) if real.is_relative_to(root) else real.parts
    asked = Path(written)
    if _named(parts) or (not asked.is_absolute() and _named(asked.parts)):
        return True
    if any(real.is_relative_to(folder) for folder in workspace.guarded):
        return True
    return any(Path(os.path.realpath(workspace.root / name)) == real for name in INSTRUCTION_FILES)


def folded(name: str) -> str:
    """`name` as the most lenient file system compares it: without case, invisible characters and trailing dots."""
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ")


def _named(parts: tuple[str, ...]) -> bool:
    names = [folded(part) for part in parts]
    return any(name in GUARDED_NAMES for name in names) or any(pair in GUARDED_PLACES for pair in pairwise(names))
