"""The token budget: the window, its fixed part, the reserve for the answer, and the thresholds of the layers.

Clearing starts above its threshold, compaction at its own, both before the call that would pass it. A layer rests if
the fixed part alone exceeds its threshold, since it could never get below it (docs/context.md, "Token budget" and
"Layers").
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.conversation.profile import ModelProfile, Tier
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings

WindowSource: TypeAlias = Literal["setting", "provider", "catalogue", "default", "unknown"]

SHORT_HISTORY: Final = 64_000
"""Tokens of conversation that models of every tier read well: shorter ones are not compacted for the model's tier."""

SHORT_ANSWER: Final = 2_048
"""Tokens of an answer that there is always room for, if they are at most a quarter of the window: 98% of the answers in
recorded sessions are shorter."""


class Window(msgspec.Struct, frozen=True):
    """A model's input capacity in tokens (0: unknown), and the source of that figure."""

    tokens: int
    source: WindowSource


class Budget(msgspec.Struct, frozen=True):
    """The division of the window, in tokens.

    window: the model's input capacity; 0: unknown. fixed: system prompt and tool definitions. reserve: room kept for
    one answer. If the window is unknown, `max_context` limits the request in tokens or, if that is 0, `max_messages` in
    messages.
    """

    window: int
    fixed: int
    reserve: int
    max_context: int = 0
    max_messages: int = 0

    @property
    def known(self) -> bool:
        return self.window > 0

    @property
    def limit(self) -> int:
        """The largest request that may be sent; with an unknown window, the largest one wanted (0: any size)."""
        return self.window - self.reserve if self.known else self.max_context

    @property
    def history(self) -> int:
        """What remains for the conversation."""
        return max(0, self.limit - self.fixed)

    def fits(self, tokens: int) -> bool:
        """Whether a request of this size may be sent; with an unknown window it may always be tried."""
        return not self.known or tokens <= self.limit


def resolve_window(settings: ContextSettings, *, provider: int = 0, catalogue: int = 0) -> Window:
    """The window in force: from the setting, else the provider, else the catalogue, else the default.

    `provider`, `catalogue`: their figures in tokens; 0: unknown. A setting of -1 means unknown.
    """
    if settings.context_window < 0:
        return Window(0, "unknown")
    known = (Window(settings.context_window, "setting"), Window(provider, "provider"), Window(catalogue, "catalogue"))
    return next((each for each in known if each.tokens > 0), Window(settings.default_window, "default"))


def budget(window: int, fixed: int, max_tokens: int, *, max_share: float = 0.25) -> Budget:
    """The budget of a known window. The reserve is `max_tokens`, but at most `max_share` of what the fixed part leaves,
    so that a large one leaves room for a conversation too; yet no less than a short answer needs.
    """
    share = max(int((window - fixed) * max_share), min(SHORT_ANSWER, int(window * max_share)))
    return Budget(window, fixed, min(max_tokens, share))


def budget_of(settings: ContextSettings, window: Window, fixed: int, *, max_output: int = 0) -> Budget:
    """The budget under these settings; `max_output`: the model's longest answer in tokens (0: unknown)."""
    most = min(settings.max_tokens, max_output) if max_output > 0 else settings.max_tokens
    if window.tokens > 0:
        return budget(window.tokens, fixed, most, max_share=settings.max_tokens_share)
    return Budget(0, fixed, most, settings.max_context_tokens, settings.max_messages)


LayerName: TypeAlias = Literal["clear", "compact", "limit"]


