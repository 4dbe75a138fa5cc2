"""The agent: the verbs a front end has. One conversation, one turn at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

from tui_agent.agent import events
from tui_agent.agent.briefing import Briefing
from tui_agent.agent.guards import Guards
from tui_agent.agent.history import replay, text_of, user_blocks
from tui_agent.agent.record import Record
from tui_agent.agent.steering import AgentBusy, Steered
from tui_agent.agent.subtasks import SubtaskResult, SubtaskRunner, SubtaskSpec
from tui_agent.agent.task_class import configured_model
from tui_agent.agent.toolbox import Toolbox
from tui_agent.agent.turn import Turn
from tui_agent.agent.upkeep import Upkeep
from tui_agent.agent.user_shell import is_note
from tui_agent.conversation.blocks import Image, Text, ToolDefinition, valid_text
from tui_agent.conversation.entries import (
    Message,
    ModelSwitched,
    Queued,
    Withdrawn,
    notice,
    user_message,
)
from tui_agent.models.base import Model
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import Settings
from tui_agent.storage.durable import to_completion
from tui_agent.tools.gate.permissions import Mode
from tui_agent.tools.recall import RecallSource

__all__ = ["Agent", "AgentBusy", "NotRunning"]


class NotRunning(RuntimeError):
    """No turn is running that could take a queued text: start one with `Agent.run`."""


class Agent(Steered):
    """A conversation with a model that can use tools.

    `run` is the only way a turn happens. `briefing` has the system prompt and tools that a new conversation, or one
    that goes on with another model, begins with; a conversation that goes on keeps those in its log, and the model is
    told at the next turn what has changed meanwhile.
    """

    def __init__(
        self,
        record: Record,
        model: Model,
        toolbox: Toolbox,
        tracker: UsageTracker,
        upkeep: Upkeep,
        briefing: Briefing,
        *,
        guards: Guards,
        subtasks: SubtaskRunner | None = None,
        recaller: RecallSource | None = None,
    ) -> None:
        super().__init__(record, model, tracker, upkeep, recaller)
        self._toolbox = toolbox
        self._guards = guards
        self._subtasks = subtasks
        self._briefing = briefing
        self._finishing = asyncio.Lock()

    # A turn

    async def run(self, prompt: str = "", images: tuple[Image, ...] = ()) -> AsyncGenerator[events.AgentEvent, None]:
        """Do one turn; its events as they happen, the last one `TurnFinished`.

        Without a prompt it delivers what is queued, or asks again where the last turn failed. Closing the iterator or
        cancelling its consumer ends the turn and leaves a valid log. Raises `AgentBusy` while a turn runs.
        """
        if self.busy:
            raise AgentBusy("a turn is running")
        stream: asyncio.Queue[events.AgentEvent | None] = asyncio.Queue()
        message = user_message(valid_text(prompt), *images) if prompt.strip() or images else None
        worker = self._worker = asyncio.create_task(self._work(message, stream))
        # Also where it is cancelled before its first step, which no `finally` of its own would see.
        worker.add_done_callback(lambda done: self._turn_over(done, stream))
        try:
            while (event := await stream.get()) is not None:
                yield event
            await asyncio.wait([worker])
            if not worker.cancelled():
                worker.result()
        finally:
            if not worker.done():
                worker.cancel()
                await to_completion(_ended(worker))

    async def _work(self, message: Message | None, stream: asyncio.Queue[events.AgentEvent | None]) -> None:
        emit = stream.put_nowait
        try:
            emit(
                events.TurnStarted(
                    seq=len(self._record.view.log) + 1, text=text_of(message.blocks, Text) if message else ""
                )
            )
            if message is not None and self._one_at_a_time.locked():
                # The user asked for a compaction that still runs; their next words are on disk meanwhile.
                await self._record.append(Queued(blocks=user_blocks(message.blocks)))
                message = None
            async with self._one_at_a_time:
                await self._turns(message, emit)
        finally:
            self._worker = None

    async def _turns(self, message: Message | None, emit: Callable[[events.AgentEvent], None]) -> None:
        """One turn, and another for what was sent too late to be part of it."""
        while True:
            turn = Turn(
                self._record,
                self._model,
                self._toolbox,
                self.tracker,
                self._upkeep,
                self._guards,
                self._begin,
                lambda name: self._escalated(name, emit),
                emit,
            )
            await turn.run(message)
            message = None
            async with self._finishing:
                if turn.failed or all(is_note(text) for _, text in self.queued()):
                    self._worker = None
                    return

    def _turn_over(self, worker: asyncio.Task[None], stream: asyncio.Queue[events.AgentEvent | None]) -> None:
        if self._worker is worker:
            self._worker = None
        stream.put_nowait(None)

    async def _begin(self) -> None:
        """Name the model, the system prompt and the tools in the log, where it does not say them yet; else tell the
        model what has changed since it was told them.
        """
        await self.connect()
        await self._briefing.refresh()
        view, name = self._record.view, self._model.profile.name
        if view.model != name:
            await self._record.append(ModelSwitched(model=name), self._briefing.prefix)
        elif view.prefix is None:
            await self._record.append(self._briefing.prefix)
        elif news := self._briefing.news(view.log, view.prefix):
            await self._record.append(*map(notice, news))

    def interrupt(self) -> bool:
        """Stop the running turn; its last events still come. Whether there was one."""
        if self._worker is None:
            return False
        self._worker.cancel()
        return True

    async def queue(self, text: str, images: tuple[Image, ...] = ()) -> int:
        """Keep a text for the next step of the running turn; its number. Raises `NotRunning`, `StorageError`."""
        async with self._finishing:
            if not self.busy:
                raise NotRunning("no turn is running")
            blocks: tuple[Text | Image, ...] = (Text(valid_text(text)), *images) if text.strip() else images
            return await self._record.append(Queued(blocks=blocks))

    async def note(self, text: str) -> int:
        """Let a text of the user join the conversation without a call of the model; its number in the log.

        While a turn runs it joins at that turn's next step. Raises `StorageError`.
        """
        async with self._finishing:
            message = user_message(valid_text(text))
            return await self._record.append(Queued(blocks=user_blocks(message.blocks)) if self.busy else message)

    async def run_shell(self, command: str) -> None:
        """Run a shell command of the user's own, unasked, and `note` what it printed; listeners are told as of a tool.

        Cancelled, it stops the command and notes what was printed so far. Raises `StorageError`.
        """
        await self._toolbox.run_for_user(command, self._upkeep.room(self._model), self._tell, self.note)

    async def withdraw(self, seq: int) -> str:
        """Take a queued text back; the text, or nothing where it was delivered already."""
        for queued in self._record.view.queued():
            if queued.seq == seq:
                await self._record.append(Withdrawn(queued=seq))
                return text_of(queued.blocks, Text)
        return ""

    # What it is and how it stands

    @property
    def mode(self) -> Mode:
        """The permission mode; it may be set at any time."""
        return self._toolbox.gate.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._toolbox.gate.mode = mode

    def tools(self) -> tuple[ToolDefinition, ...]:
        """What the model can call."""
        return self._toolbox.registry.definitions

    async def skills(self) -> str:
        """The skills there are, for a person to read."""
        return await self._briefing.skills_text()

    async def memory(self) -> str:
        """The notes kept about the project, for a person to read."""
        return await self._briefing.memory_text()

    def history(self) -> Iterator[events.AgentEvent]:
        """The conversation so far, as the events that would have shown it."""
        return replay(self._record.view.log.path())

    def queued(self) -> tuple[tuple[int, str], ...]:
        """What waits for delivery: its number and text."""
        return tuple((queued.seq, text_of(queued.blocks, Text)) for queued in self._record.view.queued())

    @property
    def settings(self) -> Settings:
        """The settings of the session."""
        return self._manager.settings

    async def swap_model(self, model: Model) -> None:
        """Let another model answer from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        if self.busy:
            raise AgentBusy("a turn is running")
        await self._take_over(model)

    async def _take_over(self, model: Model) -> None:
        before, self._model = self._model, model
        self._connecting = None
        self._manager.meter.forget()
        await self._begin()
        await before.close()

    async def _escalated(self, name: str, emit: Callable[[events.AgentEvent], None]) -> Model:
        """The model `name` from the next call of the running turn on. Raises `UnknownModel`, `StorageError`."""
        await self._take_over(await asyncio.to_thread(configured_model, self.settings, name))
        profile = self._model.profile
        emit(events.ModelChanged(model=profile.name, window=profile.window, tier=profile.tier))
        return self._model

    async def escalate(self) -> str:
        """Go on with the frontier model of the provider, from the next step where a turn runs; its name.

        Empty where that model answers already, or there is none to ask. Raises `UnknownModel`, `StorageError`.
        """
        watch = self._guards.watch
        name = watch.larger(self._model.profile) if watch is not None else ""
        if name and watch is not None and self.busy:
            watch.escalate(name)
        elif name:
            await self.swap_model(await asyncio.to_thread(configured_model, self.settings, name))
        return name

    async def run_subtask(self, spec: SubtaskSpec, progress: Callable[[str], None] = lambda _: None) -> SubtaskResult:
        """Have a question answered in a fresh conversation; see `SubtaskSpec`. Its cost counts in this session.

        Raises `NobodyToAsk`, and `RuntimeError` where this agent has no subtasks (it is one itself).
        """
        if self._subtasks is None:
            raise RuntimeError("a subtask has no subtasks")
        return await self._subtasks.run(spec, progress)

    async def subtask_progress(self, call_id: str) -> str:
        """What was told last of the subtask that worked for a call, by its record; empty where there is none."""
        return await self._subtasks.past(call_id) if self._subtasks is not None else ""

    def reset_cost_ceiling(self) -> str:
        """Let the session go on after its cost ceiling was reached; a sentence that says what it may cost now."""
        told = self._guards.ceiling.reset()
        self._record.trace.record("session", {"cost_ceiling": told})
        return told

    async def close(self) -> None:
        """End a running turn and release the model's connections."""
        worker = self._worker
        if worker is not None:
            worker.cancel()
            await to_completion(_ended(worker))
        if self._connecting is not None:
            self._connecting.cancel()
        await self._model.close()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
