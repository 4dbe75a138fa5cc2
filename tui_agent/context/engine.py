"""The context engine: the one owner of a conversation's view, token meter, model facts and layers.

It looks before every model call and decides, at the moments where that costs least, what is to be done about the
context; between two such points a request only grows, byte for byte. It is pure: what writes, saves or asks a model
comes out as an effect (`effects`), which its caller carries out and answers.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from msgspec import structs

from tui_agent.context.budget import Budget, Thresholds, Window, budget_of, resolve_window, thresholds
from tui_agent.context.cache_watch import ColdSend, cold_send
from tui_agent.context.changes import (
    Outlook,
    PreviewedStep,
    look_at_clearing,
    look_at_draft,
    look_at_plan,
    plan_pin,
    plan_restore,
    plan_undo,
    plan_unpin,
    plan_words,
    what_if,
)
from tui_agent.context.counting import Counter, Ratios
from tui_agent.context.economics import CacheState, Forecast, ModelFacts, Situation, cache_state
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AwaitWriting,
    Refusal,
    SaveText,
    ShrinkImages,
    Shrunk,
    StepDone,
    Steps,
    StepStarted,
    WriteBeside,
    expect,
    step_of,
)
from tui_agent.context.layers.checkpoints import Checkpoints, plan_checkpoint
from tui_agent.context.layers.clearing import Clearing, protected_tokens, stays
from tui_agent.context.layers.compaction import Compaction, plan_compaction
from tui_agent.context.layers.digests import DigestPlan, Digests, accept_digest
from tui_agent.context.layers.limits import Shortened as ShortenedText
from tui_agent.context.layers.limits import Whole, eviction_tokens, shorten, shorten_prompt
from tui_agent.context.layers.pictures import (
    PICTURE_PASSES,
    REFUSED,
    TOO_MUCH,
    Change,
    changed,
    load_of,
    plan_fewer,
    plan_without,
    to_shrink,
)
from tui_agent.context.layers.recovery import (
    KEPT_SHARE,
    OVERFLOW_STEPS,
    TOO_LARGE,
    OverflowStep,
    pictures_in,
    plan_shortening,
    shortened,
    text_to_keep,
)
from tui_agent.context.meter import TokenMeter
from tui_agent.context.stats import ContextStats, counts, marks, upcoming
from tui_agent.context.summary.found_tools import found_tools
from tui_agent.context.summary.plan import (
    Accepted,
    Material,
    SummaryPlan,
    accept,
    accept_anew,
    asked_of,
    material_of,
    merge_of,
    noted,
    plan_merge,
    rebased,
    telling,
)
from tui_agent.context.summary.questions import Prompts
from tui_agent.context.summary.state import where_things_are
from tui_agent.context.summary.words import words_limit
from tui_agent.context.summary.writing import (
    CompactionResult,
    Draft,
    Writers,
    Written,
    answer_tokens,
    choose_writer,
    write_summary,
)
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolDefinition
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Artifact,
    Cleared,
    Message,
    Prefix,
    Shortened,
    UnattributedCall,
    Words,
)
from tui_agent.conversation.request import ModelRequest, ReasoningPolicy, RequestMessage
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

LONGEST_ANSWER = 16_384
"""Tokens of the longest answer asked for where the window is unknown."""

PAGE_BYTES_PER_TOKEN = 2
"""Bytes a token is taken for where a page is sized: few enough for any script."""

LEAST_PICTURE_BYTES = 1_000_000
"""Bytes in base64 from which on pictures may be why a request was too large; its text has seldom more."""

LONG_VIEW_CHARS, LONG_LOG = 60_000, 1_000
"""Characters of a view, or entries of a log, from which on planning takes longer than a key press may wait."""


class Layer(Protocol):
    """A way to keep the context small: looks at the view before a call and says what to enter, if anything."""

    @property
    def name(self) -> str: ...

    def plan(self, view: View, situation: Situation, /) -> AnyContextEntry | None:
        """The entry that is due now, with its reason and sizes before and after; None: nothing is."""
        ...


class Prepared(NamedTuple):
    """The next request, of about `tokens` tokens. `prefix_hash` is what an answer to it stores."""

    request: ModelRequest
    tokens: int
    prefix_hash: str


@dataclass(slots=True, eq=False)
class Writing:
    """A summary that is written while the conversation goes on; `draft` once it is, to be entered before a call.

    `merged` is entered right after it, since the cache behind them is lost but once: the oldest summaries as one.
    """

    plan: SummaryPlan
    draft: Draft | None = None
    merged: Draft | None = None


class ContextEngine:
    """Decides for one conversation, whose `view` it owns.

    `model` is what is known of the model that answers; set it with `use`. `never_clear` are folders (of memory and
    skills) whose files, once read, are never cleared. `own_writers` are the steps whose text the caller writes itself.
    `more` are layers of one's own, asked after the built-in ones. `renewed_prefix` is the system prompt and tools that
    the next maintenance point is to send; None: those in force. `running` tells the command lines that run in the
    background, by process id. `thread` names the history that replaced turns go to.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        prompts: Prompts | None = None,
        view: View | None = None,
        model: ModelFacts | None = None,
        ratios: Ratios | None = None,
        task_threshold: float | None = None,
        never_clear: Collection[str] = (),
        checkpoints: bool = True,
        own_writers: Collection[str] = (),
        thread: str = "main",
        more: Sequence[Layer] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings = settings or Settings()
        self.view = view or View()
        self.meter = TokenMeter(Counter(image_tokens=settings.context.image_tokens), ratios)
        self.model = model or ModelFacts(name="")
        self.renewed_prefix: Prefix | None = None
        self.running: Callable[[], Mapping[int, str]] = dict
        self.checkpoints = Checkpoints(settings, on=checkpoints)
        preset = settings.context.preset
        never = stays(settings.clearing, never_clear)
        self.clearing = Clearing(settings.clearing, never, on=preset in ("layered", "digest"))
        self.compaction = Compaction(settings)
        self._prompts = prompts or Prompts.shipped()
        self.digests = Digests(settings.digests, self._prompts.digest, on=preset == "digest")
        self.more = tuple(more)
        self.own_writers = frozenset(own_writers)
        self._thread, self._history_path = thread, f"conversation_history/{thread}.md"
        self._task_threshold = task_threshold
        self.clock = clock
        self._caps: dict[str, int] = {}
        self._picture_caps: dict[str, int] = {}
        self._warned: set[str] = set()
        self._edge: tuple[int, int] | None = None
        self._writing: Writing | None = None
        self._sent = 0
        self._set_tiers = [
            tier for tier in ("frontier", "mid", "small") if settings.is_set(f"compaction.threshold_by_tier.{tier}")
        ]
        self.use(self.model)

    # The conversation

    def use(self, model: ModelFacts) -> None:
        """Decide for this model from here on; also when more became known of the present one."""
        self._sent = self._sent if model.name == self.model.name else 0
        cap = self._picture_caps.get(model.name, model.picture_bytes)
        self.model = structs.replace(model, picture_bytes=cap)
        self.view.policy = policy_of(model)

    def follow(self, settings: Settings) -> None:
        """Decide by another policy's settings from here on."""
        self.settings = settings
        self.compaction.follow(settings)
        self.checkpoints.follow(settings)

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

    def turn_ended(self) -> None:
        """A turn is over."""
        self.compaction.backoff = self.compaction.backoff.turn_ended()

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

    def shorten(self, text: str, *, paged: bool) -> ShortenedText:
        """What of a raw tool result enters the conversation; `paged`: its tool gave a page of a fixed size."""
        return shorten(
            text,
            self.settings.output,
            history_budget=self.budget.history,
            tokens_of=lambda each: self.meter.tokens_of_text(self.view, each),
            paged=paged,
        )

    @property
    def page_bytes(self) -> int:
        """The most bytes of one page, so that it takes no more of the window than a result that is not evicted."""
        return PAGE_BYTES_PER_TOKEN * eviction_tokens(self.settings.output, self.budget.history)

    def fitted(self, said: Message) -> Steps[Message]:
        """What of the user's words enters the conversation: a text too large for the window is kept as a file."""
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
        """Do all that is due before the next call, in one pass.

        A summary is written beside the conversation, and entered before the first call after that; only where the next
        request does not fit, this waits for it. Until it is entered the other layers leave what it replaces as it is.
        """
        waited = 0.0 if self.fits else (yield from self._await_writing())
        if self._writing is None and not waited:
            yield from self._look(between_turns=between_turns)
        else:
            yield from self.settle(waited_s=waited)
        for layer in self.more:
            entry = layer.plan(self.view, self.situation(between_turns=between_turns))
            if entry is not None:
                yield from self._change(entry)

    def settle(self, *, waited_s: float = 0.0) -> Steps[None]:
        """Enter the summary that was written beside the conversation, if one is there.

        Where what it was to replace has changed since, it is dropped.
        """
        writing = self._writing
        if writing is None or writing.draft is None:
            return
        try:
            now = self.current(writing.draft)
            if isinstance(now, Refusal):
                plan, spent = writing.plan, writing.draft.spent_usd
                yield StepDone(plan.step, self.tokens, self.tokens, plan.reason, error=now.reason, cost_usd=spent)
            else:
                yield from self.enter(now, waited_s=waited_s, merged=writing.merged)
        finally:
            self._writing = None

    @property
    def writing(self) -> SummaryPlan | None:
        """The summary that is being written beside the conversation, or waits to be entered."""
        return self._writing.plan if self._writing is not None else None

    @property
    def written(self) -> bool:
        """Whether a summary that was written beside the conversation waits to be entered."""
        return self._writing is not None and self._writing.draft is not None

    def still_holds(self) -> bool:
        """Whether the summary that is being written could still be entered. Reads all that it replaces."""
        return self._writing is None or not isinstance(self._rebased(self._writing.plan), Refusal)

    def request(self) -> Prepared:
        """The next request, its cache edges marked: the edge of the protected tail and the request before."""
        messages = tuple(self.view.messages())
        edges = {self._protected_edge(len(messages)), self._sent - 1}
        self._sent = len(messages)
        prefix = self.view.prefix
        request = ModelRequest(
            system=prefix.system if prefix else "",
            tools=self._tools_of(prefix),
            messages=messages,
            max_tokens=self.budget.reserve or LONGEST_ANSWER,
            cache_edges=tuple(sorted(edge for edge in edges if 0 <= edge < len(messages) - 1)),
        )
        return Prepared(request, self.tokens, self.view.prefix_hash())

    def _tools_of(self, prefix: Prefix | None) -> tuple[ToolDefinition, ...]:
        """The definitions that a request carries: those that are held back only where the provider knows of that."""
        tools = prefix.tools if prefix else ()
        return tools if self.model.defers_tools else tuple(tool for tool in tools if not tool.deferred)

    def recover(self) -> Steps[bool]:
        """Make the next request smaller without asking a model; whether it is now smaller and fits.

        A summary that is being written already is waited for, also where by our own count the request would fit, and
        one that is written is entered.
        """
        start = self.tokens
        waited = yield from self._await_writing()
        yield from self.settle(waited_s=waited)
        if self.tokens < start and self.fits:
            return True
        for _ in PICTURE_PASSES:
            if fewer := plan_fewer(self.view, self.model):
                yield from self._change_pictures(fewer, TOO_MUCH)
        if self.tokens < start and self.fits:
            return True
        for way in OVERFLOW_STEPS:
            yield from self._recover_by(way)
            if self.tokens < start and self.fits:
                return True
        return self.tokens < start

    def give_way(self, refused: Collection[Image], *, others: bool) -> Steps[bool]:
        """Show pictures smaller, or a note in their place, since the provider refused one; whether anything changed.

        `refused` are those it named (empty: any may be meant); `others`: it has refused one before in this turn.
        """
        changes = plan_without(self.view, refused, others=others)
        if changes:
            yield from self._change_pictures(changes, REFUSED)
        return bool(changes)

    # What the user asks for

    def clear_results(self) -> Steps[StepDone | Refusal]:
        """Clear all old results now, however little they are."""
        before = self.tokens
        cleared = self.clearing.asked_for(self.view, self.situation(between_turns=True))
        if cleared is not None:
            return (yield from self._change(cleared))
        if not self.fits and (yield from self.recover()):
            return StepDone("shortened", before, self.tokens, TOO_LARGE)
        return self._nothing_to_clear()

    def clear_items(self, items: Sequence[int]) -> Steps[StepDone | Refusal]:
        """Clear these results now, also the newest."""
        cleared = self.clearing.asked_for(self.view, self.situation(between_turns=True), keep=0, only=items)
        return (
            yield from self._asked_change(
                cleared
                or Refusal(
                    "Only a tool result that is shown whole, is not pinned, and is larger than its placeholder can be "
                    "cleared."
                )
            )
        )

    def pin(self, items: Sequence[int], *, pinned: bool = True) -> Steps[StepDone | Refusal]:
        """Pin messages or results, each with its group, or take the pins off."""
        here = self.situation(between_turns=True)
        share = self.settings.context.pins_share
        plan = plan_pin(self.view, items, here, share=share) if pinned else plan_unpin(self.view, items, here)
        return (yield from self._asked_change(plan))

    def restore(self, items: Sequence[int], texts: Sequence[str] = ()) -> Steps[StepDone | Refusal]:
        """Show messages or results whole again; `texts` has what the log holds only in part."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_restore(self.view, items, here, texts=texts)))

    def edit_words(self, edits: Sequence[Words]) -> Steps[StepDone | Refusal]:
        """Keep other words of the user's messages beside the summaries; with an empty text none of a message."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_words(self.view, edits, here, self.settings.compaction)))

    def undo(self, target: int | None = None) -> Steps[StepDone | Refusal]:
        """Undo a context step, by default the newest."""
        here = self.situation(between_turns=True)
        return (yield from self._asked_change(plan_undo(self.view, here, target=target)))

    def plan(self, step: Literal["compact", "checkpoint"], subject: str = "") -> SummaryPlan | Refusal:
        """The summary (its focus is `subject`) or completion record (its note) of this moment, as the user asks."""
        here, reason = self.situation(between_turns=True), "asked for by the user"
        settings = self.settings.compaction
        if step == "checkpoint":
            return plan_checkpoint(self.view, here, settings, note=subject, reason=reason)
        trigger = here.limits.compact.tokens or None
        return plan_compaction(self.view, here, settings, trigger=trigger, focus=subject, asked=True, reason=reason)

    def draft(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Steps[Draft | Refusal]:
        """Have a summary or completion record written; the conversation stays as it is."""
        plan = self.plan(step, subject)
        return plan if isinstance(plan, Refusal) else (yield from self.write(plan, asked=True))

    def compact(self, step: Literal["compact", "checkpoint"] = "compact", subject: str = "") -> Steps[CompactionResult]:
        """Write a summary or completion record and enter it, nobody being asked.

        Where nothing can be summarised and the request does not fit, it is made smaller in the ways of a recovery.
        """
        before = self.tokens
        draft = yield from self.draft(step, subject)
        if isinstance(draft, Draft):
            result = yield from self.enter(draft)
            # Freed one by one: all turns of a long conversation at once would hold up every thread.
            parts: list[object] = [*draft.plan.leaving, *draft.material.parts]
            del draft
            while parts:
                parts.pop()
            return result
        if step == "compact" and not self.fits and (yield from self.recover()):
            return CompactionResult(before, self.tokens, len(self.view.log), draft.reason)
        return CompactionResult(before, before, error=draft.reason)

    def write(self, plan: SummaryPlan, *, asked: bool = False) -> Steps[Draft | Refusal]:
        """Have the text of a plan written. One that was not `asked` for and fails lets the next one wait."""
        yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes)
        plan, seen = self._telling(plan), len(self.view.log)
        material = material_of(plan, self.view, self.settings.compaction, self._prompts)
        return (yield from self._written(plan, material, self._writers(plan), seen, asked=asked))

    def _written(
        self, plan: SummaryPlan, material: Material, writers: Writers, seen: int, *, asked: bool
    ) -> Steps[Draft | Refusal]:
        written = yield from write_summary(plan, material, writers, path=self._history_path)
        if isinstance(written, Refusal):
            if not asked and not written.final:
                self.compaction.backoff = self.compaction.backoff.failed()
            yield StepDone(plan.step, plan.before, plan.before, plan.reason, error=written.reason)
            return written
        later = range(seen + 1, len(self.view.log) + 1)
        unchanged = all(isinstance(self.view.log[seq], UnattributedCall) for seq in later)
        return Draft(plan, material, written, len(self.view.log) if unchanged else seen)

    def _begin_beside(self, plan: SummaryPlan) -> Steps[None]:
        """Have a summary written beside the conversation, and the oldest ones merged where it makes them too many.

        All that they are written from is taken here and now.
        """
        settings, seen = self.settings.compaction, len(self.view.log)
        plans = [self._telling(plan)]
        if not plan.boundaries:
            merge = plan_merge(self.view, self.situation(between_turns=False), settings, coming=plan)
            plans += [merge] if merge is not None else []
        work = [(each, material_of(each, self.view, settings, self._prompts)) for each in plans]
        yield WriteBeside(self._write_beside(work, self._writers(plan), seen))
        yield from self.settle()

    def _write_beside(self, work: Sequence[tuple[SummaryPlan, Material]], writers: Writers, seen: int) -> Steps[None]:
        """Closed before its end, which is a cancellation, it leaves nothing behind."""
        writing = self._writing = Writing(work[0][0])
        drafts: list[Draft] = []
        try:
            for plan, material in work:
                yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes, beside=True)
                asked = bool(plan.boundaries)
                if drafts:
                    material = noted(material, plan, drafts[0].plan, drafts[0].text)
                draft = yield from self._written(plan, material, writers, seen, asked=asked)
                if not isinstance(draft, Draft):
                    break
                drafts.append(draft)
            writing.draft, writing.merged = (*drafts, None, None)[:2]
        finally:
            if writing.draft is None and self._writing is writing:
                self._writing = None

    def _await_writing(self) -> Steps[float]:
        """Wait for the summary that is being written, if there is one; how many seconds it took."""
        if self._writing is None or self._writing.draft is not None:
            return 0.0
        began = self.clock()
        yield AwaitWriting()
        return max(self.clock() - began, 1e-3)

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft on the view as it is now, with another `text` if one is given; refused where it no longer holds."""
        seen, plan = len(self.view.log), draft.plan
        if draft.seen == seen and text is None:
            return draft
        tokens_of = self.meter.mixed_tokens_of(self.view)
        if draft.seen != seen:
            now = self._rebased(plan)
            if isinstance(now, Refusal):
                return now
            plan = self._telling(now)
        wanted = draft.text if text is None else text
        accepted = accept_anew(plan, draft.material.facts, draft.written.accepted, wanted, tokens_of=tokens_of)
        if isinstance(accepted, Refusal):
            return accepted
        return replace(draft, plan=plan, written=draft.written._replace(accepted=accepted), seen=seen)

    def enter(
        self, draft: Draft, text: str | None = None, *, waited_s: float = 0.0, merged: Draft | None = None
    ) -> Steps[CompactionResult]:
        """Take a draft into the conversation, with another text if one is given, and all else that is due with it.

        The cache behind a boundary is lost, so clearing what is old is free at that moment, and so is entering what
        earlier summaries were `merged` to. A turn stood still for `waited_s` seconds until the text was written.
        """
        now = self.current(draft, text)
        if isinstance(now, Refusal):
            return CompactionResult(self.tokens, self.tokens, error=now.reason)
        result = yield from self._enter(now.plan, now.material, now.written, waited_s=waited_s)
        if now.plan.boundaries:
            return result
        if merged is not None:
            yield from self.enter(merged)
        after = structs.replace(self.situation(between_turns=False), cold=True)
        digest = self.digests.plan_after(self.view, now.plan.kept_from)
        yield from self._digest_and_clear(digest, self.clearing.plan(self.view, after))
        yield from self._merge_oldest()
        return result

    # Looking ahead

    def preview(self, step: PreviewedStep, subject: str = "") -> Outlook | Refusal:
        """What a step would do and cost; exact for clearing, expected for a summary. Copies the view."""
        here = self.situation(between_turns=True)
        if step == "clear":
            cleared = self.clearing.asked_for(self.view, here)
            return self._nothing_to_clear() if cleared is None else look_at_clearing(self.view, here, cleared)
        plan = self.plan(step, subject)
        return plan if isinstance(plan, Refusal) else look_at_plan(self.view, here, plan, self._expected_usd(plan))

    def outlook(self, draft: Draft) -> Outlook:
        """What entering a written summary would do and cost. Copies the view."""
        return look_at_draft(self.view, self.situation(between_turns=True), draft)

    def forecast(self, layer: str) -> Forecast:
        """What the layer ``clear`` or ``compact`` would do if it came now; an empty one for any other."""
        here = self.situation(between_turns=False)
        match layer:
            case "clear":
                return self.clearing.forecast(self.view, here)
            case "compact":
                return self.compaction.forecast(here)
            case _:
                return Forecast()

    def stats(self) -> ContextStats:
        """How full the window is, what comes next, and what was done; costs and models are the caller's to add."""
        tokens, budget, limits, done = self.tokens, self.budget, self.thresholds, counts(self.view)
        return ContextStats(
            model=self.model.name,
            tokens=tokens,
            window=budget.window,
            reserve=budget.reserve,
            measured=self.meter.measured,
            categories=self.meter.breakdown(self.view),
            messages=done.messages,
            evicted=done.evicted,
            cleared=done.cleared,
            digested=done.digested,
            compactions=done.compactions.count,
            checkpoints=done.checkpoints.count,
            summarised_chars=done.summarised_chars,
            summaries=done.summaries,
            depth=done.depth,
            waits=done.waits,
            waited_s=done.waited_s,
            reasoning_dropped=self.view.reasoning_dropped(),
            last_compaction=done.compactions,
            last_checkpoint=done.checkpoints,
            marks=marks(limits, budget.window),
            upcoming=upcoming(tokens, limits, self.forecast),
        )

    def thresholds_with(self, model: ModelFacts) -> tuple[Window, Thresholds]:
        """The window and thresholds another model would have."""
        return self._window_of(model), self._thresholds_of(model)

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

    def cold_send(self) -> ColdSend | None:
        """What is to be told before the next request, whose cache is gone; None where nothing is."""
        cache = self.cache
        if not cache.cold or self.view.last_call is None:
            return None
        here, least = self.situation(between_turns=False), self.settings.context.cold_notice_usd
        return cold_send(here, cache, self.forecast("compact"), at_least_usd=least)

    # One step each

    def _look(self, *, between_turns: bool) -> Steps[None]:
        """See which layer is due, and do what it says."""
        here = self.situation(between_turns=between_turns)
        checkpoint = None if self.compaction.backoff.resting else self.checkpoints.plan(self.view, here)
        cleared = None if checkpoint else self.clearing.plan(self.view, here)
        beside = self.settings.compaction.background and self.fits
        summary = checkpoint or self.compaction.plan_with(self.view, here, cleared, beside=beside)
        if summary is not None and beside:
            yield from self._begin_beside(summary)
            return
        began = self.clock()
        draft = (yield from self.write(summary)) if summary is not None else None
        if isinstance(draft, Draft):
            yield from self.enter(draft, waited_s=self.clock() - began)
        else:
            yield from self._digest_and_clear(self.digests.plan(self.view, here), cleared)

    def _rebased(self, plan: SummaryPlan) -> SummaryPlan | Refusal:
        """`plan` on the view as it is now."""
        return rebased(plan, self.view, self.situation(between_turns=False), self.settings.compaction)

    def _nothing_to_clear(self) -> Refusal:
        keep = self.settings.clearing.keep
        return Refusal(f"There is nothing to clear: the newest {keep} results and pins stay.")

    def _enter(
        self, plan: SummaryPlan, material: Material, written: Written, *, waited_s: float = 0.0
    ) -> Steps[CompactionResult]:
        accepted, boundary = written.accepted, structs.replace(written.accepted.boundary, waited_s=waited_s)
        if material.archive:
            yield ArchiveTurns(self._thread, material.archive)
        prefix, renewed = self.view.prefix, self.renewed_prefix
        renewing: tuple[Prefix, ...] = ()
        if renewed is not None and (prefix is None or (prefix.system, prefix.tools) != (renewed.system, renewed.tools)):
            renewing = (renewed,)
        others = accepted.entries[1:]
        last = expect(int, (yield Append((boundary, *others, *renewing))))
        seq = last - len(others) - len(renewing)
        self.compaction.backoff = self.compaction.backoff.succeeded()
        yield StepDone(
            plan.step,
            plan.before,
            accepted.after,
            f"{boundary.reason}; {written.how}",
            entry=self.view.context_entry(seq),
            items=len(plan.leaving) + len(plan.boundaries),
            text=boundary.text,
            cost_usd=boundary.cost_usd,
            details=(
                ("how", written.how),
                ("failures", written.failures),
                ("facts_missing", accepted.facts_missing),
                ("sections_added", accepted.sections_added),
            ),
        )
        return CompactionResult(plan.before, accepted.after, seq, boundary.text)

    def _merge_oldest(self) -> Steps[None]:
        """Have the oldest summaries become one, where all together have grown too large. If that fails they stay."""
        plan = None
        if self._writing is None:
            plan = plan_merge(self.view, self.situation(between_turns=False), self.settings.compaction)
        if plan is not None and self.settings.compaction.background:
            yield from self._begin_beside(plan)
        elif plan is not None:
            draft = yield from self.write(plan, asked=True)
            if isinstance(draft, Draft):
                yield from self._enter(draft.plan, draft.material, draft.written)

    def _digest_and_clear(self, digest: DigestPlan | None, cleared: Cleared | None) -> Steps[None]:
        if digest is not None:
            yield from self._digest(digest)
        if cleared is not None:
            yield from self._change(cleared)

    def _digest(self, plan: DigestPlan) -> Steps[None]:
        yield StepStarted("digest", self.tokens, plan.reason)
        text = ""
        if self.settings.digests.strategy == "llm":
            messages = (RequestMessage("user", (Text(plan.material),)),)
            window = self.model.small.window if self.model.small is not None else self.window.tokens
            writes = answer_tokens(window)
            request = ModelRequest(
                system=plan.instruction, tools=(), messages=messages, max_tokens=writes, one_off=True
            )
            tokens = (len(plan.instruction) + len(plan.material)) // 3
            who: Literal["session", "small"] = "small" if self.model.small is not None else "session"
            answer = yield AskModel(who, request, "digest", tokens)
            text = answer.text if isinstance(answer, Answer) else ""
        before = self.tokens
        entry = accept_digest(plan, text, before=before)
        here = self.situation(between_turns=False)
        after = what_if(self.view, [entry], here).after
        yield from self._change(structs.replace(entry, after=after))

    def _recover_by(self, way: OverflowStep) -> Steps[None]:
        here = self.situation(between_turns=False)
        match way:
            case "clear_old" | "clear_newest":
                cleared = self.clearing.asked_for(self.view, here, keep=0 if way == "clear_newest" else None)
                if cleared is not None:
                    yield from self._change(structs.replace(cleared, reason=TOO_LARGE))
            case "extract" | "extract_if_enough":
                keep = int(min(here.budget.limit or here.tokens, here.tokens) * KEPT_SHARE)
                settings = self.settings.compaction
                plan = plan_compaction(self.view, here, settings, trigger=None, asked=True, keep=keep, reason=TOO_LARGE)
                if isinstance(plan, SummaryPlan) and (way == "extract" or here.budget.fits(plan.after)):
                    yield from self._extract(plan)
                elif way == "extract" and len(shown := self.view.boundaries()) > 1:
                    yield from self._extract(merge_of(shown, self.view, here, settings))
            case "shorten":
                yield from self._shorten(here)

    def _telling(self, plan: SummaryPlan) -> SummaryPlan:
        told = (where_things_are(self.view, self.running()), found_tools(self.view))
        state = "\n\n".join(text for text in told if text)
        return telling(plan, state, self.view, self.meter.mixed_tokens_of(self.view))

    def _extract(self, plan: SummaryPlan) -> Steps[None]:
        plan = self._telling(plan)
        material = material_of(plan, self.view, self.settings.compaction, self._prompts)
        tokens_of = self.meter.mixed_tokens_of(self.view)
        accepted = accept(plan, material, material.extract, path=self._history_path, tokens_of=tokens_of)
        if isinstance(accepted, Accepted):
            yield from self._enter(plan, material, Written(accepted, "an extract, without a model"))

    def _shorten(self, here: Situation) -> Steps[None]:
        targets = plan_shortening(self.view, here)
        if not targets:
            return
        pictures, smaller = pictures_in(targets), dict[Image, Image]()
        if pictures:
            made = yield ShrinkImages(pictures)
            smaller = dict(zip(pictures, made.images, strict=True)) if isinstance(made, Shrunk) else {}
        blocks = []
        for target in targets:
            kept, path = text_to_keep(target), target.path
            if kept:
                path = expect(Artifact, (yield SaveText(f"message-{target.seq}", kept))).path
            blocks.append(shortened(target, path=path, smaller=smaller))
        entry = Shortened(
            items=tuple(target.seq for target in targets), blocks=tuple(blocks), reason=TOO_LARGE, before=here.tokens
        )
        after = what_if(self.view, [entry], here).after
        if after < here.tokens:
            yield from self._change(structs.replace(entry, after=after))

    def _change_pictures(self, changes: Sequence[Change], reason: str) -> Steps[None]:
        before, wanted, smaller = self.tokens, to_shrink(changes), dict[Image, Image]()
        if wanted:
            made = yield ShrinkImages(wanted)
            smaller = dict(zip(wanted, made.images, strict=True)) if isinstance(made, Shrunk) else {}
        entry = Shortened(
            items=tuple(change.seq for change in changes),
            blocks=tuple(changed(change, smaller) for change in changes),
            reason=reason,
            before=before,
        )
        after = what_if(self.view, [entry], self.situation(between_turns=False)).after
        yield from self._change(structs.replace(entry, after=after))

    def _asked_change(self, plan: AnyContextEntry | Refusal) -> Steps[StepDone | Refusal]:
        return plan if isinstance(plan, Refusal) else (yield from self._change(plan))

    def _change(self, entry: AnyContextEntry) -> Steps[StepDone]:
        seq = expect(int, (yield Append((entry,))))
        done = step_of(self.view.context_entry(seq))
        yield done
        return done

    # Figures

    def _window_of(self, model: ModelFacts) -> Window:
        known = model.window if model.told_by_provider else 0
        window = resolve_window(
            self.settings.context, provider=known, catalogue=0 if model.told_by_provider else model.window
        )
        cap = self._caps.get(model.name, 0) or (model.window if model.fixed_window else 0)
        return Window(cap, "provider") if cap and window.tokens > cap else window

    def _budget_of(self, model: ModelFacts) -> Budget:
        sizes = self.meter.categories(self.view)
        fixed = sizes["system"] + sizes["tools"]
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

    def _writers(self, plan: SummaryPlan) -> Writers:
        small = self.model.small
        return Writers(
            model=structs.replace(self.model, window=self.window.tokens or self.model.window),
            tokens=self.tokens,
            cold=self.cache.cold,
            request=self._asking(),
            tokens_of=self.meter.mixed_tokens_of(self.view),
            small_tokens_of=lambda size: self.meter.tokens_for(small.name if small else self.model.name, size),
            default_window=self.settings.context.default_window,
            own=plan.step in self.own_writers,
        )

    def _expected_usd(self, plan: SummaryPlan) -> float | None:
        """What having a summary written would cost, by the model that would be asked; None where that is not known."""
        writers = self._writers(plan)
        if writers.own:
            return None
        parts, asked = asked_of(plan, self.view, self.settings.compaction, self._prompts)
        return choose_writer(plan, parts, asked, writers).usd

    def _asking(self) -> Callable[[str], ModelRequest]:
        """What makes the request of this moment with an instruction at its end, as a part of the user's newest message
        or as a new one.
        """
        prefix, messages = self.view.prefix, tuple(self.view.messages())

        def request(instruction: str) -> ModelRequest:
            asked, before = RequestMessage("user", (Text(instruction),)), messages
            if before and before[-1].role == "user":
                before, asked = before[:-1], RequestMessage("user", (*before[-1].blocks, *asked.blocks))
            return ModelRequest(
                system=prefix.system if prefix else "",
                tools=self._tools_of(prefix),
                messages=(*before, asked),
                max_tokens=answer_tokens(self.window.tokens),
                cache_edges=(len(before) - 1,) if before else (),
            )

        return request

    def _protected_edge(self, messages: int) -> int:
        """The index of the last message before the protected tail, in which nothing is cleared; -1: there is none.

        It stays where the last edit left it: what stands before it is read from the cache by every call, which keeps it
        there, while a mark that moved along would be written anew each time.
        """
        edited = self.view.edits
        if self._edge is None or self._edge[0] != edited or self._edge[1] >= messages:
            tokens_of, protected = self.meter.mixed_tokens_of(self.view), self.protected_tokens
            self._edge = (edited, self.view.before_tail(lambda size: tokens_of(size) <= protected).messages - 1)
        return self._edge[1]


def _has_reasoning(message: Message) -> bool:
    return any(isinstance(block, Reasoning) for block in message.blocks)


def policy_of(model: ModelFacts) -> ReasoningPolicy:
    """Which reasoning goes back to a model."""
    return ReasoningPolicy(model.name, model.bound_reasoning)