class Threshold(msgspec.Struct, frozen=True):
    """Where a layer starts: at `tokens` of the next request or, if that is 0, at `messages` (both 0: never).

    source: what set the threshold. warning: why the layer rests; empty if it does not.
    """

    layer: LayerName
    tokens: int
    source: str = ""
    messages: int = 0
    warning: str = ""

    @property
    def rests(self) -> bool:
        """Whether the layer never starts automatically; `warning` says why."""
        return bool(self.warning)

    def reached(self, tokens: int, messages: int = 0) -> bool:
        """Whether the layer starts at a request of this size."""
        if self.rests:
            return False
        if self.tokens:
            return tokens > self.tokens if self.layer == "clear" else tokens >= self.tokens
        return bool(self.messages) and messages >= self.messages


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Where clearing and compaction start, and the largest request that may be sent. cliff: the size in tokens above
    which the model costs more per token, if requests can be kept below it; else 0.
    """

    clear: Threshold
    compact: Threshold
    limit: Threshold
    cliff: int = 0

    def all(self) -> tuple[Threshold, ...]:
        """The thresholds that can be reached, lowest first."""
        each = (self.clear, self.compact, self.limit)
        return tuple(sorted((one for one in each if one.tokens or one.messages), key=lambda one: one.tokens))

    def warnings(self) -> tuple[str, ...]:
        return tuple(each.warning for each in (self.clear, self.compact, self.limit) if each.warning)


def thresholds(
    budget: Budget,
    clearing: ClearingSettings,
    compaction: CompactionSettings,
    *,
    tier: Tier = "unknown",
    task: float | None = None,
    set_tiers: Collection[str] = (),
    cliffs: tuple[int, ...] = (),
) -> Thresholds:
    """The thresholds for a model of `tier`.

    `task`: the compaction threshold of the task class, if there is one. `set_tiers`: the tiers for which the user has
    set ``compaction.threshold_by_tier``. `cliffs`: request sizes in tokens above which the model costs more per token;
    clearing and compaction start no later than at the lowest one above the fixed part and the reserve.
    """
    start = Threshold("compact", *compaction_start(compaction, budget, tier, task, set_tiers))
    if budget.known and budget.limit < start.tokens:
        start = Threshold("compact", budget.limit, "window - reserve")
    elif not budget.known and budget.max_context:
        start = Threshold("compact", budget.max_context, "max_context_tokens")
    elif not budget.known:
        start = Threshold("compact", 0, "max_messages", messages=budget.max_messages)
    own, before_compaction = round(budget.window * clearing.threshold), round(start.tokens * clearing.compaction_share)
    clear = Threshold("clear", before_compaction, f"{clearing.compaction_share:.0%} of the way to compaction")
    if budget.known and own <= before_compaction:
        clear = Threshold("clear", own, "clearing.threshold")
    cliff = min((each for each in cliffs if each > budget.fixed + budget.reserve), default=0)
    if cliff and start.tokens > cliff:
        start = structs.replace(start, tokens=cliff, source="price cliff")
    if cliff and clear.tokens > cliff:
        clear = structs.replace(clear, tokens=cliff, source="price cliff")
    limit = Threshold("limit", budget.limit, "window - reserve" if budget.known else "max_context_tokens")
    if budget.known and budget.fixed >= limit.tokens:
        limit = structs.replace(
            limit,
            warning=f"Nothing fits: the system prompt and tools ({budget.fixed:,} tokens) alone reach the limit of "
            f"{limit.tokens:,} tokens (a window of {budget.window:,} less {budget.reserve:,} for an answer).",
        )
    return Thresholds(
        clear=_checked("Clearing", clear, budget),
        compact=_checked("Compaction", start, budget),
        limit=limit,
        cliff=cliff,
    )


def _checked(name: str, threshold: Threshold, budget: Budget) -> Threshold:
    always = budget.fixed + budget.reserve if budget.known else budget.fixed
    if not threshold.tokens or always < threshold.tokens:
        return threshold
    return structs.replace(
        threshold,
        warning=f"{name} rests: the system prompt and tools ({budget.fixed:,} tokens) and the room for an answer "
        f"({always - budget.fixed:,}) alone pass its threshold of {threshold.tokens:,} tokens.",
    )


def compaction_start(
    compaction: CompactionSettings,
    budget: Budget,
    tier: Tier,
    task: float | None = None,
    set_tiers: Collection[str] = (),
) -> tuple[int, str]:
    """The tokens of a known window at which compaction starts, and what set them.

    In order of precedence: the user's setting for the tier, the task class, the tier's built-in share, and for an
    unknown tier ``compaction.threshold``. The built-in shares leave `SHORT_HISTORY` beside the fixed part, or the
    frontier's share of what is free if that is less.
    """
    window = budget.window
    by_tier = {
        "frontier": compaction.threshold_by_tier.frontier,
        "mid": compaction.threshold_by_tier.mid,
        "small": compaction.threshold_by_tier.small,
    }
    if tier in by_tier and tier in set_tiers:
        return round(window * by_tier[tier]), f"threshold_by_tier.{tier}"
    if task is not None:
        return round(window * task), "task class"
    if tier in by_tier:
        short = min(SHORT_HISTORY, round((window - budget.fixed) * by_tier["frontier"]))
        return max(round(window * by_tier[tier]), budget.fixed + short), f"{tier} tier"
    return round(window * compaction.threshold), "compaction.threshold"


def keep_tokens(compaction: CompactionSettings, budget: Budget, trigger: int) -> int:
    """How many of the newest tokens a compaction keeps word for word: at most half of (trigger - fixed), and a share of
    the whole history, so that in a small window the next compaction is not due soon again.
    """
    room = max(0, trigger - budget.fixed)
    most = int(budget.history * compaction.keep_recent_share) if budget.limit else room
    return min(compaction.keep_recent_tokens, room // 2, most)


class ModelLimits(NamedTuple):
    """The window of a model, its division, and where the layers start."""

    window: Window
    budget: Budget
    thresholds: Thresholds


def limits_of(
    settings: Settings, model: ModelProfile, fixed: int, *, learnt: int = 0, task: float | None = None
) -> ModelLimits:
    """The limits of a model under these settings, with `fixed` tokens of system prompt and tools.

    `learnt`: the window in tokens that an overflow has shown (0: none). `task`: see `thresholds`.
    """
    by_provider = model.source == "provider"
    window = resolve_window(
        settings.context, provider=model.window if by_provider else 0, catalogue=0 if by_provider else model.window
    )
    cap = learnt or (model.window if model.fixed_window else 0)
    if cap and window.tokens > cap:
        window = Window(cap, "provider")
    room = budget_of(settings.context, window, fixed, max_output=model.max_output)
    tiers: tuple[Tier, ...] = ("frontier", "mid", "small")
    starts = thresholds(
        room,
        settings.clearing,
        settings.compaction,
        tier=model.tier,
        task=task,
        set_tiers=[tier for tier in tiers if settings.is_set(f"compaction.threshold_by_tier.{tier}")],
        cliffs=model.cliffs,
    )
    return ModelLimits(window, room, starts)
