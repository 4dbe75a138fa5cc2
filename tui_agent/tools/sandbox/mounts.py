"""Building the view of the files that a command gets: what it may read or write, and nothing else.

It is a new root in a mount namespace of its own, built by a process with all capabilities in its user namespace;
commands have none, so they cannot undo any of it. Building one takes some milliseconds, so commands with the same view
share it.
"""

import errno
import os
import select
import socket
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tui_agent.tools.sandbox import kernel, landlock
from tui_agent.tools.sandbox.kernel import ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY
from tui_agent.tools.sandbox.landlock import ReachableFolders

_NODES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108 - names of places, not files
_BASES: Final = ("/tmp", "/dev")  # noqa: S108
"""Where the new root is built, if there is such a folder."""
_HIDDEN_FOLDER, _HIDDEN_FILE = "/dev/.hidden-folder", "/dev/.hidden-file"
_SHARED_MEMORY: Final = "size=50%,mode=1777"
_ALSO_WRITABLE: Final = (*_PRIVATE, "/dev/shm", "/dev/pts")  # noqa: S108
_MOST_KEPT: Final = 4


class MountView(NamedTuple):
    """A view, as descriptors: what tells that its mounts have changed, its mount namespace, and its Landlock rules."""

    changes: int
    passed: list[int]

    def close(self) -> None:
        """Let go of it; commands that have it keep it."""
        for descriptor in (self.changes, *self.passed):
            os.close(descriptor)


class Views:
    """Builds views, and keeps the newest few.

    One is used again only while each of its paths is the same file, and no mount of it or of the system has changed:
    whoever replaces a file outside (``git config``) takes the mount that protects it away.
    """

    def __init__(self) -> None:
        self._kept: dict[ReachableFolders, tuple[MountView, list[tuple[int, ...]]]] = {}
        self._of_system = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)

    def of(self, parts: ReachableFolders) -> MountView:
        """The view of these parts. Raises OSError if the kernel refuses to build one."""
        if _have_changed(self._of_system):
            while self._kept:
                self._kept.popitem()[1][0].close()
        paths = (*parts.writable, *parts.readonly, *parts.hidden, parts.temporary)
        # Looked at before it is built: what is replaced in between is noticed the next time.
        numbers = [landlock.number(path) for path in paths]
        kept = self._kept.pop(parts, None)
        if kept is not None and (kept[1] != numbers or _have_changed(kept[0].changes)):
            kept[0].close()
            kept = None
        while len(self._kept) >= _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))[0].close()
        self._kept[parts] = kept or (_built(parts), numbers)
        return self._kept[parts][0]


def _have_changed(mounts: int) -> bool:
    """Whether the mounts of a namespace have changed since this was last asked; see proc_pid_mounts(5)."""
    watched = select.poll()
    watched.register(mounts, select.POLLPRI)
    return bool(watched.poll(0))


def _built(parts: ReachableFolders) -> MountView:
    """Build a view in a process with a mount namespace of its own. Raises OSError."""
    ours, theirs = socket.socketpair()
    with ours:
        if os.fork() == 0:
            try:
                kernel.unshare(kernel.CLONE_NEWNS)
                namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
                build(parts.writable, parts.readonly, parts.hidden, parts.temporary)
                made = [os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC), namespace]
                if parts.version:
                    writable = [*parts.writable, *_ALSO_WRITABLE]
                    made.append(landlock.ruleset(["/"], writable, parts.version, network=True))
                socket.send_fds(theirs, [b"\0"], made)
            except BaseException as error:
                number, why = getattr(error, "errno", None) or errno.EIO, getattr(error, "strerror", None) or error
                with suppress(OSError):
                    theirs.sendall(f"{number} {why}".encode(errors="replace"))
            finally:
                os._exit(0)
        theirs.close()
        reply, made, _, _ = socket.recv_fds(ours, 4_096, 3)
    if not made:
        number, _, why = reply.decode(errors="replace").partition(" ")
        raise OSError(int(number or errno.EIO), why or "it ended while it built the view")
    return MountView(made[0], made[1:])


