"""Which projects the user has trusted to bring their own settings, instructions, skills and servers.

Trust is given to a project root: the nearest folder upwards that holds `.git`, else the folder itself. It covers
everything below that root except a repository nested in it, which is a root of its own and is asked about separately.
"""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tui_agent.settings import Context

TRUSTED_FILE = "trusted.json"
PROJECT_FOLDER = ".agents"


class TrustError(Exception):
    """The list of trusted folders cannot be read or written; the text says why."""


def project_root(folder: Path) -> Path:
    """The root of the project `folder` is in, links resolved."""
    resolved = folder.resolve()
    return next((place for place in (resolved, *resolved.parents) if (place / ".git").exists()), resolved)


def asks_for_trust(folder: Path, instruction_files: Iterable[str] = Context().instruction_files) -> bool:
    """Whether the project brings what needs trust: `.agents`, or instructions, from its root down to `folder`."""
    root = project_root(folder)
    resolved = folder.resolve()
    on_the_way = [place for place in (resolved, *resolved.parents) if place.is_relative_to(root)]
    names = (PROJECT_FOLDER, *instruction_files)
    return any(os.path.lexists(place / name) for place in on_the_way for name in names)


def is_trusted(folder: Path, home: Path) -> bool:
    """Whether the project of `folder` is on the list kept in `home`. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE)


def trust(folder: Path, home: Path) -> Path:
    """Remember the project of `folder` as trusted and return its root. Raises TrustError."""
    root = project_root(folder)
    path = home / TRUSTED_FILE
    folders = _read(path)
    if str(root) not in folders:
        folders[str(root)] = datetime.now(UTC).isoformat(timespec="seconds")
        _write(path, folders)
    return root


def forget(folder: Path, home: Path) -> None:
    """Take the project of `folder` off the list. Raises TrustError."""
    path = home / TRUSTED_FILE
    folders = _read(path)
    if folders.pop(str(project_root(folder)), None) is not None:
        _write(path, folders)


def _read(path: Path) -> dict[str, str]:
    """Trusted roots and when each was trusted."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders") from None
    folders = document.get("folders") if isinstance(document, dict) else None
    if not isinstance(folders, dict) or not all(isinstance(time, str) for time in folders.values()):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders")
    return folders


def _write(path: Path, folders: dict[str, str]) -> None:
    from tui_agent.storage.durable import make_private_folder, write_file

    # The names go through ASCII escapes, so that a folder whose name is not valid UTF-8 comes back as it was.
    text = json.dumps({"folders": folders}, indent=2) + "\n"
    try:
        make_private_folder(path.parent)
        write_file(path, text.encode())
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror}") from None
