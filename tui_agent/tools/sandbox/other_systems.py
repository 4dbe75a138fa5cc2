"""Sandboxes that are programs: bubblewrap on Linux, Seatbelt on macOS. A command is started through them.

Seatbelt's profile language is documented by its uses only (man 7 sandbox, and the profiles in /System/Library/Sandbox).
"""

import json
import os
import shutil
from pathlib import Path
from typing import Final

from tui_agent.tools.sandbox.launcher import Request

SEATBELT: Final = "/usr/bin/sandbox-exec"
_FILTER_DESCRIPTOR: Final = "9"


def bubblewrap() -> str | None:
    """The path of bubblewrap, where it is installed."""
    return shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")


def in_bubblewrap(request: Request, program: str, filter_file: Path) -> Request:
    """The same command through bubblewrap, which builds the view; `filter_file` holds the filter of system calls."""
    wrapped = ["--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
    wrapped += [] if request.network else ["--unshare-net"]
    wrapped += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", request.temporary, "/tmp"]  # noqa: S108
    kinds = dict.fromkeys(request.writable, "--bind") | dict.fromkeys(request.readonly, "--ro-bind")
    kinds |= dict.fromkeys(request.hidden, "--tmpfs")
    for path in sorted(kinds, key=lambda place: place.count("/")):
        if not os.path.lexists(path):
            continue
        if kinds[path] != "--tmpfs":
            wrapped += [kinds[path], path, path]
        elif Path(path).is_dir():
            wrapped += ["--tmpfs", path]
        else:
            wrapped += ["--ro-bind", "/dev/null", path]
    # As root a command would own the settings of the kernel.
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"):
        wrapped += ["--ro-bind-try", path, path]
    for path in ("/dev", *(path for path in request.hidden if Path(path).is_dir())):
        wrapped += ["--remount-ro", path]
    wrapped += ["--chdir", request.folder, "--seccomp", _FILTER_DESCRIPTOR, "--"]
    open_filter = f'exec {_FILTER_DESCRIPTOR}<"$0"; exec "$@"'
    arguments = ["/bin/sh", "-c", open_filter, str(filter_file), program, *wrapped, *request.arguments]
    return request._replace(arguments=arguments, folder="/", confined=False, mounts=False)


def in_seatbelt(request: Request) -> list[str]:
    """The command line of the same command under Seatbelt. No part of this could be tried on a Mac by its author."""
    return [SEATBELT, "-p", seatbelt_profile(request), *request.arguments]


def seatbelt_profile(request: Request) -> str:
    """What Seatbelt is told. The last rule that fits an operation decides."""
    writable = [*request.writable, request.temporary]
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    devices = (
        '(literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx") (regex #"^/dev/ttys")'
    )
    rules.append(f"(allow file-write* {devices} {_subpaths(writable)})")
    if request.readonly:
        rules.append(f"(deny file-write* {_subpaths(request.readonly)})")
    if request.hidden:
        rules.append(f"(deny file-read* file-write* {_subpaths(request.hidden)})")
    if request.readonly:
        rules.append(f"(allow file-read* {_subpaths(request.readonly)})")
    if not request.network:
        local = '(allow network-bind network-inbound (local ip "localhost:*"))'
        rules += ["(deny network*)", local, '(allow network-outbound (remote ip "localhost:*"))']
    rules += ['(deny mach-lookup (global-name-prefix "com.apple.securityd"))', "(deny appleevent-send)"]
    return "\n".join(rules)


def _subpaths(paths: list[str]) -> str:
    # A JSON text is written as Seatbelt's language writes one.
    return " ".join(f"(subpath {json.dumps(path, ensure_ascii=False)})" for path in paths)
