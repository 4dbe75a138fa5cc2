"""The agent: the interface for front ends. One conversation, with one turn or context step at a time."""

import asyncio
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, TypeVar, overload

from msgspec import structs
from typing_extensions import Unpack

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel, SmallModel
from tui_agent.agent.answers import AnswerType, NoValue, TurnError, repair
from tui_agent.agent.branches import Branches
from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.context import AgentContext
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.extensions.own import Extensions
from tui_agent.agent.files import ChangedFiles
from tui_agent.agent.history.as_events import custom_event
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.model_choice import configured_model, small_model
from tui_agent.agent.own_commands import OwnCommands
from tui_agent.agent.persistence import SUBTASKS, DiskPersistence, Persistence
from tui_agent.agent.record import Record
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.guards import CostCeiling, Guards, Limits
from tui_agent.agent.turn.interceptors import AfterTool, BeforeModel, BeforeTool, Interceptors
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import Checkpointer, Compactor, StepRunner
from tui_agent.agent.turn.toolbox import Expected, Toolbox
from tui_agent.agent.turn.turn import Parts
from tui_agent.agent.turn.turns import Turns
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.effects import CompactionResult
from tui_agent.context.engine import ContextEngine
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.blocks import Image, ToolDefinition
from tui_agent.conversation.entries import CeilingReached, CeilingReset, Custom
from tui_agent.conversation.profile import ModelProfile
from tui_agent.durable import to_completion
from tui_agent.models.base import Model, UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.shared import SharedModel
from tui_agent.models.speed import Speed
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import Settings
from tui_agent.settings.writing import with_setting
from tui_agent.storage.store import Kind
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion, Tool, WorkspaceView
from tui_agent.tools.functions import FunctionTool
from tui_agent.tools.gate.permissions import Mode, NobodyToAsk, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.recall import RecallSource
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec, subtask_tools

T = TypeVar("T")

REPAIRS: Final = 2
"""How often `Agent.ask` asks for an answer again that does not have the type asked for."""


class SessionParts(NamedTuple):
    """What `open_session` adds to an agent and shares with its subtasks.

    guards: cost ceiling and watchdog. small: the provider's cheaper models. briefing: keeps system prompt and tools
    current. subtasks: runs them. recaller: searches the past. files: the history of changed files. offered: the tools
    of MCP servers. extensions, hooks: the user's own. expected: the notice before many agents start.
    """

    guards: Guards | None = None
    small: SmallModel = lambda _provider: None
    briefing: Briefing | None = None
    subtasks: SubtaskRunner | None = None
    recaller: RecallSource | None = None
    files: FileHistory | None = None
    offered: OfferedTools | None = None
    extensions: Extensions | None = None
    hooks: Hooks | None = None
    expected: Expected = lambda _: ""
    is_subtask: bool = False


class AgentOptions(TypedDict, total=False):
    """The options of `Agent` and `Agent.open`; see `Agent`."""

    tools: Iterable[Tool | Callable[..., object]]
    system: str
    settings: Settings | None
    limits: Limits
    permissions: PermissionGate | Mode
    ask: Ask | None
    deps: object
    before_tool: BeforeTool | None
    after_tool: AfterTool | None
    before_model: BeforeModel | None
    workspace: WorkspaceView | None
    compactor: Compactor | None
    checkpointer: Checkpointer | None
    agentic: bool


class _Shared(NamedTuple):
    """What an agent shares with its subtasks."""

    tools: ToolRegistry
    workspace: WorkspaceView
    deps: object
    interceptors: Interceptors


@dataclass(frozen=True, slots=True)
class _Subtask:
    """A subtask's conversation; see `OpenSubtask`."""

    id: str
    model: str
    conversation: "Agent"
    persistence: Persistence

    @property
    def cost_usd(self) -> float | None:
        return self.conversation.tracker.session.known_cost_usd

    async def close(self) -> None:
        """Close its record. Raises `StorageError`."""
        try:
            await self.conversation.close()
        finally:
            await self.persistence.close()


