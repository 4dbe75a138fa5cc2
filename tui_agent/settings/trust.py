"""Which projects the user trusts to bring their own settings, instructions, skills and servers, and what a project's
settings file may do before that.

Trust is given to a project root: the nearest parent folder with a `.git`, else the folder itself. It covers everything
below that root except nested repositories, which are roots of their own, and of what runs or sets something only what
was shown with the question: digests of those lines are kept with the answer. Until then a project's file may only
tighten settings.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import structs

from tui_agent.settings.keys import Value

TRUSTED_FILE = "trusted.json"
PROJECT_FOLDER = ".agents"
CLAUDE_FOLDER = ".claude"
"""Where Claude Code has the same, in a project and in the user's home."""
SERVERS_FILE = ".mcp.json"
EDITORS_SERVERS_FILE = ".vscode/mcp.json"
"""Where VS Code has a project's servers."""
_LOCK_FILE = ".trusted.lock"


class TrustError(Exception):
    """The list of trusted folders cannot be read or written; the text says why."""


def project_root(folder: Path) -> Path:
    """The root of the project that contains `folder`, with links resolved."""
    resolved = folder.resolve()
    return next((place for place in (resolved, *resolved.parents) if (place / ".git").exists()), resolved)


def is_trusted(folder: Path, home: Path) -> bool:
    """Whether the user answered that they trust the project of `folder`; the list is in `home`. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE).folders


def not_covered(folder: Path, home: Path, lines: Iterable[str]) -> tuple[str, ...]:
    """Those lines on what the project of `folder` runs or sets that no answer of the user covers. Raises TrustError."""
    covered = frozenset(_read(home / TRUSTED_FILE).covered.get(str(project_root(folder)), ()))
    return tuple(line for line in lines if _digest(line) not in covered)


def is_refused(folder: Path, home: Path) -> bool:
    """Whether the user answered that they do not trust the project of `folder`. Raises TrustError."""
    return str(project_root(folder)) in _read(home / TRUSTED_FILE).refused


def trust(folder: Path, home: Path, lines: Iterable[str] = ()) -> Path:
    """Record the project of `folder` as trusted with these lines on what it runs or sets; returns its root.

    Raises TrustError.
    """
    return _remember(folder, home, sorted({_digest(line) for line in lines}), trusted=True)


def refuse(folder: Path, home: Path) -> Path:
    """Record the project of `folder` as not trusted; returns its root. Raises TrustError."""
    return _remember(folder, home, [], trusted=False)


def forget(folder: Path, home: Path) -> None:
    """Delete the answer about the project of `folder`. Raises TrustError."""
    root = str(project_root(folder))
    with _locked(home):
        answers = _read(home / TRUSTED_FILE)
        if root in answers.folders or root in answers.refused:
            answers.forget(root)
            _write(home / TRUSTED_FILE, answers)


class _Answers(msgspec.Struct):
    """The roots of trusted and of refused projects, each with the time of the answer; and what trust in them covers:
    digests of the lines that were shown.
    """

    folders: dict[str, str]
    refused: dict[str, str] = {}
    covered: dict[str, list[str]] = {}

    def forget(self, root: str) -> None:
        for answers in (self.folders, self.refused, self.covered):
            answers.pop(root, None)


def _digest(line: str) -> str:
    from hashlib import sha256

    return sha256(line.encode(errors="surrogatepass")).hexdigest()


def _remember(folder: Path, home: Path, covered: list[str], *, trusted: bool) -> Path:
    from datetime import UTC, datetime

    root = project_root(folder)
    path = home / TRUSTED_FILE
    with _locked(home):
        answers = _read(path)
        times = answers.folders if trusted else answers.refused
        if str(root) not in times or answers.covered.get(str(root), []) != covered:
            answers.forget(str(root))
            times[str(root)] = datetime.now(UTC).isoformat(timespec="seconds")
            if covered:
                answers.covered[str(root)] = covered
            _write(path, answers)
    return root


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Lock the list for reading and rewriting. Raises TrustError."""
    from tui_agent.system.durable import make_private_folder, one_at_a_time

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
        return _Answers({})
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from None
    from json import loads

    try:
        return msgspec.convert(loads(kept), _Answers)  # its own reader takes no names that are not valid UTF-8
    except (ValueError, RecursionError):
        raise TrustError(f"{path}: damaged; move it away to start an empty list of trusted folders") from None


def _write(path: Path, answers: _Answers) -> None:
    from json import dumps

    from tui_agent.system.durable import write_file

    # ASCII escapes preserve folder names that are not valid UTF-8.
    text = dumps(structs.asdict(answers), indent=2) + "\n"
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror}") from None


TIGHTENING: Mapping[str, Literal["lower", "longer"] | tuple[str, ...]] = {
    "permissions.mode": ("allow", "auto", "ask", "plan"),
    "permissions.ask": "longer",
    "permissions.deny": "longer",
    "permissions.sandbox": ("off", "auto", "required"),
    "permissions.unasked": ("sandboxed", "known"),
    "agent.max_turns": "lower",
    "agent.max_turn_cost_usd": "lower",
    "agent.max_session_cost_usd": "lower",
    "limits.day_usd": "lower",
    "context.max_tokens": "lower",
    "safety.small_tier_parent": ("allow", "warn", "refuse"),
    "watchdog.mode": ("off", "warn", "prompt"),
}
"""The keys that an untrusted project's file may set, and which direction is tighter: a number may only go down (null
means no limit), a list may only grow, and a choice only move towards the end of an order from loose to strict.

All other keys wait for trust: they could redirect requests, raise the cost of a session, or let something happen
without a question.
"""


RULE: Final = r"(?s)(?P<tool>[A-Za-z0-9_.:/*-]+)(?:\((?P<pattern>.+)\))?"
"""A pattern of the syntax of permission rules."""
MAX_RULE: Final = 4_200
"""The most characters of a rule, which may name a whole command."""
MAX_RULES: Final = 200
"""The most rules that an untrusted project's file may add to a list."""


def readable(key: str, value: Value) -> tuple[Value, str]:
    """The usable part of the value that an untrusted project gives `key`, and what was left out: an invalid rule must
    not keep the program from starting.
    """
    if not isinstance(value, tuple) or TIGHTENING.get(key) != "longer":
        return value, ""
    usable = (each for each in value if len(str(each)) <= MAX_RULE and re.fullmatch(RULE, str(each).strip()))
    good = tuple(islice(usable, MAX_RULES))
    left_out = len(value) - len(good)
    return good, f"{left_out} rule{'s' * (left_out > 1)} that cannot be read" if left_out else ""


def tightens(key: str, before: Value, value: Value) -> bool:
    """Whether an untrusted project may change `key` from the user's value `before` to `value`."""
    allowed = TIGHTENING.get(key)
    if allowed == "lower":
        return isinstance(value, int | float) and (
            before is None or (isinstance(before, int | float) and value < before)
        )
    if allowed is None or allowed == "longer":
        return allowed is not None and bool(value)
    return value in allowed and before in allowed and allowed.index(str(value)) > allowed.index(str(before))
