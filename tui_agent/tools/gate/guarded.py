"""The guarded files: what decides how shells, tools, git and agents work, beyond the session that changes it.

One table for every tool that writes, for what commands may be allowed to, and for a sandbox.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tui_agent.tools.base import WorkspaceView

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Files agents take their rules from."""

GUARDED_NAMES: Final = frozenset(
    {
        # What git runs and obeys, and what agents obey.
        *(".git", ".gitmodules", ".gitconfig", ".agents", ".claude", ".gemini", ".codex", ".cursor", ".mcp.json"),
        *(name.casefold() for name in INSTRUCTION_FILES),
        # What a shell or a desktop reads when it starts.
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".envrc", ".tmux.conf", ".vimrc", ".xprofile"),
        # Keys, and where tools take programs and addresses from.
        *(".ssh", ".gnupg", ".netrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".aws", ".kube", ".docker"),
        # What editors, hooks and continuous integration run.
        *(".husky", ".pre-commit-config.yaml", ".vscode", ".idea", ".gitlab-ci.yml", ".circleci"),
    }
)
"""Files and folders, wherever they lie, in lower case."""

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
"""The same, of two names one below the other."""

RUN_BY: Final = {
    "make": frozenset({"makefile", "gnumakefile"}),
    "gmake": frozenset({"makefile", "gnumakefile"}),
    "just": frozenset({"justfile"}),
    "npm": frozenset({"package.json"}),
    "yarn": frozenset({"package.json"}),
    "pnpm": frozenset({"package.json"}),
}
"""Files that hold commands, by the program that runs them: guarded where a rule lets that program run unasked."""

INTERPRETER: Final = re.compile(
    r"(?:.*/)?(?:python|pypy|ruby|perl|node|deno|bun|php|lua|sh|bash|dash|zsh|ksh|source|\.)[\d.]*"
)
"""Programs of which an argument is a file of commands."""


def is_guarded(real: Path, workspace: WorkspaceView, written: str = "") -> bool:
    """Whether a change of the resolved path `real`, asked for as `written`, is always asked about."""
    root = workspace.root
    # A project may itself lie below such a folder.
    parts = (root.name, *real.relative_to(root).parts) if real.is_relative_to(root) else real.parts
    asked = Path(written)
    if _named(parts) or (not asked.is_absolute() and _named(asked.parts)):
        return True
    if any(real.is_relative_to(folder) for folder in workspace.guarded):
        return True
    return any(Path(os.path.realpath(workspace.root / name)) == real for name in INSTRUCTION_FILES)


def run_by_rules(real: Path, commands: Iterable[Sequence[str]], root: Path) -> bool:
    """Whether one of these commands, as rules have them, takes its orders from the file `real`, or runs it."""
    return any(_runs(words, real, root) for words in commands)


def _runs(words: Sequence[str], real: Path, root: Path) -> bool:
    if folded(real.name) in RUN_BY.get(words[0], ()):
        return True
    scripts = words[1:4] if INTERPRETER.fullmatch(words[0]) else words[:1]
    names = [word for word in scripts if Path(word).name == real.name]
    return any(Path(os.path.realpath(root / name)) == real for name in names)


def folded(name: str) -> str:
    """`name` as the most forgiving file system compares it: without case, invisible characters and trailing dots."""
    visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ")


def _named(parts: tuple[str, ...]) -> bool:
    names = [folded(part) for part in parts]
    return any(name in GUARDED_NAMES for name in names) or any(pair in GUARDED_PLACES for pair in pairwise(names))
