"""The agent: the verbs a front end has. One conversation, one turn at a time."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from tui_agent.agent import events
from tui_agent.agent.gauge import Gauge
from tui_agent.agent.history import replay, text_of
from tui_agent.agent.record import Record, unbroken
from tui_agent.agent.toolbox import Toolbox
from tui_agent.agent.turn import Turn
from tui_agent.context.budget import Budget, budget
from tui_agent.context.counting import categories
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.blocks import Image, Text, ToolDefinition, valid_text
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Queued, Withdrawn, notice, user_message
from tui_agent.models.base import Model, ModelProfile
from tui_agent.models.usage import UsageTracker
from tui_agent.tools.permissions import Mode


class AgentBusy(RuntimeError):
    """A turn is running: send the text with `Agent.queue`."""


class NotRunning(RuntimeError):
    """No turn is running that could take a queued text: start one with `Agent.run`."""


class Limits:
    """The token limits of a session: `window` 0 asks the model's profile, else `default_window`; all in tokens."""

    def __init__(self, window: int, default_window: int, max_tokens: int, max_tokens_share: float) -> None:
        self._window = window
        self._default_window = default_window
        self._max_tokens = max_tokens
        self._max_tokens_share = max_tokens_share

    def budget(self, profile: ModelProfile, fixed: int) -> Budget:
        """What fits for this model."""
        window = self._window if self._window > 0 else profile.window or self._default_window
        most = min(self._max_tokens, profile.max_output) if profile.max_output else self._max_tokens
        return budget(window, fixed, most, max_share=self._max_tokens_share)


class Agent:
    """A conversation with a model that can use tools.

    `run` is the only way a turn happens. `prefix` is the system prompt and tools a new conversation, or one that goes
    on with another model, begins with; a conversation that goes on keeps the one in its log. `news` is what the model
    is told at the next turn of such a conversation: what has changed meanwhile.
    """

    def __init__(
        self,
        record: Record,
        model: Model,
        toolbox: Toolbox,
        tracker: UsageTracker,
        limits: Limits,
        prefix: Prefix,
        news: str = "",
    ) -> None:
        self.tracker = tracker
        self._record = record
        self._model = model
        self._toolbox = toolbox
        self._limits = limits
        self._prefix = prefix
        self._news = news
        self._gauge = Gauge()
        self._finishing = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None
        self._connecting: asyncio.Future[ModelProfile] | None = None

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
            while True:
                turn = Turn(
                    self._record,
                    self._model,
                    self._toolbox,
                    self.tracker,
                    self._gauge,
                    self.budget,
                    self._begin,
                    emit,
                )
                await turn.run(message)
                message = None
                async with self._finishing:
                    if turn.failed or not self._record.view.queued():
                        self._worker = None
                        break
        finally:
            self._worker = None
            stream.put_nowait(None)

    async def _begin(self) -> None:
        """Name the model, the system prompt and the tools in the log, where it does not say them yet."""
        await self.connect()
        view, name = self._record.view, self._model.profile.name
        if view.model != name:
            await self._record.append(ModelSwitched(model=name), self._prefix)
        elif view.prefix is None:
            await self._record.append(self._prefix)
        elif self._news:
            await self._record.append(notice(self._news))
        self._news = ""

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

    def history(self) -> Iterator[events.AgentEvent]:
        """The conversation so far, as the events that would have shown it."""
        return replay(self._record.view.log.path())

    def queued(self) -> tuple[tuple[int, str], ...]:
        """What waits for delivery: its number and text."""
        return tuple((queued.seq, text_of(queued.blocks, Text)) for queued in self._record.view.queued())

    def budget(self) -> Budget:
        """What fits in the model's window."""
        sizes = categories(self._record.view)
        return self._limits.budget(self._model.profile, sizes["system"] + sizes["tools"])

    def context_stats(self) -> ContextStats:
        """How full the window is and what the session has cost."""
        view, room = self._record.view, self.budget()
        return ContextStats(
            model=self._model.profile.name,
            tokens=self._gauge.tokens(view),
            window=room.window,
            reserve=room.reserve,
            measured=self._gauge.measured,
            categories=categories(view),
            cost_usd=self.tracker.session.known_cost_usd,
            turn_cost_usd=self.tracker.turn.known_cost_usd,
        )

    async def swap_model(self, model: Model) -> None:
        """Let another model answer from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        if self.busy:
            raise AgentBusy("a turn is running")
        before, self._model = self._model, model
        self._connecting = None
        self._gauge.forget()
        await self._begin()
        await before.close()

    async def connect(self) -> ModelProfile:
        """Learn what the provider tells of the model, once; slow (it imports an SDK). Never raises."""
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._model.describe())
        return await asyncio.shield(self._connecting)

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
