"""The system calls that a command in the sandbox may make: a seccomp filter, as the bytes of its BPF program.

It refuses everything that could undo or bypass the other layers: new namespaces and mounts, io_uring (whose operations
pass no filter), kernel keys, the clock, and sockets of every family that a network namespace does not contain. Local
sockets (AF_UNIX) are allowed only as pairs: a path to a socket outside, such as that of a container service or a key
agent, leads out of every namespace.

Without namespaces and mounts the filter has more to do (`LandlockOnly`): calls that Landlock does not restrict are
handed to a supervisor, or refused if there can be none.
"""

import errno
import json
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from tui_agent.tools.sandbox.kernel import machine

AF_INET, AF_INET6, AF_NETLINK = 2, 10, 16

_NEW_NAMESPACES: Final = 0x7E02_0000
_NEW_TIME: Final = 0x80
_SOCK_DGRAM, _SOCK_RAW, _SOCK_TYPE = 2, 3, 0xF
"""A raw local socket is a datagram socket."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ALLOW, _ERRNO, _ASK = 0x7FFF_0000, 0x0005_0000, 0x7FC0_0000
_LOAD, _AND, _EQUAL, _MORE, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x45, 0x06
_IN_GROUP: Final = 8
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_OWNERS: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX: which process gets a signal when a file becomes readable."""
_LEASES: Final = (1024, 1026)
"""F_SETLEASE, which makes others wait when they open a file, and F_NOTIFY: both need a file only open for reading."""
_TRUNCATE_SINCE, _SIGNALS_SINCE = 3, 6
"""The versions of Landlock from which it can refuse truncating files, and signals to processes outside."""

_CLONE3: Final = 435
with open(f"{__file__.removesuffix('.py')}.json", encoding="utf-8") as _stream:
    _NUMBERS: Final[dict[str, dict[str, dict[str, Any]]]] = json.load(_stream)
"""The numbers of calls, by name, in groups, by architecture.

``refused``: always. ``looked_at``: their arguments decide. ``files``, ``processes`` and ``signals``: a supervisor
answers. ``shared_by_name``: shared memory, semaphores and message queues, which without a namespace all processes of a
user share. ``opens`` open files, ``modes`` set a file's mode: beside the number, the index of the flags, or of the
mode, among the arguments. ``of_new_kernels``: newer calls for the same changes as ``files``; they are refused, since
programs fall back to the older ones.
"""
_CALLS: Final = _NUMBERS.get(machine(), {})
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN, _OPENAT2 = 424, 434, 437
ON_FILES: Final[dict[str, int]] = {**_CALLS.get("files", {}), **_CALLS.get("truncate", {"truncate": -1})}
"""The calls on files that a supervisor answers, by name."""
ON_PROCESSES: Final[dict[str, int]] = {
    **_CALLS.get("processes", {}),
    **_CALLS.get("signals", {}),
    "pidfd_open": _PIDFD_OPEN,
}
"""The calls on processes that a supervisor answers, by name."""
_O_ACCESS_AND_TRUNCATE, _O_TRUNCATE = 0o1003, 0o1000
_SET_UID, _O_CREAT = 0o4000, 0o100
_FILE_SYSTEM_TYPES: Final = (0x58, 0x66, 0x6E, 0x72, 0x76, 0x94, 0x97, 0xBC, 0xF5)
_HARMLESS_FILE_SYSTEM_CALLS: Final = (0x4004_9409, 0x4020_940D, 0xC018_9436, 0x8008_6601, 0x801C_581F, 0xC020_660B)
"""Clone and deduplicate, which change only a file open for writing, and calls that read flags and extents. The file
systems' other ioctls (flags such as immutable, subvolumes, encryption) work on a file open for reading."""

_AUDIT: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32: Final = 0x4000_0000


class LandlockOnly(NamedTuple):
    """There is no other layer but Landlock of this `version`. `supervised`: a supervisor answers calls."""

    version: int
    supervised: bool = True


def is_known() -> bool:
    """Whether there is a filter for this machine's architecture."""
    return machine() in _AUDIT


_Steps: TypeAlias = list[tuple[int, int, int, int]]
"""Instructions: what to do, how many to jump over if a test is true, and if it is not, and a value."""


