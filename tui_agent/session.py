"""The composition root: one session folder, its two databases, its model and tools, and the agent over them."""

import asyncio
import platform
import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tui_agent.agent.agent import Agent
from tui_agent.agent.briefing import Briefing
from tui_agent.agent.events import Notice
from tui_agent.agent.guards import Guards
from tui_agent.agent.recalling import Recaller
from tui_agent.agent.record import Record
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.summarizer import Summarizer
from tui_agent.agent.system_prompt import system_prompt
from tui_agent.agent.task_class import check_names, configured_model, model_name
from tui_agent.agent.tier_guard import SmallTierRefused, check_parent
from tui_agent.agent.toolbox import Toolbox
from tui_agent.agent.upkeep import Upkeep
from tui_agent.agent.watchdog import Watchdog
from tui_agent.arguments import Arguments
from tui_agent.context.manager import ContextManager
from tui_agent.conversation.entries import AnyEntry
from tui_agent.conversation.view import View
from tui_agent.models.base import ModelError
from tui_agent.resources import prompt_text
from tui_agent.session_parts import (
    SmallModels,
    ceiling_of,
    gate_of,
    keep_ratios,
    knowledge_of,
    manager_of,
    places_of,
    tools_of,
    usage_so_far,
    watch_of,
)
from tui_agent.settings import Settings
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session, noted_folder, session_to_continue, session_to_resume
from tui_agent.storage.trace import Trace
from tui_agent.subtask_sessions import Parent, SubtaskSessions, count_earlier_subtasks
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import Ask
from tui_agent.tools.gate.remembered import RememberedError
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.notes.skills import skill_roots
from tui_agent.tools.recall import Recall
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.version import __version__


