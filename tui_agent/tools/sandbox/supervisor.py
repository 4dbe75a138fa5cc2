"""Without namespaces: the keeper checks, and performs for the command, changes that Landlock cannot restrict.

Landlock has no right for changing modes, owners, times and extended attributes, nor for watching files (inotify). The
seccomp filter hands these calls over (user notification, see seccomp_unotify(2)) while the caller waits. The keeper
opens the file that the caller named once, as ``O_PATH``, asks the kernel where it is, and makes the change through this
very descriptor, so that neither a link nor another thread of the caller can redirect it in between. The caller's own
call never reaches the kernel.

Calls that act on a process by its id are let through if it is one of the command's own; the id is in a register, which
cannot change meanwhile.
"""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.landlock import ReachableFolders
from tui_agent.tools.sandbox.system_calls import ON_FILES, ON_PROCESSES

_RECEIVE, _ANSWER, _STILL_WAITS = 0xC050_2100, 0xC018_2101, 0x4008_2102
_CONTINUE = 1
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_PATH_BYTES, _NAME_BYTES, _VALUE_BYTES = 4096, 256, 65_536
_ATTRIBUTES: Final = ("user.", "system.posix_acl_")
_OWN: Final = {"/proc/self": "/proc/{}", "/proc/thread-self": "/proc/{}", "/dev/fd": "/proc/{}/fd"}
"""Paths that mean something else in the keeper than in the caller."""
_IN_DONT_FOLLOW = 0x0200_0000
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1


class _Call(NamedTuple):
    """A system call that waits for an answer. `name` is the exact variant: `chmod`, `fchmod`, `fchmodat`."""

    key: int
    thread: int
    name: str
    arguments: tuple[int, ...]


class Supervisor:
    """Answers the calls of one command, in the keeper's only thread, whenever `listener` is readable."""

    def __init__(self, listener: int, parts: ReachableFolders, own: Callable[[], Sequence[int]]) -> None:
        """`own` returns the process ids of the command."""
        self.listener = listener
        self._parts = parts
        self._own = own
        self._names = {number: name for name, number in (*ON_FILES.items(), *ON_PROCESSES.items())}

    def answer(self) -> None:
        """Answer the call that has waited longest. Nothing a caller does makes it raise."""
        asked = bytearray(80)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, asked)
        except OSError:
            return  # the caller has ended
        key, thread, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", asked)
        call = _Call(key, thread, self._names.get(number, ""), tuple(arguments))
        value, error, flags = 0, 0, 0
        try:
            if call.name in ON_PROCESSES:
                self._check_process(call)
                flags = _CONTINUE
            else:
                value = self._perform(call)
        except OSError as problem:
            error = problem.errno or errno.EPERM
        except (ValueError, OverflowError, struct.error):
            error = errno.EINVAL
        try:
            fcntl.ioctl(self.listener, _ANSWER, struct.pack("QqiI", key, value, -error, flags))
        except OSError:
            return

    def _perform(self, call: _Call) -> int:
        """Make the change, or add the watch, that the caller asks for; returns the call's value. Raises OSError."""
        watches = call.name == "inotify_add_watch"
        change, given = (None, ()) if watches else _change_asked_for(call)
        place = _opened(call.thread, *_named(call))
        try:
            path = os.readlink(f"/proc/self/fd/{place}")
            if watches and not self._parts.may_see(path):
                raise PermissionError(errno.EACCES, path)
            if not watches and not (self._parts.may_change(path) and _owns(call, place)):
                raise PermissionError(errno.EPERM, path)
            self._check_waits(call)
            if change is None:
                queue, _, events = call.arguments[:3]
                return kernel.watch(_leader(call.thread), _signed(queue), f"/proc/self/fd/{place}", _signed(events))
            change(f"/proc/self/fd/{place}", *given)
        finally:
            os.close(place)
        return 0

    def _check_process(self, call: _Call) -> None:
        """Raises PermissionError unless the call is about processes of the command."""
        name, first, second = call.name, _signed(call.arguments[0]), _signed(call.arguments[1])
        if name in {"setpriority", "ioprio_set"}:
            if first != (_PRIO_PROCESS if name == "setpriority" else _IOPRIO_WHO_PROCESS):
                raise PermissionError(errno.EPERM, name)
            first = second
        if first == 0:
            return
        own = self._own()
        if name == "kill" and first < 0:
            if not any(_group(process) == -first for process in own):
                raise PermissionError(errno.EPERM, name)
        elif _leader(first) not in own:
            raise PermissionError(errno.EPERM, name)
        self._check_waits(call)

    def _check_waits(self, call: _Call) -> None:
        """Raises OSError if the caller is gone: its thread id may have been reused."""
        fcntl.ioctl(self.listener, _STILL_WAITS, struct.pack("Q", call.key))


