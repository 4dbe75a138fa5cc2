"""Which projects the user has trusted to bring their own settings, instructions, skills and servers, and what the
settings file of a project may do before that.

Trust is given to a project root: the nearest folder upwards that holds `.git`, else the folder itself. It covers
everything below that root except a repository nested in it, which is a root of its own and is asked about separately.
Until then a project's file may only tighten.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.settings.keys import Value
from tui_agent.settings.schema import Context

TRUSTED_FILE = "trusted.json"
PROJECT_FOLDER = ".agents"
_LOCK_FILE = ".trusted.lock"


class TrustError(Exception):
    """The list of trusted folders cannot be read or written; the text says why."""


def project_root(folder: Path) -> Path:
    """The root of the project `folder` is in, links resolved."""
    resolved = folder.resolve()
    return next((place for place in (resolved, *resolved.parents) if (place / ".git").exists()), resolved)


def asks_for_trust(folder: Path, instruction_files: Iterable[str] = Context().instruction_files) -> bool:
    """Whether the project brings what needs trust: `.agents`, or instructions, from its root down to `folder`."""
    root = project_root(folder)
    resolved = folder.resolve()
    on_the_way = [place for place in (resolved, *resolved.parents) if place.is_relative_to(root)]
    names = (PROJECT_FOLDER, *instruction_files)
    return any(os.path.lexists(place / name) for place in on_the_way for name in names)


def is_trusted(folder: Path, home: Path) -> bool:
    """Whether the project of `folder` is on the list kept in `home`. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE)


def trust(folder: Path, home: Path) -> Path:
    """Remember the project of `folder` as trusted and return its root. Raises TrustError."""
    from datetime import UTC, datetime

    root = project_root(folder)
    path = home / TRUSTED_FILE
    with _locked(home):
        folders = _read(path)
        if str(root) not in folders:
            folders[str(root)] = datetime.now(UTC).isoformat(timespec="seconds")
            _write(path, folders)
    return root


def forget(folder: Path, home: Path) -> None:
    """Take the project of `folder` off the list. Raises TrustError."""
    path = home / TRUSTED_FILE
    with _locked(home):
        folders = _read(path)
        if folders.pop(str(project_root(folder)), None) is not None:
            _write(path, folders)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Let one program at a time read the list and write it again. Raises TrustError."""
    from tui_agent.durable import make_private_folder, one_at_a_time

    with ExitStack() as held:
        try:
            make_private_folder(home)
            held.enter_context(one_at_a_time(home / _LOCK_FILE))
        except OSError as error:
            raise TrustError(f"{home / _LOCK_FILE}: cannot be written: {error.strerror}") from None
        yield


def _read(path: Path) -> dict[str, str]:
    """Trusted roots and when each was trusted."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders") from None
    folders = document.get("folders") if isinstance(document, dict) else None
    if not isinstance(folders, dict) or not all(isinstance(time, str) for time in folders.values()):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders")
    return folders


def _write(path: Path, folders: dict[str, str]) -> None:
    from tui_agent.durable import make_private_folder, write_file

    # The names go through ASCII escapes, so that a folder whose name is not valid UTF-8 comes back as it was.
    text = json.dumps({"folders": folders}, indent=2) + "\n"
    try:
        make_private_folder(path.parent)
        write_file(path, text.encode())
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror}") from None


class Stricter(NamedTuple):
    """A choice may move towards the end of this order, from loose to strict; what is not in it cannot be set."""

    order: tuple[str, ...]


class Lower(NamedTuple):
    """A number may go down; null counts as no limit."""


class More(NamedTuple):
    """A list may grow."""


TIGHTENING: Mapping[str, Stricter | Lower | More] = {
    "permissions.mode": Stricter(("allow", "auto", "ask", "plan")),
    "permissions.ask": More(),
    "permissions.deny": More(),
    "permissions.sandbox": Stricter(("off", "auto", "required")),
    "agent.max_turn_cost_usd": Lower(),
    "agent.max_session_cost_usd": Lower(),
    "context.max_tokens": Lower(),
    "safety.small_tier_parent": Stricter(("allow", "warn", "refuse")),
    "watchdog.mode": Stricter(("off", "warn", "prompt")),
}
"""The keys that the file of an untrusted project may set, and the direction that counts as tighter. Every other key
waits for trust: it could redirect requests, raise what a session costs, or let something happen without a question.
"""


RULE: Final = re.compile(r"(?P<tool>[A-Za-z0-9_.:/*-]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)
"""How a rule for permissions is written."""
MAX_RULE: Final = 4_200
"""Characters of a rule: one may name a whole command."""
MAX_RULES: Final = 200
"""Rules that the file of an untrusted project may add to a list."""


def readable(key: str, value: Value) -> tuple[Value, str]:
    """What can be used of the value that an untrusted project gives `key`, and what was left out: a rule that cannot be
    read must not keep the program from starting.
    """
    if not isinstance(value, tuple) or not isinstance(TIGHTENING.get(key), More):
        return value, ""
    good = tuple(each for each in value if len(str(each)) <= MAX_RULE and RULE.fullmatch(str(each).strip()))[:MAX_RULES]
    left_out = len(value) - len(good)
    return good, f"{left_out} rule{'s' * (left_out > 1)} that cannot be read" if left_out else ""


def tightens(key: str, before: Value, value: Value) -> bool:
    """Whether an untrusted project may change `key` from `before`, the user's own value, to `value`."""
    match TIGHTENING.get(key):
        case Stricter(order):
            return value in order and before in order and order.index(str(value)) > order.index(str(before))
        case Lower():
            return isinstance(value, int | float) and (
                before is None or (isinstance(before, int | float) and value < before)
            )
        case More():
            return bool(value)
        case None:
            return False
