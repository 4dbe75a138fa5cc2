"""The agent: the interface for front ends. One conversation, with one turn or context step at a time."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, overload

import msgspec
from msgspec import structs
from typing_extensions import Unpack

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel, SmallModel
from tui_agent.agent.answers import AnswerType, NoValue, TurnError, repair
from tui_agent.agent.branches import Branches
from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.context import AgentContext
from tui_agent.agent.extensions.agents import READING, RUN_AGENT, agent_of
from tui_agent.agent.extensions.claude import TRANSCRIPT, HookTranscript
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.agent.extensions.hook_calls import HookConnections
from tui_agent.agent.extensions.hooks import Hooks, Subtask
from tui_agent.agent.extensions.placeholders import Here
from tui_agent.agent.files import ChangedFiles
from tui_agent.agent.history.as_events import custom_event
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.own_commands import OwnCommands
from tui_agent.agent.persistence import DiskPersistence, Persistence
from tui_agent.agent.record import Record
from tui_agent.agent.subtasks import OpenSubtask, SubtaskRunner, branch_prefix, past_progress
from tui_agent.agent.turn.guards import CostCeiling, Guards, Limits
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import Checkpointer, Compactor, StepRunner
from tui_agent.agent.turn.toolbox import AfterTool, BeforeModel, BeforeTool, Interceptors, Toolbox
from tui_agent.agent.turn.turns import Turns
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.engine import ContextEngine
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.blocks import Image, ToolDefinition
from tui_agent.conversation.entries import Custom, Message
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import Model, SharedModel, UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.choice import configured_model, named_model, small_model
from tui_agent.models.usage import Speed
from tui_agent.settings import Settings
from tui_agent.settings.writing import with_setting
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Kind
from tui_agent.system.durable import to_completion, uncancelled
from tui_agent.telemetry.telemetry import Telemetry
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import (
    Ask,
    PermissionAnswer,
    PermissionQuestion,
    SubtaskProgress,
    Tool,
    ToolFailure,
    WorkspaceView,
)
from tui_agent.tools.functions import FunctionTool
from tui_agent.tools.gate.permissions import Mode, NobodyToAsk, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.recall import Recall
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.stored import ReadStored
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec, subtask_tools
from tui_agent.tools.web.web_search import HostedSearch

if TYPE_CHECKING:
    from tui_agent.agent.inbox import MemoryProposals

T = TypeVar("T")

HOOK_STEPS: Final = 50
"""The most calls of the model by which a hook of the type ``agent`` decides."""

REPAIRS: Final = 2
"""How often `Agent.ask` asks for an answer again that does not have the type asked for."""


class SessionParts(msgspec.Struct, frozen=True):
    """What `open_session` adds to an agent.

    guards: cost ceiling and watchdog. small: the provider's cheaper models. briefing: keeps system prompt and tools
    current. subtasks: runs them; tools have it already. files: the history of changed files. offered: the tools of MCP
    servers. extensions: the folders of the user's own commands, agents and styles. hooks: the user's own.
    telemetry: follows the log. languages: the language servers. inbox: what could be remembered.
    """

    guards: Guards | None = None
    small: SmallModel = lambda _provider: None
    briefing: Briefing | None = None
    subtasks: SubtaskRunner | None = None
    files: FileHistory | None = None
    offered: OfferedTools | None = None
    extensions: tuple[ExtensionFolder, ...] = ()
    hooks: Hooks | None = None
    is_subtask: bool = False
    telemetry: Telemetry | None = None
    languages: LanguageServers | None = None
    inbox: "MemoryProposals | None" = None


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
        engine.writers = structs.replace(engine.writers, own=frozenset(own))
        if workspace is None:
            workspace = Workspace(Path.cwd(), read_roots=(kept.folder,) if kept.folder is not None else ())
        offered, hooks, ask = session.offered, session.hooks or Hooks(), ask or nobody
        self._subtasks = session.subtasks or SubtaskRunner(ask)
        self._subtasks.opener = self._open_subtask
        self._for_hooks = SubtaskRunner(ask)  # not among the session's: one of those may be waiting for it
        self._for_hooks.opener = self._open_subtask
        self._subtask_models: dict[str, SharedModel] = {}
        tools = list(tools)
        if agentic:
            tools += agentic_tools(self._subtasks, ToolRegistry(tools))
        # Without a session around it, these are all its tools; notices in place of long results name two more.
        if tools and session.briefing is None and not session.is_subtask:
            theirs = ToolRegistry(tools)
            if "read_file" not in theirs:
                tools.append(ReadStored(self._stored_at))
            if "recall" not in theirs and isinstance(kept, DiskPersistence):
                tools.append(Recall(kept.recall))
        registry = ToolRegistry(tools, offered.tool if offered else lambda _: None)
        for each in registry:
            if isinstance(each, FunctionTool) and each.needs is not None and not isinstance(deps, each.needs):
                needed, given = each.needs.__name__, type(deps).__name__
                raise TypeError(f"the tool {each.definition.name} needs deps of type {needed}, not {given}")
        self.engine: Final = engine
        self.tracker: Final = kept.tracker
        self.offered: Final = offered
        self.languages: Final = session.languages
        self.inbox: Final = session.inbox
        self.briefing: Final = session.briefing or Briefing(lambda _: system, registry.definitions, offered=offered)
        self.permissions: Final = (
            PermissionGate(permissions, workspace) if isinstance(permissions, str) else permissions
        )
        self._is_subtask = session.is_subtask
        self._history, self._hooks = session.files, hooks
        self._record = Record(engine, kept.store, session.telemetry)
        self._active = ActiveModel(model, self._record, self.briefing, session.small)
        own_ceiling = CostCeiling(limits, kept.tracker, kept.view.log)
        self._guards = session.guards or Guards(own_ceiling, max_calls=limits.max_calls)
        lock = asyncio.Lock()
        self._steps = StepRunner(
            self._record, self._active, kept.texts, self.tracker, self._guards.ceiling, lock, self._tell, own, hooks
        )
        around = Interceptors(before_tool, after_tool, before_model)
        self._toolbox = Toolbox(
            self._record,
            registry,
            self.permissions,
            ask,
            workspace,
            kept.texts,
            session.files,
            hooks,
            around,
            deps,
            self.tracker,
        )
        planning = Planning(self._record, self.permissions, registry)
        parts = TurnParts(
            self._record,
            self._active,
            self._toolbox,
            self.tracker,
            self._steps,
            self._guards,
            CacheWatch(),
            planning,
            offered,
            hooks,
            around,
        )
        hooks.ways = hooks.ways or HookConnections(self._judge, self._look, self._use, self._may_run)
        self._kept, self._workspace, self._deps, self._around = kept, workspace, deps, around
        self._listeners: list[events.Emit] = []
        self.turns: Final = Turns(parts, lock, kept.texts, self._tell)
        sources = (kept.recall, kept.recall_elsewhere) if isinstance(kept, DiskPersistence) else (None, None)
        self.context: Final = AgentContext(parts, self.turns, kept.texts, *sources)
        self.branches: Final = Branches(parts, self.turns, kept.texts)
        self.files: Final = ChangedFiles(self._record, self.turns, session.files)
        name = kept.folder.name if kept.folder is not None else ""
        here = Here(workspace.root, name, lambda: self.settings.model.effort)
        self.own_commands: Final = OwnCommands(parts, self.turns, self.briefing, session.extensions, here)

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
            async with cls(model, persistence=kept, **options) as agent:
                yield agent
        finally:
            await to_completion(kept.close())

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Turns

    def run(self, prompt: str = "", images: tuple[Image, ...] = (), *, typed: str = "") -> events.EventStream:
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
        request = f"{prompt}\n\n{wanted.instruction}" if prompt.strip() else ""
        if not request:
            await self.turns.tell_model(wanted.instruction)
        repairs = 0
        while True:
            answer = await self._answer(request, images, prompt)
            try:
                return wanted.read(answer)
            except NoValue as problem:
                if repairs == REPAIRS:
                    message = f"The answer is no {getattr(output, '__name__', output)}: {problem}"
                    raise TurnError("output", message, retryable=True, text=answer) from None
                await self.turns.tell_model(repair((str(problem),), wanted.instruction))
                request, images, repairs = "", (), repairs + 1

    async def _answer(self, prompt: str, images: tuple[Image, ...], typed: str) -> str:
        failed: events.TurnFailed | None = None
        kind, text = "interrupted", ""
        async with aclosing(self.run(prompt, images, typed=typed)) as stream:
            async for event in stream:
                match event:
                    case events.TurnFailed():
                        failed = event
                    case events.TurnFinished():
                        kind, text = event.stop_reason, event.text
        if failed is not None:
            raise TurnError(failed.kind, failed.message, hint=failed.hint, retryable=failed.retryable, text=text)
        if kind != "end_turn":
            raise TurnError(kind, f"The answer is not complete ({kind}).", retryable=True, text=text)
        return text

    @property
    def busy(self) -> bool:
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
        await self._toolbox.run_for_user(command, self._tell, self.turns.add)

    # The model

    @property
    def home(self) -> Path | None:
        """The folder with all sessions and what belongs to them; None if this one is not kept."""
        return self._kept.folder.parents[1] if self._kept.folder is not None else None

    @property
    def folder(self) -> Path:
        return self._workspace.root

    @property
    def profile(self) -> ModelProfile:
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

    async def look_up_model(self) -> None:
        """Until the provider has been asked, go by what the catalogue on disk knows of the model. Reads files."""
        await self._active.look_up()

    async def swap_model(self, model: Model | str) -> None:
        """Switch to another model, by name or as a `Model`, from the next call on.

        Raises `AgentBusy` while a turn runs, `UnknownModel`, and `StorageError`.
        """
        if isinstance(model, str):
            model = await asyncio.to_thread(configured_model, self.settings, model)
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
            watch.escalation = name
        elif name:
            await self.swap_model(name)
        return name

    # Context steps; `context` has the others

    async def compact(self, focus: str = "") -> events.ContextStep:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self.context.compact("compact", focus)

    async def compact_if_needed(self, focus: str = "") -> events.ContextStep:
        """Summarise the older turns if a threshold is passed or it pays off. Raises `AgentBusy`, `StorageError`."""
        return await self.context.compact_if_needed(focus)

    async def checkpoint(self, note: str = "") -> events.ContextStep:
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
        return self.engine.layers.checkpoints.on

    # The session

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    def tools(self) -> tuple[ToolDefinition, ...]:
        offered = self.offered.definitions if self.offered is not None else ()
        undeferred = (definition for definition in offered if not definition.deferred)
        return (*self.briefing.tools, *undeferred)

    def listen(self, listener: events.Emit) -> None:
        """Subscribe to events outside a turn, such as those of `compact`, `context.undo` and `branches.rewind`."""
        self._listeners.append(listener)

    async def run_subtask(
        self, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None] = lambda _: None
    ) -> SubtaskResult:
        """Answer a question in a fresh conversation; see `SubtaskSpec`. Its cost counts in this session.

        It answers with the provider's small model if there is one, has those of this agent's tools that the spec names,
        and passes its gate and the functions around its calls. Raises `NobodyToAsk`, ToolFailure for an unknown tool,
        RuntimeError if this agent is a subtask itself, and `AgentClosed`.
        """
        self.turns.must_be_open()
        if self._is_subtask:
            raise RuntimeError("a subtask has no subtasks")
        return await self._subtasks.run(spec, progress)

    @asynccontextmanager
    async def _open_subtask(self, spec: SubtaskSpec, branch: str, ask: Ask) -> AsyncIterator[OpenSubtask]:
        """A context with a subtask's conversation, on disk if this one is, else in memory."""
        tools, settings = subtask_tools(spec, self._toolbox.registry), self.settings
        model = await self._subtask_model(spec.model)
        if spec.searches:
            if model.profile.search_usd is None:
                model = await self._subtask_model(self.profile.name)
            if model.profile.search_usd is None:
                raise ToolFailure(f"{model.profile.name} cannot search the web.", "Go on without, or tell the user.")
            tools = (*tools, HostedSearch())
        if spec.window:
            settings = with_setting(settings, "context.context_window", spec.window, spec.title)
        from tui_agent.storage.sessions import subtask_id

        kept = await self._kept.of_subtask(branch)
        name = subtask_id(self._kept.folder.name, branch) if self._kept.folder is not None else branch
        self.record("session", {"subtask": name, "title": spec.title, "model": model.profile.name})
        # How the user's hooks are told of it: its agent's or tool's name, and its transcript.
        kind = agent_of(spec.title)
        hooked = Subtask(name, kind, kind if spec.title.startswith(f"{RUN_AGENT} ") else "")
        root, transcript = self._workspace.root, None
        if kept.folder is not None:
            transcript = HookTranscript(kept.folder / TRANSCRIPT, name, root, lambda: kept.view.log)
        hooks = self._hooks.of_subtask(hooked, transcript) if spec.hooked else None
        telemetry = self._record.telemetry.of_subtask(name, hooked.kind)
        # The learned token ratios of a model apply to every conversation with it.
        ratios, thread = self.engine.meter.ratios, name if kept.folder is None else kept.folder.name
        try:
            agent = Agent(
                model,
                tools=tools,
                system=spec.system,
                context=ContextEngine(settings, view=kept.view, ratios=ratios, checkpoints=False, thread=thread),
                persistence=kept,
                permissions=self.permissions,
                ask=ask,
                deps=self._deps,
                **structs.asdict(self._around),
                workspace=self._workspace,
                session=SessionParts(Guards(self._guards.ceiling), hooks=hooks, is_subtask=True, telemetry=telemetry),
            )
            try:
                yield OpenSubtask(name, model.profile.name, agent)
            finally:
                await agent.close()
        finally:
            await to_completion(kept.close())

    async def _stored_at(self, path: str) -> str | None:
        for message in self._record.view.log.path().of(Message):
            if message.artifact is not None and message.artifact.path == path:
                try:
                    return await self._kept.texts.read(message.artifact)
                except StorageError as error:
                    raise ToolFailure(f"{path} cannot be read: {error}", "Go on without it.") from error
        return None

    async def _judge(self, instruction: str, text: str, model: str) -> str:
        """What a model answers to a hook's question. Raises `ToolFailure`."""
        return await (self._look(instruction, text, model, ()) if model else self._steps.judge(instruction, text))

    async def _look(self, instruction: str, text: str, model: str, tools: Sequence[str] | None = None) -> str:
        """What a subtask that reads files, or has these `tools`, answers to a hook's question. Raises `ToolFailure`."""
        if tools is None:
            tools = [tool.definition.name for tool in self._toolbox.registry if tool.definition.name in READING]
        try:
            meant = named_model(self.settings, model, self.profile.name) if model else ""
            spec = SubtaskSpec(instruction, text, tuple(tools), "hook", meant, steps=HOOK_STEPS, hooked=False)
            result = await self._for_hooks.run(spec, lambda _: None)
        except UnknownModel as error:
            raise ToolFailure(error.message) from error
        except NobodyToAsk as error:
            raise ToolFailure("it would need an approval, and nobody can be asked") from error
        if result.error:
            raise ToolFailure(result.error)
        return result.text

    async def _use(self, server: str, tool: str, arguments: dict[str, object]) -> str:
        """What a tool of a server that runs says to a hook. Raises `ToolFailure`."""
        servers = self.offered.servers if self.offered is not None else None
        if servers is None or not servers.runs(server):
            raise ToolFailure(f"the server {server} is not running")
        output = await servers.call(server, tool, arguments, self._toolbox.own_context(self._tell))
        if output.is_error:
            raise ToolFailure(output.text)
        return output.text

    async def _may_run(self, line: str, asks: bool) -> bool:
        """Whether a hook's command line may run. Raises NobodyToAsk."""
        return await self._toolbox.check_hook(line, self._tell, asks=asks)

    async def _subtask_model(self, name: str) -> Model:
        """The model of a subtask: the one named, else the small one if it can be asked, else this agent's own.

        Raises `UnknownModel` for a name that there is not.
        """
        settings, own = self.settings, self.profile.name
        if not name:
            with suppress(UnknownModel):
                small = small_model(settings, own)
                if settings.agentic.small_model or catalogue_of(settings).missing_key(small) is None:
                    name = small
        if name in ("", own):
            return SharedModel(self._active.model)
        if name not in self._subtask_models:
            made = SharedModel(await asyncio.to_thread(configured_model, settings, name))
            # Another subtask may have made one meanwhile.
            if self._subtask_models.setdefault(name, made) is not made:
                await made.close_for_good()
        return self._subtask_models[name]

    async def subtask_progress(self, call_id: str) -> SubtaskProgress | None:
        """How the subtask that worked for a call stood at its end, from its record; None if there is none."""
        from tui_agent.storage.sessions import subtask_id

        kept = self._kept
        if not isinstance(kept, DiskPersistence):
            return None
        try:
            found = await asyncio.to_thread(kept.past_subtasks, branch_prefix(call_id))
        except StorageError as error:
            return SubtaskProgress("", f"its record cannot be read: {error.message}")
        # After a rewind the same call may occur again; the later one is on the present branch.
        return past_progress(subtask_id(kept.folder.name, found[-1][0]), found[-1][1]) if found else None

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
        """Stop a running turn, flush the log, and close the model's connections.

        Raises `StorageError`, and `AgentBusy` within a turn.
        """
        self.turns.must_be_outside()
        await self._close()

    @uncancelled
    async def _close(self) -> None:
        if self.offered is not None:
            self.offered.servers.leave()
        await self.turns.close()
        await self._hooks.close()
        try:
            await self._steps.end_writing()
            await self._record.flush()
        finally:
            if self._history is not None:
                self._history.close()
            await self._active.close()
            for model in self._subtask_models.values():
                await model.close_for_good()

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # What it is told of has happened.
                self._record.note("error", {"kind": "listener", "traceback": traceback.format_exc()})


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    """An `Ask` for when nobody can answer. Always raises `NobodyToAsk`."""
    raise NobodyToAsk(question)
