"""Carries out the effects that the context engine yields: commits entries, asks models, saves texts, tells listeners.

A summary's text is complete before anything is appended, so a cancellation, a crash or a failing model leaves the view
unchanged. It is written in a background task while the conversation goes on; the running turn enters it before its next
call, or it is entered at once if no turn runs.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel
from tui_agent.agent.events import Emit
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.history.as_events import step_event
from tui_agent.agent.record import CallAccount, Record
from tui_agent.agent.turn.guards import CostCeiling, CostCeilingReached, probably_cached
from tui_agent.context import effects
from tui_agent.context.compaction.writing import question
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import Text, text_in, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.sizes import size_of_text
from tui_agent.models.base import Completed, Metered, Model, ModelError, ModelRetrying
from tui_agent.models.pictures import halved
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Texts
from tui_agent.system.durable import to_completion
from tui_agent.text import error_text, money_text
from tui_agent.tools.base import ToolFailure

T = TypeVar("T")

ATTEMPTS = 2
"""How often one request for a summary is tried before falling back to the next way of making one."""

JUDGE_TOKENS = 1_000
"""The longest answer to the question of a hook, in tokens."""

_NOT_WRITTEN = "The summary was not entered"
_AS_IT_WAS = "The conversation is as it was. `tui-agent trace SESSION` shows what happened, for a report of the fault."


class Compactor(Protocol):
    """Writes summaries in place of the built-in writer. `Checkpointer` is the same for completion records."""

    def write(self, parts: tuple[str, ...], instruction: str, subject: str) -> Awaitable[str]:
        """Summarise the turns in `parts`, oldest first.

        `instruction`: what a model would be asked. `subject`: the user's focus. If it raises, the built-in writer is
        used. The text is checked and completed like that of a model.
        """


Checkpointer = Compactor


class _Background(msgspec.Struct, eq=False):
    """A summary being written in the background. `over`: set once `task` has written it. `stopped`: why, if it was."""

    over: asyncio.Event
    account: CallAccount
    task: "asyncio.Task[None] | None" = None
    stopped: str = ""


@dataclass(eq=False)
class StepRunner:
    """Carries out the steps of one conversation's engine, and owns the task that writes a summary in the background.

    `_exclusive`: the lock to hold while changing the conversation. `tell`: called with events outside a turn.
    `_writers`: custom writers of summaries and records.
    """

    _record: Record
    _active: ActiveModel
    _texts: Texts
    _tracker: UsageTracker
    _ceiling: CostCeiling
    _exclusive: asyncio.Lock
    tell: Emit
    _writers: dict[str, Compactor]
    _hooks: Hooks
    awaited: bool = field(default=False, init=False)
    """Whether a turn is waiting for that summary."""
    _trigger: str = field(default="auto", init=False)
    """Why the last summary was written."""
    _background: _Background | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._engine = self._record.engine
        self._account = CallAccount(self._record, self._tracker)

    async def run(
        self,
        steps: effects.Steps[T],
        emit: Emit,
        first: effects.Effect | None = None,
        account: "CallAccount | None" = None,
    ) -> T:
        """Carry out every effect of `steps` in order, and return their result. Raises `StorageError`.

        `first`: the effect that `start` returned, if that was called. `account`: accounts for calls of models. For a
        long view the engine computes in a thread, to keep the event loop free.
        """
        account = account or self._account
        try:
            outcome = await self._perform(first, emit, account) if first is not None else None
            while True:
                effect, result = await self._advance(steps, outcome)
                if effect is None:
                    return result[0]
                outcome = await self._perform(effect, emit, account)
        finally:
            steps.close()

    async def start(self, steps: effects.Steps[T], emit: Emit) -> effects.Effect | None:
        """The first effect of `steps`, not yet carried out; None if there is nothing to do and `steps` have ended.

        Hooks are asked first, since they may prevent all that follows.
        """
        first = (await self._advance(steps, None))[0]
        while isinstance(first, effects.BeforeSummary):
            first = (await self._advance(steps, await self._before_summary(first, emit)))[0]
        return first

    async def compute(self, work: Callable[[], T]) -> T:
        """Run `work`, which reads the view; in a thread if the view is long."""
        if not self._engine.is_long:
            return work()
        self._engine.view.sizes()
        return await self._record.read(work)

    async def _advance(
        self, steps: effects.Steps[T], outcome: effects.Outcome
    ) -> tuple[effects.Effect | None, tuple[T, ...]]:
        """The next effect of `steps`; None, and their result, if they have ended."""

        def advance() -> tuple[effects.Effect | None, tuple[T, ...]]:
            try:
                return steps.send(outcome), ()
            except StopIteration as done:
                return None, (done.value,)

        return await self.compute(advance)

    async def _perform(self, effect: effects.Effect, emit: Emit, account: CallAccount) -> effects.Outcome:
        match effect:
            case effects.Append():
                return await self._record.append(*effect.entries)
            case effects.AskModel():
                return await self._ask(effect, account)
            case effects.AskWriter():
                try:
                    own = self._writers[effect.step]
                    text: object = await own.write(effect.parts, effect.instruction, effect.subject)
                except Exception as error:
                    self._record.note("error", {"kind": "writer", "traceback": traceback.format_exc()})
                    return effects.Refusal(f"{type(error).__name__}: {error}")
                if not isinstance(text, str):
                    return effects.Refusal(f"it wrote {type(text).__name__}, not a text")
                return effects.Answer(valid_text(text), "", Usage(), 0.0)
            case effects.SaveText():
                artifact = await self._texts.save(effect.name, effect.text, evicted=True)
                kept = f"{len(effect.text):,} characters are kept in {artifact.path}"
                kept += "; the model is shown both ends of them, and reads the rest page by page."
                emit(events.Notice(level="warning", title="The text is too large for the window", text=kept))
                return artifact
            case effects.ArchiveTurns():
                await self._texts.append_history(effect.thread, effect.text)
                return None
            case effects.ShrinkImages():
                return await asyncio.to_thread(lambda: tuple(map(halved, effect.images)))
            case effects.WriteInBackground():
                self._begin(effect.steps)
                return None
            case effects.AwaitWriting():
                await self._await_writing(emit)
                return None
            case effects.StepStarted():
                emit(
                    events.ContextStepStarted(
                        step=effect.step, tokens=effect.tokens, reason=effect.reason, in_background=effect.in_background
                    )
                )
                return None
            case effects.StepDone():
                if effect.error:
                    self._record.note("error", {"kind": "context", "step": effect.step, "message": effect.error})
                elif effect.details and effect.entry is not None:
                    self._record.note("context", {"seq": effect.entry.seq, **dict(effect.details)})
                event = step_event(effect)
                emit(event)
                if event.step == "summary" and not event.error:
                    await self._hooks.summarised(event.text, self._trigger, emit)
                return None
            case effects.BeforeSummary():
                return await self._before_summary(effect, emit)

    async def _before_summary(self, effect: effects.BeforeSummary, emit: Emit) -> effects.Outcome:
        """What the user's hooks say before a summary is written: a veto, or what to keep besides."""
        self._trigger = trigger = "manual" if effect.asked else "auto"
        fields = {"trigger": trigger, "custom_instructions": effect.focus, "reason": effect.reason}
        said = await self._hooks.fire("PreCompact", fields, emit, (trigger,))
        if said.refused or said.ended:
            return effects.Refusal(f"a hook of the user prevents it: {said.refused or said.ended}", final=True)
        return said.context or None

    async def judge(self, instruction: str, text: str) -> str:
        """What the small model answers to a hook's question. Raises `ToolFailure` if it cannot be asked."""
        tokens = estimate(size_of_text(instruction, text))
        asked = question(instruction, text, "digest", small=True, writes=JUDGE_TOKENS, tokens=tokens)
        answer = await self._ask(asked, self._account)
        if isinstance(answer, effects.Refusal):
            raise ToolFailure(f"The small model could not be asked: {answer.reason}")
        return answer.text

    # Writing a summary in the background

    @property
    def writing(self) -> bool:
        return self._background is not None and not self._background.over.is_set()

    def stop_writing(self, why: str) -> bool:
        """Stop it, and tell listeners `why` (a sentence) and its cost so far. False if none was being written."""
        background = self._background
        if background is None or background.task is None or background.over.is_set():
            return False
        background.stopped = why
        background.task.cancel()
        return True

    async def drop_writing(self, why: str) -> None:
        """Stop it, and wait for its end."""
        if self.stop_writing(why) and self._background is not None:
            await self._background.over.wait()

    async def keep_if_it_holds(self) -> None:
        """Stop it if the conversation has changed so that it could no longer be used."""
        if self.writing and not await self.compute(self._engine.still_holds):
            await self.drop_writing("The messages it was to replace have changed.")

    async def end_writing(self) -> None:
        """On closing the conversation: enter a finished summary, stop an unfinished one. Raises `StorageError`."""
        self._closed = True
        background, self._background = self._background, None
        if background is not None and background.task is not None:
            background.task.cancel()
            await to_completion(asyncio.wait([background.task]))
            await self.run(self._engine.settle(), self.tell)

    def _begin(self, steps: effects.Steps[None]) -> None:
        first = next(steps)
        if self._closed:
            steps.close()
            return

        def ended(_: "asyncio.Task[None]") -> None:
            # If it is cancelled before its first step, its own `finally` never runs.
            steps.close()
            background.over.set()

        background = self._background = _Background(asyncio.Event(), CallAccount(self._record, self._tracker))
        background.task = asyncio.create_task(self._write(background, steps, first), name="summary")
        background.task.add_done_callback(ended)

    async def _write(self, background: _Background, steps: effects.Steps[None], first: effects.Effect) -> None:
        try:
            try:
                await self.run(steps, self.tell, first, background.account)
            finally:
                background.over.set()
            if self._engine.written:
                # Waits for a running turn to end, unless that enters the summary before its next call.
                async with self._exclusive:
                    await self.run(self._engine.settle(), self.tell)
        except asyncio.CancelledError:
            if background.stopped:
                spent, tokens = background.account.spent_usd, self._engine.tokens
                why = f"{background.stopped} Writing it has cost {money_text(spent)}." if spent else background.stopped
                self.tell(
                    events.ContextStep(step="summary", seq=0, before=tokens, after=tokens, error=why, cost_usd=spent)
                )
            raise
        except StorageError as error:
            self.tell(events.Notice(level="error", title=_NOT_WRITTEN, text=error.message, hint=error.hint))
        except Exception as error:
            self._record.note("error", {"kind": "internal", "traceback": traceback.format_exc()})
            self.tell(events.Notice(level="error", title=_NOT_WRITTEN, text=error_text(error, 300), hint=_AS_IT_WAS))

    async def _await_writing(self, emit: Emit) -> None:
        if self._background is not None:
            self.awaited = True
            reason = "the next request does not fit without it"
            emit(events.ContextStepStarted(step="summary", tokens=self._engine.tokens, reason=reason))
            try:
                await self._background.over.wait()
            finally:
                self.awaited = False

    # Effects that ask a model

    async def _ask(self, asked: effects.AskModel, account: CallAccount) -> effects.Answer | effects.Refusal:
        """Ask a model for a text. Any error becomes a refusal, so that context work can fall back."""
        model = (self._active.small if asked.who == "small" else None) or self._active.model
        cached = probably_cached(self._record.view.last_call, model.profile) if asked.cached else 0
        try:
            async with self._ceiling.turn_to_call(model.profile, asked.tokens, cached):
                began = time.monotonic()
                completed = await self._completed(model, asked.request, account)
                duration_ms = int(1000 * (time.monotonic() - began))
                cost = await account.count(model.profile, completed, asked.purpose, duration_ms)
        except CostCeilingReached as reached:
            return effects.Refusal(f"{reached.message} /continue-spending lets the session go on.", final=True)
        except ModelError as error:
            if asked.request.summarize is not None and not (model.profile.signs_summaries or model.profile.compacts):
                await self._record.use_model(structs.replace(self._engine.model, signs_summaries=False, compacts=False))
            return effects.Refusal(error.message)
        finally:
            await account.broke_off()
        texts = [block for block in completed.blocks if isinstance(block, Text)]
        if asked.request.summarize is None:
            return effects.Answer(text_in(texts), model.profile.name, completed.usage, cost)
        for block in texts:
            if block.opaque:
                return effects.Answer(block.text, model.profile.name, completed.usage, cost, block.opaque)
        return effects.Refusal(f"The provider wrote no summary ({completed.stop_reason.replace('_', ' ')}).")

    async def _completed(self, model: Model, request: ModelRequest, account: CallAccount) -> Completed:
        async with aclosing(stream_with_retries(model, request, attempts=ATTEMPTS)) as stream:
            async for event in stream:
                match event:
                    case Metered():
                        account.used_so_far(model.profile, event)
                    case ModelRetrying():
                        await account.broke_off()
                    case Completed():
                        return event
        raise ModelError("The model ended its answer without completing it.")
