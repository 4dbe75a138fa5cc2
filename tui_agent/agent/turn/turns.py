"""Runs a conversation's turns one at a time, queues the user's texts meanwhile, and guards against concurrent steps."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.events import Emit, EventStream
from tui_agent.agent.history.as_events import user_blocks
from tui_agent.agent.turn.goals import Goal, RunningGoal
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.agent.turn.pictures import attach, smaller_text
from tui_agent.agent.turn.turn import Turn
from tui_agent.conversation import entries
from tui_agent.conversation.blocks import Image, Text, text_in, valid_text
from tui_agent.storage.store import Texts
from tui_agent.system.durable import to_completion

_ANOTHER_ANSWERS: Final = "Another model answers from here on."


class AgentBusy(RuntimeError):
    """A turn is running: send the text with `Agent.queue`."""


class AgentClosed(RuntimeError):
    """The agent was closed: open the conversation again."""


class NotRunning(RuntimeError):
    """No turn is running that could take a queued text: start one with `Agent.run`."""


class _Next(msgspec.Struct, frozen=True):
    """What holds for a turn that starts with a text: who answers, and which goal it is the first turn of."""

    begins: str = ""
    model: str = ""
    goal: Goal | None = None


class Turns:
    """Runs the turns of one conversation, and owns the running one.

    `lock`: held by whatever changes the conversation: a turn, a context step, or entering a summary that was written
    in the background. `tell`: called with events outside a turn.
    """

    def __init__(self, parts: TurnParts, lock: asyncio.Lock, texts: Texts, tell: Emit) -> None:
        self._parts = parts
        self._record = parts.record
        self._lock = lock
        self._texts = texts
        self._tell = tell
        self._worker: asyncio.Task[None] | None = None
        self._consumer: weakref.ref[EventStream] | None = None
        self._taker: asyncio.Task[object] | None = None
        self._closed = False
        self._turn: Turn | None = None
        self._holder: asyncio.Task[object] | None = None
        self._finishing = asyncio.Lock()
        self._next = _Next()
        self.on_begin: list[Callable[[], None]] = []
        """Called when a turn begins."""

    def run(self, prompt: str, images: tuple[Image, ...], typed: str) -> EventStream:
        self._must_be_free()
        own: list[weakref.ref[EventStream]] = []
        stream = self._run(prompt, images, typed, own)
        own.append(weakref.ref(stream))
        return stream

    def _must_be_free(self) -> None:
        self.must_be_open()
        if self.busy:
            raise AgentBusy("a turn is running; send the text with queue(), or end the turn with interrupt()")

    def must_be_open(self) -> None:
        """Raise `AgentClosed` if the agent is closed."""
        if self._closed:
            raise AgentClosed("this agent is closed; open the conversation again")

    async def _run(
        self, prompt: str, images: tuple[Image, ...], typed: str, own: list[weakref.ref[EventStream]]
    ) -> EventStream:
        self._must_be_free()
        while (abandoned := self._worker) is not None:
            abandoned.cancel()
            await asyncio.wait([abandoned])
            self._must_be_free()
        (self._consumer,), self._taker = own, None
        stream: asyncio.Queue[events.AgentEvent | None] = asyncio.Queue()
        typed = valid_text(typed)
        message = entries.user_message(valid_text(prompt), *images, typed=typed) if prompt.strip() or images else None
        self._turn = None
        worker = self._worker = asyncio.create_task(self._work(message, stream.put_nowait))

        def over(_: asyncio.Task[None]) -> None:
            if self._worker is worker:
                self._worker = None
            stream.put_nowait(None)

        def left(taker: asyncio.Task[object]) -> None:
            if taker.cancelled():
                worker.cancel()

        for listener in self.on_begin:
            listener()
        # A callback, because a task cancelled before its first step never runs its own `finally`.
        worker.add_done_callback(over)
        taker = None
        try:
            while (event := await stream.get()) is not None:
                if taker is not (now := asyncio.current_task()) and now is not None:
                    # Who is cancelled while it handles an event may not let go of the iterator for long.
                    taker = self._taker = now
                    taker.add_done_callback(left)
                yield event
            await asyncio.wait([worker])
            if not worker.cancelled():
                worker.result()
        finally:
            if taker is not None:
                taker.remove_done_callback(left)
            if not worker.done():
                worker.cancel()
                await to_completion(asyncio.wait([worker]))

    async def _work(self, message: entries.Message | None, emit: Emit) -> None:
        begun = finished = waits = 0

        def tell(event: events.AgentEvent) -> None:
            nonlocal begun, finished
            begun += isinstance(event, events.TurnStarted)
            finished += isinstance(event, events.TurnFinished)
            emit(event)

        text = text_in(message.blocks) if message else ""
        tell(events.TurnStarted(seq=len(self._record.view.log), text=text))
        try:
            if message is not None:
                message = structs.replace(message, blocks=await self._attached(user_blocks(message.blocks), tell))
            if message is not None and self._lock.locked():
                # A compaction that the user asked for is running: keep their words on disk meanwhile.
                waits = await self._record.append(entries.queued_of(message))
                message = None
            asked, self._next = self._next, _Next()
            if not (asked.begins and text.startswith(asked.begins)):
                asked = _Next()
            model = asked.model if asked.model != self._parts.active.profile.name else ""
            pursuit = RunningGoal(asked.goal, self._parts, tell) if asked.goal is not None else None
            async with self._lock, self._answered_by(model):
                with self._parts.guards.also(pursuit.check_cost if pursuit else None):
                    await self._turns(message, waits, pursuit.tell if pursuit else tell, pursuit)
        finally:
            self._worker = None
            if finished < begun:
                # It was stopped while it waited for something else to end.
                nothing = events.TurnFinished(
                    stop_reason="interrupted", text="", steps=0, usage=entries.Usage(), cost_usd=0.0, duration_ms=0
                )
                tell(nothing)

    def answer_next_with(self, text: str, model: str, goal: Goal | None = None) -> None:
        """Note what holds for the next turn if it starts with this text.

        model: it answers; empty: the active one does. goal: further turns follow until it is reached.
        """
        self._next = _Next(text, model, goal)

    @asynccontextmanager
    async def _answered_by(self, name: str) -> AsyncIterator[None]:
        """A context in which this model is active; afterwards the one before it is again. Empty: no change."""
        if not name:
            yield
            return
        await self._parts.steps.drop_writing(_ANOTHER_ANSWERS)
        try:
            async with self._parts.active.borrowed(name):
                self._tell(self._parts.active.changed)
                try:
                    yield
                finally:
                    await to_completion(self._parts.steps.drop_writing(_ANOTHER_ANSWERS))
        finally:
            self._tell(self._parts.active.changed)

    async def _turns(
        self, message: entries.Message | None, waits: int, emit: Emit, pursuit: RunningGoal | None
    ) -> None:
        """Run one turn, and another one for texts that were sent too late for it, or towards a goal."""
        while True:
            turn = self._turn = Turn(self._parts, emit)
            await turn.run(message, waits)
            message, waits = None, 0
            judges = pursuit if turn.answered and not self.queued() else None
            goes_on = judges is not None and await judges.goes_on()
            async with self._finishing:
                if turn.failed or not (goes_on or self.queued()):
                    self._worker = None
                    return
            emit(events.TurnStarted(seq=len(self._record.view.log), text=""))

    @property
    def busy(self) -> bool:
        """Whether a turn is running. One whose iterator was dropped, as by ``break``, or whose consumer was cancelled,
        is only ending.
        """
        abandoned = self._consumer is not None and self._consumer() is None
        left = self._taker is not None and self._taker.cancelled()
        return self._worker is not None and not (abandoned or left)

    def interrupt(self) -> bool:
        if self._worker is None:
            return False
        self._worker.cancel()
        return True

    async def close(self) -> None:
        self._closed = True
        if (worker := self._worker) is not None:
            worker.cancel()
            await to_completion(asyncio.wait([worker]))

    # Texts during a turn

    async def queue(self, text: str, images: tuple[Image, ...], typed: str) -> int:
        if not self._takes_texts:
            raise NotRunning("no turn is running")
        said = entries.user_message(valid_text(text), *images, typed=valid_text(typed))
        blocks = await self._attached(user_blocks(said.blocks), self._tell)
        async with self._finishing:
            if not self._takes_texts:
                raise NotRunning("no turn is running")
            return await self._record.append(entries.Queued(blocks=blocks, typed=said.typed))

    @property
    def _takes_texts(self) -> bool:
        """Whether a turn is running that may have another step; one that failed is only cleaning up."""
        return self.busy and not (self._turn is not None and self._turn.failed)

    async def _attached(self, blocks: tuple[Text | Image, ...], emit: Emit) -> tuple[Text | Image, ...]:
        """The blocks with pictures converted for providers; tells listeners of pictures changed or left out."""
        images = tuple(block for block in blocks if isinstance(block, Image))
        attached = await attach(images, lambda: self._texts.folder)
        if attached.problems:
            text = "\n".join(f"A picture: {problem}" for problem in attached.problems)
            emit(events.Notice(level="warning", title="Not sent as a picture", text=text))
        if attached.smaller:
            emit(events.Notice(level="info", title="Sent smaller", text=smaller_text(attached.smaller)))
        made = iter(attached.blocks)
        return tuple(next(made) if isinstance(block, Image) else block for block in blocks)

    def queued(self) -> tuple[tuple[int, str], ...]:
        """The queued texts, as the user typed them, with their entry numbers."""
        return tuple((each.seq, _typed(each)) for each in self._record.view.queued() if not each.kind)

    async def withdraw(self, seq: int) -> str:
        """Withdraw a queued text; returns it as it was typed, or an empty string if it was delivered already.

        Raises `StorageError`.
        """
        for queued in self._record.view.queued():
            if queued.seq == seq:
                await self._record.append(entries.Withdrawn(queued=seq))
                return _typed(queued)
        return ""

    async def note(self, text: str) -> int:
        """Add a text of the user's to the conversation without calling the model; returns its entry number.

        While a turn or a context step runs, it is added at the next step. Raises `StorageError`.
        """
        return await self.add(entries.user_message(valid_text(text)))

    async def tell_model(self, text: str) -> int:
        """Add a word of the program's own, which does not count as the user's; the next turn answers it.

        Raises `AgentBusy`, `StorageError`.
        """
        async with self.held():
            return await self._record.append(entries.notice(text))

    async def add(self, message: entries.Message) -> int:
        """Add a message of the user's as `note` does.

        The first of a conversation comes with the model, so that the conversation goes on with it after a restart.
        """
        model = () if self._record.view.model else (entries.ModelSwitched(model=self._parts.active.profile.name),)
        async with self._finishing:
            return await self._record.append(*model, entries.queued_of(message) if self.taken else message)

    # Exclusive access

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A context in which no other task can start a turn or a step; prompts sent meanwhile wait on disk.

        Raises `AgentBusy` if a turn is running.
        """
        self.must_be_idle()
        async with self.exclusively():
            yield

    @property
    def taken(self) -> bool:
        return self.busy or self._lock.locked()

    def must_be_idle(self) -> None:
        """Raise `AgentBusy` if a turn is running, unless this task holds the conversation; `AgentClosed` if closed."""
        self.must_be_open()
        if self.busy and self._holder is not asyncio.current_task():
            raise AgentBusy("a turn is running")

    def must_be_outside(self) -> None:
        """Raise `AgentBusy` in the turn's own task, or that of one of its calls: it would wait for itself."""
        if asyncio.current_task() in (self._worker, *self._parts.toolbox.answering):
            raise AgentBusy("the turn that asks for this is running; it can be ended with interrupt()")

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """A context with exclusive access to the conversation; reentrant within a task.

        Raises `AgentBusy` within a turn.
        """
        task = asyncio.current_task()
        if self._holder is task:
            yield
            return
        self.must_be_outside()
        async with self._lock:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None


def _typed(queued: entries.Queued) -> str:
    return queued.typed or text_in(queued.blocks)
