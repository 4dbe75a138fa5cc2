"""What a conversation's context is now: its view, its size, the model it is for, what fits, and what is cached."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import structs

from tui_agent.context.budget import Budget, Thresholds, Window, budget_of, resolve_window, thresholds
from tui_agent.context.counting import Counter, Ratios
from tui_agent.context.economics import CacheState, ModelFacts, Situation, cache_state
from tui_agent.context.effects import Append, StepDone, Steps, expect, step_of
from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.context.layers.pictures import load_of
from tui_agent.context.meter import TokenMeter
from tui_agent.context.summary.words import words_limit
from tui_agent.conversation.blocks import Reasoning, ToolDefinition
from tui_agent.conversation.entries import AnyContextEntry, AnyEntry, Message, Prefix
from tui_agent.conversation.request import ReasoningPolicy
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LEAST_PICTURE_BYTES = 1_000_000
"""Bytes in base64 from which on pictures may be why a request was too large; its text has seldom more."""

LONG_VIEW_CHARS, LONG_LOG = 60_000, 1_000
"""Characters of a view, or entries of a log, from which on planning takes longer than a key press may wait."""


class ContextState:
    """The view, the token meter and the model facts of one conversation, of which it is the one owner.

    `model` is what is known of the model that answers; set it with `use`. `task_threshold` is the share of the window
    at which the declared task compacts; None where none is declared. `renewed_prefix` is the system prompt and tools
    that the next maintenance point is to send; None: those in force. `running` tells the command lines that run in the
    background, by process id. `own_writers` are the steps whose text the caller writes itself.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        view: View | None = None,
        model: ModelFacts | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        own_writers: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.view = view or View()
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.model = model or ModelFacts(name="")
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

    def use(self, model: ModelFacts) -> None:
        """This model answers from here on; also when more became known of the present one."""
        cap = self._picture_caps.get(model.name, model.picture_bytes)
        self.model = structs.replace(model, picture_bytes=cap)
        self.view.policy = policy_of(model)

    # The conversation

    def extend(self, entries: Iterable[AnyEntry]) -> None:
        """Stamp entries of one's own and take them in, for a caller that keeps no log elsewhere.

        An answer with reasoning that does not say so was made by the model in use, for the request as it stood then.
        """
        for entry in entries:
            if isinstance(entry, Message) and not entry.prefix_hash and _has_reasoning(entry):
                made_by = entry.model or self.model.name
                entry = structs.replace(entry, model=made_by, prefix_hash=self.view.prefix_hash())
            self.apply(self.view.log.stamp(entry, self.clock()))

    def apply(self, entry: AnyEntry) -> None:
        """Take in an entry that is stamped and, where there is a store, committed. Raises `ValueError`."""
        self.view.apply(entry)
        self._measure(entry)

    def become(self, then: View, entries: Iterable[AnyEntry]) -> View:
        """Go on with the view that `View.after` gave for `entries`; what was in its place, to be let go of."""
        left = self.view.become(then)
        for entry in entries:
            self._measure(entry)
        return left

    def _measure(self, entry: AnyEntry) -> None:
        if isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None:
            self.meter.measure(self.view, entry.usage)

    # What fits

    @property
    def window(self) -> Window:
        """The window in force; one that the provider told in an overflow counts, and what the model is loaded with."""
        return self._window_of(self.model)

    @property
    def budget(self) -> Budget:
        """What fits in the window."""
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
        """Whether the next request may be sent; of an unknown window it always may be tried."""
        return self.budget.fits(self.tokens) and load_of(self.view).fits(self.model)

    @property
    def is_long(self) -> bool:
        """Whether reading or rendering all of the view may take longer than a key press may wait: do it in a thread."""
        return self.view.characters > LONG_VIEW_CHARS or len(self.view.log) > LONG_LOG

    def learn_limit(self, limit: int, tokens: int = 0) -> None:
        """The provider told, in an overflow, how many tokens it takes, and how many the request has (0: not told)."""
        if limit > 0:
            self._caps[self.model.name] = min(limit, self._caps.get(self.model.name, limit))
        if tokens > 0:
            self.meter.refused(self.view, tokens)

    def learn_too_many_bytes(self) -> None:
        """The provider took the last request for too large: from here on its pictures may be two thirds as many bytes.

        Nothing is learned where they were too few to be the reason.
        """
        sent = load_of(self.view).bytes
        if sent > LEAST_PICTURE_BYTES:
            self._picture_caps[self.model.name] = sent * 2 // 3
            self.use(self.model)

    def warnings(self) -> tuple[str, ...]:
        """Why layers rest, each said once."""
        new = tuple(each for each in self.thresholds.warnings() if each not in self._warned)
        self._warned.update(new)
        return new

    def thresholds_with(self, model: ModelFacts) -> tuple[Window, Thresholds]:
        """The window and thresholds another model would have."""
        return self._window_of(model), self._thresholds_of(model)

    # This moment

    @property
    def protected_tokens(self) -> int:
        """The tokens at the end of the conversation in which nothing is cleared unasked."""
        return protected_tokens(self.settings.clearing, self.window.tokens)

    def situation(self, *, between_turns: bool) -> Situation:
        """This moment, as every layer is told of it."""
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
        """The definitions that a request carries: those that are held back only where the provider knows of that."""
        tools = prefix.tools if prefix else ()
        return tools if self.model.defers_tools else tuple(tool for tool in tools if not tool.deferred)

    def change(self, entry: AnyContextEntry) -> Steps[StepDone]:
        """Enter a context entry, and tell of it."""
        seq = expect(int, (yield Append((entry,))))
        done = step_of(self.view.context_entry(seq))
        yield done
        return done

    # Of any model

    def _window_of(self, model: ModelFacts) -> Window:
        known = model.window if model.told_by_provider else 0
        window = resolve_window(
            self.settings.context, provider=known, catalogue=0 if model.told_by_provider else model.window
        )
        cap = self._caps.get(model.name, 0) or (model.window if model.fixed_window else 0)
        return Window(cap, "provider") if cap and window.tokens > cap else window

    def _budget_of(self, model: ModelFacts) -> Budget:
        fixed = self.meter.fixed(self.view)
        return budget_of(self.settings.context, self._window_of(model), fixed, max_output=model.max_output)

    def _thresholds_of(self, model: ModelFacts) -> Thresholds:
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


def policy_of(model: ModelFacts) -> ReasoningPolicy:
    """Which reasoning goes back to a model."""
    return ReasoningPolicy(model.name, model.bound_reasoning)
