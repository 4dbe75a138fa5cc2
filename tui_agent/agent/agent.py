"""The agent: the interface for front ends. One conversation, with one turn or context step at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Final

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel, SmallModel
from tui_agent.agent.branches import Branches
from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.context import AgentContext
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.extensions.own import Extensions
from tui_agent.agent.files import ChangedFiles
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.model_choice import configured_model
from tui_agent.agent.own_commands import OwnCommands
from tui_agent.agent.record import Record
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.guards import CostCeiling, Guards, Limit
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import Checkpointer, Compactor, StepRunner, Texts
from tui_agent.agent.turn.toolbox import Expected, Toolbox
from tui_agent.agent.turn.turn import Parts
from tui_agent.agent.turn.turns import Turns
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.compaction.writing import CompactionResult
from tui_agent.context.engine import ContextEngine
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.blocks import Image, ToolDefinition
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import Model
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.speed import Speed
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import Settings
from tui_agent.storage.store import MemoryStore, MemoryTexts, NoTrace, Store, TraceSink
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion, Tool, WorkspaceView
from tui_agent.tools.gate.permissions import Mode, NobodyToAsk, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.recall import RecallSource
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec


class Agent:
    """A conversation with a model that can use tools, and whose context can be inspected and changed.

    `run` is the only way to run a turn. One turn or context step runs at a time; each waits for the other. What can be
    done besides is in its parts: `context` (what the model is shown), `branches` (rewinding, forking), `files` (what
    tools changed), `turns` (queued texts, holding the conversation), `permissions` (the gate), `own_commands`
    (slash commands of users, projects and servers), `briefing` (the system prompt), `tracker` (usage and cost). The
    `engine` is read-only while the agent lives; `offered` are the MCP servers, if any.

    Only `model` is required, by name or as a `Model`. `tools`: `Tool`s or plain functions. `system`: the system prompt.
    `context`: the engine, which may already hold a conversation. `store`, `trace`, `texts`: where the conversation is
    kept, by default in memory. `permissions`: a mode, or a gate with its own rules. `ask`: puts the gate's questions to
    a person; by default nobody can be asked, and a call that needs approval ends the turn. `compactor`, `checkpointer`:
    write summaries in place of a model.

    The other parameters come from a session, which shares them with its subtasks: the `tracker` of usage and cost, the
    `guards`, the provider's cheaper models (`small`), the `briefing` that keeps system prompt and tools current, the
    runner of `subtasks`, the source that `recall` searches (`recaller`), the history of changed `files`, the tools
    `offered` by servers, the user's `extensions` and `hooks`, and the notice before many agents start (`expected`).
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        system: str = "",
        context: ContextEngine | None = None,
        store: Store | None = None,
        trace: TraceSink | None = None,
        texts: Texts | None = None,
        permissions: PermissionGate | Mode = "auto",
        ask: Ask | None = None,
        workspace: WorkspaceView | None = None,
        compactor: Compactor | None = None,
        checkpointer: Checkpointer | None = None,
        tracker: UsageTracker | None = None,
        guards: Guards | None = None,
        small: SmallModel = lambda _provider: None,
        briefing: Briefing | None = None,
        subtasks: SubtaskRunner | None = None,
        recaller: RecallSource | None = None,
        files: FileHistory | None = None,
        offered: OfferedTools | None = None,
        extensions: Extensions | None = None,
        hooks: Hooks | None = None,
        expected: Expected = lambda _: "",
    ) -> None:
        model = CATALOGUE.create_model(model) if isinstance(model, str) else model
        writers = {"summary": compactor, "checkpoint": checkpointer}
        own = {step: writer for step, writer in writers.items() if writer is not None}
        workspace = workspace or Workspace(Path.cwd())
        texts = texts or MemoryTexts()
        registry = ToolRegistry(tools, offered.tool if offered else lambda _: None)
        self.engine: Final = context or ContextEngine()
        self.engine.own_writers = frozenset(own)
        self.tracker: Final = tracker or UsageTracker()
        self.offered: Final = offered
        self.briefing: Final = briefing or Briefing(lambda _: system, registry.definitions, offered=offered)
        self.permissions: Final = (
            PermissionGate(permissions, workspace) if isinstance(permissions, str) else permissions
        )
        self._subtasks = subtasks
        self._history = files
        self._record = Record(self.engine, store or MemoryStore(self.engine.view.log), trace or NoTrace())
        self._active = ActiveModel(model, self._record, self.briefing, small)
        self._guards = guards or Guards(CostCeiling(Limit(), self.tracker))
        lock = asyncio.Lock()
        ceiling = self._guards.ceiling
        self._steps = StepRunner(self._record, self._active, texts, self.tracker, ceiling, lock, self._tell, own, hooks)
        self._toolbox = Toolbox(registry, self.permissions, ask or nobody, workspace, texts, files, hooks, expected)
        parts = Parts(
            self._record,
            self._active,
            self._toolbox,
            self.tracker,
            self._steps,
            self._guards,
            CacheWatch(),
            Planning(self._record, self.permissions, registry),
            offered.resources if offered else _no_resources,
            hooks,
        )
        self._listeners: list[Callable[[events.AgentEvent], None]] = []
        self.turns: Final = Turns(parts, lock, texts, self._tell)
        self.context: Final = AgentContext(parts, self.turns, texts, offered, recaller)
        self.branches: Final = Branches(parts, self.turns)
        self.files: Final = ChangedFiles(self._record, self.turns, files)
        self.own_commands: Final = OwnCommands(parts, self.turns, self.briefing, extensions, offered)

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Turns

    def run(self, prompt: str = "", images: tuple[Image, ...] = ()) -> AsyncGenerator[events.AgentEvent, None]:
        """Run one turn and yield its events as they happen; the last one is `TurnFinished`.

        Without a prompt it delivers queued texts, or retries if the last turn failed. Closing the iterator or
        cancelling its consumer ends the turn and leaves a valid log. Raises `AgentBusy` while a turn runs.
        """
        return self.turns.run(prompt, images)

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self.turns.busy

    def interrupt(self) -> bool:
        """Stop the running turn, whose last events still arrive. False if none was running."""
        return self.turns.interrupt()

    async def queue(self, text: str, images: tuple[Image, ...] = ()) -> int:
        """Queue a text for the running turn's next step; returns its number. Raises `NotRunning`, `StorageError`."""
        return await self.turns.queue(text, images)

    async def prepare_ahead(self) -> None:
        """Start the context work that is due before the next turn, while the user is still typing its prompt.

        Does nothing while a turn runs. Raises `StorageError`.
        """
        if self.turns.taken or not self._record.view.message_count:
            return
        async with self.turns.exclusively():
            await self._active.introduce()
            if self._guards.ceiling.reached:
                return
            await self._steps.run(self.engine.prepare(between_turns=True), self._tell)

    async def run_shell(self, command: str) -> None:
        """Run a shell command of the user's own without asking, and note its output; listeners get tool events.

        When cancelled, it stops the command and notes the output so far. Raises `StorageError`.
        """
        await self._toolbox.run_for_user(command, self.engine, self._tell, self.turns.note)

    # The model

    @property
    def profile(self) -> ModelProfile:
        """What is known of the active model."""
        return self._active.profile

    @property
    def speed(self) -> Speed:
        """How fast a local model reads and writes, in tokens per second; 0: unknown."""
        return self._active.speed

    async def connect(self) -> ModelProfile:
        """Ask the provider for the model's facts, once. Slow: it imports an SDK. Never raises.

        Meanwhile, new MCP servers are asked for their tools.
        """
        if self.offered is not None:
            self.offered.servers.begin_learning()
        return await self._active.connect()

    async def swap_model(self, model: Model) -> None:
        """Switch to another model from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        async with self.turns.held():
            await self._steps.drop_writing("Another model answers from here on.")
            await self._active.take_over(model)

    async def escalate(self) -> str:
        """Switch to the provider's frontier model, in a running turn from its next step on; returns the model's name.

        Empty if it is active already, or there is none that can be asked. Raises `UnknownModel`, `StorageError`.
        """
        watch = self._guards.watch
        name = watch.larger(self._active.profile) if watch is not None else ""
        if name and watch is not None and self.busy:
            watch.escalate(name)
        elif name:
            await self.swap_model(await asyncio.to_thread(configured_model, self.settings, name))
        return name

    # Context steps; `context` has the others

    async def compact(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self.context.compact("compact", focus)

    async def compact_if_needed(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns if a threshold is passed or it pays off. Raises `AgentBusy`, `StorageError`."""
        return await self.context.compact_if_needed(focus)

    async def checkpoint(self, note: str = "") -> CompactionResult:
        """Write the completion record of the task that just ended. Raises `AgentBusy`, `StorageError`."""
        return await self.context.compact("checkpoint", note)

    def context_stats(self) -> ContextStats:
        """How full the window is, which context step comes next, and what the session has cost."""
        return self.context.stats()

    @property
    def has_compactor(self) -> bool:
        """Whether older turns are summarised automatically; `compact` works either way."""
        return self.engine.compaction.on

    @property
    def has_checkpointer(self) -> bool:
        """Whether `checkpoint` and ``mark_task_done`` are available."""
        return self.engine.checkpoints.on

    # The session

    @property
    def settings(self) -> Settings:
        """The settings of the session."""
        return self.engine.settings

    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools the model is offered."""
        offered = self.offered.definitions if self.offered is not None else ()
        told = (definition for definition in offered if not definition.deferred)
        return (*self.briefing.tools, *told)

    def listen(self, listener: Callable[[events.AgentEvent], None]) -> None:
        """Subscribe to events outside a turn, such as those of `compact`, `context.undo` and `branches.rewind`."""
        self._listeners.append(listener)

    async def run_subtask(self, spec: SubtaskSpec, progress: Callable[[str], None] = lambda _: None) -> SubtaskResult:
        """Answer a question in a fresh conversation; see `SubtaskSpec`. Its cost counts in this session.

        Raises `NobodyToAsk`, and RuntimeError if this agent has no subtasks because it is one itself.
        """
        if self._subtasks is None:
            raise RuntimeError("a subtask has no subtasks")
        return await self._subtasks.run(spec, progress)

    async def subtask_progress(self, call_id: str) -> str:
        """The last progress text of the subtask that worked for a call, from its record; empty if there is none."""
        return await self._subtasks.past(call_id) if self._subtasks is not None else ""

    def reset_cost_ceiling(self) -> str:
        """Let the session go on after it reached its cost ceiling; returns a sentence with the new limit."""
        text, entry = self._guards.ceiling.reset()
        if entry is not None:
            self._record.append_soon(entry)
        return text

    async def close(self) -> None:
        """Stop a running turn, flush the log, and close the model's connections. Raises `StorageError`."""
        await self.turns.close()
        try:
            await self._steps.end_writing()
            await self._record.flush()
        finally:
            if self._history is not None:
                self._history.close()
            await self._active.close()

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    """An `Ask` for when nobody can answer. Always raises `NobodyToAsk`."""
    raise NobodyToAsk(question)


async def _no_resources(_: str) -> tuple[str, ...]:
    """The reader of resources when there are no MCP servers."""
    return ()
