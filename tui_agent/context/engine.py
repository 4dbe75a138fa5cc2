"""The context engine: the owner of a conversation's view, token meter and model facts, and of the context work on it.

Before every model call it decides what context work to do, at the moments when that costs least; between those, a
request only grows, byte for byte. The engine is pure: to write, save or ask a model it yields an effect (`effects`),
which its caller carries out. Its parts get data, and return decisions: none of them holds the engine.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import structs

from tui_agent.context import changes
from tui_agent.context.budget import Budget, ModelLimits, Thresholds, Window, limits_of
from tui_agent.context.cache_life import Pauses, kept_for, rewriting_usd
from tui_agent.context.cache_watch import ColdSend
from tui_agent.context.changes import PreviewedStep, StepPreview, preview_change, undone_by_user
from tui_agent.context.compaction.draft import Draft, accept, accept_anew
from tui_agent.context.compaction.forms import Prompts
from tui_agent.context.compaction.material import Material, material_of, questions_of
from tui_agent.context.compaction.plan import (
    Plan,
    merge_of,
    plan_checkpoint,
    plan_compaction,
    plan_merge,
    rebased,
    with_state,
)
from tui_agent.context.compaction.state import where_things_are
from tui_agent.context.compaction.words import words_limit
from tui_agent.context.compaction.writing import (
    choose_writer,
    enter_draft,
    write_signed,
    write_summary,
)
from tui_agent.context.counting import Counter, Ratios
from tui_agent.context.deferring import found_tools
from tui_agent.context.economics import CacheState, Situation, StepPrice, cache_state, signing_cost, step_price
from tui_agent.context.effects import (
    Append,
    AwaitWriting,
    BeforeSummary,
    Instructions,
    NotYet,
    Refusal,
    SaveText,
    StepDone,
    StepName,
    Steps,
    StepStarted,
    WriteInBackground,
    expect,
    step_of,
)
from tui_agent.context.forecast import Forecast, StepAhead, begun_summary, due_clearing, due_summary, forecast
from tui_agent.context.layers.clearing import ClearingLayer, never_cleared, protected_tokens
from tui_agent.context.layers.compaction import Backoff, CheckpointLayer, CompactionLayer, Declarations
from tui_agent.context.layers.digests import DigestLayer, DigestPlan, write_digest
from tui_agent.context.layers.limits import Entering, Whole, eviction_tokens, shorten, shorten_prompt
from tui_agent.context.layers.shortening import (
    KEPT_SHARE,
    OVERFLOW_STEPS,
    TOO_LARGE,
    OverflowStep,
    fewer_pictures,
    load_of,
    shorten_newest,
    without_refused,
)
from tui_agent.context.meter import TokenMeter
from tui_agent.context.stats import ContextStats, stats_of
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolDefinition
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Artifact,
    Cleared,
    Message,
    Prefix,
    UnattributedCall,
    Words,
)
from tui_agent.conversation.profile import HOUR_S, MILLION, ModelProfile
from tui_agent.conversation.request import CacheHours, ModelRequest, ReasoningPolicy
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LONGEST_ANSWER = 16_384
"""The longest answer to ask for if the window is unknown, in tokens."""

PAGE_BYTES_PER_TOKEN = 2
"""Bytes assumed for a token when sizing a page: few enough for any script."""

LEAST_PICTURE_BYTES = 1_000_000
"""Pictures of at least this many bytes of base64 may be why a request was too large; text seldom has as many."""

LONG_VIEW_CHARS, LONG_LOG = 60_000, 1_000
"""From this many characters of a view, or entries of a log, planning may take longer than a key press may wait."""

Decision: TypeAlias = AnyContextEntry | Plan | DigestPlan | NotYet | Refusal
"""What a layer answers: an entry to append, or a summary or digest to have written; `NotYet`; or a refusal if one is
due, but impossible.
"""


class Layer(Protocol):
    """A way to keep the context small, asked before each call. It reads the view and changes nothing, itself included:
    the engine carries out its decision, and remembers what has to be remembered.
    """

    @property
    def name(self) -> str: ...

    def plan(self, view: View, situation: Situation, /) -> Decision | None:
        """What is due now, with its reason and sizes before and after; None if nothing is."""
        ...


class _Due(NamedTuple):
    """What the layers have decided on for the moment before a call; the first that succeeds is all that is done."""

    here: Situation
    summary: Decision | None
    digest: DigestPlan | None
    cleared: Decision | None


class WorthWriting(NamedTuple):
    """A summary to write before the cache expires. In USD: what writing it costs, and what the first message after the
    expiry costs then and without it.
    """

    plan: Plan
    writing_usd: float
    then_usd: float
    without_usd: float


class Prepared(NamedTuple):
    """The next request, of about `tokens` tokens. `prefix_hash`: to store with the answer."""

    request: ModelRequest
    tokens: int
    prefix_hash: str


@dataclass(slots=True, eq=False)
class _InBackground:
    """A summary written in the background; `draft` is set once it is complete, to be entered before the next call.

    merged: the oldest summaries merged into one, entered together with it so that the cache is lost only once.
    """

    plan: Plan
    draft: Draft | None = None
    merged: Draft | None = None


class ContextEngine:
    """Decides on context work for one conversation, whose view, token meter and model facts it owns.

    model: the facts of the active model; set them with `use`. task_threshold: the share of the window at which the
    declared task class compacts; None: none is declared. never_clear: folders (of memory and skills); results of
    reading their files are never cleared. checkpoints: the model can declare tasks done. own_writers: the steps whose
    text the caller writes itself. thread: the name of the history to which replaced turns go. more: custom layers,
    asked after the built-in ones. renewed_prefix: system prompt and tools to adopt when the cache is lost anyway; None:
    no change. running: returns the command lines running in the background, by process id. backoff: the pause after
    failed compactions. pauses: the user's, in earlier sessions and this one.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        prompts: Prompts | None = None,
        view: View | None = None,
        model: ModelProfile | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        never_clear: Collection[str] = (),
        checkpoints: bool = True,
        own_writers: Collection[str] = (),
        thread: str = "main",
        more: Sequence[Layer] = (),
        pauses: Pauses | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings = settings or Settings()
        self.view = view or View()
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.model = model or ModelProfile("", "")
        self.renewed_prefix: Prefix | None = None
        self.running: Callable[[], Mapping[int, str]] = dict
        self.own_writers = frozenset(own_writers)
        self.clock = clock
        self.checkpoints = CheckpointLayer(on=checkpoints)
        self.clearing = ClearingLayer(never_cleared(settings.clearing, never_clear))
        self.compaction = CompactionLayer()
        self._prompts = prompts or Prompts.shipped()
        self.digests = DigestLayer(self._prompts.digest)
        self.more = tuple(more)
        self.pauses = pauses or Pauses()
        self._paused = -1
        self._life: CacheHours = ""
        self.backoff = Backoff(longest=settings.compaction.max_backoff_turns)
        self._thread, self._history_path = thread, f"conversation_history/{thread}.md"
        self._task_threshold = task_threshold
        self._caps: dict[str, int] = {}
        self._picture_caps: dict[str, int] = {}
        self._warned: set[str] = set()
        self._declarations = Declarations()
        self._least_results = (0, 0, 0.0)
        self._summary: _InBackground | None = None
        self._sent = 0
        self._edge: tuple[int, int] | None = None
        self._kept_after = 0
        self.use(self.model)

    def use(self, model: ModelProfile) -> None:
        """Decide for this model from now on; also call it when more became known of the present one."""
        if model.name != self.model.name:
            self._sent = 0
        cap = self._picture_caps.get(model.name, model.picture_bytes)
        self.model = structs.replace(model, picture_bytes=cap)
        self.view.policy = policy_of(model)

    def turn_ended(self) -> None:
        """Note the end of a turn."""
        self.backoff = self.backoff.turn_ended()

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

    # ModelLimits and sizes

    def limits(self, model: ModelProfile | None = None) -> ModelLimits:
        """The limits of a model, by default the active one, including what was learnt from an overflow."""
        model, fixed = model or self.model, self.meter.fixed(self.view)
        learnt = self._caps.get(model.name, 0)
        return limits_of(self.settings, model, fixed, learnt=learnt, task=self._task_threshold)

    @property
    def window(self) -> Window:
        """The window in force."""
        return self.limits().window

    @property
    def budget(self) -> Budget:
        """The present budget."""
        return self.limits().budget

    @property
    def thresholds(self) -> Thresholds:
        """Where the layers start."""
        return self.limits().thresholds

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

    @property
    def protected_tokens(self) -> int:
        """Tokens at the end of the conversation in which nothing is cleared automatically."""
        return protected_tokens(self.settings.clearing, self.window.tokens)

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

    def situation(self, *, between_turns: bool = False) -> Situation:
        """The present situation, for the layers."""
        tokens, model, growth, limits = self.tokens, self.model, self.meter.growth, self.limits()
        sizes, window, small = self.meter.categories(self.view), limits.window.tokens, self.model.small
        model = self._priced(self.cache_hours)
        words = words_limit(self.settings.compaction.user_words_tokens, window)
        *examined, least_results = self._least_results
        return Situation(
            settings=self.settings,
            budget=limits.budget,
            limits=limits.thresholds,
            tokens=tokens,
            growth=growth.clearable,
            growth_of_all=growth.all,
            cold=self.cache.cold,
            kept=self._kept(tokens),
            between_turns=between_turns,
            model=structs.replace(model, window=window or model.window),
            rates=model.rates(tokens),
            small_rates=small.rates(tokens) if small is not None else None,
            staying=sizes["summaries"] + min(sizes["user"], words),
            tokens_of=lambda size: self.meter.tokens_of(self.view, size),
            mixed_tokens_of=self.meter.mixed_tokens_of(self.view),
            small_tokens_of=lambda size: self.meter.tokens_for((small or model).name, size),
            least_results=least_results if examined == [self.view.edits, self.view.moves] else 0.0,
            resting=self.backoff.resting,
        )

    @property
    def cache(self) -> CacheState:
        """Whether the provider still has the prefix of the next request."""
        return self._cache_after(self._priced(self._written_for).cache_ttl_s)

    def _cache_after(self, ttl_s: float) -> CacheState:
        call, prefix = self.view.last_call, self.view.prefix
        return cache_state(
            now=self.clock(),
            last_call=self.view.last_read(call) if call else None,
            ttl_s=ttl_s,
            same_model=call is not None and call.model == self.model.name,
            same_prefix=call is None or prefix is None or prefix.seq < call.seq,
        )

    @property
    def _written_for(self) -> CacheHours:
        """What the newest call has had kept for an hour, as its usage says; if it wrote nothing, as was asked for."""
        call = self.view.last_call
        used = call.usage if call is not None else None
        if used is None or not used.cache_write_tokens:
            return self._life
        if used.cache_write_hour_tokens == used.cache_write_tokens:
            return "all"
        return "prefix" if used.cache_write_hour_tokens or self._life == "prefix" else ""

    @property
    def cache_hours(self) -> CacheHours:
        """What the next request asks to keep for an hour: decided anew whenever all is written to the cache anyway."""
        if not self.model.keeps_hours:
            return ""
        if not self.cache.cold:
            return self._written_for
        return kept_for(self.settings.context.cache_life, self.model, self.pauses, self.tokens)

    def _priced(self, life: CacheHours) -> ModelProfile:
        """The model with the prices and the lifetime of a cache of this life."""
        return self.model.for_an_hour() if life == "all" else self.model

    def _kept(self, tokens: int) -> int:
        """The tokens at the start of the next request that are in the provider's cache."""
        call = self.view.last_call
        caches = self.model.cache != "none" or self.model.local
        if call is None or call.usage is None or not caches:
            return 0
        if self.cache.cold:
            alive = self._written_for == "prefix" and not self._cache_after(HOUR_S).cold
            fixed = self.meter.fixed(self.view)
            return min(fixed, tokens) if alive and fixed >= self.model.cache_minimum else 0
        used = call.usage
        left = used.input_tokens + (used.output_tokens if self.model.local else 0)
        if self.model.cache == "marked":
            left = used.cache_read_tokens + used.cache_write_tokens
        if self.view.edits_since_call:
            # At least the system prompt and the tools come before what was changed.
            left = min(left, self.meter.fixed(self.view))
        return min(left, tokens) if left >= self.model.cache_minimum or self.model.local else 0

    # What enters

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
        return PAGE_BYTES_PER_TOKEN * eviction_tokens(self.settings.output, self.budget.history)

    def fitted(self, said: Message) -> Steps[Message]:
        """Cut the user's words to what enters the conversation: a text too large for the window goes to a file."""
        budget = self.budget
        text = "\n\n".join(block.text for block in said.blocks if isinstance(block, Text))
        short = shorten_prompt(
            text,
            self.settings.output,
            history_budget=budget.history,
            tokens_of=lambda each: self.meter.tokens_of_text(self.view, each, "prose"),
        )
        if not budget.known or isinstance(short, Whole):
            return said
        artifact = expect(Artifact, (yield SaveText(f"prompt-{len(self.view.log) + 1}", text)))
        others = tuple(block for block in said.blocks if not isinstance(block, Text))
        return structs.replace(said, blocks=(Text(short.text(artifact.path)), *others), artifact=artifact)

    # Before a call

    def prepare(self, *, between_turns: bool = False) -> Steps[None]:
        """Do all context work that is due before the next call, in one pass.

        A summary is written in the background, and entered before the first call after it is done; this waits for it
        only if the next request does not fit, and for the record of a task that the model has declared done. Until
        then the other layers leave the entries it replaces alone.
        """
        waited = 0.0 if self.fits else (yield from self._await_summary())
        if self._summary is None and not waited:
            yield from self._do_what_is_due(between_turns=between_turns)
        else:
            yield from self.settle(waited_s=waited)
        for layer in self.more:
            yield from self._carry_out(layer.plan(self.view, self.situation(between_turns=between_turns)))

    def _do_what_is_due(self, *, between_turns: bool) -> Steps[None]:
        """Do what the built-in layers have decided on."""
        due = self._decide(self._before_a_call(between_turns=between_turns))
        if (yield from self._carry_out(due.summary, due.here)):
            return
        yield from self._carry_out(due.digest)
        yield from self._carry_out(due.cleared)

    def _before_a_call(self, *, between_turns: bool) -> Situation:
        return structs.replace(
            self.situation(between_turns=between_turns),
            in_background=self.settings.compaction.background and self.fits,
            task_done=self._declarations.newest(self.view) if between_turns else None,
        )

    def _decide(self, here: Situation) -> _Due:
        """What the built-in layers do before the next call, each knowing what those before it decided."""
        call = self.view.last_call
        if call is not None and call.seq == self._kept_after and self.fits:
            return _Due(here, None, None, None)
        summary: Decision | None = self.checkpoints.plan(self.view, here)
        if summary is not None:
            # The next task is to begin without the finished one, so its first request waits for the record.
            here = structs.replace(here, in_background=False)
        cleared = None if summary else self.clearing.plan(self.view, here)
        if summary is None:
            known = cleared if isinstance(cleared, Cleared) else None
            summary = self.compaction.plan(self.view, structs.replace(here, cleared=known))
        # A summary takes the place of both, unless it fails.
        return _Due(here, summary, self.digests.plan(self.view, here), cleared)

    def _carry_out(self, decision: Decision | None, here: Situation | None = None) -> Steps[bool]:
        """Do what a layer has decided; False if nothing came of it. `here`: the situation it was decided in."""
        match decision:
            case None:
                return False
            case NotYet():
                self._least_results = (self.view.edits, self.view.moves, decision.results)
                return False
            case Refusal():
                self.backoff = self.backoff.failed()
                return False
            case DigestPlan():
                yield StepStarted("digest", self.tokens, decision.reason)
                digest = yield from write_digest(decision, self.situation())
                digest = structs.replace(digest, before=self.tokens)
                after = preview_change(self.view, [digest], self.situation()).after
                yield from self.change(structs.replace(digest, after=after))
                return True
            case Plan() if here is not None and here.in_background:
                yield from self._write_in_background(decision)
                return True
            case Plan():
                began = self.clock()
                draft = yield from self._write(decision)
                if isinstance(draft, Draft):
                    yield from self.enter(draft, waited_s=self.clock() - began)
                return isinstance(draft, Draft)
            case _:
                yield from self.change(decision)
                return True

    def request(self) -> Prepared:
        """The next request, with cache breakpoints at the edge of the protected tail and at the end of the last
        request.
        """
        request, call = self._request(), self.view.last_call
        self._life = request.cache_hours
        if (call.seq if call is not None else 0) != self._paused:
            self._learn_pause(call)
        messages = len(request.messages)
        edges = {self._protected_edge(messages), self._sent - 1}
        self._sent = messages
        edges = {edge for edge in edges if 0 <= edge < messages - 1}
        request = structs.replace(request, cache_edges=tuple(sorted(edges)))
        return Prepared(request, self.tokens, self.view.prefix_hash())

    def _learn_pause(self, call: Message | None) -> None:
        """Take in how long after the answer `call` the next one is asked for."""
        tokens, self._paused = self.tokens, call.seq if call is not None else 0
        if call is None:
            self.pauses.learn(None, tokens, tokens)
            return
        used = call.usage
        before = used.input_tokens + used.output_tokens if used is not None else tokens
        added = tokens if self.view.edits_since_call else max(0, tokens - before)
        self.pauses.learn(max(0.0, self.clock() - self.view.last_read(call)), tokens, added)

    def _request(self, plan: Plan | None = None) -> ModelRequest:
        """The next request; with a `plan` that the provider is to write, the one that asks it to."""
        prefix = self.view.prefix
        tools: tuple[ToolDefinition, ...] = prefix.tools if prefix else ()
        request = ModelRequest(
            system=prefix.system if prefix else "",
            tools=tools if self.model.defers_tools else tuple(tool for tool in tools if not tool.deferred),
            messages=tuple(self.view.messages()) if plan is None or not plan.through else (),
            max_tokens=self.budget.reserve or LONGEST_ANSWER,
            cache_hours=self.cache_hours,
        )
        if plan is None or not plan.through:
            return request
        messages = self.view.until(plan.last).messages
        edge = self._protected_edge(len(messages) + 1)
        edges = (edge,) if 0 <= edge < len(messages) - 1 else ()
        return structs.replace(request, messages=messages, summarize="", cache_edges=edges)

    def _protected_edge(self, messages: int) -> int:
        """The index of the last message before the protected tail, in which nothing is cleared; -1: there is none.

        It stays where the last edit left it: the part before it is read from the cache by every call, which keeps it
        cached, while a moving breakpoint would be written again each time.
        """
        edited = self.view.edits
        if self._edge is None or self._edge[0] != edited or self._edge[1] >= messages:
            tokens_of, protected = self.meter.mixed_tokens_of(self.view), self.protected_tokens
            self._edge = (edited, self.view.before_tail(lambda size: tokens_of(size) <= protected).messages - 1)
        return self._edge[1]

    # If a request does not fit

    def recover(self) -> Steps[bool]:
        """Shrink the next request without asking a model; True if it is smaller now and fits.

        Waits for a summary that is being written, even if by our own count the request fits, and enters a finished one.
        """
        start = self.tokens
        waited = yield from self._await_summary()
        yield from self.settle(waited_s=waited)
        for step in OVERFLOW_STEPS:
            if self.tokens < start and self.fits:
                return True
            yield from self._shrink_by(step)
        return self.tokens < start

    def _shrink_by(self, step: OverflowStep) -> Steps[None]:
        here = self.situation()
        entry: AnyContextEntry | None = None
        match step:
            case "fewer_pictures":
                entry = yield from fewer_pictures(self.view, here)
            case "clear_old" | "clear_newest":
                keep = 0 if step == "clear_newest" else None
                entry = self.clearing.asked_for(self.view, here, keep=keep, reason=TOO_LARGE)
            case "extract" | "extract_if_enough":
                keep = int(min(here.budget.limit or here.tokens, here.tokens) * KEPT_SHARE)
                plan = plan_compaction(
                    self.view, here, trigger=None, asked=True, keep=keep, reason=TOO_LARGE, by_provider=False
                )
                if isinstance(plan, Plan) and (step == "extract" or here.budget.fits(plan.after)):
                    yield from self._enter_extract(plan)
                elif step == "extract" and len(shown := self.view.boundaries()) > 1:
                    yield from self._enter_extract(merge_of(shown, self.view, here))
            case "shorten":
                entry = yield from shorten_newest(self.view, here)
        if entry is not None:
            yield from self.change(entry)

    def give_way(self, refused: Collection[Image], *, others: bool) -> Steps[bool]:
        """Shrink pictures, or replace them by notes, after the provider refused one; False if nothing changed.

        `refused`: those it named (empty: it may be any). `others`: it has refused one before in this turn.
        """
        entry = yield from without_refused(self.view, self.situation(), refused, others=others)
        if entry is not None:
            yield from self.change(entry)
        return entry is not None

    # Steps that the user asks for

    def change(self, entry: AnyContextEntry) -> Steps[StepDone]:
        """Append a context entry, and report the step."""
        if isinstance(entry, Cleared):
            price = changes.clearing_price(self.view, self.situation(), entry)
            entry = structs.replace(entry, **_saved(price))
        seq = expect(int, (yield Append((entry,))))
        done = step_of(self.view.context_entry(seq))
        yield done
        return done

    def clear_results(self) -> Steps[StepDone | Refusal]:
        """Clear all old results now, however small they are."""
        before = self.tokens
        cleared = self.clearing.asked_for(self.view, self.situation(between_turns=True))
        if cleared is not None:
            return (yield from self.change(cleared))
        if not self.fits and (yield from self.recover()):
            return StepDone("shortened", before, self.tokens, TOO_LARGE)
        return self._nothing_to_clear()

    def _nothing_to_clear(self) -> Refusal:
        keep = self.settings.clearing.keep
        return Refusal(f"There is nothing to clear: the newest {keep} results and pins stay.")

    def clear_items(self, items: Sequence[int]) -> Steps[StepDone | Refusal]:
        """Clear these results now, even the newest."""
        cleared = self.clearing.asked_for(self.view, self.situation(), keep=0, only=items)
        why = (
            "Only a tool result that is shown whole, is not pinned, and is larger than its placeholder can be cleared."
        )
        return (yield from self._change_asked_for(cleared or Refusal(why)))

    def pin(self, items: Sequence[int], *, pinned: bool = True) -> Steps[StepDone | Refusal]:
        """Pin messages or results, each with its group, or unpin them."""
        plan = changes.plan_pin if pinned else changes.plan_unpin
        return (yield from self._change_asked_for(plan(self.view, items, self.situation())))

    def restore(self, items: Sequence[int], texts: Sequence[str] = ()) -> Steps[StepDone | Refusal]:
        """Restore messages or results to full text; `texts`: see `changes.plan_restore`."""
        plan = changes.plan_restore(self.view, items, self.situation(), texts=texts)
        return (yield from self._change_asked_for(plan))

    def edit_words(self, edits: Sequence[Words]) -> Steps[StepDone | Refusal]:
        """Change the kept words of the user's messages; an empty text drops those of a message."""
        return (yield from self._change_asked_for(changes.plan_words(self.view, edits, self.situation())))

    def undo(self, target: int | None = None) -> Steps[StepDone | Refusal]:
        """Undo a context step, by default the newest."""
        return (yield from self._change_asked_for(changes.plan_undo(self.view, self.situation(), target=target)))

    def _change_asked_for(self, plan: AnyContextEntry | Refusal) -> Steps[StepDone | Refusal]:
        return plan if isinstance(plan, Refusal) else (yield from self.change(plan))

    def compact(self, step: Literal["compact", "checkpoint"] = "compact", subject: str = "") -> Steps[StepDone]:
        """Write a summary or completion record and enter it without review.

        If nothing can be summarised and the request does not fit, shrink it as `recover` does.
        """
        name: StepName = "summary" if step == "compact" else "checkpoint"
        before = self.tokens
        draft = yield from self.draft(step, subject)
        if isinstance(draft, Draft):
            result = yield from self.enter(draft)
            # Free the turns one by one: freeing all of a long conversation at once would block every thread.
            parts: list[object] = [*draft.plan.leaving, *draft.material.parts]
            del draft
            while parts:
                parts.pop()
            return result
        if step == "compact" and not self.fits and (yield from self.recover()):
            return StepDone(name, before, self.tokens, draft.reason, text=draft.reason)
        return StepDone(name, before, before, "asked for", error=draft.reason)

    # Writing summaries

    def _plan_asked_for(self, step: Literal["compact", "checkpoint"], subject: str) -> Plan | Refusal:
        """Plan a summary (with the focus `subject`) or completion record (with that note) for the user."""
        here, reason = self.situation(between_turns=True), "asked for"
        if step == "checkpoint":
            return plan_checkpoint(self.view, here, note=subject, reason=reason)
        trigger = here.limits.compact.tokens or None
        return plan_compaction(self.view, here, trigger=trigger, focus=subject, asked=True, reason=reason)

    def draft(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Steps[Draft | Refusal]:
        """Write a summary or completion record without changing the conversation."""
        plan = self._plan_asked_for(step, subject)
        return plan if isinstance(plan, Refusal) else (yield from self._write(plan, asked=True))

    def _write(self, plan: Plan, *, asked: bool = False) -> Steps[Draft | Refusal]:
        """Write the text of a plan. If one that the user did not ask for (`asked`) fails, the next one backs off."""
        heard = yield from self._heard(plan, asked=asked)
        if isinstance(heard, Refusal):
            return heard
        plan = heard
        yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes)
        plan, here, seen = self._with_state(plan), self.situation(), len(self.view.log)
        material = material_of(plan, self.view, here, self._prompts)
        return (yield from self._written(plan, material, here, self._request(plan), seen, asked=asked))

    def _heard(self, plan: Plan, *, asked: bool = False) -> Steps[Plan | Refusal]:
        """The plan with what the user's hooks ask to keep; why there is to be no summary if they prevent it."""
        if plan.step != "summary" or plan.boundaries:
            return plan
        said = yield BeforeSummary(plan.reason, plan.subject, asked)
        if isinstance(said, Refusal):
            if not asked:
                self.backoff = self.backoff.failed()
            yield StepDone(plan.step, plan.before, plan.before, plan.reason, error=said.reason)
            return said
        if isinstance(said, Instructions):
            return structs.replace(plan, subject="\n".join(filter(None, (plan.subject, said.text))))
        return plan

    def _written(
        self, plan: Plan, material: Material, here: Situation, running: ModelRequest, seen: int, *, asked: bool
    ) -> Steps[Draft | Refusal]:
        refused = ""
        draft: Draft | Refusal | None = None
        if plan.through:
            draft = yield from write_signed(plan, material, here, running, path=self._history_path)
            if isinstance(draft, Refusal) and not draft.final:
                refused, again = draft.reason, self._plan_by_us(plan, asked=asked)
                if isinstance(again, Plan):
                    seen, plan, here, draft = len(self.view.log), again, self.situation(), None
                    material, running = material_of(plan, self.view, here, self._prompts), self._request()
        if draft is None:
            own = plan.step in self.own_writers
            draft = yield from write_summary(plan, material, here, running, path=self._history_path, own=own)
        if isinstance(draft, Refusal):
            if not asked and not draft.final:
                self.backoff = self.backoff.failed()
            yield StepDone(plan.step, plan.before, plan.before, plan.reason, error=draft.reason)
            return draft
        if refused:
            draft = structs.replace(draft, failures=(f"signed: {refused}", *draft.failures))
        later = range(seen + 1, len(self.view.log) + 1)
        unchanged = all(isinstance(self.view.log[seq], UnattributedCall) for seq in later)
        return structs.replace(draft, seen=len(self.view.log) if unchanged else seen)

    def _plan_by_us(self, plan: Plan, *, asked: bool) -> Plan | Refusal:
        """The plan to write ourselves what the provider would not."""
        here = self.situation()
        trigger = here.limits.compact.tokens or None
        again = plan_compaction(
            self.view, here, trigger=trigger, focus=plan.subject, asked=asked, reason=plan.reason, by_provider=False
        )
        if isinstance(again, Refusal):
            return again
        again = self._with_state(again)
        if self._summary is not None and self._summary.plan is plan:
            self._summary.plan = again
        return again

    def _write_in_background(self, plan: Plan) -> Steps[None]:
        """Start writing a summary in the background, and merging the oldest ones if there would be too many.

        Their input is collected now.
        """
        heard = yield from self._heard(plan)
        if isinstance(heard, Refusal):
            return
        plan = heard
        here, seen, plans = self.situation(), len(self.view.log), [self._with_state(plan)]
        if not plan.boundaries and not plan.through and (merge := plan_merge(self.view, here, coming=plan)) is not None:
            plans.append(merge)
        work = [(each, material_of(each, self.view, here, self._prompts)) for each in plans]
        yield WriteInBackground(self._background(work, here, self._request(plan), seen))
        yield from self.settle()

    def _background(
        self, work: Sequence[tuple[Plan, Material]], here: Situation, running: ModelRequest, seen: int
    ) -> Steps[None]:
        """Closing this generator early cancels the writing and leaves nothing behind."""
        summary = self._summary = _InBackground(work[0][0])
        drafts: list[Draft] = []
        try:
            for plan, material in work:
                yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes, True)
                if drafts:
                    material = material.with_newer(plan, drafts[0].plan, drafts[0].text)
                draft = yield from self._written(plan, material, here, running, seen, asked=bool(plan.boundaries))
                if not isinstance(draft, Draft):
                    break
                drafts.append(draft)
            summary.draft, summary.merged = (*drafts, None, None)[:2]
        finally:
            if summary.draft is None and self._summary is summary:
                self._summary = None

    def _await_summary(self) -> Steps[float]:
        """Wait for the summary that is being written, if any; returns the seconds waited."""
        if self._summary is None or self._summary.draft is not None:
            return 0.0
        began = self.clock()
        yield AwaitWriting()
        return max(self.clock() - began, 1e-3)

    def settle(self, *, waited_s: float = 0.0) -> Steps[None]:
        """Enter the summary that was written in the background, if there is one.

        If the entries it replaces have changed since, it is dropped. A turn has waited `waited_s` seconds for it.
        """
        summary = self._summary
        if summary is None or summary.draft is None:
            return
        try:
            now = self.current(summary.draft)
            if isinstance(now, Refusal):
                plan, tokens, spent = summary.plan, self.tokens, summary.draft.spent_usd
                yield StepDone(plan.step, tokens, tokens, plan.reason, error=now.reason, cost_usd=spent)
            else:
                yield from self.enter(now, waited_s=waited_s, merged=summary.merged)
        finally:
            self._summary = None

    @property
    def writing(self) -> Plan | None:
        """The plan of the summary that is being written in the background or waits to be entered."""
        return self._summary.plan if self._summary is not None else None

    @property
    def written(self) -> bool:
        """Whether a summary that was written in the background waits to be entered."""
        return self._summary is not None and self._summary.draft is not None

    def still_holds(self) -> bool:
        """Whether the summary that is being written could still be entered. Reads everything it replaces."""
        return self._summary is None or isinstance(rebased(self._summary.plan, self.view, self.situation()), Plan)

    def _with_state(self, plan: Plan) -> Plan:
        known = (where_things_are(self.view, self.running()), found_tools(self.view))
        state = "\n\n".join(text for text in known if text)
        return with_state(plan, state, self.view, self.meter.mixed_tokens_of(self.view))

    # Entering summaries

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft for the present view, with another `text` if given; a refusal if it no longer applies."""
        seen, plan = len(self.view.log), draft.plan
        if draft.seen == seen and text is None:
            return draft
        if draft.seen != seen:
            present = rebased(plan, self.view, self.situation())
            if isinstance(present, Refusal):
                return present
            plan = self._with_state(present)
        tokens_of = self.meter.mixed_tokens_of(self.view)
        now = accept_anew(plan, draft, draft.text if text is None else text, tokens_of=tokens_of)
        return now if isinstance(now, Refusal) else structs.replace(now, seen=seen)

    def enter(
        self, draft: Draft, text: str | None = None, *, waited_s: float = 0.0, merged: Draft | None = None
    ) -> Steps[StepDone]:
        """Enter a draft, with another text if given, together with other context work that is due.

        The cache after a boundary is lost, so clearing old results and entering `merged` summaries is free at that
        moment. `waited_s`: how many seconds a turn has waited for the text.
        """
        now = self.current(draft, text)
        if isinstance(now, Refusal):
            return StepDone(draft.plan.step, self.tokens, self.tokens, "asked for", error=now.reason)
        result = yield from self._enter(now, waited_s=waited_s)
        if now.plan.boundaries or now.boundary.signed:
            return result  # the reasoning behind a signed summary stays only if what is kept stays as it is
        if merged is not None:
            yield from self.enter(merged)
        here = structs.replace(self.situation(), cold=True, kept_from=now.plan.kept_from)
        digest, cleared = self.digests.plan(self.view, here), self.clearing.plan(self.view, here)
        yield from self._carry_out(digest)
        yield from self._carry_out(cleared)
        # Merge the oldest summaries if all together have grown too large. If that fails they stay.
        plan = plan_merge(self.view, self.situation()) if self._summary is None else None
        if plan is not None and self.settings.compaction.background:
            yield from self._write_in_background(plan)
        elif plan is not None:
            merge = yield from self._write(plan, asked=True)
            if isinstance(merge, Draft):
                yield from self._enter(merge)
        return result

    def _enter_extract(self, plan: Plan) -> Steps[None]:
        """Enter a summary extracted from the turns themselves, without a model."""
        plan, here = self._with_state(plan), self.situation()
        material = material_of(plan, self.view, here, self._prompts)
        draft = accept(plan, material, material.extract, path=self._history_path, tokens_of=here.mixed_tokens_of)
        if isinstance(draft, Draft):
            yield from self._enter(draft)

    def _enter(self, draft: Draft, *, waited_s: float = 0.0) -> Steps[StepDone]:
        here = self.situation()
        price = step_price(here, after=draft.after, tail=max(0, draft.after - here.budget.fixed))
        boundary = structs.replace(draft.boundary, waited_s=waited_s, **_saved(price))
        result = yield from enter_draft(draft, boundary, self.view, self._thread, self.renewed_prefix)
        self.backoff = self.backoff.succeeded()
        return result

    # Previews and figures

    def preview(self, step: PreviewedStep, subject: str = "") -> StepPreview | Refusal:
        """Preview a step's effects and cost: exact for clearing, estimated for a summary. Copies the view."""
        here = self.situation(between_turns=True)
        if step == "clear":
            cleared = self.clearing.asked_for(self.view, here)
            return self._nothing_to_clear() if cleared is None else changes.preview_clearing(self.view, here, cleared)
        plan = self._plan_asked_for(step, subject)
        if isinstance(plan, Refusal):
            return plan
        return changes.preview_plan(self.view, here, plan, self._price_of_writing(plan, here))

    def preview_draft(self, draft: Draft) -> StepPreview:
        """Preview the effects and cost of entering a written summary. Copies the view."""
        return changes.preview_draft(self.view, self.situation(between_turns=True), draft)

    def forecast(self, *, between_turns: bool = True) -> Forecast:
        """What the next call costs, the step that is taken before it, and the one that comes next.

        `between_turns`: the user is about to speak; else a turn runs.
        """
        cache, here = self.cache, self._before_a_call(between_turns=between_turns)
        due = None if self._summary is not None else self._decide(here)
        step = begun_summary(self._summary.plan) if self._summary is not None else None
        if due is not None and isinstance(due.summary, Plan):
            writing = self._price_of_writing(due.summary, due.here)
            step = due_summary(due.summary, self.view, due.here, writing)
        elif due is not None and due.digest is not None:
            step = StepAhead(step="digest", frees=0, due=True, reason=due.digest.reason)
        elif due is not None and isinstance(due.cleared, Cleared):
            step = due_clearing(due.cleared, self.view, here)
        return forecast(self.view, here, cache, step)

    def cold_send(self) -> ColdSend | None:
        """The warning if the next request has a cold cache; None if there is nothing to warn of."""
        if not self.cache.cold or self.view.last_call is None:
            return None
        seen, least = self.forecast(between_turns=False), self.settings.context.cold_notice_usd
        if seen.in_seconds or not seen.cost or seen.cost < least:
            return None
        compaction = self.preview("compact")
        price = None if isinstance(compaction, Refusal) else compaction.price
        if price is None:
            return ColdSend(seen.tokens, seen.cost, seen.cache.reason)
        return ColdSend(seen.tokens, seen.cost, seen.cache.reason, price.writing, price.call)

    @property
    def cache_until(self) -> float:
        """When the provider's cache of the prefix expires (seconds since the epoch); 0 if it has, or there is none."""
        call = self.view.last_call
        if call is None or self.cache.cold:
            return 0.0
        return self.view.last_read(call) + self._priced(self._written_for).cache_ttl_s

    @property
    def expires_in(self) -> float:
        """In how many seconds that is; 0 if it has expired, or there is none."""
        return max(0.0, self.cache_until - self.clock())

    def summary_before_expiry(self) -> WorthWriting | None:
        """The summary that costs less now than reading what it replaces anew, once the cache has expired.

        None if the cache is too small for it to matter, the user seldom comes back so late, or it would not be cheaper.
        """
        settings, here = self.settings.compaction, self.situation(between_turns=True)
        whole = rewriting_usd(here.model, here.tokens)
        off = not (settings.before_expiry and settings.auto and settings.background)
        busy = self._summary is not None or here.resting or here.cold or here.in_background
        if off or busy or self.settings.context.preset == "off" or whole < self.settings.context.cold_notice_usd:
            return None
        if here.limits.compact.rests or undone_by_user(self.view):
            return None
        reason = "the cache is about to expire, and reading all of it again would cost more"
        plan = plan_compaction(self.view, here, trigger=here.limits.compact.tokens or None, reason=reason)
        writing = self._price_of_writing(plan, here) if isinstance(plan, Plan) else None
        if not isinstance(plan, Plan) or writing is None:
            return None
        # What comes by itself when the user is back, with the cache gone.
        due = self._decide(structs.replace(here, cold=True, kept=0))
        later, after = 0.0, here.tokens
        if isinstance(due.summary, Plan):
            later, after = self._price_of_writing(due.summary, due.here) or 0.0, due.summary.likely_after
        elif isinstance(due.cleared, Cleared):
            after = due.cleared.after
        later += rewriting_usd(here.model, after)
        then = rewriting_usd(here.model, plan.likely_after)
        chance = self.pauses.returning(here.model.cache_ttl_s)
        return WorthWriting(plan, writing, then, later) if chance * (later - then) > writing else None

    def write_before_expiry(self, worth: WorthWriting) -> Steps[None]:
        """Write that summary in the background."""
        yield from self._write_in_background(worth.plan)

    def keep_as_it_is(self) -> None:
        """Let nothing leave the view by itself before the next answer, unless the request does not fit."""
        call = self.view.last_call
        self._kept_after = call.seq if call is not None else 0

    def _price_of_writing(self, plan: Plan, here: Situation) -> float | None:
        if here.rates is None or plan.step in self.own_writers:
            return None
        if not here.rates.input_usd:
            return 0.0
        if plan.through:
            return signing_cost(here, here.rates, plan.replaced) * here.rates.input_usd / MILLION
        parts, asked = questions_of(plan, self.view, here, self._prompts)
        # The expected length, not the longest possible.
        return choose_writer(structs.replace(plan, writes=plan.writes * 2 // 3), parts, asked, here).usd

    def stats(self, *, between_turns: bool = True) -> ContextStats:
        """How full the window is, what comes next, and what was done; the caller adds costs and models."""
        ahead = self.forecast(between_turns=between_turns)
        coming = self.renewed_prefix if self.view.prefix is None else None
        seen = stats_of(self.view, self.meter, self.limits(), self.model.name, ahead, coming)
        return structs.replace(seen, cache_until=self.cache_until if self.model.cache != "none" else 0.0)


def _saved(price: StepPrice | None) -> dict[str, float]:
    """The fields of an entry on what it saves, in USD."""
    if price is None or price.in_seconds:
        return {}
    return {"saved_usd": round(price.before - price.call, 6), "saving_usd": round(price.saving, 6)}


def policy_of(model: ModelProfile) -> ReasoningPolicy:
    """Which reasoning is sent back to a model."""
    return ReasoningPolicy(model.name, model.bound_reasoning, model.signs_summaries)
