"""A frozen snapshot of how full the window is and what comes next."""

from collections.abc import Mapping, Sequence

import msgspec

from tui_agent.context.budget import ModelLimits, Threshold
from tui_agent.context.counting import estimate
from tui_agent.context.forecast import Forecast
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation.entries import Boundary, Checkpointed, Summarized
from tui_agent.conversation.sizes import Category
from tui_agent.conversation.view import View

LABELS: dict[Category, str] = {
    "system": "System prompt",
    "tools": "Tool definitions",
    "user": "Your messages",
    "notices": "Notices",
    "assistant": "Answers",
    "reasoning": "Reasoning",
    "calls": "Tool calls",
    "results": "Tool results",
    "summaries": "Summaries",
}


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of boundary: how many there are, when the newest was made (seconds since the epoch), its focus or note."""

    count: int = 0
    last: float = 0.0
    note: str = ""


class SubtaskUse(msgspec.Struct, frozen=True):
    """The subtasks' usage; the session's cost includes it."""

    count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0


class ServerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens, and USD for each call, of an MCP server's tool definitions: `sent` with every request; `saved`:
    looked up when needed, so not sent.
    """

    name: str
    sent: int = 0
    saved: int = 0
    sent_usd: float = 0.0
    saved_usd: float = 0.0


class ModelUse(msgspec.Struct, frozen=True):
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class ContextStats(msgspec.Struct, frozen=True, kw_only=True):
    """How full the window is, what comes next, and what everything costs.

    tokens: the size of the next request (`measured`: counted by the provider, else estimated). window: the model's
    input capacity; 0: unknown. reserve: room for an answer. categories: the request in estimated tokens by category.
    Costs are in USD, None if the model's prices are unknown. cache_share: the share of all input that was read from the
    provider's cache. evicted, cleared, digested: the present number of such results. summarised_chars: characters in
    the log of everything that boundaries cover; summaries: how many texts replace it; depth: how many times the oldest
    of it was summarised. waits, waited_s: how often, and how many seconds in all, turns waited for a summary. models:
    by descending cost. memory: the part of the system prompt that is the index of the notes. forecast: what comes next.
    cache_until: when the provider's cache expires, in seconds since the epoch; 0: there is none. scale: how many tokens
    the request has for each that `estimate` counts.
    """

    model: str
    tokens: int
    window: int
    reserve: int
    measured: bool
    categories: Mapping[Category, int]
    cost_usd: float | None = 0.0
    turn_cost_usd: float | None = 0.0
    cache_share: float | None = None
    messages: int = 0
    evicted: int = 0
    cleared: int = 0
    digested: int = 0
    compactions: int = 0
    checkpoints: int = 0
    summarised_chars: int = 0
    summaries: int = 0
    depth: int = 0
    waits: int = 0
    waited_s: float = 0.0
    reasoning_dropped: int = 0
    cache_until: float = 0.0
    last_compaction: Activity = Activity()
    last_checkpoint: Activity = Activity()
    marks: tuple[Threshold, ...] = ()
    forecast: Forecast | None = None
    subtasks: SubtaskUse = SubtaskUse()
    models: tuple[ModelUse, ...] = ()
    servers: tuple[ServerUse, ...] = ()
    memory: int = 0
    scale: float = 1.0

    @property
    def percent(self) -> float:
        return 100 * self.tokens / self.window if self.window else 0.0

    @property
    def figures(self) -> dict[str, float]:
        """How full the window is, in percent, and how often the context was made smaller."""
        made = ("evicted", "cleared", "digested", "compactions", "checkpoints")
        return {"percent": round(self.percent, 1), **{name: getattr(self, name) for name in made}}


def stats_of(
    view: View, meter: TokenMeter, limits: ModelLimits, model: str, ahead: Forecast | None = None
) -> ContextStats:
    """The snapshot without costs, in time proportional to the number of context entries. `ahead`: what comes next."""
    tokens, hidden, shown, entries = meter.tokens(view), view.counts(), view.boundaries(), view.context_entries()
    # A wait counts even if its step was undone later.
    waited = [each.waited_s for each, _ in entries if isinstance(each, Summarized | Checkpointed) and each.waited_s]
    summaries = [entry for entry, counts in entries if counts and isinstance(entry, Summarized)]
    records = [entry for entry, counts in entries if counts and isinstance(entry, Checkpointed)]
    return ContextStats(
        model=model,
        tokens=tokens,
        window=limits.window.tokens,
        reserve=limits.budget.reserve,
        measured=meter.measured,
        categories=meter.breakdown(view),
        messages=view.message_count,
        evicted=hidden.evicted,
        cleared=hidden.cleared,
        digested=hidden.digested,
        compactions=len(summaries),
        checkpoints=len(records),
        summarised_chars=hidden.hidden,
        summaries=len(shown),
        depth=max((boundary.depth for boundary in shown), default=0),
        waits=len(waited),
        waited_s=sum(waited),
        reasoning_dropped=view.reasoning_dropped(),
        last_compaction=_activity(summaries, summaries[-1].focus if summaries else ""),
        last_checkpoint=_activity(records, records[-1].note if records else ""),
        marks=limits.thresholds.all(),
        forecast=ahead,
        scale=tokens / max(1, sum(map(estimate, meter.sizes(view).values()))),
    )


def _activity(made: Sequence[Boundary], note: str) -> Activity:
    return Activity(count=len(made), last=max((entry.time for entry in made), default=0.0), note=note)
