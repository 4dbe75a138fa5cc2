"""Carrying out what the context manager decides: one pass, appended entry by entry, and told of as events.

A summary's text is written before anything is appended, so a cancellation, a crash or a failing model leaves the view
as it was.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.briefing import Briefing
from tui_agent.agent.drafts import Draft, redrafted
from tui_agent.agent.model_facts import model_facts
from tui_agent.agent.record import Record
from tui_agent.agent.summarizer import OutOfMoney, Summarizer, Written
from tui_agent.agent.toolbox import Emit, Room
from tui_agent.context.compaction import CompactionPlan, accept
from tui_agent.context.counting import load_tokenizer
from tui_agent.context.digests import DigestPlan, accept_digest
from tui_agent.context.layers.limits import Whole, shorten_prompt
from tui_agent.context.manager import RECOVERIES, ContextManager, ModelFacts, Pass
from tui_agent.context.rebasing import rebased
from tui_agent.context.refusal import Refusal
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import (
    AnyContextEntry,
    Cleared,
    Message,
    Pinned,
    Prefix,
    Restored,
    UnattributedCall,
    Undone,
)
from tui_agent.models.base import Model
from tui_agent.storage.artifacts import Artifacts

HISTORY = "main"
"""The thread under which the turns are archived that a summary replaces."""

SmallModel = Callable[[str], Model | None]
"""The cheaper model beside a provider's own."""


class CompactionResult(NamedTuple):
    """What a compaction or checkpoint came to: the view's tokens before and after, the entry (0: none), and why not."""

    before: int
    after: int
    seq: int = 0
    text: str = ""
    error: str = ""


