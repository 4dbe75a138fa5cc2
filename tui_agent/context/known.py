"""What is known of a conversation's context before anything is decided: its sizes, its limits, and the moment."""

import time
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import structs

from tui_agent.context.budget import Budget, ModelLimits, Thresholds, Window, limits_of
from tui_agent.context.cache_life import Pauses, PrefixCache, priced
from tui_agent.context.compaction.words import words_limit
from tui_agent.context.counting import UNSEEN_TOKENS, Counter, Ratios
from tui_agent.context.economics import Situation
from tui_agent.context.effects import NotYet, Steps
from tui_agent.context.layers.compaction import Backoff
from tui_agent.context.layers.limits import Entering, fitted, page_bytes, shorten
from tui_agent.context.layers.shortening import load_of
from tui_agent.context.meter import TokenMeter
from tui_agent.context.requests import Prepared, Requests
from tui_agent.conversation.blocks import Reasoning
from tui_agent.conversation.entries import AnyEntry, Message, Prefix, valid_entry
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import CacheHours, ReasoningPolicy
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LEAST_PICTURE_BYTES = 1_000_000
"""Pictures of at least this many bytes of base64 may be why a request was too large; text seldom has as many."""

LONG_VIEW_CHARS, LONG_LOG = 60_000, 1_000
"""From this many characters of a view, or entries of a log, planning may take longer than a key press may wait."""


