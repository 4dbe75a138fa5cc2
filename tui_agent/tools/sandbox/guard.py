"""Guarded files that a command made or changed all the same are taken back when it has ended.

Mounts can make only that read-only which is there; where there are no mounts at all, nothing in a folder that may be
written. So what is guarded is noted before a command runs, and put back as it was afterwards. What the command wrote is
kept aside.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tui_agent.durable import make_private_folder

_MOST_FILES: Final = 300
_MOST_BYTES: Final = 4_000_000

Noted = dict[str, "bytes | str | None"]
"""By path below a guarded one: the bytes of a file, the target of a link as text, None for a folder."""


class Guard:
    """What stood at guarded paths when this was made. `frozen`: what is there cannot change, so only the rest is noted.

    Reads files: to be made off the event loop.
    """

    def __init__(self, paths: Iterable[Path], *, frozen: bool) -> None:
        self._noted: dict[Path, Noted] = {}
        for path in dict.fromkeys(paths):
            if not os.path.lexists(path):
                self._noted[path] = {}
            elif path.is_symlink() or not frozen:
                found = _contents(path)
                if found is not None:
                    self._noted[path] = found

    def take_back(self, aside: Path, known: frozenset[Path] = frozenset()) -> list[Path]:
        """Put back what has changed, except at `known` paths; what was there instead goes to the folder `aside`.

        Returns the paths that were put back. Raises OSError.
        """
        changed = []
        for path, before in self._noted.items():
            if path in known or (not before and not os.path.lexists(path)):
                continue
            if before and _contents(path) == before:
                continue
            changed.append(path)
            if os.path.lexists(path):
                make_private_folder(aside)
                shutil.move(path, _free(aside / path.name))
            _restore(path, before)
        return changed


def _contents(path: Path) -> Noted | None:
    """What is at a path, whole; None where that is too much to note."""
    found: Noted = {}
    size = 0
    waiting = [path]
    while waiting:
        place = waiting.pop()
        name = os.path.relpath(place, path)
        try:
            if place.is_symlink():
                found[name] = str(place.readlink())
            elif place.is_dir():
                found[name] = None
                waiting += place.iterdir()
            elif place.is_file():
                size += place.stat().st_size
                if size > _MOST_BYTES:
                    return None
                found[name] = place.read_bytes()
        except OSError:
            continue
        if len(found) > _MOST_FILES:
            return None
    return found


def _restore(path: Path, before: Noted) -> None:
    for name, content in before.items():
        place = path / name if name != "." else path
        if content is None:
            place.mkdir(exist_ok=True)
        elif isinstance(content, str):
            place.symlink_to(content)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def _free(path: Path) -> Path:
    number = 1
    place = path
    while os.path.lexists(place):
        number += 1
        place = path.with_name(f"{path.name}.{number}")
    return place