class SessionError(Exception):
    """A session cannot be opened: `message` says what happened and what was kept, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SessionRefused(SessionError):
    """The settings do not allow the session that was asked for."""


@dataclass(slots=True)
class Session:
    """An open session. `resumed`: it has a conversation already; `fresh`: its folder was made for it, and goes again
    where nothing was said; `notices` are for the user to see.
    """

    id: str
    folder: Path
    agent: Agent
    notices: tuple[Notice, ...]
    resumed: bool
    fresh: bool
    record: Record
    store: LogStore
    manager: ContextManager
    small: SmallModels
    subtasks: SubtaskSessions
    home: Path
    background: BackgroundCommands

    async def close(self) -> None:
        """End what runs, write what is pending, close the files. Raises `StorageError`; all is closed all the same."""
        async with AsyncExitStack() as last_first:
            if self.fresh and not len(self.record.view.log):
                last_first.push_async_callback(asyncio.to_thread, shutil.rmtree, self.folder, ignore_errors=True)
            last_first.push_async_callback(self.store.close)
            last_first.push_async_callback(self.record.trace.close)
            last_first.push_async_callback(asyncio.to_thread, keep_ratios, self.manager, self.home)
            for part in (self.background, self.subtasks, self.small, self.agent):
                last_first.push_async_callback(part.close)


async def open_session(
    settings: Settings, arguments: Arguments, ask: Ask, *, watchdog: Watchdog | None = None
) -> Session:
    """Open the session that `arguments` name, or a new one. Raises `SessionError`.

    `watchdog` is one of one's own, such as `default_watchdog` with a signal of one's own; what follows from its alerts
    is said by the settings.
    """
    try:
        folder = await _folder(arguments)
        store = await LogStore.open(folder)
        try:
            return await _open(settings, arguments, ask, store, watchdog)
        except BaseException:
            await store.close()
            if _is_new(arguments):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
    except StorageError as error:
        raise SessionError(error.message, error.hint) from error
    except (RuleError, RememberedError) as error:
        raise SessionError(str(error)) from error
    except SmallTierRefused as refused:
        raise SessionRefused(refused.message, refused.hint) from refused
    except ModelError as error:
        raise SessionError(error.message, "`tui-agent --help` shows the forms a model's name can take.") from error


def _is_new(arguments: Arguments) -> bool:
    return not arguments.resume and not arguments.continue_last


async def _folder(arguments: Arguments) -> Path:
    if arguments.resume:
        return await session_to_resume(arguments.home, arguments.resume)
    if arguments.continue_last:
        return await session_to_continue(arguments.home, arguments.folder)
    return await asyncio.to_thread(create_session, arguments.home)


def _folded(entries: list[AnyEntry]) -> View:
    """The view of these entries, with what its first reading costs behind it."""
    view = View(entries)
    view.sizes()
    return view


async def _open(
    settings: Settings, arguments: Arguments, ask: Ask, store: LogStore, watchdog: Watchdog | None
) -> Session:
    check_names(settings)
    entries = await store.load()
    view = await asyncio.to_thread(_folded, entries)
    model = await asyncio.to_thread(configured_model, settings, model_name(settings, view.model))
    small_parent = check_parent(settings, model.profile, one_shot=arguments.one_shot, yolo=arguments.yolo)
    trace = await Trace.open(store)
    try:
        places = await asyncio.to_thread(places_of, settings, arguments)
        shelves = (*await asyncio.to_thread(skill_roots, places.skills), places.notes.folder)
        folders = map(Path, settings.permissions.folders)
        workspace = Workspace(arguments.folder, folders, read_roots=(store.folder, *shelves))
        gate = gate_of(settings, arguments, workspace)
        record, tracker = Record(view, store, trace), usage_so_far(entries)
        unread = await count_earlier_subtasks(arguments.home, store.folder.name, tracker)
        manager = manager_of(settings, arguments.home, list(map(str, shelves)))
        artifacts, ceiling = Artifacts(store.folder), ceiling_of(settings, tracker)
        background = BackgroundCommands(settings.output.stream_bytes)
        tools = tools_of(settings, gate, places.notes, background)
        subtasks = SubtaskSessions(
            Parent(
                id=store.folder.name,
                home=arguments.home,
                settings=settings,
                model=lambda: record.view.model or model.profile.name,
                tools=tools,
                gate=gate,
                workspace=workspace,
                artifacts=artifacts,
                tracker=tracker,
                ceiling=ceiling,
                trace=trace,
                ratios=manager.meter.ratios,
            )
        )
        runner = SubtaskRunner(subtasks.open, ask, subtasks.progress)
        wrappers = agentic_tools(runner, tools) if settings.agentic.enabled else []
        recaller = Recaller(view, artifacts)
        registry = ToolRegistry([*tools, *wrappers, Recall(recaller)])
        rules, started = prompt_text("system"), date.today()
        knowledge = knowledge_of(settings, places)
        briefing = Briefing(
            lambda sections: system_prompt(rules, sections, arguments.folder, started), registry.definitions, knowledge
        )
        small = SmallModels(settings)
        summarizer = Summarizer(manager, tracker, settings, ceiling, record)
        upkeep = Upkeep(record, manager, summarizer, artifacts, small, briefing)
        toolbox = Toolbox(registry, gate, ask, workspace, artifacts)
        agent = Agent(
            record,
            model,
            toolbox,
            tracker,
            upkeep,
            briefing,
            guards=Guards(ceiling, watch_of(settings, record, tracker, registry, ask, watchdog)),
            subtasks=runner,
            recaller=recaller,
        )
        if not store.read_only and "cwd" not in await store.meta():
            await store.set_meta({"cwd": noted_folder(arguments.folder)})
        program = {"version": __version__, "python": platform.python_version(), "cwd": noted_folder(arguments.folder)}
        trace.record("session", {**program, "model": view.model})
    except BaseException:
        await trace.close()
        raise
    notices = [Notice(level="warning", title="Session", text=text) for text in store.notices]
    notices += [Notice(level="warning", title="Subtasks", text=text) for text in unread]
    notices += [Notice(level="info", title="Settings", text=text) for text in settings.notices]
    notices += [small_parent] if small_parent else []
    return Session(
        store.folder.name,
        store.folder,
        agent,
        tuple(notices),
        bool(entries),
        _is_new(arguments),
        record,
        store,
        manager,
        small,
        subtasks,
        arguments.home,
        background,
    )
