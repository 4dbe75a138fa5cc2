"""Building the view of the files that a command gets: everything read-only, a few places writable, secrets hidden.

It is built in the command's own mount namespace, by a process with all capabilities in its user namespace; the command
has none, so it cannot undo any of it.
"""

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.kernel import ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY

_NODES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108 - names of places, not files
_HIDDEN_FOLDER, _HIDDEN_FILE = "/dev/.hidden-folder", "/dev/.hidden-file"
_SHARED_MEMORY: Final = "size=50%,mode=1777"


def build(writable: Sequence[str], readonly: Sequence[str], hidden: Sequence[str], temporary: str) -> None:
    """Build the view in this process's mount namespace.

    The paths must be resolved; missing ones are skipped. If one is inside another, the deeper one wins. `temporary` is
    the folder that appears as ``/tmp``. Raises OSError if the kernel refuses.
    """
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    trees = _trees((*writable, *readonly, *(f"/dev/{name}" for name in _NODES)))
    private = {place: kernel.clone_tree(temporary) for place in _PRIVATE if _is_folder(place)}
    kernel.set_attributes("/", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
    _devices(trees)
    kernel.mount("proc", "/proc", "proc", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    for place, tree in private.items():
        _attach_writable(tree, place)
    emptied: list[str] = []
    kinds = dict.fromkeys(writable, "writable") | dict.fromkeys(readonly, "readonly") | dict.fromkeys(hidden, "hidden")
    for path in sorted(kinds, key=lambda place: place.count("/")):
        if kinds[path] == "hidden":
            below = any(other.startswith(f"{path}/") and kinds[other] != "hidden" for other in kinds)
            emptied += [path] if _hide(path, below) else []
        elif path in trees and _make_place(path, trees[path]):
            if kinds[path] == "writable":
                _attach_writable(trees[path], path)
            else:
                kernel.set_attributes(trees[path], ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
                kernel.attach(trees[path], path)
    for path in ("/dev", *emptied):
        kernel.set_attributes(path, ATTR_RDONLY, below=False)
    for tree in (*trees.values(), *private.values()):
        os.close(tree)


def _trees(paths: Sequence[str]) -> dict[str, int]:
    """A copy of the mounts at each existing path, taken before anything is made read-only."""
    trees: dict[str, int] = {}
    for path in paths:
        try:
            trees[path] = kernel.clone_tree(path)
        except OSError as error:
            # Missing; or there is a link on the way, created just now.
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                raise
    return trees


def _is_folder(path: str) -> bool:
    """Whether this is a folder, not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _attach_writable(tree: int, path: str) -> None:
    try:
        kernel.set_attributes(tree, ATTR_NOSUID | ATTR_NODEV, ATTR_RDONLY)
    except PermissionError:
        # A mount that is read-only in the system stays read-only.
        kernel.set_attributes(tree, ATTR_NOSUID | ATTR_NODEV)
    kernel.attach(tree, path)


def _devices(trees: Mapping[str, int]) -> None:
    kernel.mount("tmpfs", "/dev", "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "mode=755,size=65536k")
    for name in _NODES:
        if (tree := trees.get(f"/dev/{name}")) is not None:
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            kernel.attach(tree, f"/dev/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}", 0o755)
    kernel.mount(
        "devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
    )
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, _SHARED_MEMORY)  # noqa: S108
    os.mkdir(_HIDDEN_FOLDER, 0)
    os.close(os.open(_HIDDEN_FILE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0))


def _hide(path: str, emptied: bool) -> bool:
    """Cover `path` with something that cannot be read. With `emptied`, a folder is covered with an empty one in which
    other mounts can be placed; returns True then.
    """
    if not os.path.lexists(path):
        return False
    is_folder = _is_folder(path)
    if is_folder and emptied:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", path, "tmpfs", flags, "mode=755,size=1024k")
        return True
    tree = kernel.clone_tree(_HIDDEN_FOLDER if is_folder else _HIDDEN_FILE)
    kernel.set_attributes(tree, ATTR_RDONLY)
    kernel.attach(tree, path)
    os.close(tree)
    return False


def _make_place(path: str, tree: int) -> bool:
    """Whether `path` exists, so that the tree can be attached there; creates it if a parent was covered."""
    if os.path.lexists(path):
        return True
    is_folder = stat.S_ISDIR(os.fstat(tree).st_mode)
    try:
        os.makedirs(path if is_folder else os.path.dirname(path), 0o755, exist_ok=True)
        if not is_folder:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
