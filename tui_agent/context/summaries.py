"""Gets summaries written, at once or in the background, and enters them with other context work that is due then."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from tui_agent.context.changes import preview_change
from tui_agent.context.compaction.draft import Draft, accept, accept_anew
from tui_agent.context.compaction.material import Material, asked_of, material_of
from tui_agent.context.compaction.plan import Plan, plan_checkpoint, plan_compaction, plan_merge, rebased, with_state
from tui_agent.context.compaction.questions import Prompts
from tui_agent.context.compaction.state import where_things_are
from tui_agent.context.compaction.writing import (
    CompactionResult,
    Writers,
    answer_tokens,
    choose_writer,
    write_summary,
)
from tui_agent.context.deferring import found_tools
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AwaitWriting,
    Refusal,
    StepDone,
    Steps,
    StepStarted,
    WriteBeside,
    expect,
)
from tui_agent.context.layers.clearing import Clearing
from tui_agent.context.layers.compaction import Compaction
from tui_agent.context.layers.digests import DigestPlan, Digests, accept_digest
from tui_agent.context.state import ContextState
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Cleared, Prefix, UnattributedCall
from tui_agent.conversation.request import ModelRequest, RequestMessage


@dataclass(slots=True, eq=False)
class Writing:
    """A summary written in the background; `draft` is set once it is complete, to be entered before the next call.

    merged: the oldest summaries merged into one, entered together with it so that the cache is lost only once.
    """

    plan: Plan
    draft: Draft | None = None
    merged: Draft | None = None


class Summaries:
    """Writes the summaries of one conversation, and owns the one that is being written in the background.

    `thread`: the name of the history to which replaced turns go.
    """

    def __init__(
        self,
        state: ContextState,
        compaction: Compaction,
        clearing: Clearing,
        digests: Digests,
        prompts: Prompts,
        thread: str,
    ) -> None:
        self._state = state
        self._view = state.view
        self._meter = state.meter
        self._compaction = compaction
        self._clearing = clearing
        self._digests = digests
        self._prompts = prompts
        self._thread, self._history_path = thread, f"conversation_history/{thread}.md"
        self._writing: Writing | None = None

    # Writing at once

    def plan(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Plan | Refusal:
        """Plan a summary (with the focus `subject`) or completion record (with that note) for the user."""
        here, reason = self._state.situation(between_turns=True), "asked for"
        settings = self._state.settings.compaction
        if step == "checkpoint":
            return plan_checkpoint(self._view, here, settings, note=subject, reason=reason)
        trigger = here.limits.compact.tokens or None
        return plan_compaction(self._view, here, settings, trigger=trigger, focus=subject, asked=True, reason=reason)

    def expected_usd(self, plan: Plan) -> float | None:
        """The cost in USD of writing a planned summary, by the model that would be chosen; None if unknown."""
        writers = self._writers(plan)
        if writers.own:
            return None
        parts, asked = asked_of(plan, self._view, self._state.settings.compaction, self._prompts)
        # The expected length, as in `preview_plan`, not the longest possible.
        return choose_writer(structs.replace(plan, writes=plan.writes * 2 // 3), parts, asked, writers).usd

    def draft(self, step: Literal["compact", "checkpoint"], subject: str = "") -> Steps[Draft | Refusal]:
        """Write a summary or completion record without changing the conversation."""
        plan = self.plan(step, subject)
        return plan if isinstance(plan, Refusal) else (yield from self.write(plan, asked=True))

    def write(self, plan: Plan, *, asked: bool = False) -> Steps[Draft | Refusal]:
        """Write the text of a plan. If one that the user did not ask for (`asked`) fails, the next one backs off."""
        yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes)
        plan, seen = self._telling(plan), len(self._view.log)
        material = material_of(plan, self._view, self._state.settings.compaction, self._prompts)
        return (yield from self._written(plan, material, self._writers(plan), seen, asked=asked))

    def _written(
        self, plan: Plan, material: Material, writers: Writers, seen: int, *, asked: bool
    ) -> Steps[Draft | Refusal]:
        draft = yield from write_summary(plan, material, writers, path=self._history_path)
        if isinstance(draft, Refusal):
            if not asked and not draft.final:
                self._compaction.backoff = self._compaction.backoff.failed()
            yield StepDone(plan.step, plan.before, plan.before, plan.reason, error=draft.reason)
            return draft
        later = range(seen + 1, len(self._view.log) + 1)
        unchanged = all(isinstance(self._view.log[seq], UnattributedCall) for seq in later)
        return structs.replace(draft, seen=len(self._view.log) if unchanged else seen)

    # Writing in the background

    def begin_beside(self, plan: Plan) -> Steps[None]:
        """Start writing a summary in the background, and merging the oldest ones if there would be too many.

        Their input is collected now.
        """
        settings, seen = self._state.settings.compaction, len(self._view.log)
        plans = [self._telling(plan)]
        if not plan.boundaries:
            merge = plan_merge(self._view, self._state.situation(between_turns=False), settings, coming=plan)
            plans += [merge] if merge is not None else []
        work = [(each, material_of(each, self._view, settings, self._prompts)) for each in plans]
        yield WriteBeside(self._write_beside(work, self._writers(plan), seen))
        yield from self.settle()

    def _write_beside(self, work: Sequence[tuple[Plan, Material]], writers: Writers, seen: int) -> Steps[None]:
        """Closing this generator early cancels the writing and leaves nothing behind."""
        writing = self._writing = Writing(work[0][0])
        drafts: list[Draft] = []
        try:
            for plan, material in work:
                yield StepStarted(plan.step, plan.before, plan.reason, plan.first, plan.last, plan.writes, beside=True)
                asked = bool(plan.boundaries)
                if drafts:
                    material = material.with_newer(plan, drafts[0].plan, drafts[0].text)
                draft = yield from self._written(plan, material, writers, seen, asked=asked)
                if not isinstance(draft, Draft):
                    break
                drafts.append(draft)
            writing.draft, writing.merged = (*drafts, None, None)[:2]
        finally:
            if writing.draft is None and self._writing is writing:
                self._writing = None

    def await_writing(self) -> Steps[float]:
        """Wait for the summary that is being written, if any; returns the seconds waited."""
        if self._writing is None or self._writing.draft is not None:
            return 0.0
        began = self._state.clock()
        yield AwaitWriting()
        return max(self._state.clock() - began, 1e-3)

    def settle(self, *, waited_s: float = 0.0) -> Steps[None]:
        """Enter the summary that was written in the background, if there is one.

        If the entries it replaces have changed since, it is dropped.
        """
        writing = self._writing
        if writing is None or writing.draft is None:
            return
        try:
            now = self.current(writing.draft)
            if isinstance(now, Refusal):
                plan, tokens, spent = writing.plan, self._state.tokens, writing.draft.spent_usd
                yield StepDone(plan.step, tokens, tokens, plan.reason, error=now.reason, cost_usd=spent)
            else:
                yield from self.enter(now, waited_s=waited_s, merged=writing.merged)
        finally:
            self._writing = None

    @property
    def writing(self) -> Plan | None:
        """The plan of the summary that is being written in the background or waits to be entered."""
        return self._writing.plan if self._writing is not None else None

    @property
    def written(self) -> bool:
        """Whether a summary that was written in the background waits to be entered."""
        return self._writing is not None and self._writing.draft is not None

    def still_holds(self) -> bool:
        """Whether the summary that is being written could still be entered. Reads everything it replaces."""
        return self._writing is None or not isinstance(self._rebased(self._writing.plan), Refusal)

    # Entering

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft for the present view, with another `text` if given; a refusal if it no longer applies."""
        seen, plan = len(self._view.log), draft.plan
        if draft.seen == seen and text is None:
            return draft
        tokens_of = self._meter.mixed_tokens_of(self._view)
        if draft.seen != seen:
            present = self._rebased(plan)
            if isinstance(present, Refusal):
                return present
            plan = self._telling(present)
        now = accept_anew(plan, draft, draft.text if text is None else text, tokens_of=tokens_of)
        return now if isinstance(now, Refusal) else structs.replace(now, seen=seen)

    def _rebased(self, plan: Plan) -> Plan | Refusal:
        """`plan` recomputed for the present view."""
        return rebased(plan, self._view, self._state.situation(between_turns=False), self._state.settings.compaction)

    def enter(
        self, draft: Draft, text: str | None = None, *, waited_s: float = 0.0, merged: Draft | None = None
    ) -> Steps[CompactionResult]:
        """Enter a draft, with another text if given, together with other context work that is due.

        The cache after a boundary is lost, so clearing old results and entering `merged` summaries is free at that
        moment.
        `waited_s`: how many seconds a turn has waited for the text.
        """
        now = self.current(draft, text)
        if isinstance(now, Refusal):
            return CompactionResult(self._state.tokens, self._state.tokens, error=now.reason)
        result = yield from self._enter(now, waited_s=waited_s)
        if now.plan.boundaries:
            return result
        if merged is not None:
            yield from self.enter(merged)
        after = structs.replace(self._state.situation(between_turns=False), cold=True)
        digest = self._digests.plan_after(self._view, now.plan.kept_from)
        yield from self.digest_and_clear(digest, self._clearing.plan(self._view, after))
        yield from self._merge_oldest()
        return result

    def _enter(self, draft: Draft, *, waited_s: float = 0.0) -> Steps[CompactionResult]:
        plan, others = draft.plan, draft.entries[1:]
        if draft.material.archive:
            yield ArchiveTurns(self._thread, draft.material.archive)
        prefix, renewed = self._view.prefix, self._state.renewed_prefix
        renewing: tuple[Prefix, ...] = ()
        if renewed is not None and (prefix is None or (prefix.system, prefix.tools) != (renewed.system, renewed.tools)):
            renewing = (renewed,)
        boundary = structs.replace(draft.boundary, waited_s=waited_s)
        last = expect(int, (yield Append((boundary, *others, *renewing))))
        seq = last - len(others) - len(renewing)
        self._compaction.backoff = self._compaction.backoff.succeeded()
        yield StepDone(
            plan.step,
            plan.before,
            draft.after,
            f"{boundary.reason}; {draft.how}",
            entry=self._view.context_entry(seq),
            items=len(plan.leaving) + len(plan.boundaries),
            text=boundary.text,
            cost_usd=boundary.cost_usd,
            details=(
                ("how", draft.how),
                ("failures", draft.failures),
                ("facts_missing", draft.facts_missing),
                ("sections_added", draft.sections_added),
            ),
        )
        return CompactionResult(plan.before, draft.after, seq, boundary.text)

    def extract(self, plan: Plan) -> Steps[None]:
        """Enter a summary extracted from the turns themselves, without a model."""
        plan = self._telling(plan)
        material = material_of(plan, self._view, self._state.settings.compaction, self._prompts)
        tokens_of = self._meter.mixed_tokens_of(self._view)
        draft = accept(plan, material, material.extract, path=self._history_path, tokens_of=tokens_of)
        if isinstance(draft, Draft):
            yield from self._enter(draft)

    def _merge_oldest(self) -> Steps[None]:
        """Merge the oldest summaries into one if all together have grown too large. If that fails they stay."""
        plan = None
        if self._writing is None:
            plan = plan_merge(self._view, self._state.situation(between_turns=False), self._state.settings.compaction)
        if plan is not None and self._state.settings.compaction.background:
            yield from self.begin_beside(plan)
        elif plan is not None:
            draft = yield from self.write(plan, asked=True)
            if isinstance(draft, Draft):
                yield from self._enter(draft)

    # Work that is free when the cache is lost

    def digest_and_clear(self, digest: DigestPlan | None, cleared: Cleared | None) -> Steps[None]:
        """Carry out a planned digest and clearing, in this order."""
        if digest is not None:
            yield from self._digest(digest)
        if cleared is not None:
            yield from self._state.change(cleared)

    def _digest(self, plan: DigestPlan) -> Steps[None]:
        yield StepStarted("digest", self._state.tokens, plan.reason)
        text = ""
        if self._state.settings.digests.strategy == "llm":
            messages = (RequestMessage("user", (Text(plan.material),)),)
            small = self._state.model.small
            writes = answer_tokens(small.window if small is not None else self._state.window.tokens)
            request = ModelRequest(
                system=plan.instruction, tools=(), messages=messages, max_tokens=writes, one_off=True
            )
            tokens = (len(plan.instruction) + len(plan.material)) // 3
            who: Literal["session", "small"] = "small" if small is not None else "session"
            answer = yield AskModel(who, request, "digest", tokens)
            text = answer.text if isinstance(answer, Answer) else ""
        before = self._state.tokens
        entry = accept_digest(plan, text, before=before)
        here = self._state.situation(between_turns=False)
        after = preview_change(self._view, [entry], here).after
        yield from self._state.change(structs.replace(entry, after=after))

    # The input for a summary

    def _telling(self, plan: Plan) -> Plan:
        told = (where_things_are(self._view, self._state.running()), found_tools(self._view))
        state = "\n\n".join(text for text in told if text)
        return with_state(plan, state, self._view, self._meter.mixed_tokens_of(self._view))

    def _writers(self, plan: Plan) -> Writers:
        small = self._state.model.small
        return Writers(
            model=structs.replace(self._state.model, window=self._state.window.tokens or self._state.model.window),
            tokens=self._state.tokens,
            cold=self._state.cache.cold,
            request=self._asking(),
            tokens_of=self._meter.mixed_tokens_of(self._view),
            small_tokens_of=lambda size: self._meter.tokens_for(small.name if small else self._state.model.name, size),
            default_window=self._state.settings.context.default_window,
            own=plan.step in self._state.own_writers,
        )

    def _asking(self) -> Callable[[str], ModelRequest]:
        """A function that makes the present request with an instruction at its end, as part of the newest user message
        or as a new one.
        """
        prefix, messages = self._view.prefix, tuple(self._view.messages())

        def request(instruction: str) -> ModelRequest:
            asked, before = RequestMessage("user", (Text(instruction),)), messages
            if before and before[-1].role == "user":
                before, asked = before[:-1], RequestMessage("user", (*before[-1].blocks, *asked.blocks))
            return ModelRequest(
                system=prefix.system if prefix else "",
                tools=self._state.tools_of(prefix),
                messages=(*before, asked),
                max_tokens=answer_tokens(self._state.window.tokens),
                cache_edges=(len(before) - 1,) if before else (),
            )

        return request
