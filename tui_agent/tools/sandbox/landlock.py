"""Landlock: restricting a command's access to files, enforced by the kernel, without privileges.

Landlock can only allow, not make exceptions. With namespaces, it is a second line of defence behind the mounts. Without
them it is the only one: what is beside a hidden path on the way there is listed one by one. It cannot restrict changes
of files' modes, owners and times: see `supervisor`. See docs.kernel.org/userspace-api/landlock.html.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from tui_agent.tools.sandbox import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_FIRST: Final = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1

_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
"""Names in ``/dev`` that every program expects and that lead nowhere."""


_RACY_NS: Final = 20_000_000


class ReachableFolders(NamedTuple):
    """What commands can reach: resolved paths. If one is inside another, the deeper one wins.

    `temporary` is their folder for temporary files. `version` is that of Landlock's ABI, 0 to use none.
    """

    writable: tuple[str, ...]
    readonly: tuple[str, ...]
    hidden: tuple[str, ...]
    temporary: str
    version: int
    network: bool

    def may_change(self, path: str) -> bool:
        """Whether a command may write at this path."""
        return deepest(path, (*self.writable, self.temporary)) > deepest(path, (*self.readonly, *self.hidden))

    def may_see(self, path: str) -> bool:
        """Whether this path is shown."""
        return deepest(path, (*self.writable, *self.readonly, self.temporary)) > deepest(path, self.hidden)


def deepest(path: str, places: Iterable[str]) -> int:
    """The length of the longest of the places that contain `path`; 0 if none does."""
    return max((len(place) for place in places if path == place or path.startswith(f"{place}/")), default=0)


class Rules:
    """Makes rules, and keeps the newest while each of their paths is the same file and the folders listed for them are
    unchanged.
    """

    def __init__(self) -> None:
        self._kept = -1
        self._of: tuple[ReachableFolders, list[tuple[int, ...]]] | None = None

    def of(self, parts: ReachableFolders) -> int:
        """A descriptor of rules for these parts, valid until this is called again. Raises OSError."""
        places, on_the_way = (*parts.readonly, *parts.writable), _on_the_way(parts)
        numbers = [number(path, listed=path in on_the_way) for path in (*places, parts.temporary, *on_the_way)]
        if self._of == (parts, numbers) and () not in numbers:
            return self._kept
        if self._kept >= 0:
            os.close(self._kept)
            self._kept, self._of = -1, None
        # Landlock itself hides of other processes what only a debugger may see, but not their command lines.
        readable = [*(path for place in parts.readonly for path in paths_around(place, parts.hidden)), "/proc"]
        writable = [path for folder in parts.writable for path in paths_around(folder, parts.hidden)]
        writable.append(parts.temporary)
        self._kept = ruleset(readable, writable, parts.version, listed=places, network=parts.network)
        self._of = (parts, numbers)
        return self._kept


@lru_cache(maxsize=4)
def _on_the_way(parts: ReachableFolders) -> frozenset[str]:
    return frozenset(step for place in (*parts.readonly, *parts.writable) for step in _steps(place, parts.hidden))


def number(path: str, *, listed: bool = False) -> tuple[int, ...]:
    """What tells that this is the same file or, `listed`, a folder with the same names; empty if nothing does."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    if listed and time.time_ns() - found.st_ctime_ns < _RACY_NS:
        return ()
    return (found.st_dev, found.st_ino, *((found.st_ctime_ns,) if listed else ()))


def ruleset(
    readable: Iterable[str], writable: Sequence[str], version: int, *, listed: Iterable[str] = (), network: bool
) -> int:
    """A descriptor of rules for `kernel.landlock_restrict`, which restricts a process and all it starts, for good.

    `listed` are folders in which all names may be seen. `version` is that of the ABI. Missing paths are skipped. Raises
    OSError if there is no Landlock.
    """
    files = _ALL_OF_FIRST
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        files |= right if version >= since else 0
    ports = 0 if network or version < 4 else _BIND_TCP | _CONNECT_TCP
    rules = kernel.landlock_ruleset(files, ports, _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0, version)
    try:
        for path in listed:
            _allow(rules, path, files & _READ_DIR)
        for path in readable:
            _allow(rules, path, files & (_EXECUTE | _READ_FILE | _READ_DIR))
        for path in writable:
            _allow(rules, path, files)
        for name in DEVICES:
            _allow(rules, f"/dev/{name}", files & (_READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV))
    except BaseException:
        os.close(rules)
        raise
    return rules


def _steps(folder: str, hidden: Iterable[str]) -> dict[str, set[str]]:
    """The folders on the way from `folder` to what is `hidden` in it, with the names in each that lead there."""
    steps: dict[str, set[str]] = {}
    for path in hidden:
        while path != folder and path.startswith(folder.rstrip("/") + "/"):
            path, name = os.path.split(path)
            steps.setdefault(path, set()).add(name)
    return steps


def paths_around(folder: str, hidden: Iterable[str]) -> list[str]:
    """The paths to allow for a folder without what is `hidden` in it: the siblings of each step on the way there."""
    steps = _steps(folder, hidden)
    named = [] if steps else [folder]
    for place, names in steps.items():
        with suppress(OSError):
            named += [os.path.join(place, entry) for entry in os.listdir(place) if entry not in names]
    return named


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        # Follow no link: its target must be allowed by its own name.
        place = kernel.find(path)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        if rights:
            kernel.landlock_allow(rules, place, rights)
    except OSError as error:
        if error.errno != errno.EBADFD:  # Landlock does not handle what is on no file system, such as a pipe
            raise
    finally:
        os.close(place)
