"""The agent: the interface for front ends. One conversation, with one turn or context step at a time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel, SmallModel
from tui_agent.agent.briefing.briefing import Briefing
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.extensions.own import Extensions, OwnPrompt
from tui_agent.agent.history.as_events import newest, replay, step_event
from tui_agent.agent.history.branches import Branch, Prompt, branches, prompts, turn_start
from tui_agent.agent.history.file_history import FileHistory, PutBackDone
from tui_agent.agent.model_choice import configured_model, meant_model
from tui_agent.agent.moves import Moves
from tui_agent.agent.overview import (
    Fullness,
    Overview,
    SwitchOutlook,
    context_stats,
    excerpt,
    fullness,
    original,
    overview,
    switch_outlook,
)
from tui_agent.agent.record import Record
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.guards import CostCeiling, Guards, Limit
from tui_agent.agent.turn.planning import Planning
from tui_agent.agent.turn.steps import Checkpointer, Compactor, StepRunner, Texts
from tui_agent.agent.turn.toolbox import Expected, Toolbox
from tui_agent.agent.turn.turn import Parts
from tui_agent.agent.turn.turns import Turns
from tui_agent.context.cache_watch import CacheWatch
from tui_agent.context.changes import Outlook, PreviewedStep
from tui_agent.context.effects import Refusal, StepDone, Steps
from tui_agent.context.engine import ContextEngine
from tui_agent.context.stats import ContextStats
from tui_agent.context.summary.writing import CompactionResult, Draft
from tui_agent.conversation.blocks import Image, ToolDefinition
from tui_agent.conversation.entries import Message, Words
from tui_agent.conversation.items import Item
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.todo import TodoList, newest_todo
from tui_agent.models.base import Model, UnknownModel
from tui_agent.models.catalogue import CATALOGUE, catalogue_of
from tui_agent.models.speed import Speed
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import PolicyName, Settings, with_policy
from tui_agent.storage.store import MemoryStore, MemoryTexts, NoTrace, Store, TraceSink
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion, Tool, ToolFailure, WorkspaceView
from tui_agent.tools.files.put_back import PutBack
from tui_agent.tools.gate.permissions import GrantedRule, Mode, NobodyToAsk, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.recall import RecallHits, RecallSource
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec

T = TypeVar("T")


class Agent:
    """A conversation with a model that can use tools, and whose context can be inspected and changed.

    `run` is the only way to run a turn. One turn or context step runs at a time; each waits for the other.

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
        self.tracker = tracker or UsageTracker()
        writers = {"summary": compactor, "checkpoint": checkpointer}
        own = {step: writer for step, writer in writers.items() if writer is not None}
        self._engine = context or ContextEngine()
        self._engine.own_writers = frozenset(own)
        self._texts = texts or MemoryTexts()
        self._subtasks = subtasks
        self._recaller = recaller
        self._offered = offered
        self._extensions = extensions
        registry = ToolRegistry(tools, offered.tool if offered else lambda _: None)
        self._briefing = briefing or Briefing(lambda _: system, registry.definitions, offered=offered)
        self._record = Record(self._engine, store or MemoryStore(self._engine.view.log), trace or NoTrace())
        self._active = ActiveModel(model, self._record, self._briefing, small)
        self._guards = guards or Guards(CostCeiling(Limit(), self.tracker))
        lock = asyncio.Lock()
        self._steps = StepRunner(
            self._record,
            self._active,
            self._texts,
            self.tracker,
            self._guards.ceiling,
            lock,
            self._tell,
            own,
            hooks,
        )
        workspace = workspace or Workspace(Path.cwd())
        gate = PermissionGate(permissions, workspace) if isinstance(permissions, str) else permissions
        self._files = files
        self._toolbox = Toolbox(registry, gate, ask or nobody, workspace, self._texts, files, hooks, expected)
        self._caches = CacheWatch()
        self._parts = Parts(
            self._record,
            self._active,
            self._toolbox,
            self.tracker,
            self._steps,
            self._guards,
            self._caches,
            Planning(self._record, gate, registry),
            offered.resources if offered else _no_resources,
            hooks,
        )
        self._listeners: list[Callable[[events.AgentEvent], None]] = []
        self._turns = Turns(self._parts, lock, self._texts, self._tell)
        self._moves = Moves(self._record, self._active, self._steps, self._turns, files, self._tell)

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # A turn

    def run(self, prompt: str = "", images: tuple[Image, ...] = ()) -> AsyncGenerator[events.AgentEvent, None]:
        """Run one turn and yield its events as they happen; the last one is `TurnFinished`.

        Without a prompt it delivers queued texts, or retries if the last turn failed. Closing the iterator or
        cancelling its consumer ends the turn and leaves a valid log. Raises `AgentBusy` while a turn runs.
        """
        return self._turns.run(prompt, images)

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._turns.busy

    def interrupt(self) -> bool:
        """Stop the running turn, whose last events still arrive. False if none was running."""
        return self._turns.interrupt()

    @property
    def awaits_summary(self) -> bool:
        """Whether the running turn is waiting for a summary, without which its request does not fit."""
        return self._steps.awaited

    def stop_writing(self) -> bool:
        """Stop the summary that is being written; a turn that waits for it goes on without it.

        False if none was being written.
        """
        return self._steps.stop_writing("Stopped by the user.")

    async def prepare_ahead(self) -> None:
        """Start the context work that is due before the next turn, while the user is still typing its prompt.

        Does nothing while a turn runs. Raises `StorageError`.
        """
        if self._turns.taken or not self._record.view.message_count:
            return
        async with self._turns.exclusively():
            await self._active.introduce()
            if self._guards.ceiling.reached:
                return
            await self._steps.run(self._engine.prepare(between_turns=True), self._tell)

    # Texts outside a turn's prompt

    async def queue(self, text: str, images: tuple[Image, ...] = ()) -> int:
        """Queue a text for the running turn's next step; returns its number. Raises `NotRunning`, `StorageError`."""
        return await self._turns.queue(text, images)

    def queued(self) -> tuple[tuple[int, str], ...]:
        """The queued texts with their entry numbers."""
        return self._turns.queued()

    async def withdraw(self, seq: int) -> str:
        """Withdraw a queued text; returns it, or an empty string if it was delivered already. Raises `StorageError`."""
        return await self._turns.withdraw(seq)

    async def note(self, text: str) -> int:
        """Add a text of the user's to the conversation without calling the model; returns its entry number.

        While a turn or a context step runs, it is added at the next step. Raises `StorageError`.
        """
        return await self._turns.note(text)

    def held(self) -> AbstractAsyncContextManager[None]:
        """A context in which no other task can start a turn or a step; prompts sent meanwhile wait on disk.

        Raises `AgentBusy` if a turn is running.
        """
        return self._turns.held()

    async def run_shell(self, command: str) -> None:
        """Run a shell command of the user's own without asking, and `note` its output; listeners get tool events.

        When cancelled, it stops the command and notes the output so far. Raises `StorageError`.
        """
        await self._toolbox.run_for_user(command, self._engine, self._tell, self.note)

    # Extensions

    @property
    def extensions(self) -> Extensions | None:
        """The user's and the project's commands, hooks and agents; None if there are no folders for them."""
        return self._extensions

    async def extensions_text(self) -> str:
        """A listing of the user's and the project's extensions, for people."""
        own, hooks = self._extensions, self._parts.hooks
        if own is None:
            return "There are no folders for extensions here."
        return await asyncio.to_thread(own.listed, hooks)

    @property
    def style(self) -> str:
        """The name of the output style; empty if none."""
        return self._briefing.style

    async def use_style(self, name: str) -> bool:
        """Switch to one of the user's output styles from the next prompt on; empty: none.

        False if there is no such style. The system prompt stays as it is; a notice tells the model.
        """
        own = self._extensions
        if name and (own is None or await asyncio.to_thread(own.style, name) is None):
            return False
        self._briefing.style = name
        return True

    async def own_prompt(self, name: str) -> OwnPrompt | None:
        """The user's or a server's slash command of this name; None if there is none."""
        own, offered = self._extensions, self._offered
        if own is not None and (prompt := await asyncio.to_thread(own.prompt, name)) is not None:
            return prompt
        return next((prompt for prompt in offered.prompts() if prompt.name == name), None) if offered else None

    async def own_prompts(self) -> tuple[OwnPrompt, ...]:
        """All slash commands of the user's own and of MCP servers."""
        own, offered = self._extensions, self._offered
        files = await asyncio.to_thread(own.prompts) if own is not None else ()
        return (*files, *(offered.prompts() if offered is not None else ()))

    async def expand(self, prompt: OwnPrompt, argument: str) -> str:
        """The text to send for a user's or a server's command. What the command runs and reads passes the gate.

        If the command names a model, that model answers a turn that is started with this text next.

        Raises `ToolFailure` if something is refused or fails, and `NobodyToAsk`.
        """
        from tui_agent.agent.extensions.prompts import expanded

        if prompt.server and self._offered is not None:
            return await self._offered.expand(prompt, argument)
        model = await asyncio.to_thread(self._lent, prompt.model) if prompt.model else ""
        folder = self._extensions.folder if self._extensions is not None else Path.cwd()
        text = await expanded(prompt, argument, folder, self._call_for_user)
        self._turns.have_answered(text, model)
        return text

    def _lent(self, name: str) -> str:
        """The model that a command names. Raises `ToolFailure` if it cannot be asked."""
        try:
            model = configured_model(self.settings, meant_model(self.settings, name, self.profile.name)).profile.name
        except UnknownModel as error:
            raise ToolFailure(error.message, "Name another `model` in the command's file, or none.") from error
        if (missing := catalogue_of(self.settings).missing_key(model)) is not None:
            raise ToolFailure(f"{model}, which the command names, needs a key: set {missing}.")
        return model

    async def _call_for_user(self, name: str, arguments: str) -> str:
        return await self._toolbox.call_for_user(name, arguments, self._engine, self._tell)

    @property
    def missed_caches(self) -> list[str]:
        """Lines on calls that read less from the provider's cache than they could have, with the reasons."""
        return self._caches.report()

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
        if self._offered is not None:
            self._offered.servers.begin_learning()
        return await self._active.connect()

    @property
    def offered(self) -> OfferedTools | None:
        """The MCP servers, and what the model is told of them; None if there are none."""
        return self._offered

    async def swap_model(self, model: Model) -> None:
        """Switch to another model from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        async with self.held():
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

    async def preview_switch(self, model: Model) -> SwitchOutlook:
        """Preview a switch to another model; asks its provider for its window first."""
        await model.describe()
        return await self._steps.compute(lambda: switch_outlook(self._engine, model.profile))

    # Context steps

    async def compact(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self._done(lambda: self._engine.compact("compact", focus), anew=True)

    async def compact_if_needed(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns if a threshold is passed or it pays off. Raises `AgentBusy`, `StorageError`."""
        self._turns.must_be_idle()
        situation = self._engine.situation(between_turns=True)
        if await self._steps.compute(lambda: self._engine.compaction.plan(self._engine.view, situation)) is None:
            return CompactionResult(self._engine.tokens, self._engine.tokens, error="nothing is due")
        return await self.compact(focus)

    async def checkpoint(self, note: str = "") -> CompactionResult:
        """Write the completion record of the task that just ended. Raises `AgentBusy`, `StorageError`."""
        return await self._done(lambda: self._engine.compact("checkpoint", note), anew=True)

    async def draft_compaction(self, focus: str = "") -> Draft | Refusal:
        """Write a summary of the older turns for review. Raises `AgentBusy`.

        The conversation does not change until `accept`; the cost of writing counts either way.
        """
        return await self._drafted(lambda: self._engine.draft("compact", focus))

    async def draft_checkpoint(self, note: str = "") -> Draft | Refusal:
        """Write the completion record of the task that just ended, for review, as `draft_compaction` does a summary."""
        return await self._drafted(lambda: self._engine.draft("checkpoint", note))

    def revise(self, draft: Draft, text: str) -> Draft | Refusal:
        """The draft with another text and its exact figures, or why that text cannot be used.

        The model will be shown exactly this text: facts that were deleted from it are not restored.
        """
        return self._engine.current(draft, text)

    async def accept(self, draft: Draft, text: str | None = None) -> CompactionResult:
        """Put a draft into the conversation, with another text if one is given. Raises `AgentBusy`, `StorageError`.

        Messages since it was written stay after it. If what it replaces has changed meanwhile, or the text is no
        smaller than that, nothing is done and the result says why.
        """
        return await self._done(lambda: self._engine.enter(draft, text))

    async def use_policy(self, name: PolicyName) -> None:
        """Switch to another context policy. Raises `AgentBusy`."""
        async with self.held():
            self._engine.follow(with_policy(self.settings, name))

    async def clear_results(self) -> events.ContextStep | Refusal:
        """Clear all old tool results now. Raises `AgentBusy`, `StorageError`."""
        return await self._changed(self._engine.clear_results)

    async def clear_items(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Clear these tool results now. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.clear_items(items))

    async def pin(self, items: Sequence[int], *, pinned: bool = True) -> events.ContextStep | Refusal:
        """Pin messages or results by number, each with its group, or unpin them. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.pin(items, pinned=pinned))

    async def restore(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Restore messages or results to their full text. Raises as `clear_results`."""
        self._turns.must_be_idle()
        texts = [await self._whole_text(seq) for seq in items]
        return await self._changed(lambda: self._engine.restore(items, texts))

    async def edit_words(self, edits: Sequence[Words]) -> events.ContextStep | Refusal:
        """Change the user's words that are kept verbatim with the summaries; an empty text drops those of a message.

        Raises as `clear_results`.
        """
        return await self._changed(lambda: self._engine.edit_words(edits))

    async def undo(self, target: int | None = None) -> events.ContextStep | Refusal:
        """Undo a context step, by default the newest. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.undo(target))

    async def preview(self, step: PreviewedStep, focus: str = "") -> Outlook | Refusal:
        """Preview what ``compact``, ``clear`` or ``checkpoint`` would do."""
        await self.connect()
        async with self._turns.exclusively():
            return await self._steps.compute(lambda: self._engine.preview(step, focus))

    async def outlook(self, draft: Draft) -> Outlook:
        """Preview what accepting a draft would do and cost. Raises `AgentBusy`."""
        self._turns.must_be_idle()
        return await self._steps.compute(lambda: self._engine.outlook(draft))

    # Branches

    async def rewind(self, seq: int) -> str:
        """Go back to before the user's message `seq`; returns its text.

        The log keeps everything after it as another branch, see `branches`. Raises `AgentBusy`, `StorageError`, and
        ValueError if `seq` is no message of the user's on this branch.
        """
        return await self._moves.rewind(seq)

    def check_prompt(self, seq: int) -> None:
        """Raise ValueError if `seq` is no message of the user's on this branch."""
        turn_start(self._record.view.log, seq)

    async def fork(self, seq: int | None = None) -> int:
        """Start another branch after message `seq` (None: the newest); the present branch stays as it is.

        Returns the number of the entry after which the new branch continues. Raises as `rewind`.
        """
        return await self._moves.fork(seq)

    async def switch_branch(self, tip: int) -> None:
        """Switch to the branch that ends at entry `tip`; see `branches`. Raises as `rewind`."""
        await self._moves.switch_branch(tip)

    def prompts(self) -> tuple[Prompt, ...]:
        """The user's messages on the present branch, oldest first."""
        return prompts(self._record.view.log)

    def branches(self) -> tuple[Branch, ...]:
        """Every branch of the conversation, the present one first, then the newest."""
        return branches(self._record.view.log)

    async def file_changes(self, seq: int) -> PutBack:
        """Plan putting back the files that were changed since the user's message `seq`. Raises `AgentBusy`."""
        return await self._moves.file_changes(seq)

    async def newest_file_changes(self, *, redo: bool = False) -> PutBack | None:
        """Plan undoing the newest turn with file changes that were not put back yet; with `redo`, undoing the last
        put-back.

        None if there is nothing to do.
        """
        return await self._moves.newest_file_changes(redo=redo)

    async def put_back(self, planned: PutBack, *, overwrite: bool = False, tell: bool = True) -> PutBackDone:
        """Put files back as planned. Files that somebody else has changed since are left alone, unless `overwrite`.

        `tell`: notify the model. Raises `AgentBusy`, `StorageError`.
        """
        return await self._moves.put_back(planned, overwrite=overwrite, tell=tell)

    # State

    def context_stats(self) -> ContextStats:
        """How full the window is, which context step comes next, and what the session has cost."""
        return self._with_servers(context_stats(self._engine, self.tracker))

    def _with_servers(self, stats: ContextStats) -> ContextStats:
        prefix = self._engine.view.prefix
        if self._offered is None or prefix is None or not self._offered.servers:
            return stats
        return structs.replace(stats, servers=self._offered.uses(prefix.tools, self.profile.prices))

    def fullness(self) -> Fullness:
        """How full the window is; cheap even in a long conversation."""
        return fullness(self._engine)

    def overview(self) -> Overview:
        """The context with all its items and steps; items are created on access."""
        seen = overview(self._engine, self.tracker)
        return seen._replace(stats=self._with_servers(seen.stats))

    def items(self) -> list[Item]:
        """Every message and result with its size and state, oldest first."""
        return self._record.view.items()

    def todo(self) -> TodoList:
        """The model's task list on the present branch; untrusted text."""
        return newest_todo(self._record.view.log)

    def excerpt(self, seq: int) -> str:
        """The beginning of a message or result; untrusted text."""
        return excerpt(self._record.view, seq)

    async def original(self, seq: int) -> str:
        """A message or result as it was before any context step; untrusted text. Raises `StorageError`."""
        return await self._whole_text(seq) or original(self._record.view, seq)

    async def recall(self, query: str, limit: int = 20) -> RecallHits:
        """Search everything ever said, what has left the view first. Raises `ToolFailure`."""
        if self._recaller is None:
            raise ToolFailure("This conversation keeps no index.")
        return await self._recaller(query, limit)

    def history(self) -> Iterator[events.AgentEvent]:
        """The conversation so far, as the events with which it was first shown."""
        return replay(self._record.view.log.path())

    def history_in_parts(self, least: int) -> tuple[Iterator[events.AgentEvent], Iterator[events.AgentEvent]]:
        """`history` in two parts: the earlier one, and the newest with at least `least` entries."""
        entries = self._record.view.log.path()
        start = newest(entries, least)
        return replay(entries[:start]), replay(entries[start:])

    def history_around(self, first: int, last: int) -> tuple[Iterator[events.AgentEvent], Iterator[events.AgentEvent]]:
        """The history before entry `first`, and after entry `last`. Raises ValueError if the branch lacks either."""
        entries = self._record.view.log.path()
        return replay(entries[: entries.numbers.index(first)]), replay(entries[entries.numbers.index(last) + 1 :])

    @property
    def cache_share(self) -> float | None:
        """The share of all input tokens that were read from the provider's cache; None before the first call."""
        return self.tracker.session.cache_share

    @property
    def engine(self) -> ContextEngine:
        """The context engine; read-only while the agent lives."""
        return self._engine

    @property
    def settings(self) -> Settings:
        """The settings of the session."""
        return self._engine.settings

    @property
    def mode(self) -> Mode:
        """The permission mode; can be set at any time."""
        return self._toolbox.gate.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._toolbox.gate.mode = mode

    def permission_rules(self) -> tuple[GrantedRule, ...]:
        """The permission rules in force, starting with those that the user can revoke."""
        return self._toolbox.gate.rules()

    async def take_back(self, rule: str) -> None:
        """Revoke a remembered rule. Raises RememberedError; then it is revoked for this session only."""
        await asyncio.to_thread(self._toolbox.gate.take_back, rule)

    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools the model is offered."""
        offered = self._offered.definitions if self._offered is not None else ()
        told = (definition for definition in offered if not definition.deferred)
        return (*self._briefing.tools, *told)

    async def skills(self) -> str:
        """A listing of the skills, for people."""
        return await self._briefing.skills_text()

    async def memory(self) -> str:
        """A listing of the notes about the project, for people."""
        return await self._briefing.memory_text()

    @property
    def has_compactor(self) -> bool:
        """Whether older turns are summarised automatically; `compact` works either way."""
        return self._engine.compaction.on

    @property
    def has_checkpointer(self) -> bool:
        """Whether `checkpoint` and ``mark_task_done`` are available."""
        return self._engine.checkpoints.on

    def listen(self, listener: Callable[[events.AgentEvent], None]) -> None:
        """Subscribe to events outside a turn, such as those of `compact`, `undo` and `rewind`."""
        self._listeners.append(listener)

    # Subtasks, guards, closing

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
        await self._turns.close()
        try:
            await self._steps.end_writing()
            await self._record.flush()
        finally:
            if self._files is not None:
                self._files.close()
            await self._active.close()

    async def _done(self, steps: Callable[[], Steps[T]], *, anew: bool = False) -> T:
        """Carry out steps, which are planned only once nothing else can change the view.

        `anew`: they write a summary, so drop one that is being written in the background.
        """
        self._turns.must_be_idle()
        await self.connect()
        async with self._turns.exclusively():
            if anew:
                await self._steps.drop_writing("Another summary was asked for.")
            done = await self._steps.run(steps(), self._tell)
            await self._steps.keep_if_it_holds()
            return done

    async def _drafted(self, steps: Callable[[], Steps[Draft | Refusal]]) -> Draft | Refusal:
        before = self.tracker.session
        draft = await self._done(steps, anew=True)
        if isinstance(draft, Refusal):
            return draft
        after = self.tracker.session
        spent = after.cost_usd - before.cost_usd if after.unpriced == before.unpriced else None
        draft = draft.costing(spent)
        self._record.trace.record("context", draft.as_trace())
        return draft

    async def _changed(self, steps: Callable[[], Steps[StepDone | Refusal]]) -> events.ContextStep | Refusal:
        done = await self._done(steps)
        return done if isinstance(done, Refusal) else step_event(done)

    async def _whole_text(self, seq: int) -> str:
        """The full text of a message or result that entered as a preview; empty if the log has it in full."""
        view = self._record.view
        entry = view.log[seq] if 1 <= seq <= len(view.log) else None
        if not isinstance(entry, Message) or entry.artifact is None:
            return ""
        return await self._texts.read(entry.artifact)

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    """An `Ask` for when nobody can answer. Always raises `NobodyToAsk`."""
    raise NobodyToAsk(question)


async def _no_resources(_: str) -> tuple[str, ...]:
    """The reader of resources when there are no MCP servers."""
    return ()
