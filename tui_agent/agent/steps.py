"""Carrying out what the context engine asks for: entries are committed, models asked, texts kept, listeners told.

A summary's text is written before anything is appended, so a cancellation, a crash or a failing model leaves the view
as it was.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel
from tui_agent.agent.guards import CostCeiling, CostCeilingReached, probably_cached
from tui_agent.agent.history import step_event
from tui_agent.agent.record import CallAccount, Record
from tui_agent.aside import aside
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AskWriter,
    Effect,
    Outcome,
    Refusal,
    SaveText,
    ShrinkImages,
    Shrunk,
    StepDone,
    Steps,
    StepStarted,
)
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Artifact, Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Completed, Metered, Model, ModelError, Retrying
from tui_agent.models.pictures import halved
from tui_agent.models.retry import stream_with_retries
from tui_agent.models.usage import UsageTracker

T = TypeVar("T")
Emit = Callable[[events.AgentEvent], None]

ATTEMPTS = 2
"""How often one request for a summary is tried before the next way is taken."""


class Texts(Protocol):
    """Keeps texts that entries point at: whole tool results, summarised turns."""

    @property
    def folder(self) -> Path:
        """The session's own folder: what a tool writes for itself goes below it."""
        ...

    async def save(self, name: str, text: str, *, evicted: bool = False) -> Artifact:
        """Keep a text durably, before the entry that points at it. Raises `StorageError`."""
        ...

    async def append_history(self, thread: str, text: str) -> str:
        """Add turns to a history; where it lies. Raises `StorageError`."""
        ...

    async def read(self, artifact: Artifact) -> str:
        """The whole text. Raises `StorageError`."""
        ...


class Compactor(Protocol):
    """Writes summaries in place of the built-in way. `Checkpointer` has the same shape, for completion records."""

    def write(self, parts: tuple[str, ...], instruction: str, subject: str) -> Awaitable[str]:
        """A text for the turns in `parts`, oldest first. `instruction` is what a model would be asked; `subject` the
        user's focus. What it raises leads to the built-in way; the text is checked and completed as every other.
        """
        ...


Checkpointer = Compactor


@dataclass(frozen=True, slots=True)
class _Over(Generic[T]):
    """The steps are at their end."""

    result: T


class StepRunner:
    """Carries out the steps of one conversation's engine. `writers` write summaries or records of their own."""

    def __init__(
        self,
        record: Record,
        active: ActiveModel,
        texts: Texts,
        tracker: UsageTracker,
        ceiling: CostCeiling,
        writers: dict[str, Compactor] | None = None,
    ) -> None:
        self._record = record
        self._engine = record.engine
        self._active = active
        self._texts = texts
        self._tracker = tracker
        self._account = CallAccount(record, tracker)
        self._ceiling = ceiling
        self._writers = writers or {}

    async def run(self, steps: Steps[T], emit: Emit, first: Effect | None = None) -> T:
        """Carry out every effect of `steps`, in order; what they return at the end. Raises `StorageError`.

        `first` is what `start` gave, where it was called. The engine thinks in a thread where the view is long, so that
        nothing holds up the event loop.
        """
        try:
            outcome = await self._perform(first, emit) if first is not None else None
            while True:
                advanced = await self._advance(steps, outcome)
                if isinstance(advanced, _Over):
                    return advanced.result
                outcome = await self._perform(advanced, emit)
        finally:
            steps.close()

    async def start(self, steps: Steps[T]) -> Effect | None:
        """The first effect of `steps`, not yet carried out; None where there is nothing to do, and all is over."""
        advanced = await self._advance(steps, None)
        return None if isinstance(advanced, _Over) else advanced

    async def compute(self, work: Callable[[], T]) -> T:
        """What `work` gives, which reads the view: in a thread where the view is long."""
        if not self._engine.is_long:
            return work()
        self._engine.view.sizes()
        return await aside(work)

    async def _advance(self, steps: Steps[T], outcome: Outcome) -> "Effect | _Over[T]":
        def advance() -> Effect | _Over[T]:
            try:
                return steps.send(outcome)
            except StopIteration as done:
                return _Over(done.value)

        return await self.compute(advance)

    async def _perform(self, effect: Effect, emit: Emit) -> Outcome:
        match effect:
            case Append():
                return await self._record.append(*effect.entries)
            case AskModel():
                return await self._ask(effect)
            case AskWriter():
                return await self._ask_writer(effect)
            case SaveText():
                artifact = await self._texts.save(effect.name, effect.text, evicted=True)
                emit(_kept(effect, artifact))
                return artifact
            case ArchiveTurns():
                await self._texts.append_history(effect.thread, effect.text)
                return None
            case ShrinkImages():
                smaller = await asyncio.to_thread(lambda: [halved(image) for image in effect.images])
                return Shrunk(tuple(smaller))
            case StepStarted():
                emit(events.ContextStepStarted(step=effect.step, tokens=effect.tokens, reason=effect.reason))
                return None
            case StepDone():
                self._note(effect)
                emit(step_event(effect))
                return None

    async def _ask(self, asked: AskModel) -> Answer | Refusal:
        """Ask a model for a text. Whatever it raises is a refusal: context work goes on another way."""
        model = (self._active.small if asked.who == "small" else None) or self._active.model
        cached = probably_cached(self._record.view.last_call, model.profile) if asked.cached else 0
        try:
            with self._ceiling.calling(model.profile, asked.tokens, cached):
                return await self._answer(model, asked)
        except CostCeilingReached as reached:
            return Refusal(f"{reached.message} /resume-after-cost-ceiling lets the session go on.", final=True)
        except ModelError as error:
            return Refusal(error.message)

    async def _answer(self, model: Model, asked: AskModel) -> Answer:
        try:
            completed = await self._completed(model, asked.request)
            cost = await self._account.count(model.profile, completed.usage, asked.purpose)
        finally:
            await self._account.broke_off()
        text = "\n\n".join(block.text for block in completed.blocks if isinstance(block, Text))
        return Answer(text, model.profile.name, completed.usage, cost)

    async def _completed(self, model: Model, request: ModelRequest) -> Completed:
        async with aclosing(stream_with_retries(model, request, attempts=ATTEMPTS)) as stream:
            async for event in stream:
                match event:
                    case Metered():
                        self._account.used_so_far(model.profile, event.usage)
                    case Retrying():
                        await self._account.broke_off()
                    case Completed():
                        return event
                    case _:
                        pass
        raise ModelError("The model ended its answer without completing it.")

    async def _ask_writer(self, asked: AskWriter) -> Answer | Refusal:
        try:
            text = await self._writers[asked.step].write(asked.parts, asked.instruction, asked.subject)
        except Exception as error:
            self._record.trace.record("error", {"kind": "writer", "traceback": traceback.format_exc()})
            return Refusal(f"{type(error).__name__}: {error}")
        return Answer(text, "", Usage(), 0.0)

    def _note(self, done: StepDone) -> None:
        if done.error:
            self._record.trace.record("error", {"kind": "context", "step": done.step, "message": done.error})
        elif done.details and done.entry is not None:
            self._record.trace.record("context", {"seq": done.entry.seq, **dict(done.details)})


def _kept(effect: SaveText, artifact: Artifact) -> events.Notice:
    return events.Notice(
        level="warning",
        title="The text is too large for the window",
        text=f"{len(effect.text):,} characters are kept in {artifact.path}; the model is shown both ends of them, and "
        "reads the rest page by page.",
    )