def build(writable: Sequence[str], readonly: Sequence[str], hidden: Sequence[str], temporary: str) -> None:
    """Build the view in this process's mount namespace, and make it the root; see `ReachableFolders`.

    Missing paths are skipped. Raises OSError if the kernel refuses.
    """
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kinds = dict.fromkeys(writable, "writable") | dict.fromkeys(readonly, "readonly") | dict.fromkeys(hidden, "hidden")
    trees = _trees((*(path for path, kind in kinds.items() if kind != "hidden"), *(f"/dev/{name}" for name in _NODES)))
    private = {place: kernel.clone_tree(temporary) for place in _PRIVATE}
    links = {name: os.readlink(f"/{name}") for name in os.listdir("/") if os.path.islink(f"/{name}")}
    base = next(place for place in _BASES if _is_folder(place))
    kernel.mount("tmpfs", base, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=65536k")
    for name, target in links.items():
        os.symlink(target, f"{base}/{name}")
    _devices(base, trees)
    os.mkdir(f"{base}/proc", 0o755)
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", f"{base}/proc", "proc", flags)
    emptied: list[str] = []
    for path in sorted({**kinds, **private}, key=lambda place: place.count("/")):
        if path in private:
            os.makedirs(f"{base}{path}", exist_ok=True)
            _attach_writable(private[path], f"{base}{path}")
        elif kinds[path] == "hidden":
            below = any(other.startswith(f"{path}/") and kinds[other] != "hidden" for other in kinds)
            emptied += [path] if _hide(base, path, below) else []
        elif path in trees and _make_place(f"{base}{path}", trees[path]):
            if kinds[path] == "writable":
                _attach_writable(trees[path], f"{base}{path}")
            else:
                kernel.set_attributes(trees[path], ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)
                kernel.attach(trees[path], f"{base}{path}")
    for path in ("", "/dev", *emptied):
        kernel.set_attributes(f"{base}{path}", ATTR_RDONLY, below=False)
    for tree in (*trees.values(), *private.values()):
        os.close(tree)
    kernel.change_root(base)


def _trees(paths: Sequence[str]) -> dict[str, int]:
    """A copy of the mounts at each existing path, taken before anything is made read-only."""
    trees: dict[str, int] = {}
    for path in paths:
        try:
            trees[path] = kernel.clone_tree(path)
        except OSError as error:
            # Missing; or there is a link on the way, created just now; or the user may not even see it.
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES}:
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


def _devices(base: str, trees: Mapping[str, int]) -> None:
    dev = f"{base}/dev"
    os.mkdir(dev, 0o755)
    kernel.mount("tmpfs", dev, "tmpfs", kernel.MS_NOSUID | kernel.MS_NOEXEC, "mode=755,size=65536k")
    for name in _NODES:
        if (tree := trees.get(f"/dev/{name}")) is not None:
            os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            kernel.attach(tree, f"{dev}/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}", 0o755)
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", f"{dev}/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=620")
    kernel.mount("tmpfs", f"{dev}/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, _SHARED_MEMORY)
    os.mkdir(f"{base}{_HIDDEN_FOLDER}", 0)
    os.close(os.open(f"{base}{_HIDDEN_FILE}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0))


def _hide(base: str, path: str, emptied: bool) -> bool:
    """Cover `path` with something that cannot be read. With `emptied`, a folder is covered with an empty one in which
    other mounts can be placed; returns True then.
    """
    place = f"{base}{path}"
    if not os.path.lexists(place):
        return False
    is_folder = _is_folder(place)
    if is_folder and emptied:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", place, "tmpfs", flags, "mode=755,size=1024k")
        return True
    tree = kernel.clone_tree(f"{base}{_HIDDEN_FOLDER if is_folder else _HIDDEN_FILE}")
    kernel.set_attributes(tree, ATTR_RDONLY)
    kernel.attach(tree, place)
    os.close(tree)
    return False


def _make_place(place: str, tree: int) -> bool:
    """Whether `place` exists, so that the tree can be attached there; creates it if the new root has none."""
    if os.path.lexists(place):
        return True
    is_folder = stat.S_ISDIR(os.fstat(tree).st_mode)
    try:
        os.makedirs(place if is_folder else os.path.dirname(place), 0o755, exist_ok=True)
        if not is_folder:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
