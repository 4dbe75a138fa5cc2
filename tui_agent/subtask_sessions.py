"""The sessions of subtasks: each has its own folder beside the session's and its own agent, and shares the rest."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tui_agent.agent.agent import Agent, SessionParts
from tui_agent.agent.extensions.hooks import Hooks
from tui_agent.agent.model_choice import configured_model, small_model
from tui_agent.agent.persistence import DiskPersistence, Persistence
from tui_agent.agent.subtasks import branch_prefix, past_progress
from tui_agent.agent.turn.guards import CostCeiling, Guards
from tui_agent.context.counting import Ratios
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.entries import AnyEntry
from tui_agent.models.base import Model
from tui_agent.models.shared import SharedModel
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import Settings
from tui_agent.settings.writing import with_setting
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import subtask_branch, subtask_folder, subtask_folders, subtask_id
from tui_agent.storage.store import Kind
from tui_agent.tools.base import Ask, Tool, WorkspaceView
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.subtasks import SubtaskSpec, subtask_tools


@dataclass(frozen=True, slots=True)
class Parent:
    """What a session shares with its subtasks.

    `model` returns its present model; `tools` are all its tools; `record` adds an event to its trace.
    """

    id: str
    home: Path
    settings: Settings
    model: Callable[[], str]
    tools: Sequence[Tool]
    gate: PermissionGate
    workspace: WorkspaceView
    artifacts: Artifacts
    tracker: UsageTracker
    ceiling: CostCeiling
    record: Callable[[Kind, object], None]
    ratios: Ratios
    hooks: Hooks


@dataclass(frozen=True, slots=True)
class SubtaskSession:
    """A subtask's conversation; see `agent.subtasks.OpenSubtask`."""

    id: str
    model: str
    conversation: Agent
    persistence: DiskPersistence

    @property
    def cost_usd(self) -> float | None:
        return self.conversation.tracker.session.known_cost_usd

    async def close(self) -> None:
        """Close its record; its model stays open for the next subtask. Raises `StorageError`."""
        try:
            await self.conversation.close()
        finally:
            await self.persistence.close()


class SubtaskSessions:
    """Opens the conversations of one session's subtasks, and owns their models."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._models: dict[str, SharedModel] = {}

    async def open(self, spec: SubtaskSpec, branch: str, ask: Ask) -> SubtaskSession:
        """Open a new conversation. Raises `StorageError`, `UnknownModel`, and ToolFailure for an unknown tool."""
        parent = self._parent
        tools = subtask_tools(spec, parent.tools)
        model = await self._model(spec.model or small_model(parent.settings, parent.model()))
        kept = await Persistence.on_disk(
            # The gate resolves paths as the session does, so evicted results must be stored in the session's folder.
            subtask_folder(parent.home, parent.id, branch),
            texts=parent.artifacts,
            tracker=UsageTracker(parent.tracker),
        )
        name = subtask_id(parent.id, branch)
        parent.record("session", {"subtask": name, "title": spec.title, "model": model.profile.name})
        agent = self._agent(spec, tools, kept, model, ask)
        return SubtaskSession(name, model.profile.name, agent, kept)

    async def progress(self, call_id: str) -> str:
        """The last progress text of the subtask that worked for a call, from its record; empty if there is none."""
        home, parent = self._parent.home, self._parent.id
        begins = branch_prefix(call_id)
        try:
            folders = await asyncio.to_thread(subtask_folders, home, parent)
            found = [folder for folder in folders if subtask_branch(folder).startswith(begins)]
            told = [(entries, folder) for folder in found if (entries := await _entries(folder))]
        except StorageError as error:
            return f"its record cannot be read: {error.message}"
        if not told:
            return ""
        # After a rewind the same call may occur again; the later one is on the present branch.
        entries, folder = max(told, key=lambda each: each[0][-1].time)
        return past_progress(subtask_id(parent, subtask_branch(folder)), entries)

    async def close(self) -> None:
        """Release the models' connections."""
        for model in self._models.values():
            await model.close_for_good()
        self._models.clear()

    def _agent(self, spec: SubtaskSpec, tools: Sequence[Tool], kept: DiskPersistence, model: Model, ask: Ask) -> Agent:
        parent = self._parent
        # The learned token ratios of a model apply to every conversation with it.
        settings = parent.settings
        if spec.window:
            settings = with_setting(settings, "context.context_window", spec.window, spec.title)
        engine = ContextEngine(
            settings, view=kept.view, ratios=parent.ratios, checkpoints=False, thread=kept.folder.name
        )
        return Agent(
            model,
            tools=tools,
            system=spec.system,
            context=engine,
            persistence=kept,
            permissions=parent.gate,
            ask=ask,
            workspace=parent.workspace,
            session=SessionParts(guards=Guards(parent.ceiling), hooks=parent.hooks, is_subtask=True),
        )

    async def _model(self, name: str) -> SharedModel:
        if name not in self._models:
            made = SharedModel(await asyncio.to_thread(configured_model, self._parent.settings, name))
            # Another subtask may have made one meanwhile.
            if self._models.setdefault(name, made) is not made:
                await made.close_for_good()
        return self._models[name]


async def _entries(folder: Path) -> Sequence[AnyEntry]:
    store = await LogStore.open(folder, read_only=True)
    try:
        return await store.load()
    finally:
        await store.close()


async def count_earlier_subtasks(home: Path, session_id: str, tracker: UsageTracker) -> tuple[str, ...]:
    """Add the usage of a resumed session's subtasks; returns sentences about those that cannot be read."""
    problems: list[str] = []
    for folder in await asyncio.to_thread(subtask_folders, home, session_id):
        own = UsageTracker(tracker)
        try:
            entries = await _entries(folder)
        except StorageError as error:
            problems.append(f"What a subtask has cost is not known: {error.message}")
            continue
        own.record_log(entries)
    tracker.start_turn()
    return tuple(problems)
