"""One turn: ask the model, run what it calls for, and again, until it has nothing more to call for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from tui_agent.agent import events
from tui_agent.agent.call_ids import with_new_ids
from tui_agent.agent.guards import NOT_APPROVED, WATCHDOG, Guards, not_done
from tui_agent.agent.hints import HINTS, UNASKED, UNASKED_WATCHDOG
from tui_agent.agent.history import said, text_of, user_blocks
from tui_agent.agent.metering import Meter
from tui_agent.agent.record import Record
from tui_agent.agent.toolbox import Emit, Toolbox
from tui_agent.agent.upkeep import Upkeep
from tui_agent.agent.user_shell import is_note
from tui_agent.context.budget import Budget
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import AnyEntry, Delivered, Message, Partial, Queued, Usage, Withdrawn, notice
from tui_agent.conversation.view import ReasoningPolicy
from tui_agent.models.base import (
    Completed,
    ContextOverflow,
    Metered,
    Model,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    TextDelta,
    ToolCallDelta,
)
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import UsageTracker, cost_usd
from tui_agent.storage.durable import to_completion
from tui_agent.storage.errors import StorageError
from tui_agent.tools.gate.permissions import NobodyToAsk

PARTIAL_EVERY_S = 1.0
"""How often text that is still streaming is saved."""

ANSWER_TOKENS = 16_384
"""The longest answer asked for where the window is unknown."""

INTERRUPTED_NOTICE = "[interrupted by the user]"


@dataclass(slots=True)
class Reply:
    """What of one answer has streamed in so far."""

    text: str = ""
    saved: int = 0
    restart: bool = False
    saved_at: float = field(default_factory=time.monotonic)


class Turn:
    """One turn of a conversation, from the user's words to the final answer. Runs once."""

    def __init__(
        self,
        record: Record,
        model: Model,
        toolbox: Toolbox,
        tracker: UsageTracker,
        upkeep: Upkeep,
        guards: Guards,
        begin: Callable[[], Awaitable[None]],
        switch: Callable[[str], Awaitable[Model]],
        emit: Emit,
    ) -> None:
        self._record = record
        self._model = model
        self._toolbox = toolbox
        self._tracker = tracker
        self._upkeep = upkeep
        self._manager = upkeep.manager
        self._guards = guards
        self._meter = Meter(record, tracker)
        self._begin = begin
        self._switch = switch
        self._emit = emit
        self._reply = Reply()
        self._answer = ""
        self._stop_reason = "end_turn"
        self._steps = 0
        self._sent = 0
        self._recoveries = 0
        self._started = time.monotonic()

    @property
    def failed(self) -> bool:
        """Whether it ended in an error."""
        return self._stop_reason == "error"

    async def run(self, prompt: Message | None) -> None:
        """Run to the end. Errors become events, of which the last is `TurnFinished`; a cancellation leaves a valid log
        and is raised.
        """
        try:
            await self._run(prompt)
        except StorageError as error:
            self._not_saved(error)
        finally:
            self._manager.turn_ended()
            try:
                await to_completion(self._flush())
            finally:
                self._emit(self._finished())

    async def _run(self, prompt: Message | None) -> None:
        try:
            goes_on = await self._open(prompt)
            while goes_on:
                goes_on = await self._step()
        except asyncio.CancelledError:
            await to_completion(self._interrupted())
            raise
        except ModelError as error:
            await to_completion(self._failed(error))
        except NobodyToAsk as refusal:
            await to_completion(self._unapproved(refusal))

    async def _open(self, prompt: Message | None) -> bool:
        """Bring the log to where the model is to answer; whether there is anything to answer."""
        self._tracker.start_turn()
        await self._begin()
        await self._recover()
        refusal = self._guards.refusal()
        if refusal is not None:
            await self._hear(prompt)
            raise refusal
        for warning in self._manager.warnings(self._record.view, self._upkeep.facts(self._model)):
            self._emit(events.Notice(level="warning", title="A context layer rests", text=warning))
        if prompt is not None and self._upkeep.is_due(self._model, between_turns=True):
            # What takes a while comes first; the user's words are on disk meanwhile.
            await self._record.append(Queued(blocks=user_blocks(prompt.blocks)))
            prompt = None
        await self._upkeep.run(self._model, self._emit, between_turns=True)
        await self._hear(prompt)
        messages = self._record.view.messages()
        return bool(messages) and messages[-1].role == "user"

    async def _hear(self, prompt: Message | None) -> None:
        """Take in what the user has said: what waits, then `prompt`."""
        await self._deliver()
        if prompt is not None:
            fitted = await self._upkeep.fitted(prompt, self._model, self._emit)
            seq = await self._record.append(fitted)
            self._emit(said(seq, fitted.blocks))

    async def _recover(self) -> None:
        """Complete what a crash left open: a reply that was streaming, calls that were running."""
        partial = self._record.view.partial
        if partial.strip():
            await self._record.append(_cut_short(partial, self._record.view.model))
        await self._record.answer_open_calls()

    async def _deliver(self) -> bool:
        """Hand over what the user sent meanwhile; whether any of it waits for an answer."""
        waiting = self._record.view.queued()
        for queued in waiting:
            whole = Message(role="user", blocks=queued.blocks)
            fitted = await self._upkeep.fitted(whole, self._model, self._emit)
            if fitted is whole:
                seq = await self._record.append(Delivered(queued=queued.seq))
            else:
                seq = await self._record.append(Withdrawn(queued=queued.seq), fitted)
            self._emit(said(seq, fitted.blocks, queued.seq))
        return any(not is_note(text_of(queued.blocks, Text)) for queued in waiting)

    async def _step(self) -> bool:
        """One model call and the tool calls it asks for; whether the turn goes on."""
        self._guards.ceiling.check()
        larger = self._guards.take_escalation()
        if larger:
            self._model, self._sent = await self._switch(larger), 0
        await self._upkeep.run(self._model, self._emit, between_turns=False)
        completed = await self._ask_within_the_window()
        await self._guards.after_call(self._model.profile, self._record, self._emit)
        calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
        if calls:
            await self._toolbox.run(calls, self._record, self._upkeep.room(self._model), self._emit)
        delivered = await self._deliver()
        return bool(calls) or delivered

    async def _ask_within_the_window(self) -> Completed:
        """Ask; where the request does not fit after all, make it smaller and ask again, as often as is allowed."""
        while True:
            try:
                if not self._fits():
                    await self._upkeep.recover(self._model, self._emit)
                self._refuse_what_cannot_fit()
                return await self._ask()
            except ContextOverflow as overflow:
                self._manager.learn_limit(self._upkeep.facts(self._model), overflow.limit)
                self._recoveries += 1
                if self._recoveries > self._manager.settings.compaction.max_compaction_recoveries:
                    raise
                if not await self._upkeep.recover(self._model, self._emit):
                    raise

    async def _ask(self) -> Completed:
        request = self._request()
        prefix_hash = self._record.view.prefix_hash()
        name, tokens = self._model.profile.name, self._manager.tokens(self._record.view)
        with self._guards.calling(self._model.profile, tokens, self._record, self._emit):
            self._emit(events.ModelCallStarted(model=name, tokens=tokens))
            began = time.monotonic()
            self._reply = Reply()
            completed = await self._listen(request)
            duration_ms = int(1000 * (time.monotonic() - began))
            cost = cost_usd(completed.usage, self._model.profile.prices)
            self._tracker.record(name, completed.usage, cost)
        completed = msgspec.structs.replace(completed, blocks=with_new_ids(completed.blocks, self._record.view))
        message = Message(
            role="assistant",
            blocks=completed.blocks,
            model=name,
            prefix_hash=prefix_hash,
            usage=completed.usage,
            cost_usd=cost,
            stop_reason=completed.stop_reason,
            duration_ms=duration_ms,
        )
        # Even a cancellation lets this entry in: then it is the answer, and there is nothing left to be kept of one.
        self._reply = Reply()
        seq = await self._record.append(message)
        self._take_in(message, seq)
        return completed

    def _take_in(self, message: Message, seq: int) -> None:
        usage = message.usage or Usage()
        self._manager.meter.measure(self._record.view, usage)
        self._steps += 1
        self._stop_reason = message.stop_reason
        self._answer = text_of(message.blocks, Text)
        self._emit(
            events.AssistantMessage(
                seq=seq,
                model=message.model,
                text=self._answer,
                reasoning=text_of(message.blocks, Reasoning),
                usage=usage,
                cost_usd=message.cost_usd,
                stop_reason=message.stop_reason,
                duration_ms=message.duration_ms,
            )
        )
        self._emit(self._context())

    def _request(self) -> ModelRequest:
        view, profile = self._record.view, self._model.profile
        messages = tuple(view.messages(ReasoningPolicy(profile.name, profile.bound_reasoning)))
        prefix = view.prefix
        protected = self._manager.protected_edge(view, self._upkeep.facts(self._model), messages)
        edges = tuple(sorted({edge for edge in (protected, self._sent - 1) if 0 <= edge < len(messages) - 1}))
        self._sent = len(messages)
        return ModelRequest(
            system=prefix.system if prefix else "",
            tools=prefix.tools if prefix else (),
            messages=messages,
            max_tokens=self._budget().reserve or ANSWER_TOKENS,
            cache_edges=edges,
        )

    def _budget(self) -> Budget:
        return self._manager.budget(self._record.view, self._upkeep.facts(self._model))

    def _fits(self) -> bool:
        return self._budget().fits(self._manager.tokens(self._record.view))

    def _refuse_what_cannot_fit(self) -> None:
        budget, tokens = self._budget(), self._manager.tokens(self._record.view)
        if not budget.fits(tokens):
            raise ContextOverflow(
                f"The next request has about {tokens:,} tokens; {self._model.profile.id} takes {budget.limit:,} "
                f"(its window of {budget.window:,} less {budget.reserve:,} for the answer).",
                tokens=tokens,
                limit=budget.limit,
            )

    async def _listen(self, request: ModelRequest) -> Completed:
        async with aclosing(stream_with_retries(self._model, request)) as stream:
            async for event in stream:
                match event:
                    case TextDelta():
                        self._reply.text += valid_text(event.text)
                        self._emit(events.TextDelta(text=event.text))
                        await self._save_partial()
                    case ReasoningDelta():
                        self._emit(events.ReasoningDelta(text=event.text))
                    case ToolCallDelta():
                        self._emit(events.ToolCallDelta(index=event.index, name=event.name, size=event.size))
                    case Metered():
                        self._meter.told(self._model.profile, event.usage)
                    case Retrying():
                        self._reply = Reply(restart=True)
                        await self._meter.broke_off()
                        self._retrying(event)
                    case Completed():
                        self._meter.ended()
                        return event
        raise ModelError(f"{self._model.profile.name} ended its answer without completing it.")

    async def _save_partial(self) -> None:
        reply = self._reply
        if time.monotonic() - reply.saved_at < PARTIAL_EVERY_S:
            return
        piece = Partial(text=reply.text[reply.saved :], model=self._model.profile.name, restart=reply.restart)
        reply.saved, reply.restart, reply.saved_at = len(reply.text), False, time.monotonic()
        await self._record.append(piece)

    def _retrying(self, event: Retrying) -> None:
        error = event.error
        self._record.trace.record(
            "error", {"kind": error.kind, "message": error.message, "attempt": event.attempt, "retry_s": event.delay_s}
        )
        self._emit(
            events.Retrying(attempt=event.attempt, delay_s=event.delay_s, kind=error.kind, message=error.message)
        )

    async def _interrupted(self) -> None:
        self._stop_reason = "interrupted"
        await self._meter.broke_off()
        await self._keep_reply()
        await self._record.answer_open_calls()
        await self._record.append(notice(INTERRUPTED_NOTICE))

    async def _failed(self, error: ModelError) -> None:
        self._stop_reason = "error"
        await self._meter.broke_off()
        await self._keep_reply()
        await self._record.answer_open_calls(not_done(error))
        self._record.trace.record("error", {"kind": error.kind, "message": error.message})
        self._emit(
            events.TurnFailed(
                kind=error.kind, message=error.message, retryable=error.retryable, hint=HINTS.get(error.kind, "")
            )
        )

    async def _unapproved(self, refusal: NobodyToAsk) -> None:
        self._stop_reason = "error"
        question = refusal.question
        await self._record.answer_open_calls(NOT_APPROVED)
        self._emit(
            events.TurnFailed(
                kind="needs_approval",
                message=f"{question.tool} needs an approval, and there is nobody to ask: {question.reason}",
                retryable=False,
                hint=UNASKED_WATCHDOG if question.tool == WATCHDOG else UNASKED,
            )
        )

    def _not_saved(self, error: StorageError) -> None:
        self._stop_reason = "error"
        self._emit(events.TurnFailed(kind=error.kind, message=error.message, retryable=True, hint=error.hint))

    async def _flush(self) -> None:
        try:
            await self._record.trace.flush()
        except StorageError as error:
            self._emit(events.Notice(level="warning", title="The trace is behind", text=error.message, hint=error.hint))

    async def _keep_reply(self) -> None:
        if self._reply.text.strip():
            await self._record.append(_cut_short(self._reply.text, self._model.profile.name))
            self._answer = self._reply.text

    def _context(self) -> events.ContextChanged:
        return events.ContextChanged(
            tokens=self._manager.tokens(self._record.view),
            window=self._budget().window,
            measured=self._manager.meter.measured,
            cost_usd=self._tracker.session.known_cost_usd,
            turn_cost_usd=self._tracker.turn.known_cost_usd,
        )

    def _finished(self) -> events.TurnFinished:
        return events.TurnFinished(
            stop_reason=self._stop_reason,
            text=self._answer,
            steps=self._steps,
            usage=self._tracker.turn.usage,
            cost_usd=self._tracker.turn.known_cost_usd,
            duration_ms=int(1000 * (time.monotonic() - self._started)),
        )


def _cut_short(text: str, model: str) -> AnyEntry:
    return Message(role="assistant", blocks=(Text(text),), model=model, stop_reason="interrupted")