def _named(call: _Call) -> tuple[int, str, int]:
    """The file that a call is about: relative to which descriptor, its path, and flags for links. Raises OSError."""
    name, arguments, flags = call.name, call.arguments, 0
    if name in {"fchmod", "fchown", "fsetxattr", "fremovexattr"}:
        return _signed(arguments[0]), "", 0
    folder, at = _AT_FDCWD, arguments[0]
    if name == "inotify_add_watch":
        at = arguments[1]
        flags = _AT_SYMLINK_NOFOLLOW if arguments[2] & _IN_DONT_FOLLOW else 0
    elif name.endswith(("at", "at2")):
        folder, at = _signed(arguments[0]), arguments[1]
        which = {"fchmodat2": 3, "fchownat": 4, "utimensat": 3}.get(name)
        flags = arguments[which] if which else 0
        if not at and name in {"utimensat", "futimesat"}:
            return folder, "", 0
    path = _text(call.thread, at, _PATH_BYTES)
    if not path and not flags & _AT_EMPTY_PATH:
        raise FileNotFoundError(errno.ENOENT, "")
    link_itself = name.startswith("l") or bool(flags & _AT_SYMLINK_NOFOLLOW)
    return folder, path, os.O_NOFOLLOW if link_itself else 0


def _change_asked_for(call: _Call) -> tuple[Callable[..., None], tuple[object, ...]]:
    """The function that makes the change, and its arguments."""
    name, thread, arguments = call.name, call.thread, call.arguments
    rest = arguments[2 if name.endswith(("at", "at2")) else 1 :]
    if "chmod" in name:
        return os.chmod, (rest[0] & 0o7777,)
    if "chown" in name:
        return os.chown, (_number(rest[0]), _number(rest[1]))
    if "xattr" in name:
        attribute = _text(thread, rest[0], _NAME_BYTES)
        if not attribute.startswith(_ATTRIBUTES):
            raise OSError(errno.ENOTSUP, attribute)
        if "remove" in name:
            return os.removexattr, (attribute,)
        if rest[2] > _VALUE_BYTES:
            raise OSError(errno.E2BIG, attribute)
        return os.setxattr, (attribute, _memory(thread, rest[1], rest[2], exact=True), rest[3])
    if name == "truncate":
        return os.truncate, (rest[0],)
    return kernel.set_times, (_times(name, thread, rest[0]),)


def _times(name: str, thread: int, at: int) -> bytes | None:
    """The two times, as utimensat(2) takes them; None for now."""
    if not at:
        return None
    if name == "utime":
        first, second = struct.unpack("qq", _memory(thread, at, 16, exact=True))
        return struct.pack("qqqq", first, 0, second, 0)
    whole = _memory(thread, at, 32, exact=True)
    if name == "utimensat":
        return whole
    first, first_part, second, second_part = struct.unpack("qqqq", whole)
    if not (0 <= first_part < 1_000_000 and 0 <= second_part < 1_000_000):
        raise OSError(errno.EINVAL, name)
    return struct.pack("qqqq", first, 1000 * first_part, second, 1000 * second_part)


def _opened(thread: int, folder: int, path: str, flags: int) -> int:
    """An ``O_PATH`` descriptor of the file that a thread names. Raises OSError."""
    if path.startswith("/"):
        for own, instead in _OWN.items():
            if path == own or path.startswith(f"{own}/"):
                path = instead.format(thread) + path[len(own) :]
        return os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
    start = f"/proc/{thread}/cwd" if folder == _AT_FDCWD else f"/proc/{thread}/fd/{folder}"
    try:
        base = os.open(start, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise OSError(errno.EBADF, start) from error
    if not path:
        return base
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=base)
    finally:
        os.close(base)


def _memory(thread: int, at: int, size: int, *, exact: bool = False) -> bytes:
    """Read the thread's memory; without `exact`, possibly less than `size`."""
    descriptor = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.pread(descriptor, size, at) if size else b""
    except (OSError, OverflowError):
        found = b""
    finally:
        os.close(descriptor)
    if (exact and len(found) < size) or (size and not found):
        raise OSError(errno.EFAULT, "")
    return found


def _text(thread: int, at: int, most: int) -> str:
    """Read a NUL-terminated string from the thread's memory."""
    text, end, _ = _memory(thread, at, most).partition(b"\0")
    if not end:
        raise OSError(errno.ENAMETOOLONG if len(text) == most else errno.EFAULT, "")
    return os.fsdecode(text)


def _owns(call: _Call, place: int) -> bool:
    """Whether a caller that root has become another user for could make this change itself; any other could."""
    user = _status(call.thread, "Uid")[3]
    return user == os.geteuid() or (user == os.fstat(place).st_uid and "chown" not in call.name)


def _status(thread: int, name: str) -> list[int]:
    """The numbers in a line of ``/proc/PID/status``."""
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as stream:
        return [int(number) for number in stream.read().partition(f"\n{name}:")[2].partition("\n")[0].split()]


def _leader(thread: int) -> int:
    """The process id of a thread."""
    try:
        return _status(thread, "Tgid")[0]
    except (OSError, IndexError):
        return -1


def _group(process: int) -> int:
    try:
        return os.getpgid(process)
    except OSError:
        return -1


def _number(word: int) -> int:
    """A user or group id; -1 for none."""
    return -1 if _signed(word) == -1 else word & 0xFFFF_FFFF


def _signed(word: int) -> int:
    return ctypes.c_int32(word & 0xFFFF_FFFF).value
