"""What a command may read besides the project: the system's programs, the user's toolchain, and what was added.

Nothing else is shown, so a secret needs no name here to stay unread: the home, other users' homes, mounted disks and
services' folders are simply not there. A command has a home of its own (`home`) instead.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.regex import regex
from tui_agent.system.regular import read_text

_TABLES: Final[dict[str, list[str]]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
SYSTEM: Final = (*_TABLES["system"], *(_TABLES["macos"] if sys.platform == "darwin" else ()))
"""Folders of programs and their configuration."""
_OUTSIDE_THEM: Final = ("/etc/resolv.conf", "/etc/localtime", "/etc/mtab")
"""Links of the system to files that are not in `SYSTEM`."""
TOOLCHAIN: Final = _TABLES["toolchain"]
"""Folders in a home that hold compilers, interpreters and packages, but no keys."""
_NAMED_BY: Final = _TABLES["variables"]
"""Variables whose value is a place that a toolchain needs."""
_SETTINGS: Final = _TABLES["settings"]
"""Where package managers look for settings in an installation."""
_PROGRAMS: Final = frozenset({"bin", "sbin", "shims", ".bin", "Scripts"})
_OF_INSTALLATIONS: Final = ("pyvenv.cfg", "lib", "lib64", "libexec", "conda-meta")
_WORKED_IN: Final = frozenset(
    {".git", ".github", ".gitignore", ".gitattributes", ".gitmodules", ".editorconfig", ".venv"}
)
"""Hidden entries of a home that belong to a project in it."""
_DEPTH: Final = 8
_KEY: Final = regex(r"_auth|token|passw|secret|credential|login|://[^/\s]*@|/t/[\w-]{8,}", re.IGNORECASE)
_MOST_SETTINGS, _MOST_BYTES = 1_000, 200_000


def readable(environment: Mapping[str, str], home: Path, added: Iterable[Path] = ()) -> list[str]:
    """The existing places that a command may read, resolved. Reads folders.

    `environment` is the user's: its PATH and variables such as JAVA_HOME name parts of the toolchain. `added` are
    places that the user added.
    """
    found = [*SYSTEM, *map(os.path.realpath, _OUTSIDE_THEM), sys.prefix, sys.base_prefix]
    found += (str(home / name) for name in TOOLCHAIN)
    found += (value for name in _NAMED_BY if (value := environment.get(name, "")).startswith("/"))
    found += (place for entry in environment.get("PATH", "").split(os.pathsep) for place in _installation(entry))
    above = {str(place) for place in (home, *home.parents)}
    # Each is resolved, so that a link in the home can show nothing but what it leads to.
    resolved = [place for name in found if name not in above and (place := os.path.realpath(name)) not in above]
    resolved += (os.path.realpath(place) for place in added)
    places = [place for place in dict.fromkeys(resolved) if place != "/" and Path(place).exists()]
    return [place for place in places if not any(place.startswith(f"{other}/") for other in places)]


def _installation(entry: str) -> Iterator[str]:
    """A folder of the PATH; if it is the ``bin`` of an installation, all of that, for its libraries."""
    if not entry.startswith("/"):
        return
    folder = Path(os.path.realpath(entry))
    yield str(folder)
    above = folder.parent
    alone = folder.name not in _PROGRAMS or above.name in {".local", ".cargo"} or len(above.parts) <= 2
    if not alone and (folder.name == ".bin" or any((above / name).exists() for name in _OF_INSTALLATIONS)):
        yield str(above)


def hidden_in(place: str, home: Path) -> list[str]:
    """What may not be read in a place that is shown: see `of_root_alone`; in the home itself, all hidden entries."""
    found = list(of_root_alone(place)) if place == "/etc" else []
    if f"{home}/".startswith(f"{place}/"):
        with suppress(OSError):
            names = [entry.name for entry in home.iterdir() if entry.name.startswith((".", "snap", "Library"))]
            found += (f"{home}/{name}" for name in names if name not in _WORKED_IN)
    return found


@cache
def with_keys(place: str) -> tuple[str, ...]:
    """The settings of package managers in a folder of programs that hold keys or passwords. Reads files, once."""
    found = (path for pattern in _SETTINGS for path in islice(Path(place).glob(pattern), _MOST_SETTINGS))
    return tuple(str(path) for path in found if _has_keys(path))


def _has_keys(path: Path) -> bool:
    with suppress(OSError):
        return _KEY.search(read_text(path, _MOST_BYTES)) is not None
    return False


@cache
def of_root_alone(folder: str, depth: int = _DEPTH) -> tuple[str, ...]:
    """Files and folders that not everybody may read, such as passwords and private keys. Reads folders, once."""
    found: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                mode = entry.stat(follow_symlinks=False).st_mode
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found += of_root_alone(entry.path, depth - 1) if mode & 0o005 == 0o005 and depth else ()
                    found += [] if mode & 0o005 == 0o005 else [entry.path]
                elif not mode & 0o004:
                    found.append(entry.path)
    return tuple(found)
