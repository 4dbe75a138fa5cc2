"""Landlock: restricting a command's access to files, enforced by the kernel, without privileges.

Landlock can only allow, not make exceptions. With namespaces, it is a second line of defence behind the mounts. Without
them it is the only one: what is beside a hidden path on the way there is listed one by one. It cannot restrict changes
of files' modes, owners and times: see `supervisor`. See docs.kernel.org/userspace-api/landlock.html.
"""

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final

from tui_agent.tools.sandbox import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_FIRST: Final = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1

_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
"""Names in ``/dev`` that every program expects and that lead nowhere."""


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


def beside(folder: str, hidden: Iterable[str]) -> list[str]:
    """The paths to allow for a folder without what is `hidden` in it: the siblings of each step on the way there."""
    steps: dict[str, set[str]] = {}
    for path in hidden:
        while path != folder and path.startswith(folder.rstrip("/") + "/"):
            path, name = os.path.split(path)
            steps.setdefault(path, set()).add(name)
    named = [] if steps else [folder]
    for place, names in steps.items():
        try:
            entries = os.listdir(place)
        except OSError:
            continue
        named += [os.path.join(place, entry) for entry in entries if entry not in names]
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
