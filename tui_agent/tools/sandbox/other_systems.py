"""Seatbelt, the sandbox of macOS: a program that a command is started through.

Seatbelt's profile language is documented by its uses only (man 7 sandbox, and the profiles in /System/Library/Sandbox).
"""

import json
from typing import Final

from tui_agent.tools.sandbox.launcher import Request

SEATBELT: Final = "/usr/bin/sandbox-exec"


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