class Upkeep:
    """Does the context work of one conversation. `briefing` says what the prefix should be where it is renewed."""

    def __init__(
        self,
        record: Record,
        manager: ContextManager,
        summarizer: Summarizer,
        artifacts: Artifacts,
        small: SmallModel,
        briefing: Briefing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.manager = manager
        self._record = record
        self._summarizer = summarizer
        self._artifacts = artifacts
        self._small = small
        self._briefing = briefing
        self._clock = clock

    async def learn(self, model: Model) -> None:
        """Learn what the provider tells of the model and of the cheaper one beside it, and how to count tokens."""
        small = self._small(model.profile.provider)
        loading = asyncio.ensure_future(asyncio.to_thread(load_tokenizer))
        await asyncio.gather(model.describe(), *([small.describe()] if small is not None else []))
        tokenizer = await loading
        if tokenizer is not None:
            self.manager.meter.counter.use(tokenizer)

    def facts(self, model: Model) -> ModelFacts:
        """What the layers must know of the model that answers."""
        small = self._small(model.profile.provider)
        return model_facts(model.profile, self.manager.tokens(self._record.view), small.profile if small else None)

    def is_due(self, model: Model, *, between_turns: bool) -> Pass:
        """What is to be done before the next call."""
        return self.manager.due(self._record.view, self.facts(model), self._clock(), between_turns=between_turns)

    def room(self, model: Model) -> Room:
        """What one tool result may take of this model's window."""
        view = self._record.view
        history = self.manager.budget(view, self.facts(model)).history
        return Room(
            lambda text, paged: self.manager.shorten(view, text, history_budget=history, paged=paged),
            self.manager.page_bytes(history),
        )

    async def fitted(self, said: Message, model: Model, emit: Emit) -> Message:
        """What of the user's words enters the conversation: a text too large for the window is kept as a file."""
        view, settings = self._record.view, self.manager.settings.output
        budget = self.manager.budget(view, self.facts(model))
        if not budget.known:
            return said
        text = "\n\n".join(block.text for block in said.blocks if isinstance(block, Text))
        shortened = shorten_prompt(
            text,
            settings,
            history_budget=budget.history,
            tokens_of=lambda each: self.manager.meter.tokens_of_text(view, each, "prose"),
        )
        if isinstance(shortened, Whole):
            return said
        artifact = await self._artifacts.save(f"prompt-{len(view.log) + 1}", text, evicted=True)
        emit(
            events.Notice(
                level="warning",
                title="The text is too large for the window",
                text=f"{len(text):,} characters are kept in {artifact.path}; the model is shown both ends of them, and "
                "reads the rest page by page.",
            )
        )
        others = tuple(block for block in said.blocks if not isinstance(block, Text))
        return structs.replace(said, blocks=(Text(shortened.text(artifact.path)), *others), artifact=artifact)

    async def run(self, model: Model, emit: Emit, *, between_turns: bool) -> None:
        """Do all that is due, in one pass."""
        due = self.is_due(model, between_turns=between_turns)
        plan = due.checkpoint or due.summary
        if plan is not None:
            await self.summarize(plan, model, emit)
            return
        await self._do(due, model, emit)

    async def summarize(self, plan: CompactionPlan, model: Model, emit: Emit) -> CompactionResult:
        """Have the plan's text written and entered, nobody being asked."""
        draft = await self.draft(plan, model, emit)
        if isinstance(draft, Refusal):
            emit(
                events.ContextStep(
                    step=plan.step,
                    seq=0,
                    before=plan.before,
                    after=plan.before,
                    reason=plan.reason,
                    error=draft.reason,
                )
            )
            return CompactionResult(plan.before, plan.before, error=draft.reason)
        return await self.enter(draft, model, emit)

    async def draft(self, plan: CompactionPlan, model: Model, emit: Emit) -> Draft | Refusal:
        """Have the plan's text written; the conversation stays as it is."""
        emit(events.ContextStepStarted(step=plan.step, tokens=plan.before, reason=plan.reason))
        view = self._record.view
        seen = len(view.log)
        cold = self.manager.cache(view, self.facts(model), self._clock()).cold
        small = self._small(model.profile.provider)
        path = self._artifacts.history_path(HISTORY)
        written = await self._summarizer.write(plan, view, model, small, path=path, cold=cold)
        if isinstance(written, Refusal):
            if not isinstance(written, OutOfMoney):
                self.manager.backoff = self.manager.backoff.failed()
            self._trace_failure(plan.step, written.reason)
            return written
        if all(isinstance(view.log[seq], UnattributedCall) for seq in range(seen + 1, len(view.log) + 1)):
            seen = len(view.log)
        return Draft(plan, written, seen)

    def current(self, draft: Draft, text: str | None = None) -> Draft | Refusal:
        """The draft on the view as it is now, with another `text` if one is given; refused where it no longer holds."""
        view, plan = self._record.view, draft.plan
        if draft.seen == len(view.log) and text is None:
            return draft
        tokens_of = self.manager.tokens_of(view)
        if draft.seen != len(view.log):
            settings, tokens = self.manager.settings.compaction, self.manager.tokens(view)
            now = rebased(plan, view, settings, tokens=tokens, tokens_of=tokens_of)
            if isinstance(now, Refusal):
                return now
            plan = now
        wanted = draft.text if text is None else text
        return redrafted(draft, wanted, plan=plan, seen=len(view.log), tokens_of=tokens_of)

    async def enter(self, draft: Draft, model: Model, emit: Emit) -> CompactionResult:
        """Take a draft into the conversation, and with it all else that is due at such a point."""
        view = self._record.view
        now = self.current(draft)
        if isinstance(now, Refusal):
            tokens = self.manager.tokens(view)
            return CompactionResult(tokens, tokens, error=now.reason)
        result = await self._enter(now.plan, now.written, emit)
        follow_up = self.manager.follow_up(view, self.facts(model), self._clock(), kept_from=now.plan.kept_from)
        await self._do(follow_up, model, emit)
        return result

    async def recover(self, model: Model, emit: Emit) -> bool:
        """Make the request smaller without asking a model; whether it is now smaller and fits."""
        view = self._record.view
        start = self.manager.tokens(view)
        for way, only_if_enough in RECOVERIES:
            plan = self.manager.recovery(view, self.facts(model), self._clock(), way)
            if plan is None or (only_if_enough and not self.manager.budget(view, self.facts(model)).fits(plan.after)):
                continue
            match plan:
                case Cleared():
                    await self._append(plan, emit, "cleared", len(plan.results), plan.texts[0])
                case _:
                    await self._extract(plan, emit)
            tokens = self.manager.tokens(view)
            if tokens < start and self.manager.budget(view, self.facts(model)).fits(tokens):
                return True
        return self.manager.tokens(view) < start

    async def change(self, entry: AnyContextEntry, emit: Emit, step: str) -> events.ContextStep:
        """Append what the user asked for."""
        match entry:
            case Cleared():
                return await self._append(entry, emit, step, len(entry.results), entry.texts[0])
            case Pinned() | Restored():
                return await self._append(entry, emit, step, len(entry.items))
            case _:
                return await self._append(entry, emit, step, 1)

    async def whole_text(self, seq: int) -> str:
        """The whole of a result that entered shortened; empty where the log has it whole."""
        view = self._record.view
        entry = view.log[seq] if 1 <= seq <= len(view.log) else None
        if not isinstance(entry, Message) or entry.artifact is None:
            return ""
        return await self._artifacts.read(entry.artifact)

    async def _do(self, due: Pass, model: Model, emit: Emit) -> None:
        if due.digest is not None:
            await self._digest(due.digest, model, emit)
        if due.cleared is not None:
            await self._append(due.cleared, emit, "cleared", len(due.cleared.results), due.cleared.texts[0])

    async def _enter(self, plan: CompactionPlan, written: Written, emit: Emit) -> CompactionResult:
        boundary, accepted = written.accepted.boundary, written.accepted
        await self._artifacts.append_history(HISTORY, plan.archive)
        prefix, renewed = self._record.view.prefix, self._briefing.prefix
        renewing: tuple[Prefix, ...] = ()
        if prefix is None or (prefix.system, prefix.tools) != (renewed.system, renewed.tools):
            renewing = (renewed,)
        last = await self._record.append(*accepted.entries, *renewing)
        seq = last - len(accepted.entries) - len(renewing) + 1
        self.manager.backoff = self.manager.backoff.succeeded()
        self._record.trace.record(
            "context",
            {
                "seq": seq,
                "how": written.how,
                "failures": written.failures,
                "facts_missing": accepted.facts_missing,
                "sections_added": accepted.sections_added,
            },
        )
        emit(
            events.ContextStep(
                step=boundary.compaction,
                seq=seq,
                before=plan.before,
                after=accepted.after,
                items=len(plan.parts),
                reason=f"{boundary.reason}; {written.how}",
                text=boundary.text,
                cost_usd=boundary.cost_usd,
            )
        )
        return CompactionResult(plan.before, accepted.after, seq, boundary.text)

    async def _extract(self, plan: CompactionPlan, emit: Emit) -> None:
        path, tokens_of = self._artifacts.history_path(HISTORY), self.manager.tokens_of(self._record.view)
        accepted = accept(plan, plan.extract, self._summarizer.settings.compaction, path=path, tokens_of=tokens_of)
        if not isinstance(accepted, Refusal):
            await self._enter(plan, Written(accepted, "an extract, without a model"), emit)

    async def _digest(self, plan: DigestPlan, model: Model, emit: Emit) -> None:
        before = self.manager.tokens(self._record.view)
        emit(events.ContextStepStarted(step="digest", tokens=before, reason=plan.reason))
        text = await self._summarizer.digest(plan, self._small(model.profile.provider) or model)
        entry = accept_digest(plan, text, before=before, after=before)
        await self._append(entry, emit, "digest", len(plan.results), entry.text)

    async def _append(
        self, entry: AnyContextEntry, emit: Emit, step: str, items: int, text: str = ""
    ) -> events.ContextStep:
        seq = await self._record.append(entry)
        happened = events.ContextStep(
            step=step,
            seq=seq,
            before=entry.before,
            after=entry.after,
            items=items,
            reason=entry.reason,
            text=text,
            target=entry.target if isinstance(entry, Undone) else 0,
        )
        emit(happened)
        return happened

    def _trace_failure(self, step: str, reason: str) -> None:
        self._record.trace.record("error", {"kind": "context", "step": step, "message": reason})
