"""The composition root: one session folder, its two databases, its model and tools, and the agent over them."""

import asyncio
import platform
import shutil
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tui_agent import __version__
from tui_agent.agent.agent import Agent
from tui_agent.agent.events import Notice
from tui_agent.agent.record import Record
from tui_agent.agent.summarizer import Summarizer
from tui_agent.agent.system_prompt import instructions, news, system_prompt
from tui_agent.agent.toolbox import Toolbox
from tui_agent.agent.upkeep import Upkeep
from tui_agent.arguments import Arguments
from tui_agent.context.manager import ContextManager
from tui_agent.conversation.entries import Prefix
from tui_agent.conversation.view import View
from tui_agent.models.base import ModelError
from tui_agent.models.catalogue import create_model
from tui_agent.resources import prompt_text
from tui_agent.session_parts import (
    SmallModel,
    gate_of,
    keep_ratios,
    manager_of,
    model_name,
    told_notices,
    tools_of,
    usage_so_far,
)
from tui_agent.settings import Settings
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.checkpoints import CheckpointStore
from tui_agent.storage.errors import StorageError
from tui_agent.storage.sessions import create_session, find_session, newest_session
from tui_agent.storage.trace import Trace
from tui_agent.tools.base import Ask
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.remembered import RememberedError
from tui_agent.tools.rules import RuleError
from tui_agent.tools.workspace import Workspace


class SessionError(Exception):
    """A session cannot be opened: `message` says what happened and what was kept, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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
    store: CheckpointStore
    manager: ContextManager
    small: SmallModel
    home: Path

    async def close(self) -> None:
        """End what runs, write what is pending, close the files. Raises `StorageError`; all is closed all the same."""
        unused = self.fresh and not len(self.record.view.log)
        try:
            await self.agent.close()
            await self.small.close()
        finally:
            await asyncio.to_thread(keep_ratios, self.manager, self.home)
            try:
                await self.record.trace.close()
            finally:
                await self.store.close()
                if unused:
                    await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


async def open_session(settings: Settings, arguments: Arguments, ask: Ask) -> Session:
    """Open the session that `arguments` name, or a new one. Raises `SessionError`."""
    try:
        folder = await _folder(arguments)
        store = await CheckpointStore.open(folder)
        try:
            return await _open(settings, arguments, ask, store)
        except BaseException:
            await store.close()
            if _is_new(arguments):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
    except StorageError as error:
        raise SessionError(error.message, error.hint) from error
    except (RuleError, RememberedError) as error:
        raise SessionError(str(error)) from error
    except ModelError as error:
        raise SessionError(error.message, "`tui-agent --help` shows the forms a model's name can take.") from error


def _is_new(arguments: Arguments) -> bool:
    return not arguments.resume and not arguments.continue_last


async def _folder(arguments: Arguments) -> Path:
    if arguments.resume:
        return await find_session(arguments.home, arguments.resume)
    if arguments.continue_last:
        newest = await newest_session(arguments.home, arguments.folder)
        if newest is None:
            raise SessionError(
                f"There is no session to continue in {arguments.folder}.", "List all with: tui-agent sessions"
            )
        return newest
    return await asyncio.to_thread(create_session, arguments.home)


async def _open(settings: Settings, arguments: Arguments, ask: Ask, store: CheckpointStore) -> Session:
    entries = await store.load()
    view = await asyncio.to_thread(View, entries)
    model = await asyncio.to_thread(create_model, model_name(settings, view))
    trace = await Trace.open(store)
    try:
        workspace = Workspace(arguments.folder, map(Path, settings.permissions.folders), read_roots=(store.folder,))
        registry = ToolRegistry(tools_of(settings))
        record, tracker = Record(view, store, trace), usage_so_far(entries)
        manager = manager_of(settings, arguments.home)
        artifacts = Artifacts(store.folder)
        project = ""
        if arguments.trusted:
            project = await asyncio.to_thread(
                instructions, arguments.project, arguments.folder.resolve(), settings.context.instruction_files
            )
        prompt = system_prompt(prompt_text("system"), project, arguments.folder, date.today())
        prefix = Prefix(system=prompt, tools=registry.definitions)
        small = SmallModel(settings, model.profile.provider)
        upkeep = Upkeep(record, manager, Summarizer(manager, tracker, settings), artifacts, small, prefix)
        gate = gate_of(settings, arguments, workspace)
        toolbox = Toolbox(registry, gate, ask, workspace, artifacts)
        agent = Agent(
            record,
            model,
            toolbox,
            tracker,
            upkeep,
            prefix,
            news(view.prefix.system, project, told_notices(entries)) if view.prefix else "",
        )
        if not entries and not store.read_only:
            await store.set_meta({"cwd": str(arguments.folder)})
        trace.record("session", {"version": __version__, "python": platform.python_version(), "model": view.model})
    except BaseException:
        await trace.close()
        raise
    notices = [Notice(level="warning", title="Session", text=text) for text in store.notices]
    notices += [Notice(level="info", title="Settings", text=text) for text in settings.notices]
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
        arguments.home,
    )