class KnownContext:
    """What is known of one conversation: it owns the view, the token meter and the model's facts, and decides nothing.

    model: the facts of the active model; set them with `use`. task_threshold: the share of the window at which the
    declared task class compacts; None: none is declared. backoff: the pause after failed compactions. pauses: the
    user's, in earlier sessions and this one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        view: View | None = None,
        model: ModelProfile | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        pauses: Pauses | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.view = view or View()
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.model = model or ModelProfile("", "")
        self.pauses = pauses or Pauses()
        self.backoff = Backoff(longest=settings.compaction.max_backoff_turns)
        self.requests = Requests()
        self.clock = clock
        self._task_threshold = task_threshold
        self._renewed_prefix: Prefix | None = None
        self._caps: dict[str, int] = {}
        self._picture_caps: dict[str, int] = {}
        self._least_results = (0, 0, 0.0)
        self._warned: set[str] = set()
        self.use(self.model)

    def use(self, model: ModelProfile) -> None:
        """Decide for this model from now on; also call it when more became known of the present one."""
        if model.name != self.model.name:
            self.requests.other_model()
        cap = self._picture_caps.get(model.name, model.picture_bytes)
        self.model = structs.replace(model, picture_bytes=cap)
        self.meter.counter.image_tokens = self.settings.context.image_tokens if model.images else UNSEEN_TOKENS
        self.view.policy = policy_of(model)

    @property
    def renewed_prefix(self) -> Prefix | None:
        """System prompt and tools to adopt with the first call, or when the cache is lost anyway; None: no change."""
        return self._renewed_prefix

    @renewed_prefix.setter
    def renewed_prefix(self, prefix: Prefix | None) -> None:
        self._renewed_prefix = prefix
        self.meter.expect(prefix)

    # The conversation

    def extend(self, entries: Iterable[AnyEntry]) -> None:
        """Stamp entries and apply them, for a caller that keeps no log of its own.

        An answer with reasoning that names no model is taken to be the active model's, for the present request.
        """
        for entry in entries:
            reasons = isinstance(entry, Message) and any(isinstance(block, Reasoning) for block in entry.blocks)
            if reasons and isinstance(entry, Message) and not entry.prefix_hash:
                made_by = entry.model or self.model.name
                entry = structs.replace(entry, model=made_by, prefix_hash=self.view.prefix_hash())
            self.apply(self.view.log.stamp(valid_entry(entry), self.clock()))

    def apply(self, entry: AnyEntry) -> None:
        """Apply an entry that is stamped and, if there is a store, committed. Raises `ValueError`."""
        self.view.apply(entry)
        self._measure(entry)

    def become(self, then: View, entries: Iterable[AnyEntry]) -> None:
        """Replace the view by the one that `View.after` made for `entries`."""
        self.view.become(then)
        for entry in entries:
            self._measure(entry)

    def _measure(self, entry: AnyEntry) -> None:
        if isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None:
            self.meter.measure(self.view, entry.usage)

    # Limits and sizes

    def limits(self, model: ModelProfile | None = None) -> ModelLimits:
        """The limits of a model, by default the active one, including what was learnt from an overflow."""
        model, fixed = model or self.model, self.meter.fixed(self.view)
        learnt = self._caps.get(model.name, 0)
        return limits_of(self.settings, model, fixed, learnt=learnt, task=self._task_threshold)

    @property
    def window(self) -> Window:
        return self.limits().window

    @property
    def budget(self) -> Budget:
        return self.limits().budget

    @property
    def thresholds(self) -> Thresholds:
        return self.limits().thresholds

    @property
    def tokens(self) -> int:
        return self.meter.tokens(self.view)

    @property
    def fits(self) -> bool:
        """Whether the next request may be sent; with an unknown window it may always be tried."""
        return self.budget.fits(self.tokens) and load_of(self.view).fits(self.model)

    @property
    def is_long(self) -> bool:
        """Whether reading or rendering the whole view may take longer than a key press may wait: then use a thread."""
        return self.view.characters > LONG_VIEW_CHARS or len(self.view.log) > LONG_LOG

    def learn_limit(self, limit: int, tokens: int = 0, *, bound: bool = False) -> None:
        """Take in an overflow: the provider's limit, and its count of the request, in tokens (0: not reported).

        `bound`: the count is only an upper bound.
        """
        if limit > 0:
            self._caps[self.model.name] = min(limit, self._caps.get(self.model.name, limit))
        if tokens > 0:
            self.meter.refused(self.view, tokens, bound=bound)

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

    def learn_least_results(self, found: NotYet) -> None:
        """Take in that, as the view is, no clearing pays before all tool results together take more tokens."""
        self._least_results = (self.view.edits, self.view.moves, found.results)

    def situation(self, *, between_turns: bool = False) -> Situation:
        tokens, model, growth, limits = self.tokens, self.model, self.meter.growth(self.view), self.limits()
        sizes, window, small = self.meter.breakdown(self.view), limits.window.tokens, self.model.small
        model = priced(model, self.next_hours)
        words = words_limit(self.settings.compaction.user_words_tokens, limits.budget)
        *examined, least_results = self._least_results
        now, then = self.view.prefix, self._renewed_prefix
        return Situation(
            settings=self.settings,
            budget=limits.budget,
            limits=limits.thresholds,
            tokens=tokens,
            growth=growth.clearable,
            growth_of_all=growth.all,
            cold=self.cache.state.cold,
            new_prefix=then is not None and (now is None or (now.system, now.tools) != (then.system, then.tools)),
            kept=self.cache.kept(tokens, limits.budget.fixed),
            between_turns=between_turns,
            model=structs.replace(model, window=window or model.window),
            rates=model.rates(tokens),
            small_rates=small.rates(tokens) if small is not None else None,
            staying=sizes["summaries"] + min(sizes["user"], words),
            tokens_of=self.meter.result_tokens_of(self.view),
            mixed_tokens_of=self.meter.mixed_tokens_of(self.view),
            whole_tokens_of=self.meter.whole_tokens_of(self.view),
            small_tokens_of=lambda size: self.meter.tokens_for((small or model).name, size),
            least_results=least_results if examined == [self.view.edits, self.view.moves] else 0.0,
            resting=self.backoff.resting,
        )

    @property
    def cache(self) -> PrefixCache:
        """The provider's cache of the prefix of the next request."""
        return PrefixCache(self.view, self.model, self.clock(), self.requests.hours)

    @property
    def next_hours(self) -> CacheHours:
        """What the next request asks to keep for an hour."""
        return self.cache.next_hours(self.settings.context.cache_life, self.pauses, self.tokens)

    # What enters and what is sent

    def shorten(self, text: str, *, paged: bool) -> Entering:
        """Cut a raw tool result to what enters the conversation; `paged`: the tool returned a page of limited size."""
        return shorten(
            text,
            self.settings.output,
            history_budget=self.budget.history,
            tokens_of=lambda each: self.meter.tokens_of_text(self.view, each),
            paged=paged,
        )

    @property
    def page_bytes(self) -> int:
        """The most bytes of one page, so that it is never large enough to be evicted."""
        return page_bytes(self.settings.output, self.budget.history)

    def fitted(self, said: Message) -> Steps[Message]:
        """Cut the user's words to what enters the conversation: a text too large for the window goes to a file."""
        name = f"prompt-{len(self.view.log) + 1}"
        tokens_of = partial(self.meter.tokens_of_text, self.view, content="prose")
        return fitted(said, self.settings.output, self.budget, name=name, tokens_of=tokens_of)

    def request(self) -> Prepared:
        """The next request, with its cache breakpoints."""
        prepared = self.requests.prepare(self.view, self.situation(), self.next_hours)
        self.requests.learn_pause(self.pauses, self.view, prepared.tokens, self.clock())
        return prepared


def policy_of(model: ModelProfile) -> ReasoningPolicy:
    return ReasoningPolicy(model.name, model.bound_reasoning, model.signs_summaries)