class Agent:
    """A conversation with a model that can use tools, and whose context can be inspected and changed.

    `run` runs a turn and yields its events; `ask` runs one and returns its answer. One turn or context step runs at a
    time; each waits for the other. What can be done besides is in its parts: `context` (what the model is shown),
    `branches` (rewinding, forking), `files` (what tools changed), `turns` (queued texts, holding the conversation),
    `permissions` (the gate), `own_commands` (slash commands of users, projects and servers), `briefing` (the system
    prompt), `tracker` (usage and cost). The `engine` is read-only while the agent lives; `offered` are the MCP servers,
    if any.

    `Agent(model)` keeps the conversation in memory; `Agent.open(folder, model=…)` on disk. Only `model` is required, by
    name or as a `Model`. `tools`: `Tool`s or plain functions. `system`: the system prompt. `settings`: by default the
    built-in ones. `limits`: the most that a turn may do and cost. `permissions`: a mode, or a gate with its own rules.
    `ask`: puts the gate's questions to a person; by default nobody can be asked, and a call that needs approval ends
    the turn. `deps`: for tools whose first parameter is a `ToolContext`. `before_tool`, `after_tool`, `before_model`:
    functions called around tool calls and model calls. `workspace`: the folders that tools work in, by default the
    current one. `compactor`, `checkpointer`: write summaries in place of a model. `persistence`: what the conversation
    is kept in. `context`: an engine of your own, for the view of `persistence` if both are given. `agentic`: offer the
    model the tools that answer a question in a subtask (``agentic_read_file`` …), as far as the tools that they use are
    among `tools`. `session`: what `open_session` adds.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        system: str = "",
        settings: Settings | None = None,
        limits: Limits = Limits(),  # noqa: B008 (immutable)
        permissions: PermissionGate | Mode = "auto",
        ask: Ask | None = None,
        deps: object = None,
        before_tool: BeforeTool | None = None,
        after_tool: AfterTool | None = None,
        before_model: BeforeModel | None = None,
        workspace: WorkspaceView | None = None,
        compactor: Compactor | None = None,
        checkpointer: Checkpointer | None = None,
        persistence: Persistence | None = None,
        context: ContextEngine | None = None,
        agentic: bool = False,
        session: SessionParts = SessionParts(),  # noqa: B008 (immutable)
    ) -> None:
        """Raises TypeError for what cannot be a tool, and for `deps` that are not what a tool needs; ValueError for two
        tools of a name, and for a `context` that is not that of `persistence`; `UnknownModel`.
        """
        kept = persistence or Persistence(context.view if context is not None else None)
        engine = context or ContextEngine(settings, view=kept.view)
        model = configured_model(engine.settings, model) if isinstance(model, str) else model
        if engine.view is not kept.view:
            raise ValueError("`context` shows another conversation than `persistence`: give it `persistence.view`")
        writers = {"summary": compactor, "checkpoint": checkpointer}
        own = {step: writer for step, writer in writers.items() if writer is not None}
        engine.own_writers = frozenset(own)
        own_folders = (kept.folder,) if kept.folder is not None else ()
        workspace = workspace or Workspace(Path.cwd(), read_roots=own_folders)
        offered, hooks = session.offered, session.hooks
        self._subtasks = session.subtasks or SubtaskRunner(self._open_subtask, ask or nobody, _no_record)
        tools = list(tools)
        if agentic:
            tools += agentic_tools(self._subtasks, ToolRegistry(tools))
        registry = ToolRegistry(tools, offered.tool if offered else lambda _: None)
        _check_deps(registry, deps)
        self.engine: Final = engine
        self.tracker: Final = kept.tracker
        self.offered: Final = offered
        self.briefing: Final = session.briefing or Briefing(lambda _: system, registry.definitions, offered=offered)
        self.permissions: Final = (
            PermissionGate(permissions, workspace) if isinstance(permissions, str) else permissions
        )
        self._is_subtask = session.is_subtask
        self._history = session.files
        self._record = Record(engine, kept.store)
        self._active = ActiveModel(model, self._record, self.briefing, session.small)
        self._guards = session.guards or _guards_of(limits, kept)
        lock = asyncio.Lock()
        ceiling = self._guards.ceiling
        self._steps = StepRunner(
            self._record, self._active, kept.texts, self.tracker, ceiling, lock, self._tell, own, hooks
        )
        interceptors = Interceptors(before_tool, after_tool, before_model)
        self._toolbox = Toolbox(
            registry,
            self.permissions,
            ask or nobody,
            workspace,
            kept.texts,
            session.files,
            hooks,
            session.expected,
            interceptors,
            deps,
        )
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
            interceptors,
        )
        self._kept, self._shared = kept, _Shared(registry, workspace, deps, interceptors)
        self._listeners: list[Callable[[events.AgentEvent], None]] = []
        self.turns: Final = Turns(parts, lock, kept.texts, self._tell)
        self.context: Final = AgentContext(parts, self.turns, kept.texts, offered, session.recaller)
        self.branches: Final = Branches(parts, self.turns, kept.texts)
        self.files: Final = ChangedFiles(self._record, self.turns, session.files)
        self.own_commands: Final = OwnCommands(parts, self.turns, self.briefing, session.extensions, offered)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, folder: Path | str, *, model: Model | str, **options: Unpack[AgentOptions]
    ) -> AsyncIterator["Agent"]:
        """A context with the agent of the conversation in `folder`, which is new if the folder is.

        It goes on where its log ends: with its branches, its cost, its long texts, and a reached cost ceiling. One
        process at a time can have it open. Raises `StorageError`, and what `Agent` does.
        """
        kept = await Persistence.on_disk(Path(folder))
        try:
            from tui_agent.agent.history.recalling import Recaller

            session = SessionParts(recaller=Recaller(kept.view, kept.texts))
            async with cls(model, persistence=kept, session=session, **options) as agent:
                yield agent
        finally:
            await to_completion(kept.close())

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Turns

    def run(
        self, prompt: str = "", images: tuple[Image, ...] = (), *, typed: str = ""
    ) -> AsyncGenerator[events.AgentEvent, None]:
        """Run one turn and yield its events as they happen; the last one is `TurnFinished`.

        `typed`: what the user typed, if that is not the prompt, such as a slash command; people are shown this.

        Without a prompt it delivers queued texts, or retries if the last turn failed. Leaving the loop, closing the
        iterator or cancelling its consumer ends the turn and leaves a valid log. Raises `AgentBusy` while a turn runs,
        and `AgentClosed`, both at the call.
        """
        return self.turns.run(prompt, images, typed)

    @overload
    async def ask(self, prompt: str = "", *, images: tuple[Image, ...] = ()) -> str: ...

    @overload
    async def ask(self, prompt: str = "", *, images: tuple[Image, ...] = (), output: type[T]) -> T: ...

    async def ask(self, prompt: str = "", *, images: tuple[Image, ...] = (), output: type[T] | None = None) -> str | T:
        """Run one turn and return its answer; with `output`, as a value of that type.

        `output`: a `msgspec.Struct`, a dataclass, a `TypedDict`, a builtin, a list of these …, or a model of pydantic.
        The model is told its JSON Schema; an answer that does not have the type goes back to it, with the reason, up to
        two times. Raises `TurnError` if the turn fails, is stopped or is cut short; what `run` raises; and TypeError
        for a type that JSON cannot express.
        """
        if output is None:
            return await self._answer(prompt, images, prompt)
        wanted = AnswerType(output)
        told = f"{prompt}\n\n{wanted.instruction}" if prompt.strip() else ""
        if not told:
            await self.turns.tell_model(wanted.instruction)
        for left in reversed(range(REPAIRS + 1)):
            answer = await self._answer(told, images, prompt)
            try:
                return wanted.read(answer)
            except NoValue as problem:
                if not left:
                    message = f"The answer is no {getattr(output, '__name__', output)}: {problem}"
                    raise TurnError("output", message, retryable=True, text=answer) from None
                await self.turns.tell_model(repair((str(problem),), wanted.instruction))
                told, images = "", ()
        raise AssertionError("unreachable")

    async def _answer(self, prompt: str, images: tuple[Image, ...], typed: str) -> str:
        failed: events.TurnFailed | None = None
        finished: events.TurnFinished | None = None
        async with aclosing(self.run(prompt, images, typed=typed)) as stream:
            async for event in stream:
                match event:
                    case events.TurnFailed():
                        failed = event
                    case events.TurnFinished():
                        finished = event
                    case _:
                        pass
        text = finished.text if finished is not None else ""
        if failed is not None:
            raise TurnError(failed.kind, failed.message, hint=failed.hint, retryable=failed.retryable, text=text)
        if finished is None or finished.stop_reason != "end_turn":
            kind = finished.stop_reason if finished is not None else "interrupted"
            raise TurnError(kind, f"The answer is not complete ({kind}).", retryable=True, text=text)
        return text

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self.turns.busy

    def interrupt(self) -> bool:
        """Stop the running turn, whose last events still arrive. False if none was running."""
        return self.turns.interrupt()

    async def queue(self, text: str, images: tuple[Image, ...] = (), *, typed: str = "") -> int:
        """Queue a text for the running turn's next step; returns its number. `typed`: see `run`.

        Raises `NotRunning`, `StorageError`.
        """
        return await self.turns.queue(text, images, typed)

    async def add(self, entry: Custom) -> int:
        """Add an entry of your own, see `entries.custom`; returns its number. It is kept, replayed and exported.

        Raises `StorageError`, and `AgentBusy` while a turn runs if the model is to see it.
        """
        if entry.agent_visible:
            async with self.turns.held():
                seq = await self._record.append(entry)
        else:
            seq = await self._record.append(entry)
        self._tell(custom_event(structs.replace(entry, seq=seq)))
        return seq

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
        await self._toolbox.run_for_user(command, self.engine, self._tell, self.turns.add)

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

    async def swap_model(self, model: Model | str) -> None:
        """Switch to another model, by name or as a `Model`, from the next call on.

        Raises `AgentBusy` while a turn runs, `UnknownModel`, and `StorageError`.
        """
        model = await asyncio.to_thread(configured_model, self.settings, model) if isinstance(model, str) else model
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
            await self.swap_model(name)
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
        settings = self.engine.settings
        return settings.compaction.auto and settings.context.preset != "off"

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

        It answers with the provider's small model if there is one, has those of this agent's tools that the spec names,
        and passes its gate and the functions around its calls. Raises `NobodyToAsk`, ToolFailure for an unknown tool,
        and RuntimeError if this agent is a subtask itself.
        """
        if self._is_subtask:
            raise RuntimeError("a subtask has no subtasks")
        return await self._subtasks.run(spec, progress)

    async def _open_subtask(self, spec: SubtaskSpec, branch: str, ask: Ask) -> _Subtask:
        """Open a subtask's conversation: below the folder of this one, or in memory."""
        shared, settings = self._shared, self.settings
        tools = subtask_tools(spec, shared.tools)
        tracker, own = UsageTracker(self.tracker), self._kept
        if isinstance(own, DiskPersistence):
            # The gate knows the folder of this conversation alone, so large results are kept there.
            kept: Persistence = await Persistence.on_disk(
                own.folder / SUBTASKS / branch, texts=own.texts, tracker=tracker
            )
        else:
            kept = Persistence(tracker=tracker)
        try:
            model = await asyncio.to_thread(self._subtask_model, spec)
            if spec.window:
                settings = with_setting(settings, "context.context_window", spec.window, spec.title)
            agent = Agent(
                model,
                tools=tools,
                system=spec.system,
                settings=settings,
                permissions=self.permissions,
                ask=ask,
                deps=shared.deps,
                before_tool=shared.interceptors.before_tool,
                after_tool=shared.interceptors.after_tool,
                before_model=shared.interceptors.before_model,
                workspace=shared.workspace,
                persistence=kept,
                session=SessionParts(guards=Guards(self._guards.ceiling), is_subtask=True),
            )
        except BaseException:
            await kept.close()
            raise
        return _Subtask(branch, model.profile.name, agent, kept)

    def _subtask_model(self, spec: SubtaskSpec) -> Model:
        """The model of a subtask: the one it names, else the small one if it can be asked, else this agent's own.

        Raises `UnknownModel` for a name that there is not.
        """
        if spec.model:
            return configured_model(self.settings, spec.model)
        with suppress(UnknownModel):
            name = small_model(self.settings, self.profile.name)
            if name != self.profile.name and catalogue_of(self.settings).missing_key(name) is None:
                return configured_model(self.settings, name)
        return SharedModel(self._active.model)

    async def subtask_progress(self, call_id: str) -> str:
        """The last progress text of the subtask that worked for a call, from its record; empty if there is none."""
        return await self._subtasks.past(call_id)

    def record(self, kind: Kind, body: object) -> None:
        """Record an event that is no part of the conversation, for the trace: with the next entry that is stored.

        `body` must encode to a JSON object.
        """
        self._record.note(kind, body)

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
            try:
                listener(event)
            except Exception:
                # What it is told of has happened.
                self._record.note("error", {"kind": "listener", "traceback": traceback.format_exc()})


def _check_deps(registry: ToolRegistry, deps: object) -> None:
    for each in registry:
        if isinstance(each, FunctionTool) and each.needs is not None and not isinstance(deps, each.needs):
            needed, given = each.needs.__name__, type(deps).__name__
            raise TypeError(f"the tool {each.definition.name} needs deps of type {needed}, not {given}")


def _guards_of(limits: Limits, kept: Persistence) -> Guards:
    ceiling = CostCeiling(limits, kept.tracker)
    ceiling.restore(kept.view.log.entries().of(CeilingReached, CeilingReset))
    return Guards(ceiling, max_calls=limits.max_calls)


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    """An `Ask` for when nobody can answer. Always raises `NobodyToAsk`."""
    raise NobodyToAsk(question)


async def _no_record(_: str) -> str:
    """The last progress of the subtask of an earlier call, which is not looked up."""
    return ""


async def _no_resources(_: str) -> tuple[str, ...]:
    """The reader of resources when there are no MCP servers."""
    return ()
