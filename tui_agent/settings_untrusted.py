"""What a project's `.agents/config.json` may do before its folder is trusted: tighten, never widen.

Each entry is a key such a file may set and the direction that counts as tighter. Every other key waits for trust: it
could redirect requests, raise what a session costs, or let something happen without a question.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tui_agent.settings_schema import Value


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
    "agent.max_turn_cost_usd": Lower(),
    "agent.max_session_cost_usd": Lower(),
    "context.max_tokens": Lower(),
    "safety.small_tier_parent": Stricter(("allow", "warn", "refuse")),
    "watchdog.mode": Stricter(("off", "warn", "prompt")),
}


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
