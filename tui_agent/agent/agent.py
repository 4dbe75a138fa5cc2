"""The agent: the verbs a front end has. One conversation, one turn at a time."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TypeVar

from tui_agent.agent import events
from tui_agent.agent.briefing import Briefing
from tui_agent.agent.guards import Guards
from tui_agent.agent.history import replay, text_of, told
from tui_agent.agent.overview import (
    Fullness,
    Overview,
    SwitchOutlook,
    excerpt,
    fullness,
    original,
    overview,
    switch_outlook,
)
from tui_agent.agent.recalling import Recaller
from tui_agent.agent.record import Record, unbroken
from tui_agent.agent.snapshot import snapshot
from tui_agent.agent.subtasks import SubtaskResult, SubtaskRunner, SubtaskSpec
from tui_agent.agent.toolbox import Toolbox
from tui_agent.agent.turn import Turn
from tui_agent.agent.upkeep import CompactionResult, Upkeep
from tui_agent.context.asked import Asked, Outlook, PreviewedStep
from tui_agent.context.compaction import CompactionPlan
from tui_agent.context.manager import ModelFacts
from tui_agent.context.refusal import Refusal
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.blocks import Image, Text, ToolDefinition, valid_text
from tui_agent.conversation.entries import (
    AnyContextEntry,
    Message,
    ModelSwitched,
    Queued,
    Withdrawn,
    notice,
    user_message,
)
from tui_agent.conversation.view import Item
from tui_agent.models.base import Model, ModelProfile
from tui_agent.models.catalogue import create_model
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.recall_search import Recalled
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.permissions import Mode

Plan = TypeVar("Plan")


class AgentBusy(RuntimeError):
    """A turn is running: send the text with `Agent.queue`."""


class NotRunning(RuntimeError):
    """No turn is running that could take a queued text: start one with `Agent.run`."""


class Agent:
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
        recaller: Recaller | None = None,
    ) -> None:
        self.tracker = tracker
        self._record = record
        self._model = model
        self._toolbox = toolbox
        self._upkeep = upkeep
        self._manager = upkeep.manager
        self._asked = Asked(upkeep.manager)
        self._guards = guards
        self._subtasks = subtasks
        self._recaller = recaller
        self._briefing = briefing
        self._finishing = asyncio.Lock()
        self._one_at_a_time = asyncio.Lock()
        self._listeners: list[Callable[[events.AgentEvent], None]] = []
        self._worker: asyncio.Task[None] | None = None
        self._connecting: asyncio.Future[None] | None = None

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
                await unbroken(_ended(worker))

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
                await self._record.append(Queued(blocks=told(message.blocks)))
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
                if turn.failed or not self._record.view.queued():
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

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._worker is not None

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
            return await self._record.append(Queued(blocks=told(message.blocks)) if self.busy else message)

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
    def profile(self) -> ModelProfile:
        """What is known of the model that answers."""
        return self._model.profile

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

    def context_stats(self) -> ContextStats:
        """How full the window is, what happens next, and what the session has cost. Looks through the whole view."""
        return snapshot(self._record.view, self._manager, self._upkeep.facts(self._model), self.tracker)

    def fullness(self) -> Fullness:
        """How full the window is; cheap, also in a long conversation."""
        return fullness(self._record.view, self._manager, self._upkeep.facts(self._model))

    @property
    def cache_share(self) -> float | None:
        """How much of all input so far was read from the provider's cache; None before the first call."""
        usage = self.tracker.session.usage
        return usage.cache_read_tokens / usage.input_tokens if usage.input_tokens else None

    async def swap_model(self, model: Model) -> None:
        """Let another model answer from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        if self.busy:
            raise AgentBusy("a turn is running")
        await self._take_over(model)

    async def _take_over(self, model: Model) -> None:
        before, self._model = self._model, model
        self._connecting = None
        self._manager.gauge.forget()
        await self._begin()
        await before.close()

    async def _escalated(self, name: str, emit: Callable[[events.AgentEvent], None]) -> Model:
        """The model `name` from the next call of the running turn on. Raises `UnknownModel`, `StorageError`."""
        await self._take_over(await asyncio.to_thread(create_model, name))
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
            await self.swap_model(await asyncio.to_thread(create_model, name))
        return name

    async def run_subtask(self, spec: SubtaskSpec, progress: Callable[[str], None] = lambda _: None) -> SubtaskResult:
        """Have a question answered in a fresh conversation; see `SubtaskSpec`. Its cost counts in this session.

        Raises `NobodyToAsk`, and `RuntimeError` where this agent has no subtasks (it is one itself).
        """
        if self._subtasks is None:
            raise RuntimeError("a subtask has no subtasks")
        return await self._subtasks.run(spec, progress)

    def reset_cost_ceiling(self) -> str:
        """Let the session go on after its cost ceiling was reached; a sentence that says what it may cost now."""
        told = self._guards.ceiling.reset()
        self._record.trace.record("session", {"cost_ceiling": told})
        return told

    # Steering the context

    async def compact(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self._summarized(
            lambda model, now: self._asked.compaction(self._record.view, model, now, focus=focus)
        )

    async def compact_if_needed(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns if a threshold or the price says so. Raises `AgentBusy`, `StorageError`."""
        self._must_be_idle()
        due = self._upkeep.is_due(self._model, between_turns=True).summary
        if due is None:
            return CompactionResult(*(2 * (self._manager.tokens(self._record.view),)), error="nothing is due")
        return await self.compact(focus)

    async def checkpoint(self, note: str = "") -> CompactionResult:
        """Write the completion record of the task that just ended. Raises `AgentBusy`, `StorageError`."""
        return await self._summarized(
            lambda model, now: self._asked.checkpoint(self._record.view, model, now, note=note)
        )

    async def clear_results(self) -> events.ContextStep | Refusal:
        """Clear all old tool results now. Raises `AgentBusy`, `StorageError`."""
        plan = self._planned(lambda model, now: self._asked.clear_results(self._record.view, model, now))
        return await self._changed(plan, "cleared")

    async def clear_items(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Clear these tool results now. Raises as `clear_results`."""
        plan = self._planned(lambda model, now: self._asked.clear_items(self._record.view, items, model, now))
        return await self._changed(plan, "cleared")

    async def pin(self, items: Sequence[int], *, pinned: bool = True) -> events.ContextStep | Refusal:
        """Pin messages or results by number, each with its group, or take the pins off. Raises as `clear_results`."""
        plan = self._planned(self._asked.pin(self._record.view, items, pinned))
        return await self._changed(plan, "pinned" if pinned else "unpinned")

    async def restore(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Show messages or results whole again. Raises as `clear_results`."""
        self._must_be_idle()
        texts = [await self._upkeep.whole_text(seq) for seq in items]
        return await self._changed(self._planned(self._asked.restore(self._record.view, items, texts)), "restored")

    async def undo(self, target: int | None = None) -> events.ContextStep | Refusal:
        """Undo a context step, by default the newest. Raises as `clear_results`."""
        return await self._changed(self._planned(self._asked.undo(self._record.view, target)), "undone")

    def preview(self, step: PreviewedStep, focus: str = "") -> Outlook | Refusal:
        """What ``compact``, ``clear`` or ``checkpoint`` would do, before it is done. Looks through the whole view."""
        facts, now, view = self._upkeep.facts(self._model), time.time(), self._record.view
        return self._asked.preview(view, facts, now, step, focus=focus)

    def preview_switch(self, profile: ModelProfile) -> SwitchOutlook:
        """What it would mean to let another model answer. Looks through the whole view."""
        return switch_outlook(self._record.view, self._manager, self._upkeep.facts(self._model), profile)

    def overview(self) -> Overview:
        """The context with all its items and steps. Looks through the whole conversation."""
        return overview(self._record.view, self._manager, self._upkeep.facts(self._model), self.tracker)

    def excerpt(self, seq: int) -> str:
        """The beginning of a message or result; untrusted text."""
        return excerpt(self._record.view, seq)

    async def original(self, seq: int) -> str:
        """A message or result as it was before any context step; untrusted text. Raises `StorageError`."""
        return await self._upkeep.whole_text(seq) or original(self._record.view, seq)

    async def recall(self, query: str, limit: int = 20) -> Recalled:
        """Search all that was ever said, what has left the view first. Raises `ToolFailure`."""
        if self._recaller is None:
            raise ToolFailure("This conversation keeps no index.")
        return await self._recaller(query, limit)

    def items(self) -> list[Item]:
        """Every message and result with its size and state, oldest first."""
        return self._record.view.items()

    @property
    def has_compactor(self) -> bool:
        """Whether `compact` can be used."""
        return True

    @property
    def has_checkpointer(self) -> bool:
        """Whether `checkpoint` and ``mark_task_done`` can be used."""
        return self._manager.has_checkpoints

    def _must_be_idle(self) -> None:
        if self.busy:
            raise AgentBusy("a turn is running")

    def _planned(self, plan: Callable[[ModelFacts, float], Plan]) -> Plan:
        self._must_be_idle()
        return plan(self._upkeep.facts(self._model), time.time())

    async def _summarized(self, plan: Callable[[ModelFacts, float], CompactionPlan | Refusal]) -> CompactionResult:
        self._must_be_idle()
        await self.connect()
        async with self._one_at_a_time:
            # Planned only now: what was asked for before it may just have changed the view.
            planned = plan(self._upkeep.facts(self._model), time.time())
            if isinstance(planned, Refusal):
                tokens = self._manager.tokens(self._record.view)
                return CompactionResult(tokens, tokens, error=planned.reason)
            return await self._upkeep.summarize(planned, self._model, self._tell)

    async def _changed(self, plan: AnyContextEntry | Refusal, step: str) -> events.ContextStep | Refusal:
        if isinstance(plan, Refusal):
            return plan
        async with self._one_at_a_time:
            return await self._upkeep.change(plan, self._tell, step)

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[events.AgentEvent], None]) -> None:
        """Have what happens outside a turn told: the steps of `compact`, `undo` and their like."""
        self._listeners.append(listener)

    async def connect(self) -> ModelProfile:
        """Learn what the provider tells of the model, once; slow (it imports an SDK). Never raises."""
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._upkeep.learn(self._model))
        await asyncio.shield(self._connecting)
        return self._model.profile

    async def close(self) -> None:
        """End a running turn and release the model's connections."""
        worker = self._worker
        if worker is not None:
            worker.cancel()
            await unbroken(_ended(worker))
        if self._connecting is not None:
            self._connecting.cancel()
        await self._model.close()


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
