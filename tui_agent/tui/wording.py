"""The wording of modes, models, context steps, sizes, counts, times and refusals on the screen."""

from pathlib import PurePosixPath
from time import time
from typing import Final

from tui_agent.conversation.tool_facts import facts_of
from tui_agent.settings.schema import PermissionMode
from tui_agent.text import money_text

WHILE_A_TURN_RUNS: Final = "not while a turn runs; Esc stops it"
"""The refusal of anything that cannot be done during a turn."""

AGAIN: Final = "r"
"""Sent after a turn that failed, this sends its text once more."""

PLACEHOLDER: Final = "Ask, or / for commands"
"""Shown in the empty prompt."""

MODES: Final[dict[PermissionMode, str]] = {
    "plan": "read only",
    "ask": "asks before every change and every command",
    "auto": "edits here, runs read-only commands, asks about the rest",
    "allow": "never asks",
}
"""What each mode means."""
CONFINED: Final = "edits here, runs commands in the sandbox, asks about the rest"
"""What the mode ``auto`` means where a full sandbox confines commands."""

_UNITS: Final = ((1024**3, "GB"), (1024**2, "MB"), (1024, "KB"))


def model_label(name: str) -> str:
    """A model's name. Some local servers use the path of the model's file as its name: show only the file name."""
    provider, separator, model = name.rpartition(":") if ":/" in name else ("", "", name)
    path = PurePosixPath(model)
    return f"{provider}{separator}{path.name}" if path.is_absolute() else name


def doing(tool: str) -> str:
    """The activity shown while a tool runs."""
    return facts_of(tool).doing or f"running {tool}"


def age(when: float) -> str:
    """How long ago a time (seconds since the epoch) was, in its largest unit."""
    seconds = time() - when
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def size(of_bytes: int) -> str:
    """A number of bytes in its largest unit."""
    for length, unit in _UNITS:
        if of_bytes >= length:
            return f"{of_bytes / length:.0f} {unit}" if of_bytes >= 10 * length else f"{of_bytes / length:.1f} {unit}"
    return f"{of_bytes} B"


def duration(seconds: float) -> str:
    """A duration in a few characters: 0.4s, 12s, 3m 05s, 2h 10m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def saved_text(once: float, each: float) -> str:
    """What a context step saved: `once`, until the next call was made (negative: it cost that), and with `each` call
    after it, in USD; empty if nothing is known.
    """
    if not once and not each:
        return ""
    if once >= 0:
        return f"saved {money_text(once)}, {money_text(each)} a call from then on"
    return f"cost {money_text(-once)}, saves {money_text(each)} a call"
