"""What is to be done about the context, and when: all layers decided together, at the moments where that costs least.

The manager looks before every model call. It changes nothing itself: it answers with one pass of steps, which the agent
carries out and reports back. Between two passes a request only grows, byte for byte (README, reference: cost).
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context import clearing, pricing
from tui_agent.context.budget import Budget, Window, budget_of, resolve_window
from tui_agent.context.checkpoints import Declarations, plan_checkpoint
from tui_agent.context.compaction import CompactionPlan, plan_compaction
from tui_agent.context.counting import Counter, Ratios
from tui_agent.context.digests import COMPACTION_PREFIX, PREFIX, DigestPlan, plan_digest
from tui_agent.context.handover import Prompts
from tui_agent.context.layers.limits import Shortened, eviction_tokens, shorten
from tui_agent.context.meter import TokenMeter
from tui_agent.context.refusal import Refusal
from tui_agent.context.situation import Rates, Situation
from tui_agent.context.steering import resting_after_undo
from tui_agent.context.summarising import Backoff
from tui_agent.context.thresholds import KnownTier, Thresholds, keep_tokens, thresholds
from tui_agent.context.timing import Worth, clearing_cost_per_token, compaction_worth, reason_it_pays
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.sizes import NOTHING, Size, size_of_block
from tui_agent.conversation.view import RequestMessage, View
from tui_agent.settings import Settings

Recovery: TypeAlias = Literal["clear_old", "extract", "clear_newest"]
RECOVERIES: tuple[tuple[Recovery, bool], ...] = (
    ("clear_old", False),
    ("extract", True),
    ("clear_newest", False),
    ("extract", False),
)
"""The ways out of an overflow, mildest first; the second item: only where it is enough."""

PAGE_BYTES_PER_TOKEN = 2
"""Bytes a token is taken for where a page is sized: few enough for any script."""

TOO_LARGE = "the request was too large for the model"
RECOVERY_SHARE = 0.5
"""How much of the limit a recovery from an overflow may keep word for word."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What layers must know of the model that answers; tokens, seconds, and USD per million tokens.

    `window` is 0 where nobody knows it; `told_by_provider`: the provider said so, else the catalogue did;
    `fixed_window`: no setting makes it larger. `small` are the rates of the cheaper model that could write a summary,
    None where there is none.
    """

    name: str
    window: int = 0
    told_by_provider: bool = False
    fixed_window: bool = False
    max_output: int = 0
    tier: KnownTier = "unknown"
    rates: Rates | None = None
    small: Rates | None = None
    cliffs: tuple[int, ...] = ()
    cache_ttl_s: float = 300.0


class Pass(NamedTuple):
    """The steps of one maintenance point, in the order they are carried out. `summary` still lacks its text."""

    checkpoint: CompactionPlan | None = None
    summary: CompactionPlan | None = None
    digest: DigestPlan | None = None
    cleared: Cleared | None = None

    def __bool__(self) -> bool:
        return any(step is not None for step in self)


class ContextManager:
    """Decides for one conversation. Owns its meter, its back-off and what it has warned of."""

    def __init__(
        self,
        settings: Settings,
        prompts: Prompts,
        *,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        memory_folders: Collection[str] = (),
        checkpoints: bool = True,
    ) -> None:
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.backoff = Backoff(longest=settings.compaction.max_backoff_turns)
        self.settings = settings
        self.prompts = prompts
        self._task_threshold = task_threshold
        self.never = clearing.stays(settings.clearing, memory_folders)
        self._checkpoints = checkpoints
        self._watch = clearing.Watch()
        self._declarations = Declarations()
        self._caps: dict[str, int] = {}
        self._warned: set[str] = set()
        self._edge: tuple[int, int] | None = None
        self._set_tiers = [
            tier for tier in ("frontier", "mid", "small") if settings.is_set(f"compaction.threshold_by_tier.{tier}")
        ]

    # What fits

    def window(self, model: ModelFacts) -> Window:
        """The window in force; an overflow that told a smaller one counts, and what the model is loaded with."""
        known = model.window if model.told_by_provider else 0
        window = resolve_window(
            self.settings.context, provider=known, catalogue=0 if model.told_by_provider else model.window
        )
        cap = self._caps.get(model.name, 0) or (model.window if model.fixed_window else 0)
        return Window(cap, "provider") if cap and window.tokens > cap else window

    def budget(self, view: View, model: ModelFacts) -> Budget:
        """What fits in the model's window."""
        sizes = self.meter.categories(view)
        fixed = sizes["system"] + sizes["tools"]
        return budget_of(self.settings.context, self.window(model), fixed, max_output=model.max_output)

    def thresholds(self, view: View, model: ModelFacts) -> Thresholds:
        """Where the layers start."""
        return thresholds(
            self.budget(view, model),
            self.settings.clearing,
            self.settings.compaction,
            tier=model.tier,
            task=self._task_threshold,
            set_tiers=self._set_tiers,
            cliffs=model.cliffs,
        )

    def tokens(self, view: View) -> int:
        """The size of the next request."""
        return self.meter.tokens(view)

    def situation(self, view: View, model: ModelFacts, now: float, *, between_turns: bool) -> Situation:
        """This moment; `now` in seconds since the epoch."""
        return Situation(
            budget=self.budget(view, model),
            tokens=self.tokens(view),
            growth=self.meter.growth.clearable,
            cold=self.cache(view, model, now).cold,
            between_turns=between_turns,
            rates=model.rates,
            tokens_of=lambda size: self.meter.tokens_of(view, size),
        )

    def cache(self, view: View, model: ModelFacts, now: float) -> pricing.CacheState:
        """Whether the provider still has the prefix of the next request."""
        call, prefix = view.last_call, view.prefix
        return pricing.cache_state(
            now=now,
            last_call=call.time if call else None,
            ttl_s=model.cache_ttl_s,
            same_model=call is not None and call.model == model.name,
            same_prefix=call is None or prefix is None or prefix.seq < call.seq,
        )

    def tokens_of(self, view: View) -> Callable[[Size], int]:
        """Raw sizes into tokens of the model that answers, for what is a mixture like the conversation as a whole."""
        known = self.meter.categories(view)
        said = NOTHING
        for category, size in view.sizes().items():
            if category not in ("system", "tools"):
                said = said.plus(size)
        plain = self.meter.counter.size(said, "results")
        ratio = (sum(known.values()) - known["system"] - known["tools"]) / plain if plain else 1.0
        return lambda size: math.ceil(self.meter.counter.size(size, "results") * ratio)

    def summarising(self, view: View, here: Situation) -> Situation:
        """The same moment, with sizes weighed as a summary's turns are: by the conversation's own mixture."""
        return structs.replace(here, tokens_of=self.tokens_of(view))

    def warnings(self, view: View, model: ModelFacts) -> tuple[str, ...]:
        """Why layers rest, each said once."""
        new = tuple(each for each in self.thresholds(view, model).warnings() if each not in self._warned)
        self._warned.update(new)
        return new

    def protected_edge(self, view: View, model: ModelFacts, messages: Sequence[RequestMessage]) -> int:
        """The index of the last message before the protected tail, in which nothing is cleared; -1: there is none.

        It stays where the last edit left it: what stands before it is read from the cache by every call, which keeps it
        there, while a mark that moved along would be written anew each time.
        """
        edited = view.edits
        if self._edge is not None and self._edge[0] == edited and self._edge[1] < len(messages):
            return self._edge[1]
        self._edge = (edited, self._tail_edge(view, model, messages))
        return self._edge[1]

    def _tail_edge(self, view: View, model: ModelFacts, messages: Sequence[RequestMessage]) -> int:
        tokens_of = self.tokens_of(view)
        left = clearing.protected_tokens(self.settings.clearing, self.window(model).tokens)
        for index in range(len(messages) - 1, -1, -1):
            size = NOTHING
            for block in messages[index].blocks:
                size = size.plus(size_of_block(block))
            left -= tokens_of(size)
            if left < 0:
                return index - 1
        return -1

    def shorten(self, view: View, text: str, *, history_budget: int, paged: bool) -> Shortened:
        """What of a raw tool result enters the conversation; the budget in tokens."""
        return shorten(
            text,
            self.settings.output,
            history_budget=history_budget,
            tokens_of=lambda each: self.meter.tokens_of_text(view, each),
            paged=paged,
        )

    def page_bytes(self, history_budget: int) -> int:
        """The most bytes of one page, so that it takes no more of the window than a result that is not evicted."""
        return PAGE_BYTES_PER_TOKEN * eviction_tokens(self.settings.output, history_budget)

    # What is due

    def due(self, view: View, model: ModelFacts, now: float, *, between_turns: bool) -> Pass:
        """What is to be done before the next model call."""
        now_is = self.situation(view, model, now, between_turns=between_turns)
        limits = self.thresholds(view, model)
        checkpoint = self._due_checkpoint(view, now_is) if between_turns else None
        if checkpoint is not None:
            return Pass(checkpoint=checkpoint)
        cleared = self._due_clearing(view, now_is, limits)
        summary = self._due_compaction(view, model, now_is, limits, cleared)
        if summary is None and cleared is not None:
            summary = self._cheaper_than(cleared, view, model, now_is, limits)
        if summary is not None:
            return Pass(summary=summary)
        return Pass(digest=self._due_digest(view), cleared=cleared)

    def follow_up(self, view: View, model: ModelFacts, now: float, *, kept_from: int = 0) -> Pass:
        """What goes along after a boundary was set: the cache behind it is lost, so clearing what is old is free."""
        warm = self.situation(view, model, now, between_turns=False)
        after = structs.replace(warm, cold=True)
        cleared = self._due_clearing(view, after, self.thresholds(view, model))
        return Pass(digest=self._due_digest(view, kept_from, COMPACTION_PREFIX), cleared=cleared)

    def recovery(self, view: View, model: ModelFacts, now: float, way: Recovery) -> Cleared | CompactionPlan | None:
        """A way to a smaller request that needs no model: clear what is old, replace old turns by their extract, or
        clear even the newest results.
        """
        here = self.situation(view, model, now, between_turns=False)
        if way != "extract":
            cleared = self.forced_clearing(view, here, keep=0 if way == "clear_newest" else self.settings.clearing.keep)
            return structs.replace(cleared, reason=TOO_LARGE) if cleared else None
        plan = plan_compaction(
            view,
            self.summarising(view, here),
            self.settings.compaction,
            self.prompts,
            trigger=None,
            asked=True,
            keep=int(min(here.budget.limit or here.tokens, here.tokens) * RECOVERY_SHARE),
            reason=TOO_LARGE,
        )
        return None if isinstance(plan, Refusal) else plan

    def learn_limit(self, model: ModelFacts, limit: int) -> None:
        """The provider told, in an overflow, how many tokens it takes."""
        if limit > 0:
            self._caps[model.name] = min(limit, self._caps.get(model.name, limit))

    @property
    def has_checkpoints(self) -> bool:
        """Whether checkpoints are on."""
        return self._checkpoints

    def turn_ended(self) -> None:
        """A turn is over."""
        self.backoff = self.backoff.turn_ended()

    # One layer each

    def _due_checkpoint(self, view: View, here: Situation) -> CompactionPlan | None:
        if not self._checkpoints or self.backoff.resting or self.settings.context.preset == "off":
            return None
        task = self._declarations.newest(view)
        if task is None:
            return None
        plan = plan_checkpoint(
            view,
            self.summarising(view, here),
            self.settings.compaction,
            self.prompts,
            step=task.step,
            note=task.detail,
            reason="the model declared the task done",
        )
        return None if isinstance(plan, Refusal) else plan

    def _due_clearing(self, view: View, here: Situation, limits: Thresholds) -> Cleared | None:
        if self.settings.context.preset not in ("layered", "digest"):
            return None
        return clearing.plan(view, here, self.settings.clearing, limits.clear, never=self.never, watch=self._watch)

    def _due_digest(self, view: View, first: int = 0, prefix: str = PREFIX) -> DigestPlan | None:
        if self.settings.context.preset != "digest":
            return None
        plan = plan_digest(view, self.settings.digests, self.prompts.digest, first=first, prefix=prefix)
        return None if isinstance(plan, Refusal) else plan

    def _due_compaction(
        self, view: View, model: ModelFacts, here: Situation, limits: Thresholds, cleared: Cleared | None
    ) -> CompactionPlan | None:
        settings = self.settings.compaction
        if not settings.auto or self.settings.context.preset == "off" or self.backoff.resting:
            return None
        freed = cleared.before - cleared.after if cleared else 0
        reason = self._reason_to_compact(view, model, here, limits, freed)
        if not reason:
            return None
        plan = self._plan(view, here, limits, reason)
        if plan is None:
            self.backoff = self.backoff.failed()
        return plan

    def _may_compact(self, view: View) -> bool:
        """Whether a compaction that only saves money may happen by itself."""
        settings = self.settings
        allowed = settings.compaction.auto and settings.context.preset != "off"
        return allowed and not self.backoff.resting and not resting_after_undo(view)

    def _plan(self, view: View, here: Situation, limits: Thresholds, reason: str) -> CompactionPlan | None:
        plan = plan_compaction(
            view,
            self.summarising(view, here),
            self.settings.compaction,
            self.prompts,
            trigger=limits.compact.tokens or None,
            reason=reason,
        )
        return None if isinstance(plan, Refusal) else plan

    def _reason_to_compact(self, view: View, model: ModelFacts, here: Situation, limits: Thresholds, freed: int) -> str:
        left, trigger = here.tokens - freed, limits.compact
        if resting_after_undo(view) or trigger.rests:
            return "the view reached the limit" if limits.limit.reached(left) else ""
        if trigger.reached(left, len(view.messages()) if trigger.messages else 0):
            return (
                f"the view reached {trigger.tokens:,} tokens ({trigger.source})" if trigger.tokens else trigger.source
            )
        return self._paying_compaction(model, here, limits)

    def _paying_compaction(self, model: ModelFacts, here: Situation, limits: Thresholds) -> str:
        """Why a compaction pays now; empty when it does not."""
        worth = self._worth(model, here, limits)
        if worth is None or here.rates is None:
            return ""
        growth = self.meter.growth.all
        return reason_it_pays(here, self.settings.compaction, here.rates, worth, growth=growth)

    def _worth(self, model: ModelFacts, here: Situation, limits: Thresholds) -> Worth | None:
        """What a compaction would cost and free now; None where prices or limits do not tell, or thrift is 0."""
        trigger, settings = limits.compact, self.settings.compaction
        if here.rates is None or not settings.thrift or trigger.rests or not trigger.tokens:
            return None
        keep = keep_tokens(settings, here.budget, trigger.tokens)
        return compaction_worth(here, settings, here.rates, keep=keep, small=model.small)

    def _cheaper_than(
        self, cleared: Cleared, view: View, model: ModelFacts, here: Situation, limits: Thresholds
    ) -> CompactionPlan | None:
        """The compaction that makes room at less cost than this clearing does; on a cold cache clearing is free."""
        if here.cold or here.rates is None or not self._may_compact(view):
            return None
        worth = self._worth(model, here, limits)
        if worth is None:
            return None
        freed = cleared.before - cleared.after
        first = next(result for result in view.live_results() if result.seq == cleared.results[0])
        tail = max(0, here.tokens_of(first.after) - (freed - here.tokens_of(first.size)))
        if worth.per_token >= clearing_cost_per_token(here.rates, freed=freed, tail=tail):
            return None
        return self._plan(view, here, limits, "it frees tokens at less cost than clearing would")

    def forced_clearing(
        self, view: View, here: Situation, *, keep: int, only: Collection[int] | None = None
    ) -> Cleared | None:
        """All old results but the newest `keep`, or `only` some, however little that frees."""
        settings = structs.replace(self.settings.clearing, keep=keep)
        limits = thresholds(here.budget, settings, self.settings.compaction)
        return clearing.plan(view, here, settings, limits.clear, never=self.never, force=True, only=only)
