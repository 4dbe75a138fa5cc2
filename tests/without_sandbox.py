"""`python -m tests.without_sandbox COMMAND …` runs a command where no sandbox is to be had: the kernel refuses each.

`python -m tests.without_sandbox .venv/bin/pytest …` shows that the suite passes there. Linux only.
"""

import errno
import os
import struct
import sys

from tui_agent.tools.sandbox import kernel

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_LANDLOCK_CREATE_RULESET = 444
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | errno.EPERM


def main() -> None:
    """Refuse namespaces and Landlock to this process for good, and become the command."""
    refused = (_UNSHARE[kernel.machine()], _LANDLOCK_CREATE_RULESET)
    program = [(_LOAD, 0, 0, 0)]
    for number in refused:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    program.append((_RETURN, 0, 0, _ALLOW))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.seccomp(b"".join(struct.pack("=HBBI", *step) for step in program))
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606


if __name__ == "__main__":
    main()
