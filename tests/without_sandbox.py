"""`python -m tests.without_sandbox [--but KIND] COMMAND …` runs a command where the kernel refuses what sandboxes need.

`python -m tests.without_sandbox .venv/bin/pytest …` shows that the suite passes where none is to be had. With `--but
bubblewrap` only that gets user namespaces; with `--but landlock` nobody does, and Landlock remains. Linux only.
"""

import errno
import os
import struct
import sys
from typing import Final

from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.kernel import CLONE_NEWUSER

_UNSHARE, _CLONE = {"x86_64": (272, 56), "aarch64": (97, 220)}[kernel.machine()]
_CLONE3: Final = 435
_LANDLOCK_CREATE_RULESET: Final = 444
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF_0000, 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
_FIRST_ARGUMENT: Final = 16

_NO_USERS = [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, CLONE_NEWUSER), (_RETURN, 0, 0, _REFUSE)]
_REFUSED: Final = {
    "bubblewrap": {_UNSHARE: _NO_USERS},
    "landlock": {_UNSHARE: _NO_USERS, _CLONE: _NO_USERS, _CLONE3: [(_RETURN, 0, 0, _UNKNOWN)]},
    "": {_UNSHARE: [(_RETURN, 0, 0, _REFUSE)], _LANDLOCK_CREATE_RULESET: [(_RETURN, 0, 0, _REFUSE)]},
}
"""What is refused, by system call, so that this kind of sandbox is the first to be had."""


def main() -> None:
    """Refuse it to this process for good, and become the command."""
    command = sys.argv[1:]
    kind = command[1] if command[0] == "--but" else ""
    program = [(_LOAD, 0, 0, 0)]
    for number, then in _REFUSED[kind].items():
        answer = [*then, (_RETURN, 0, 0, _ALLOW)]
        program += [(_EQUAL, 0, len(answer), number), *answer]
    program.append((_RETURN, 0, 0, _ALLOW))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.seccomp(b"".join(struct.pack("=HBBI", *step) for step in program))
    arguments = command[2:] if kind else command
    os.execvp(arguments[0], arguments)  # noqa: S606


if __name__ == "__main__":
    main()
