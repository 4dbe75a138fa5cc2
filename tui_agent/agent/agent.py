"""The agent: the verbs a front end has. One conversation, one turn or context step at a time."""

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
from tui_agent.conversation.todo import TodoList, newest_todo
from tui_agent.models.base import Model, ModelProfile, UnknownModel
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
    """A conversation with a model that can use tools, whose context can be looked at and changed.

    `run` is the only way a turn happens. One turn or context step happens at a time: a step waits for the turn that
    runs, and the other way round.

    Only the model is needed, by its name or as a `Model`. `tools` are `Tool`s or plain functions; `system` is the
    system prompt; `context` is the engine, which may have a conversation already; `store`, `trace` and `texts` say
    where it is kept (by default: in memory). `permissions` is a mode, or a gate with rules of its own, and `ask` puts
    its questions to a person (by default nobody can be asked, and a call that needs it ends the turn). `compactor` and
    `checkpointer` write summaries in place of a model. The other parameters are what a session shares with its
    subtasks: who counts (`tracker`), the `guards`, the cheaper models beside the provider's own (`small`), the
    `briefing` that renews system prompt and tools, `subtasks`, what `recall` searches, `files`, which keeps what tools
    change in files, the tools that servers have `offered`, what is the user's own (`extensions`), their `hooks`, and
    what they are to know before many agents of theirs start (`expected`).
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
        """Do one turn; its events as they happen, the last one `TurnFinished`.

        Without a prompt it delivers what is queued, or asks again where the last turn failed. Closing the iterator or
        cancelling its consumer ends the turn and leaves a valid log. Raises `AgentBusy` while a turn runs.
        """
        return self._turns.run(prompt, images)

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._turns.busy

    def interrupt(self) -> bool:
        """Stop the running turn; its last events still come. Whether there was one."""
        return self._turns.interrupt()

    @property
    def awaits_summary(self) -> bool:
        """Whether the running turn stands still until a summary is written, without which its request does not fit."""
        return self._steps.awaited

    def stop_writing(self) -> bool:
        """Stop the summary that is being written, and nothing else: a turn that waits for it goes on without it.

        Whether there was one.
        """
        return self._steps.stop_writing("Stopped by the user.")

    async def prepare_ahead(self) -> None:
        """Do what is due before the next turn, whose prompt the user is about to write; nothing where a turn runs.

        So a summary that is due then is written while they type. Raises `StorageError`.
        """
        if self._turns.taken or not self._record.view.message_count:
            return
        async with self._turns.exclusively():
            await self._active.introduce()
            if self._guards.ceiling.reached:
                return
            await self._steps.run(self._engine.prepare(between_turns=True), self._tell)

    # What the user says besides

    async def queue(self, text: str, images: tuple[Image, ...] = ()) -> int:
        """Keep a text for the next step of the running turn; its number. Raises `NotRunning`, `StorageError`."""
        return await self._turns.queue(text, images)

    def queued(self) -> tuple[tuple[int, str], ...]:
        """What waits for delivery: its number and text."""
        return self._turns.queued()

    async def withdraw(self, seq: int) -> str:
        """Take a queued text back; the text, or nothing where it was delivered already."""
        return await self._turns.withdraw(seq)

    async def note(self, text: str) -> int:
        """Let a text of the user join the conversation without a call of the model; its number in the log.

        While a turn or a context step runs it joins at the next step. Raises `StorageError`.
        """
        return await self._turns.note(text)

    def held(self) -> AbstractAsyncContextManager[None]:
        """Let no turn and no step of another task begin meanwhile; a prompt that is sent waits, on disk.

        Raises `AgentBusy` where a turn runs already.
        """
        return self._turns.held()

    async def run_shell(self, command: str) -> None:
        """Run a shell command of the user's own, unasked, and `note` what it printed; listeners are told as of a tool.

        Cancelled, it stops the command and notes what was printed so far. Raises `StorageError`.
        """
        await self._toolbox.run_for_user(command, self._engine, self._tell, self.note)

    # What is the user's own

    @property
    def extensions(self) -> Extensions | None:
        """Their commands and hooks, and the project's; None where there is no place for them."""
        return self._extensions

    async def extensions_text(self) -> str:
        """What is the user's own and the project's, and whose it is, for a person to read."""
        own, hooks = self._extensions, self._parts.hooks
        return await asyncio.to_thread(own.listed, hooks) if own is not None else "There is no place for any here."

    @property
    def style(self) -> str:
        """The name of the output style; empty: none."""
        return self._briefing.style

    async def use_style(self, name: str) -> bool:
        """Have answers written in a style of the user's own from the next prompt on; empty: as always.

        Whether there is such a style. What began the conversation stays: the model is told of it behind that.
        """
        own = self._extensions
        if name and (own is None or await asyncio.to_thread(own.style, name) is None):
            return False
        self._briefing.style = name
        return True

    async def own_prompt(self, name: str) -> OwnPrompt | None:
        """The user's own slash command of this name, or a server's; None: there is none."""
        own, offered = self._extensions, self._offered
        if own is not None and (prompt := await asyncio.to_thread(own.prompt, name)) is not None:
            return prompt
        return next((prompt for prompt in offered.prompts() if prompt.name == name), None) if offered else None

    async def own_prompts(self) -> tuple[OwnPrompt, ...]:
        """Every slash command of the user's own, and those of servers of tools."""
        own, offered = self._extensions, self._offered
        files = await asyncio.to_thread(own.prompts) if own is not None else ()
        return (*files, *(offered.prompts() if offered is not None else ()))

    async def expand(self, prompt: OwnPrompt, argument: str) -> str:
        """What is sent for the user's own command, or a server's. What it runs and reads passes the gate.

        A turn that is begun with it next is answered by the model that the command names, if it does.

        Raises `ToolFailure` where that is refused or goes wrong, and `NobodyToAsk`.
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
        """The model that a command names. Raises `ToolFailure` where it cannot be asked."""
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
        """Lines that say which calls read less from the provider's cache than they could have, and why."""
        return self._caches.report()

    # The model

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model that answers."""
        return self._active.profile

    @property
    def speed(self) -> Speed:
        """How fast a model on a machine of one's own reads and writes, in tokens per second; 0: not known."""
        return self._active.speed

    async def connect(self) -> ModelProfile:
        """Learn what the provider tells of the model, once; slow (it imports an SDK). Never raises.

        Servers of tools that nobody knows yet are asked meanwhile what they offer.
        """
        if self._offered is not None:
            self._offered.servers.begin_learning()
        return await self._active.connect()

    @property
    def offered(self) -> OfferedTools | None:
        """The servers of tools, and what the model is told of them; None where there are none."""
        return self._offered

    async def swap_model(self, model: Model) -> None:
        """Let another model answer from the next call on. Raises `AgentBusy` while a turn runs, and `StorageError`."""
        async with self.held():
            await self._steps.drop_writing("Another model answers from here on.")
            await self._active.take_over(model)

    async def escalate(self) -> str:
        """Go on with the frontier model of the provider, from the next step where a turn runs; its name.

        Empty where that model answers already, or there is none to ask. Raises `UnknownModel`, `StorageError`.
        """
        watch = self._guards.watch
        name = watch.larger(self._active.profile) if watch is not None else ""
        if name and watch is not None and self.busy:
            watch.escalate(name)
        elif name:
            await self.swap_model(await asyncio.to_thread(configured_model, self.settings, name))
        return name

    async def preview_switch(self, model: Model) -> SwitchOutlook:
        """What it would mean to let another model answer; its provider is asked for its window first."""
        await model.describe()
        return await self._steps.compute(lambda: switch_outlook(self._engine, model.profile))

    # Context steps

    async def compact(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self._done(lambda: self._engine.compact("compact", focus), anew=True)

    async def compact_if_needed(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns if a threshold or the price says so. Raises `AgentBusy`, `StorageError`."""
        self._turns.must_be_idle()
        situation = self._engine.situation(between_turns=True)
        if await self._steps.compute(lambda: self._engine.compaction.plan(self._engine.view, situation)) is None:
            return CompactionResult(self._engine.tokens, self._engine.tokens, error="nothing is due")
        return await self.compact(focus)

    async def checkpoint(self, note: str = "") -> CompactionResult:
        """Write the completion record of the task that just ended. Raises `AgentBusy`, `StorageError`."""
        return await self._done(lambda: self._engine.compact("checkpoint", note), anew=True)

    async def draft_compaction(self, focus: str = "") -> Draft | Refusal:
        """Have a summary of the older turns written, to be looked at before it counts. Raises `AgentBusy`.

        The conversation stays as it is until `accept`; what the writing has cost counts either way.
        """
        return await self._drafted(lambda: self._engine.draft("compact", focus))

    async def draft_checkpoint(self, note: str = "") -> Draft | Refusal:
        """Have the completion record of the task that just ended written, as `draft_compaction` does a summary."""
        return await self._drafted(lambda: self._engine.draft("checkpoint", note))

    def revise(self, draft: Draft, text: str) -> Draft | Refusal:
        """The draft with another text and its exact figures, or why that cannot be entered.

        The text is what the model will be shown, to the letter: no fact is put back that was taken out.
        """
        return self._engine.current(draft, text)

    async def accept(self, draft: Draft, text: str | None = None) -> CompactionResult:
        """Enter a draft, with another text if one is given. Raises `AgentBusy`, `StorageError`.

        What was said since it was written stays after it. Where what it replaces is no longer shown as it was, or the
        text takes no less than that, nothing is done and the result says why.
        """
        return await self._done(lambda: self._engine.enter(draft, text))

    async def use_policy(self, name: PolicyName) -> None:
        """Decide by another policy from here on. Raises `AgentBusy`."""
        async with self.held():
            self._engine.follow(with_policy(self.settings, name))

    async def clear_results(self) -> events.ContextStep | Refusal:
        """Clear all old tool results now. Raises `AgentBusy`, `StorageError`."""
        return await self._changed(self._engine.clear_results)

    async def clear_items(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Clear these tool results now. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.clear_items(items))

    async def pin(self, items: Sequence[int], *, pinned: bool = True) -> events.ContextStep | Refusal:
        """Pin messages or results by number, each with its group, or take the pins off. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.pin(items, pinned=pinned))

    async def restore(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Show messages or results whole again. Raises as `clear_results`."""
        self._turns.must_be_idle()
        texts = [await self._whole_text(seq) for seq in items]
        return await self._changed(lambda: self._engine.restore(items, texts))

    async def edit_words(self, edits: Sequence[Words]) -> events.ContextStep | Refusal:
        """Keep other words of the user's messages beside the summaries; with an empty text none of a message.

        Raises as `clear_results`.
        """
        return await self._changed(lambda: self._engine.edit_words(edits))

    async def undo(self, target: int | None = None) -> events.ContextStep | Refusal:
        """Undo a context step, by default the newest. Raises as `clear_results`."""
        return await self._changed(lambda: self._engine.undo(target))

    async def preview(self, step: PreviewedStep, focus: str = "") -> Outlook | Refusal:
        """What ``compact``, ``clear`` or ``checkpoint`` would do, before it is done."""
        await self.connect()
        async with self._turns.exclusively():
            return await self._steps.compute(lambda: self._engine.preview(step, focus))

    async def outlook(self, draft: Draft) -> Outlook:
        """What entering a draft would do and cost. Raises `AgentBusy`."""
        self._turns.must_be_idle()
        return await self._steps.compute(lambda: self._engine.outlook(draft))

    # Branches

    async def rewind(self, seq: int) -> str:
        """Take the user's message `seq` back, with all that came after it; its text, to be said anew.

        The log keeps what was taken back, and `branches` leads to it. Raises `AgentBusy`, `StorageError`, and
        ValueError where `seq` is no message of the user on this branch.
        """
        return await self._moves.rewind(seq)

    def check_prompt(self, seq: int) -> None:
        """Raises ValueError where `seq` is no message of the user on this branch."""
        turn_start(self._record.view.log, seq)

    async def fork(self, seq: int | None = None) -> int:
        """Begin another branch after message `seq` (None: after the newest), which leaves the present one as it is.

        The entry after which it goes on. Raises as `rewind`.
        """
        return await self._moves.fork(seq)

    async def switch_branch(self, tip: int) -> None:
        """Go on with the branch that ends at entry `tip`; see `branches`. Raises as `rewind`."""
        await self._moves.switch_branch(tip)

    def prompts(self) -> tuple[Prompt, ...]:
        """The user's messages on the present branch, oldest first."""
        return prompts(self._record.view.log)

    def branches(self) -> tuple[Branch, ...]:
        """Every branch of the conversation, the present one first, then the newest."""
        return branches(self._record.view.log)

    async def file_changes(self, seq: int) -> PutBack:
        """What putting the files back would do that were changed since the user's message `seq`. Raises `AgentBusy`."""
        return await self._moves.file_changes(seq)

    async def newest_file_changes(self, *, redo: bool = False) -> PutBack | None:
        """The same for the newest turn that changed files which are not put back yet, or, with `redo`, for the newest
        putting back; None where there is none.
        """
        return await self._moves.newest_file_changes(redo=redo)

    async def put_back(self, planned: PutBack, *, overwrite: bool = False, tell: bool = True) -> PutBackDone:
        """Put files back as planned. Those that somebody else has changed since stay, unless `overwrite`.

        `tell`: the model is told of it. Raises `AgentBusy`, `StorageError`.
        """
        return await self._moves.put_back(planned, overwrite=overwrite, tell=tell)

    # How it stands

    def context_stats(self) -> ContextStats:
        """How full the window is, what happens next, and what the session has cost."""
        return self._with_servers(context_stats(self._engine, self.tracker))

    def _with_servers(self, stats: ContextStats) -> ContextStats:
        prefix = self._engine.view.prefix
        if self._offered is None or prefix is None or not self._offered.servers:
            return stats
        return structs.replace(stats, servers=self._offered.uses(prefix.tools, self.profile.prices))

    def fullness(self) -> Fullness:
        """How full the window is; cheap, also in a long conversation."""
        return fullness(self._engine)

    def overview(self) -> Overview:
        """The context with all its items and steps; an item is made when it is looked at."""
        seen = overview(self._engine, self.tracker)
        return seen._replace(stats=self._with_servers(seen.stats))

    def items(self) -> list[Item]:
        """Every message and result with its size and state, oldest first."""
        return self._record.view.items()

    def todo(self) -> TodoList:
        """The task list that the model keeps, on the present branch; untrusted text."""
        return newest_todo(self._record.view.log)

    def excerpt(self, seq: int) -> str:
        """The beginning of a message or result; untrusted text."""
        return excerpt(self._record.view, seq)

    async def original(self, seq: int) -> str:
        """A message or result as it was before any context step; untrusted text. Raises `StorageError`."""
        return await self._whole_text(seq) or original(self._record.view, seq)

    async def recall(self, query: str, limit: int = 20) -> RecallHits:
        """Search all that was ever said, what has left the view first. Raises `ToolFailure`."""
        if self._recaller is None:
            raise ToolFailure("This conversation keeps no index.")
        return await self._recaller(query, limit)

    def history(self) -> Iterator[events.AgentEvent]:
        """The conversation so far, as the events that would have shown it."""
        return replay(self._record.view.log.path())

    def history_in_parts(self, least: int) -> tuple[Iterator[events.AgentEvent], Iterator[events.AgentEvent]]:
        """The same in two parts: what came earlier, and the newest `least` entries or some more."""
        entries = self._record.view.log.path()
        start = newest(entries, least)
        return replay(entries[:start]), replay(entries[start:])

    def history_around(self, first: int, last: int) -> tuple[Iterator[events.AgentEvent], Iterator[events.AgentEvent]]:
        """What came before the entry `first`, and what came after `last`, where the conversation has both.

        Raises `ValueError` where it has not.
        """
        entries = self._record.view.log.path()
        return replay(entries[: entries.numbers.index(first)]), replay(entries[entries.numbers.index(last) + 1 :])

    @property
    def cache_share(self) -> float | None:
        """How much of all input so far was read from the provider's cache; None before the first call."""
        return self.tracker.session.cache_share

    @property
    def engine(self) -> ContextEngine:
        """The context engine; only to be read from while the agent lives."""
        return self._engine

    @property
    def settings(self) -> Settings:
        """The settings of the session."""
        return self._engine.settings

    @property
    def mode(self) -> Mode:
        """The permission mode; it may be set at any time."""
        return self._toolbox.gate.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._toolbox.gate.mode = mode

    def permission_rules(self) -> tuple[GrantedRule, ...]:
        """The rules in force, those that the user can take back first."""
        return self._toolbox.gate.rules()

    async def take_back(self, rule: str) -> None:
        """Forget a remembered rule. Raises RememberedError; then it is forgotten for this session only."""
        await asyncio.to_thread(self._toolbox.gate.take_back, rule)

    def tools(self) -> tuple[ToolDefinition, ...]:
        """What the model is told it can call."""
        offered = self._offered.definitions if self._offered is not None else ()
        told = (definition for definition in offered if not definition.deferred)
        return (*self._briefing.tools, *told)

    async def skills(self) -> str:
        """The skills there are, for a person to read."""
        return await self._briefing.skills_text()

    async def memory(self) -> str:
        """The notes kept about the project, for a person to read."""
        return await self._briefing.memory_text()

    @property
    def has_compactor(self) -> bool:
        """Whether older turns are summarised by themselves; `compact` can be used either way."""
        return self._engine.compaction.on

    @property
    def has_checkpointer(self) -> bool:
        """Whether `checkpoint` and ``mark_task_done`` can be used."""
        return self._engine.checkpoints.on

    def listen(self, listener: Callable[[events.AgentEvent], None]) -> None:
        """Have what happens outside a turn told: the steps of `compact`, `undo`, `rewind` and their like."""
        self._listeners.append(listener)

    # Subtasks, guards, the end

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
        text, entry = self._guards.ceiling.reset()
        if entry is not None:
            self._record.append_soon(entry)
        return text

    async def close(self) -> None:
        """End a running turn, write what waits, and release the model's connections. Raises `StorageError`."""
        await self._turns.close()
        try:
            await self._steps.end_writing()
            await self._record.flush()
        finally:
            if self._files is not None:
                self._files.close()
            await self._active.close()

    async def _done(self, steps: Callable[[], Steps[T]], *, anew: bool = False) -> T:
        """Carry out steps, planned only when nothing else can change the view any more.

        `anew`: they have a summary written, in place of one that is being written beside the conversation.
        """
        self._turns.must_be_idle()
        await self.connect()
        async with self._turns.exclusively():
            if anew:
                await self._steps.drop_writing("Another one was asked for.")
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
        """The whole of a message or result that entered shortened; empty where the log has it whole."""
        view = self._record.view
        entry = view.log[seq] if 1 <= seq <= len(view.log) else None
        if not isinstance(entry, Message) or entry.artifact is None:
            return ""
        return await self._texts.read(entry.artifact)

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    """Puts no question: there is nobody to answer it. Raises `NobodyToAsk`."""
    raise NobodyToAsk(question)


async def _no_resources(_: str) -> tuple[str, ...]:
    """Without servers of tools nothing is read at them."""
    return ()
