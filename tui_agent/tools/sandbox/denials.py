"""Notes for the model on a command that seems to have failed because of the sandbox."""

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.tools.gate.workspace import shown

_FILES: Final = re.compile(
    r"read-only file system|permission denied|operation not permitted|EROFS|EACCES|EPERM|PermissionError", re.IGNORECASE
)
_NETWORK: Final = re.compile(
    r"could not resolve|couldn't resolve|temporary failure in name resolution|name or service not known"
    r"|network is unreachable|no route to host|ENETUNREACH|EAI_AGAIN|ENOTFOUND|getaddrinfo|nodename nor servname"
    r"|failed to establish a new connection|unable to resolve|dial tcp|could not connect|failed to connect",
    re.IGNORECASE,
)
_MISSING: Final = re.compile(r"no such file|ENOENT|FileNotFoundError|cannot access|not found", re.IGNORECASE)
_TEMPORARY: Final = re.compile(r"(?P<quote>['\"])((?:/var)?/tmp/[^'\"\n]+)(?P=quote)|((?:/var)?/tmp/[\w.@+/-]+)")
_LOOKED_AT: Final = 20
"""The most names of temporary files that are looked for outside the sandbox."""
_NAMED: Final = 5


def denial_note(output: str, rules: str, *, failed: bool, own_temporary: bool) -> list[str]:
    """A note for the model if the end of a command's output looks as if the sandbox stopped it; else empty.

    `rules` say what the sandbox allows; `own_temporary`: inside, ``/tmp`` is a folder of the sandbox's own.
    """
    if own_temporary and (names := _hidden(output)):
        listed = ", ".join(shown(name, 300) for name in names[:_NAMED])
        note = (
            "[the sandbox is why it was not found: commands have a /tmp of their own, and in the one outside lies "
            f"{listed}. If it is needed, call again with `outside` set, and the user is asked]"
        )
        return [note]
    files, network = _FILES.search(output), _NETWORK.search(output)
    if not failed or (not files and not network):
        return []
    what = "no network" if network and not files else "a place it may not touch" if not network else "its bounds"
    note = (
        f"[the sandbox may be why it failed ({what}): {shown(rules, 2_000)}. If the command has to do more, call again "
        "with `outside` set, and the user is asked; do not try to get round it]"
    )
    return [note]


def taken_back_note(paths: Sequence[Path], aside: Path) -> list[str]:
    """A note about guarded files that were restored."""
    if not paths:
        return []
    listed = ", ".join(shown(str(path), 300) for path in paths[:10])
    note = (
        f"[it changed what no command may change, and that was put back: {listed}; what it wrote is kept in "
        f"{shown(str(aside))}. These files are guarded: use write_file or `outside`, and the user is asked]"
    )
    return [note]


def _hidden(output: str) -> list[str]:
    """The temporary files that the command missed and that exist outside the sandbox."""
    missed = "\n".join(line for line in output.splitlines() if _MISSING.search(line))
    found = dict.fromkeys(place[2] or place[3].rstrip(".") for place in islice(_TEMPORARY.finditer(missed), _LOOKED_AT))
    return [name for name in found if os.path.lexists(name)]
