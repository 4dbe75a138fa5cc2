"""Linux system calls that Python does not offer: namespaces, mounts, capabilities, Landlock, seccomp.

Each raises OSError with the kernel's error number. The launcher imports this at its start, so it uses only the standard
library; it is called in processes with one thread.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence

CLONE_NEWNS = 0x0002_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

ATTR_RDONLY = 0x1
ATTR_NOSUID = 0x2
ATTR_NODEV = 0x4

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 0x1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOVE_MOUNT_EMPTY_PATHS = 0x4 | 0x40
_RESOLVE_NO_SYMLINKS = 0x4
_MNT_DETACH = 2

# Numbers from 424 on are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR, _PIDFD_GETFD = 428, 429, 442, 438
_OPENAT2 = 437
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_BY_MACHINE = {
    "x86_64": {"capset": 126, "seccomp": 317, "pivot_root": 155},
    "aarch64": {"capset": 91, "seccomp": 277, "pivot_root": 41},
}
_CAPABILITY_VERSION_3 = 0x2008_0522
_LAST_CAPABILITY = 40
_LANDLOCK_VERSION = 1
_LANDLOCK_PATH_BENEATH = 1
_SECCOMP_SET_MODE_FILTER, _SECCOMP_NEW_LISTENER = 1, 8

_libc = ctypes.CDLL(None, use_errno=True)
_ZERO = ctypes.c_ulong(0)


def machine() -> str:
    """The architecture, as named in the tables of system calls."""
    return platform.machine()


def unshare(flags: int) -> None:
    """Move to new namespaces of the kinds in `flags`; see unshare(2)."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def join(namespace: int, kind: int) -> None:
    """Enter the namespace that a descriptor refers to; see setns(2)."""
    _check(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(kind)), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """See mount(2)."""
    given = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind)]
    data = ctypes.c_char_p(options.encode()) if options else None
    _check(_libc.mount(*given, ctypes.c_ulong(flags), data), f"mount {target}")


def change_root(path: str) -> None:
    """Make the mount at `path` the root of this mount namespace, and let go of the old one; see pivot_root(2)."""
    os.chdir(path)
    _call(_BY_MACHINE[machine()]["pivot_root"], "pivot_root", b".", b".")
    # The old root now lies over the new one at the current folder.
    _check(_libc.umount2(b".", ctypes.c_int(_MNT_DETACH)), "umount2")
    os.chdir("/")


def find(path: str) -> int:
    """An ``O_PATH`` descriptor of `path`. Raises OSError, ELOOP if there is a link on the way."""
    how = ctypes.create_string_buffer(struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS), 24)
    try:
        return _call(_OPENAT2, f"openat2 {path}", _AT_FDCWD, os.fsencode(path), how, 24)
    except OSError as error:
        # A seccomp filter around this program may not know openat2.
        if error.errno not in {errno.ENOSYS, errno.EPERM} or os.path.realpath(path) != path:
            raise
    return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def clone_tree(path: str) -> int:
    """A descriptor of a copy of the mounts at `path`, not yet attached anywhere; see open_tree(2).

    Raises OSError, ELOOP if there is a link on the way.
    """
    place = find(path)
    try:
        flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
        return _call(_OPEN_TREE, f"open_tree {path}", place, b"", flags)
    finally:
        os.close(place)


def attach(tree: int, path: str) -> None:
    """Mount the result of `clone_tree` at `path`, which must have no link on the way."""
    place = find(path)
    try:
        _call(_MOVE_MOUNT, f"move_mount {path}", tree, b"", place, b"", _MOVE_MOUNT_EMPTY_PATHS)
    finally:
        os.close(place)


def set_attributes(place: int | str, added: int, removed: int = 0, *, below: bool = True) -> None:
    """Change a mount's attributes, and with `below` those of the mounts under it; see mount_setattr(2)."""
    change = ctypes.create_string_buffer(struct.pack("=QQQQ", added, removed, 0, 0), 32)
    folder, path = (place, b"") if isinstance(place, int) else (_AT_FDCWD, os.fsencode(place))
    flags = (_AT_RECURSIVE if below else 0) | (0 if path else _AT_EMPTY_PATH)
    _call(_MOUNT_SETATTR, f"mount_setattr {place}", folder, path, flags, change, 32)


def prctl(option: int, value: int = 0) -> None:
    """See prctl(2)."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), _ZERO, _ZERO, _ZERO), "prctl")


def keep_capabilities(kept: Sequence[int]) -> None:
    """Give up every capability but these, so that no program started from here can regain one."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in kept:
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                continue  # unknown to this kernel, or given up before
    # Ambient ones end with the inheritable ones.
    mask = sum(1 << capability for capability in kept)
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(struct.pack("=IIIIII", low, low, 0, high, high, 0), 24)
    _call(_BY_MACHINE[machine()]["capset"], "capset", header, data)


def landlock_version() -> int:
    """The version of Landlock's ABI here; 0 if there is no Landlock."""
    try:
        return _call(_LANDLOCK_CREATE, "landlock", None, 0, _LANDLOCK_VERSION)
    except OSError:
        return 0


def landlock_ruleset(files: int, network: int, scoped: int, version: int) -> int:
    """A descriptor of a new ruleset that handles these access rights; see landlock_create_ruleset(2)."""
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", files, network, scoped)[:size], size)
    return _call(_LANDLOCK_CREATE, "landlock_create_ruleset", attributes, size, 0)


def landlock_allow(ruleset: int, path: int, rights: int) -> None:
    """Allow these rights on the file or folder of the descriptor `path`, and everything below it."""
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, path), 12)
    _call(_LANDLOCK_ADD, "landlock_add_rule", ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)


def landlock_restrict(ruleset: int) -> None:
    """Apply the ruleset to this process, for good."""
    _call(_LANDLOCK_RESTRICT, "landlock_restrict_self", ruleset, 0)


def seccomp(program: bytes, *, listened: bool = False) -> int:
    """Install a BPF program as a filter of this process's system calls, for good.

    With `listened`, returns a descriptor for answering the calls that the filter asks about. A process and its
    ancestors can have only one: EBUSY if there is one.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)), 16)
    flags = _SECCOMP_NEW_LISTENER if listened else 0
    return _call(_BY_MACHINE[machine()]["seccomp"], "seccomp", _SECCOMP_SET_MODE_FILTER, flags, header)


def set_times(path: str, times: bytes | None) -> None:
    """Set a file's access and modification times, as utimensat(2) takes them; None for now."""
    _check(_libc.utimensat(_AT_FDCWD, os.fsencode(path), times, 0), "utimensat")


def watch(process: int, queue: int, path: str, events: int) -> int:
    """Add a watch to another process's inotify `queue`; returns the watch's number; see inotify_add_watch(2)."""
    holder = os.pidfd_open(process)
    try:
        descriptor = _call(_PIDFD_GETFD, "pidfd_getfd", holder, queue, 0)
    finally:
        os.close(holder)
    try:
        return _check(_libc.inotify_add_watch(descriptor, os.fsencode(path), ctypes.c_uint32(events)), "inotify")
    finally:
        os.close(descriptor)


def _call(number: int, name: str, *arguments: object) -> int:
    # Pass every integer as a word: ctypes would pass 32 bits and leave the rest of the register undefined.
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), name)


def _check(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
