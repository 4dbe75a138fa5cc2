"""The programs that this program itself starts: never one that a command of the model could have put there; and
whether a process runs.

Where commands may write, such as in an activated virtual environment of the project, no program is looked for, and the
programs that are started look for none there either.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

_written: set[str] = set()


def keep_out_of(folders: Iterable[Path]) -> None:
    """From now on, start no program from these folders, in which commands may write."""
    _written.update(os.path.realpath(folder) for folder in folders)


def keep_out_of_project(folder: Path) -> None:
    """The same for a folder and the project that it is in, if that is not the user's home."""
    resolved = folder.resolve()
    root = next((place for place in (resolved, *resolved.parents) if (place / ".git").exists()), resolved)
    keep_out_of([folder] if os.path.expanduser("~").startswith(f"{root}".rstrip("/")) else [folder, root])  # noqa: PTH111


def is_running(process: int) -> bool:
    """Whether a process of this number runs on this machine; also where that cannot be found out."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def find_program(name: str, path: str | None = None) -> str | None:
    """The path of a program on the search path `path`, or that of this process; None if there is none to be trusted."""
    found = shutil.which(name, path=search_path(os.environ.get("PATH", os.defpath) if path is None else path))
    return None if found is None or is_written(found) else found


def search_path(path: str) -> str:
    """A search path without relative folders, and without those in which commands may write."""
    return os.pathsep.join(each for each in path.split(os.pathsep) if each.startswith("/") and not is_written(each))


def with_search_path(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with its PATH as `search_path` leaves it."""
    return {**environment, "PATH": search_path(environment.get("PATH", os.defpath))}


def is_written(path: str | Path) -> bool:
    """Whether a command may have written this file, or what it leads to."""
    places = (os.path.abspath(path), os.path.realpath(path))  # noqa: PTH100 - links on the way count too
    return any(place == folder or place.startswith(f"{folder}/") for folder in _written for place in places)


def written_folders() -> tuple[Path, ...]:
    """The folders in which commands may write, resolved."""
    return tuple(map(Path, sorted(_written)))
