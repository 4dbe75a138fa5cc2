"""Which projects the user has trusted to bring their own settings, instructions, skills and servers, and what the
settings file of a project may do before that.

Trust is given to a project root: the nearest folder upwards that holds `.git`, else the folder itself. It covers
everything below that root except a repository nested in it, which is a root of its own and is asked about separately.
Until then a project's file may only tighten.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from tui_agent.settings.keys import Value

TRUSTED_FILE = "trusted.json"
PROJECT_FOLDER = ".agents"
SERVERS_FILE = ".mcp.json"
_LOCK_FILE = ".trusted.lock"


class TrustError(Exception):
    """The list of trusted folders cannot be read or written; the text says why."""


def project_root(folder: Path) -> Path:
    """The root of the project `folder` is in, links resolved."""
    resolved = folder.resolve()
    return next((place for place in (resolved, *resolved.parents) if (place / ".git").exists()), resolved)


def is_trusted(folder: Path, home: Path) -> bool:
    """Whether the user trusts the project of `folder`, as kept in `home`. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE).folders


def is_refused(folder: Path, home: Path) -> bool:
    """Whether the user was asked about the project of `folder` and does not trust it. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE).refused


def trust(folder: Path, home: Path) -> Path:
    """Remember the project of `folder` as trusted and return its root. Raises TrustError."""
    return _remember(folder, home, trusted=True)


def refuse(folder: Path, home: Path) -> Path:
    """Remember that the project of `folder` is not trusted, and return its root. Raises TrustError."""
    return _remember(folder, home, trusted=False)


def forget(folder: Path, home: Path) -> None:
    """Forget what was answered about the project of `folder`. Raises TrustError."""
    root = str(project_root(folder))
    with _locked(home):
        answers = _read(home / TRUSTED_FILE)
        if root in answers.folders or root in answers.refused:
            _write(home / TRUSTED_FILE, answers.without(root))


class _Answers(NamedTuple):
    """Project roots with the time of the answer: the trusted ones, and the others."""

    folders: dict[str, str]
    refused: dict[str, str]

    def without(self, root: str) -> "_Answers":
        return _Answers(*({other: time for other, time in each.items() if other != root} for each in self))


def _remember(folder: Path, home: Path, *, trusted: bool) -> Path:
    from datetime import UTC, datetime

    root = project_root(folder)
    path = home / TRUSTED_FILE
    with _locked(home):
        answers = _read(path)
        if str(root) not in answers[not trusted]:
            answers = answers.without(str(root))
            answers[not trusted][str(root)] = datetime.now(UTC).isoformat(timespec="seconds")
            _write(path, answers)
    return root


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


def _read(path: Path) -> _Answers:
    try:
        kept = path.read_bytes()
    except FileNotFoundError:
        return _Answers({}, {})
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from None
    from json import loads

    try:
        document = loads(kept)
    except (ValueError, RecursionError):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders") from None
    if isinstance(document, dict):
        folders, refused = document.get("folders"), document.get("refused", {})
        if _are_times(folders) and _are_times(refused):
            return _Answers(folders, refused)
    raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders")


def _are_times(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(time, str) for time in value.values())


def _write(path: Path, answers: _Answers) -> None:
    from json import dumps

    from tui_agent.durable import make_private_folder, write_file

    # The names go through ASCII escapes, so that a folder whose name is not valid UTF-8 comes back as it was.
    text = dumps(answers._asdict(), indent=2) + "\n"
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


RULE: Final = r"(?s)(?P<tool>[A-Za-z0-9_.:/*-]+)(?:\((?P<pattern>.+)\))?"
"""How a rule for permissions is written, as a pattern."""
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
    usable = (each for each in value if len(str(each)) <= MAX_RULE and re.fullmatch(RULE, str(each).strip()))
    good = tuple(islice(usable, MAX_RULES))
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
