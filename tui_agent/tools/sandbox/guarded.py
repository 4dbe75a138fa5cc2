"""The files that no command may change, and those that none may read.

Guarded files are those of the gate's table: a shell, an editor, git or an agent later does what they say, outside the
sandbox. Secret files grant access elsewhere.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.tools.gate.guarded import GUARDED_NAMES, GUARDED_PLACES, INSTRUCTION_FILES

IN_EVERY_FOLDER: Final = (
    *INSTRUCTION_FILES,
    *sorted(name for name in GUARDED_NAMES if name.startswith(".") and name != ".git"),
    *("/".join(place) for place in GUARDED_PLACES if place[0].startswith(".")),
)
"""Guarded in every folder that a command may write in, by relative path. For the contents of `.git` see `IN_GIT`."""
IN_HOME: Final = (
    *(".xsessionrc", ".pam_environment", ".config/environment.d", "bin", ".config/pip", ".pip", ".cargo/config"),
    *(".cargo/bin", ".config/nvim", ".emacs", ".emacs.d", ".gdbinit"),
)
"""Also guarded in the user's home, if a command may write there."""
IN_GIT: Final = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
"""Guarded in a git folder: they name programs, or another place to read such names from. The rest, such as the objects
and the index, is written by every commit."""

SECRETS: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc"),
    *(".git-credentials", ".config/git/credentials", ".config/gcloud", ".config/gh", ".config/hub", ".config/glab-cli"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".terraform.d/credentials.tfrc.json"),
    *(".vault-token", ".config/op", ".config/rclone", ".config/sops", ".config/doctl", ".fly", ".s3cfg", ".boto"),
    *(
        ".password-store",
        ".local/share/keyrings",
        ".local/share/kwalletd",
        ".oci",
        ".ibmcloud",
        ".heroku",
        ".m2/settings.xml",
    ),
    *(
        ".mozilla",
        ".thunderbird",
        ".config/google-chrome",
        ".config/chromium",
        ".config/BraveSoftware",
        ".config/microsoft-edge",
    ),
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history"),
    *(".local/share/fish", ".claude", ".claude.json", ".codex", ".gemini", ".config/anthropic", ".anthropic"),
    *("Library/Keychains", "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox"),
)
"""Paths in the user's home that no command may read."""
SECRETS_OF_THE_SYSTEM: Final = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/run/secrets")
"""System files that no command may read even if the user may: passwords, and secrets that a container engine mounts."""

_REPOSITORIES = 50
"""The most nested git folders that are looked at."""


def secrets(home: Path) -> list[Path]:
    """The existing secret files and folders of a home and of the system, with links resolved."""
    places = [home / name for name in SECRETS if os.path.lexists(home / name)]
    places += (Path(name) for name in SECRETS_OF_THE_SYSTEM if os.access(name, os.R_OK))
    found = (Path(os.path.realpath(place)) for place in places)
    return [path for path in dict.fromkeys(found) if path.exists()]


def guarded(folder: Path, home: Path) -> Iterator[Path]:
    """The guarded paths in a writable folder, whether they exist or not."""
    names = dict.fromkeys((*IN_EVERY_FOLDER, *(IN_HOME if folder == home else ())))
    yield from (folder / name for name in names)
    repository = folder / ".git"
    if repository.is_dir() and not repository.is_symlink():
        yield from guarded_in_git(repository)
    else:
        yield repository


def guarded_in_git(repository: Path) -> Iterator[Path]:
    """The guarded paths in a git folder, including those of its submodules and worktrees."""
    for place in (repository, *_below(repository / "modules"), *_below(repository / "worktrees")):
        yield from (place / name for name in IN_GIT)


def is_git_folder(folder: Path) -> bool:
    """Whether this folder is itself a git folder, like `.git`."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _below(folder: Path) -> Iterable[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in islice(entries, _REPOSITORIES) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()


def common_git_folder(project: Path) -> Path | None:
    """The git folder that a worktree shares with others, if that in turn names this worktree; else None.

    The project's own claim is not enough: it could name any folder.
    """
    link = project / ".git"
    try:
        if link.is_symlink() or not link.is_file() or link.stat().st_size > 4096:
            return None
        own = Path(os.path.realpath(project / link.read_text().partition("gitdir:")[2].strip()))
        if own.parent.name != "worktrees" or not is_git_folder(own.parent.parent):
            return None
        named = (own / "gitdir").read_text().strip()
    except (OSError, ValueError):
        return None
    return own.parent.parent if os.path.realpath(named) == os.path.realpath(link) else None
