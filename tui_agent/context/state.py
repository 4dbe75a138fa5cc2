"""The state of a conversation's context: view, size, model, budget, and what is cached."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import structs

from tui_agent.context.budget import Budget, Thresholds, Window, budget_of, resolve_window, thresholds
from tui_agent.context.compaction.words import words_limit
from tui_agent.context.counting import Counter, Ratios
from tui_agent.context.economics import CacheState, Situation, cache_state
from tui_agent.context.effects import Append, StepDone, Steps, expect, step_of
from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.context.layers.pictures import load_of
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation.blocks import Reasoning, ToolDefinition
from tui_agent.conversation.entries import AnyContextEntry, AnyEntry, Message, Prefix
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ReasoningPolicy
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LEAST_PICTURE_BYTES = 1_000_000
"""Pictures of at least this many bytes of base64 may be why a request was too large; text seldom has as many."""

LONG_VIEW_CHARS, LONG_LOG = 60_000, 1_000
"""From this many characters of a view, or entries of a log, planning may take longer than a key press may wait."""


class ContextState:
    """The owner of one conversation's view, token meter and model facts.

    model: the facts of the active model; set them with `use`. task_threshold: the share of the window at which the
    declared task class compacts; None: none is declared. renewed_prefix: system prompt and tools to adopt when the
    cache is lost anyway; None: no change. running: returns the command lines running in the background, by process id.
    own_writers: the steps whose text the caller writes itself.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        view: View | None = None,
        model: ModelProfile | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        own_writers: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.view = view or View()
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.model = model or ModelProfile("", "")
        self.renewed_prefix: Prefix | None = None
        self.running: Callable[[], Mapping[int, str]] = dict
        self.own_writers = frozenset(own_writers)
        self.clock = clock
        self._task_threshold = task_threshold
        self._caps: dict[str, int] = {}
        self._picture_caps: dict[str, int] = {}
        self._warned: set[str] = set()
        self._set_tiers = [
            tier for tier in ("frontier", "mid", "small") if settings.is_set(f"compaction.threshold_by_tier.{tier}")
        ]
        self.use(self.model)

    def use(self, model: ModelProfile) -> None:
        """Switch to this model; also call it when more became known of the present one."""
        cap = self._picture_caps.get(model.name, model.picture_bytes)
        self.model = structs.replace(model, picture_bytes=cap)
        self.view.policy = policy_of(model)

    # The conversation

    def extend(self, entries: Iterable[AnyEntry]) -> None:
        """Stamp entries and apply them, for a caller that keeps no log of its own.

        An answer with reasoning that names no model is taken to be the active model's, for the present request.
        """
        for entry in entries:
            if isinstance(entry, Message) and not entry.prefix_hash and _has_reasoning(entry):
                made_by = entry.model or self.model.name
                entry = structs.replace(entry, model=made_by, prefix_hash=self.view.prefix_hash())
            self.apply(self.view.log.stamp(entry, self.clock()))

    def apply(self, entry: AnyEntry) -> None:
        """Apply an entry that is stamped and, if there is a store, committed. Raises `ValueError`."""
        self.view.apply(entry)
        self._measure(entry)

    def become(self, then: View, entries: Iterable[AnyEntry]) -> View:
        """Replace the view by the one that `View.after` made for `entries`; returns the old one, for freeing."""
        left = self.view.become(then)
        for entry in entries:
            self._measure(entry)
        return left

    def _measure(self, entry: AnyEntry) -> None:
        if isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None:
            self.meter.measure(self.view, entry.usage)

    # The budget

    @property
    def window(self) -> Window:
        """The window in force, including limits learnt from an overflow or from how a local model was loaded."""
        return self._window_of(self.model)

    @property
    def budget(self) -> Budget:
        """The present budget."""
        return self._budget_of(self.model)

    @property
    def thresholds(self) -> Thresholds:
        """Where the layers start."""
        return self._thresholds_of(self.model)

    @property
    def tokens(self) -> int:
        """The size of the next request."""
        return self.meter.tokens(self.view)

    @property
    def fits(self) -> bool:
        """Whether the next request may be sent; with an unknown window it may always be tried."""
        return self.budget.fits(self.tokens) and load_of(self.view).fits(self.model)

    @property
    def is_long(self) -> bool:
        """Whether reading or rendering the whole view may take longer than a key press may wait: then use a thread."""
        return self.view.characters > LONG_VIEW_CHARS or len(self.view.log) > LONG_LOG

    def learn_limit(self, limit: int, tokens: int = 0) -> None:
        """Take in an overflow: the provider's limit, and its count of the request, in tokens (0: not reported)."""
        if limit > 0:
            self._caps[self.model.name] = min(limit, self._caps.get(self.model.name, limit))
        if tokens > 0:
            self.meter.refused(self.view, tokens)

    def learn_too_many_bytes(self) -> None:
        """Take in that the provider refused the last request's bytes: limit pictures to two thirds of theirs.

        Nothing is learnt if they were too few to be the reason.
        """
        sent = load_of(self.view).bytes
        if sent > LEAST_PICTURE_BYTES:
            self._picture_caps[self.model.name] = sent * 2 // 3
            self.use(self.model)

    def warnings(self) -> tuple[str, ...]:
        """The warnings on resting layers; each is returned once."""
        new = tuple(each for each in self.thresholds.warnings() if each not in self._warned)
        self._warned.update(new)
        return new

    def thresholds_with(self, model: ModelProfile) -> tuple[Window, Thresholds]:
        """The window and thresholds another model would have."""
        return self._window_of(model), self._thresholds_of(model)

    # The present situation

    @property
    def protected_tokens(self) -> int:
        """Tokens at the end of the conversation in which nothing is cleared automatically."""
        return protected_tokens(self.settings.clearing, self.window.tokens)

    def situation(self, *, between_turns: bool) -> Situation:
        """The present situation, for the layers."""
        tokens, model, growth = self.tokens, self.model, self.meter.growth
        sizes = self.meter.categories(self.view)
        words = words_limit(self.settings.compaction.user_words_tokens, self.window.tokens)
        return Situation(
            budget=self.budget,
            limits=self.thresholds,
            tokens=tokens,
            growth=growth.clearable,
            growth_of_all=growth.all,
            cold=self.cache.cold,
            between_turns=between_turns,
            rates=model.rates(tokens),
            small_rates=model.small.rates(tokens) if model.small is not None else None,
            staying=sizes["summaries"] + min(sizes["user"], words),
            tokens_of=lambda size: self.meter.tokens_of(self.view, size),
            mixed_tokens_of=self.meter.mixed_tokens_of(self.view),
        )

    @property
    def cache(self) -> CacheState:
        """Whether the provider still has the prefix of the next request."""
        call, prefix = self.view.last_call, self.view.prefix
        return cache_state(
            now=self.clock(),
            last_call=self.view.last_read(call) if call else None,
            ttl_s=self.model.cache_ttl_s,
            same_model=call is not None and call.model == self.model.name,
            same_prefix=call is None or prefix is None or prefix.seq < call.seq,
        )

    def tools_of(self, prefix: Prefix | None) -> tuple[ToolDefinition, ...]:
        """The definitions to send: deferred ones only if the provider supports that."""
        tools = prefix.tools if prefix else ()
        return tools if self.model.defers_tools else tuple(tool for tool in tools if not tool.deferred)

    def change(self, entry: AnyContextEntry) -> Steps[StepDone]:
        """Append a context entry, and report the step."""
        seq = expect(int, (yield Append((entry,))))
        done = step_of(self.view.context_entry(seq))
        yield done
        return done

    # For any model

    def _window_of(self, model: ModelProfile) -> Window:
        known = model.window if model.source == "provider" else 0
        window = resolve_window(
            self.settings.context, provider=known, catalogue=0 if model.source == "provider" else model.window
        )
        cap = self._caps.get(model.name, 0) or (model.window if model.fixed_window else 0)
        return Window(cap, "provider") if cap and window.tokens > cap else window

    def _budget_of(self, model: ModelProfile) -> Budget:
        fixed = self.meter.fixed(self.view)
        return budget_of(self.settings.context, self._window_of(model), fixed, max_output=model.max_output)

    def _thresholds_of(self, model: ModelProfile) -> Thresholds:
        return thresholds(
            self._budget_of(model),
            self.settings.clearing,
            self.settings.compaction,
            tier=model.tier,
            task=self._task_threshold,
            set_tiers=self._set_tiers,
            cliffs=model.cliffs,
        )


def _has_reasoning(message: Message) -> bool:
    return any(isinstance(block, Reasoning) for block in message.blocks)


def policy_of(model: ModelProfile) -> ReasoningPolicy:
    """Which reasoning is sent back to a model."""
    return ReasoningPolicy(model.name, model.bound_reasoning)
