"""Which system calls a command in the sandbox may make: a seccomp filter, as the bytes of its BPF program.

Everything that could undo or go round the other walls is refused: new namespaces and mounts, io_uring (its operations
pass no filter), kernel keys, the clock, and sockets of every family that no network namespace contains. Sockets of the
local kind (AF_UNIX) can be had in pairs only: a path to a socket outside, such as that of a container service or of an
agent holding keys, leads out of every namespace.
"""

import errno
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from tui_agent.tools.sandbox.kernel import machine

AF_INET, AF_INET6, AF_NETLINK = 2, 10, 16

_NEW_NAMESPACES: Final = 0x7E02_0000
_NEW_TIME: Final = 0x80
_SOCK_DGRAM, _SOCK_TYPE = 2, 0xF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_CLONE3: Final = 435
_SAME_EVERYWHERE: Final = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "open_tree_attr": 467,
}
_REFUSED: Final = {
    "x86_64": {
        **{"vhangup": 153, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164},
        **{"mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170},
        **{"setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179},
        **{"clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250},
        **{"perf_event_open": 298, "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "kcmp": 312},
        **{"finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "syslog": 103},
    },
    "aarch64": {
        **{"vhangup": 58, "pivot_root": 41, "adjtimex": 171, "chroot": 51, "acct": 89, "settimeofday": 170},
        **{"mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142, "sethostname": 161},
        **{"setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60},
        **{"clock_settime": 112, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219},
        **{"perf_event_open": 241, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "kcmp": 272},
        **{"finit_module": 273, "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282, "syslog": 116},
    },
}
_LOOKED_AT: Final = {
    "x86_64": {"clone": 56, "unshare": 272, "ioctl": 16, "socket": 41, "socketpair": 53},
    "aarch64": {"clone": 220, "unshare": 97, "ioctl": 29, "socket": 198, "socketpair": 199},
}
_AUDIT: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32: Final = 0x4000_0000


def is_known() -> bool:
    """Whether the filter is made for this machine's architecture."""
    return machine() in _AUDIT


def command_filter(families: Sequence[int]) -> bytes:
    """The filter of a command that may make sockets of these address families, and pairs of local ones."""
    calls = _LOOKED_AT[machine()]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[machine()]),
        _refused(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        # The C library goes on to calls whose arguments a filter can see.
        *_when(_EQUAL, _CLONE3, [_refused(errno.ENOSYS)]),
    ]
    if machine() == "x86_64":
        program += _when(_AT_LEAST, _X32, [_refused(errno.ENOSYS)])
    for number in sorted({*_SAME_EVERYWHERE.values(), *_REFUSED[machine()].values()}):
        program += _when(_EQUAL, number, [_refused(errno.EPERM)])
    program += _when(_EQUAL, calls["clone"], _bits(0, _NEW_NAMESPACES))
    program += _when(_EQUAL, calls["unshare"], _bits(0, _NEW_NAMESPACES | _NEW_TIME))
    program += _when(_EQUAL, calls["ioctl"], _refuse_values(1, (_TIOCSTI, _TIOCLINUX)))
    program += _when(_EQUAL, calls["socket"], _only_values(0, families))
    program += _when(_EQUAL, calls["socketpair"], _refuse_values(1, (_SOCK_DGRAM,), mask=_SOCK_TYPE))
    program.append(_allowed())
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _when(test: int, value: int, then: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Do `then`, which must end with an answer, where the loaded number passes the test."""
    return [(test, 0, len(then), value), *then]


def _load(argument: int) -> tuple[int, int, int, int]:
    return _LOAD, 0, 0, _ARGUMENTS + 8 * argument


def _bits(argument: int, mask: int) -> list[tuple[int, int, int, int]]:
    return [_load(argument), (_ANY_BIT, 0, 1, mask), _refused(errno.EPERM), _allowed()]


def _refuse_values(argument: int, values: Iterable[int], mask: int = 0) -> list[tuple[int, int, int, int]]:
    masked = [(_AND, 0, 0, mask)] if mask else []
    tests = [step for value in values for step in _when(_EQUAL, value, [_refused(errno.EPERM)])]
    return [_load(argument), *masked, *tests, _allowed()]


def _only_values(argument: int, values: Iterable[int]) -> list[tuple[int, int, int, int]]:
    tests = [step for value in values for step in _when(_EQUAL, value, [_allowed()])]
    return [_load(argument), *tests, _refused(errno.EPERM)]


def _allowed() -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ALLOW


def _refused(number: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ERRNO | number
