"""Seatbelt, the sandbox of macOS: commands are started through its program.

Seatbelt's profile language is documented only by examples (man 7 sandbox, and the profiles in /System/Library/Sandbox).
"""

import json
from collections.abc import Sequence
from typing import Final

from tui_agent.tools.sandbox.launcher import Request

SEATBELT: Final = "/usr/bin/sandbox-exec"
_PRIVATE: Final = ("/Users", "/Volumes", "/private/tmp", "/private/var/folders", "/private/var/root")
"""Where people and programs keep their files."""


def in_seatbelt(request: Request) -> list[str]:
    """The command line that runs a request under Seatbelt. Not tested on a Mac."""
    return [SEATBELT, "-p", seatbelt_profile(request), *request.arguments]


def seatbelt_profile(request: Request) -> str:
    """The profile for Seatbelt. The last rule that matches an operation decides."""
    writable = [*request.writable, request.temporary]
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    devices = (
        '(literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx") (regex #"^/dev/ttys")'
    )
    rules.append(f"(allow file-write* {devices} {_subpaths(writable)})")
    if request.readonly:
        rules.append(f"(deny file-write* {_subpaths(request.readonly)})")
    rules += [f"(deny file-read* {_subpaths(_PRIVATE)})", "(allow file-read-metadata)"]
    rules.append(f"(allow file-read* {_subpaths([*writable, *request.readonly])})")
    if request.hidden:
        rules.append(f"(deny file-read* file-write* {_subpaths(request.hidden)})")
        inner = [path for path in request.readonly if any(path.startswith(f"{place}/") for place in request.hidden)]
        rules += [f"(allow file-read* {_subpaths(inner)})"] if inner else []
    if not request.network:
        local = '(allow network-bind network-inbound (local ip "localhost:*"))'
        rules += ["(deny network*)", local, '(allow network-outbound (remote ip "localhost:*"))']
    rules += ['(deny mach-lookup (global-name-prefix "com.apple.securityd"))', "(deny appleevent-send)"]
    return "\n".join(rules)


def _subpaths(paths: Sequence[str]) -> str:
    # Seatbelt's strings are written like JSON's.
    return " ".join(f"(subpath {json.dumps(path, ensure_ascii=False)})" for path in paths)
