"""Temporary folders that go even if the program is killed: each is locked by its process, and a later start of the
program removes those whose lock nobody holds.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Final, Self

from tui_agent.system.regular import remove_tree

PREFIX: Final = "tui-agent-"
_LOCK, _FILES = "lock", "files"


class LockedFolder:
    """A temporary folder of this process, that only its user can enter; `files` is for what is to be in it."""

    def __init__(self, kind: str = "") -> None:
        """Writes files. Raises OSError. `kind` becomes part of its name."""
        while True:
            place = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}")))
            lock = place / _LOCK
            self._lock = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.files = place / _FILES
            # Another start of the program may have taken the lock first, and the folder for left over.
            with contextlib.suppress(OSError):
                self.files.mkdir(0o700)
                if lock.exists():
                    return
            os.close(self._lock)

    @property
    def parent(self) -> Path:
        """The folder that all of them are in."""
        return self.files.parent.parent

    def remove(self) -> None:
        """Remove it with all that is in it; errors are ignored."""
        _remove(self.files.parent)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def remove_left_over(parent: Path) -> None:
    """Remove the temporary folders in `parent` whose processes were killed."""
    for place in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if place.is_symlink() or place.stat().st_uid != os.geteuid():
                continue
            lock = os.open(place / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(place)
            finally:
                os.close(lock)


def _remove(place: Path) -> None:
    # The lock goes last: without it, what a kill leaves at this moment would stay for good.
    remove_tree(place / _FILES)
    remove_tree(place)