@cache
def command_filter(families: tuple[int, ...], alone: LandlockOnly | None = None) -> bytes:
    """The filter for a command that may create sockets of these address families, and pairs of local ones.

    `alone`: there are no mounts and namespaces.
    """
    calls, refused = _CALLS["looked_at"], {**_NUMBERS["everywhere"]["refused"], **_CALLS["refused"]}
    answers: dict[int, _Steps] = _for_all(refused.values(), _refused(errno.EPERM))
    # With ENOSYS, the C library falls back to clone and openat, whose arguments a filter can see.
    answers |= _for_all((_CLONE3, _OPENAT2), _refused(errno.ENOSYS))
    answers[calls["clone"]] = [*_refuse_bits(0, _NEW_NAMESPACES), _allowed()]
    answers[calls["unshare"]] = [*_refuse_bits(0, _NEW_NAMESPACES | _NEW_TIME), _allowed()]
    answers[calls["ioctl"]] = _checked_ioctl(alone)
    owners = _OWNERS if alone and alone.version < _SIGNALS_SINCE else ()
    answers[calls["fcntl"]] = _refuse_values(1, (*_LEASES, *owners))
    answers[calls["socket"]] = [_load(0), *_for_values(families, _allowed()), _refused(errno.EPERM)]
    answers[calls["socketpair"]] = _refuse_values(1, (_SOCK_DGRAM, _SOCK_RAW), mask=_SOCK_TYPE)
    answers |= _for_landlock_only(alone) if alone else {}
    # Outside, a program with the set-uid bit would run as its owner, whoever starts it.
    for number, mode in _CALLS["modes"].values():
        answers[number] = [*_refuse_bits(mode, _SET_UID), *answers.get(number, [_allowed()])]
    for number, flags in _CALLS["opens"].values():
        checked = _refuse_bits(flags + 1, _SET_UID)
        only_made = [_load(flags), (_ANY_BIT, 0, len(checked), _O_CREAT)]
        answers[number] = [*only_made, *checked, *answers.get(number, [_allowed()])]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT[machine()]),
        _refused(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine() == "x86_64":
        program += _when(_AT_LEAST, _X32, [_refused(errno.ENOSYS)])
    # For each command, the kernel runs the filter for every number: in groups, that takes a tenth of the time.
    numbers = sorted(answers)
    for at in range(0, len(numbers), _IN_GROUP):
        group = numbers[at : at + _IN_GROUP]
        steps = [step for number in group for step in _when(_EQUAL, number, answers[number])]
        program += [(_MORE, len(steps) + 1, 0, group[-1]), *steps, _allowed()]
    program.append(_allowed())
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _for_landlock_only(alone: LandlockOnly) -> dict[int, _Steps]:
    asked = (_RETURN, 0, 0, _ASK) if alone.supervised else _refused(errno.EPERM)
    answers: dict[int, _Steps] = _for_all(_CALLS["files"].values(), asked)
    answers |= _for_all(_NUMBERS["everywhere"]["of_new_kernels"].values(), _refused(errno.ENOSYS))
    answers |= _for_all(_CALLS["shared_by_name"].values(), _refused(errno.EPERM))
    for name, number in _CALLS["processes"].items():
        # For these two, the first argument says what the second one means.
        answers[number] = [asked] if name in {"setpriority", "ioprio_set"} else _unless_zero(0, asked)
    if alone.version < _TRUNCATE_SINCE:
        answers[ON_FILES["truncate"]] = [asked]
        for number, flags in _CALLS["opens"].values():
            answers[number] = _refuse_values(flags, (_O_TRUNCATE,), mask=_O_ACCESS_AND_TRUNCATE)
    if alone.version < _SIGNALS_SINCE:
        for number in (*_CALLS["signals"].values(), _PIDFD_OPEN):
            answers[number] = _unless_zero(0, asked)
        answers[_PIDFD_SEND_SIGNAL] = [_refused(errno.EPERM)]
    return answers


def _checked_ioctl(alone: LandlockOnly | None) -> _Steps:
    terminal = _for_values((_TIOCSTI, _TIOCLINUX), _refused(errno.EPERM))
    if not alone:
        return [_load(1), *terminal, _allowed()]
    harmless = _for_values(_HARMLESS_FILE_SYSTEM_CALLS, _allowed())
    kinds = _for_values((kind << 8 for kind in _FILE_SYSTEM_TYPES), _refused(errno.ENOTTY))
    return [_load(1), *terminal, *harmless, (_AND, 0, 0, 0xFF00), *kinds, _allowed()]


def _for_all(numbers: Iterable[int], answer: tuple[int, int, int, int]) -> dict[int, _Steps]:
    return {number: [answer] for number in numbers}


def _unless_zero(argument: int, answer: tuple[int, int, int, int]) -> _Steps:
    return [_load(argument), *_for_values((0,), _allowed()), answer]


def _when(test: int, value: int, then: _Steps) -> _Steps:
    """Run `then`, which must end with a verdict, if the loaded number passes the test."""
    return [(test, 0, len(then), value), *then]


def _load(argument: int) -> tuple[int, int, int, int]:
    return _LOAD, 0, 0, _ARGUMENTS + 8 * argument


def _refuse_bits(argument: int, mask: int) -> _Steps:
    """Refuse the call if the argument has any of these bits; else the next steps decide."""
    return [_load(argument), (_ANY_BIT, 0, 1, mask), _refused(errno.EPERM)]


def _refuse_values(argument: int, values: Iterable[int], mask: int = 0) -> _Steps:
    masked = [(_AND, 0, 0, mask)] if mask else []
    return [_load(argument), *masked, *_for_values(values, _refused(errno.EPERM)), _allowed()]


def _for_values(values: Iterable[int], answer: tuple[int, int, int, int]) -> _Steps:
    return [step for value in values for step in _when(_EQUAL, value, [answer])]


def _allowed() -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ALLOW


def _refused(number: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, _ERRNO | number
