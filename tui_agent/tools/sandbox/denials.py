"""Notes for the model on a command that seems to have failed because of the sandbox."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.base import Change
from tui_agent.tools.gate.rules import mentions
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.sandbox.guarded import Limit
from tui_agent.tools.sandbox.landlock import deepest
from tui_agent.tools.sandbox.launcher import Request

_FILES: Final = regex(
    r"read-only file system|permission denied|operation not permitted|\b(?:EROFS|EACCES|EPERM|PermissionError)\b",
    re.IGNORECASE,
)
_NETWORK: Final = regex(
    r"could not resolve|couldn't resolve|temporary failure in name resolution|name or service not known"
    r"|network is unreachable|no route to host|\b(?:ENETUNREACH|EAI_AGAIN|ENOTFOUND)\b|getaddrinfo"
    r"|nodename nor servname|failed to establish a new connection"
    r"|unable to resolve|dial tcp|could not connect|failed to connect",
    re.IGNORECASE,
)
_KEYS: Final = regex(
    r"could not read (?:username|password)|terminal prompts disabled|authentication failed|publickey|auth login"
    r"|could not read from remote repository",
    re.IGNORECASE,
)
_MISSING: Final = regex(
    r"no such file|ENOENT|FileNotFoundError|cannot access|not found|does not exist"
    r"|does not appear to be a git repository|permission denied|EACCES|PermissionError",
    re.IGNORECASE,
)
_PATH: Final = regex(r"(?P<quote>['\"`])((?:~|\$HOME)?/[^'\"`\n]+)(?P=quote)|((?:~/|/)[\w.@+/-]+)")
_LOOKED_AT: Final = 20
"""The most paths that are looked for outside the sandbox."""
_NAMED: Final = 5
_KERNEL: Final = ("/proc", "/dev")
_PRIVATE: Final = ("/tmp", "/var/tmp")  # noqa: S108 - names of places
"""Folders of its own that a command sees in a view built by mounts."""


class CommandBounds(msgspec.Struct, frozen=True):
    """The bounds of a command: in words, as the request that started it, and with the home that it did not see."""

    rules: str
    request: Request
    home: Path

    def unseen(self, name: str) -> str:
        """The path that the user means by `name`, or its folder, if it exists but is not shown; else empty."""
        own, request = self.request.environment["HOME"], self.request
        if name.startswith("~") or name == own or name.startswith(f"{own}/"):
            name = str(self.home) + name.removeprefix("~").removeprefix(own)
        for path in (name, os.path.dirname(name)):  # noqa: PTH120 - it may be no path at all
            real = os.path.realpath(path)
            seen = deepest(real, (*request.readonly, *request.writable, request.temporary, *_KERNEL))
            if request.mounts and path in _PRIVATE:
                continue
            if real != "/" and (not seen or seen <= deepest(real, request.hidden)) and os.path.lexists(path):
                return path
        return ""


def denial_note(output: str, bounds: CommandBounds, *, failed: bool) -> list[str]:
    """A note for the model if the end of a command's output looks as if the sandbox stopped it; else empty."""
    if names := _unseen(output, bounds):
        listed = ", ".join(shown(name, 300) for name in names[:_NAMED])
        note = (
            f"[the sandbox is why it was not found: it does not show {listed}. If the command has to read there, call "
            "again with these paths as `reads`, to write there with `outside`; the user is asked]"
        )
        return [note]
    signs = {
        "the user's keys and sign-ins are not in it": _KEYS,
        "no network": _NETWORK,
        "a place it may not touch": _FILES,
    }
    what = next((what for what, sign in signs.items() if failed and sign.search(output)), "")
    if not what:
        return []
    note = (
        f"[the sandbox may be why it failed ({what}): {shown(bounds.rules, 2_000)}. If it has to do more, call again "
        "with `outside` set, and the user is asked; do not try to get round it]"
    )
    return [note]


def refused_note(refused: Sequence[str]) -> list[str]:
    """A note about what the proxy did not let through."""
    listed = "; ".join(shown(each, 300) for each in refused[:_NAMED])
    return [f"[the sandbox did not let it reach {listed}]"] if refused else []


def limit_notes(line: str, limited: Mapping[str, Limit]) -> list[str]:
    """Notes about what the user's rules hide or keep as it is, if the command names it: to root, a hidden file is there
    and empty.
    """
    told: dict[Limit, str] = {
        "read": "hides what is in these: {}. If the command has to read it, call again with these paths as `reads`: "
        "the user is asked, unless the rule forbids it",
        "write": "keeps these from being changed: {}. Do not look for a way around it",
    }
    notes: list[str] = []
    for kind, text in told.items():
        named = [path for path, limit in limited.items() if limit == kind and mentions(line, path.rpartition("/")[2])]
        if named:
            listed = ", ".join(shown(path, 300) for path in named[:_NAMED])
            notes.append(f"[a rule of the user {text.format(listed)}]")
    return notes


def taken_back_note(paths: Sequence[Path], withheld: Path) -> list[str]:
    """A note about guarded files that were restored."""
    if not paths:
        return []
    listed = ", ".join(shown(str(path), 300) for path in paths[:10])
    note = (
        f"[it changed what no command may change, and that was put back: {listed}; what it wrote is kept in "
        f"{shown(str(withheld))}. These files are guarded: use write_file or `outside`, and the user is asked]"
    )
    return [note]


def held_note(held: Sequence[Change]) -> list[str]:
    """A note about guarded files that a command staged, committed or stashed, or could change."""
    if not held:
        return []
    listed = "; ".join(shown(each.title, 300) for each in held[:10])
    return [
        f"[guarded files may not be what the user knows: {listed}. Tell them before git or another program uses it]"
    ]


def _unseen(output: str, bounds: CommandBounds) -> list[str]:
    """The paths that the command missed and that exist outside the sandbox."""
    missed = "\n".join(line for line in output.splitlines() if _MISSING.search(line))
    found = dict.fromkeys(place[2] or place[3].rstrip(".") for place in islice(_PATH.finditer(missed), _LOOKED_AT))
    return [path for name in found if (path := bounds.unseen(name))]
