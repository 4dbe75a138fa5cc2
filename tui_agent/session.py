"""The composition root: one session folder, its two databases, its model and tools, and the agent over them."""

import asyncio
import platform
import shutil
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tui_agent import __version__
from tui_agent.agent.agent import Agent, Limits
from tui_agent.agent.events import Notice
from tui_agent.agent.record import Record
from tui_agent.agent.system_prompt import instructions, news, system_prompt
from tui_agent.agent.toolbox import Toolbox
from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Checkpointed, Message, Prefix, Summarized
from tui_agent.conversation.view import View
from tui_agent.models.base import ModelError
from tui_agent.models.catalogue import create_model, missing_key
from tui_agent.models.usage import UsageTracker
from tui_agent.resources import prompt_text
from tui_agent.settings import PermissionMode, Settings, TaskClass
from tui_agent.storage.checkpoints import CheckpointStore
from tui_agent.storage.errors import StorageError
from tui_agent.storage.sessions import create_session, find_session, newest_session
from tui_agent.storage.trace import Trace
from tui_agent.tools.base import Ask, Tool
from tui_agent.tools.edits import EditFile, WriteFile
from tui_agent.tools.files import ListDir, ReadFile
from tui_agent.tools.paging import PageLimits
from tui_agent.tools.permissions import PermissionGate
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.remembered import RememberedError, RememberedRules
from tui_agent.tools.rules import RuleError
from tui_agent.tools.search import Glob, Grep
from tui_agent.tools.shell import RunCommand
from tui_agent.tools.workspace import Workspace

REMEMBERED_FILE = "permissions.json"


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

    async def close(self) -> None:
        """End what runs, write what is pending, close the files. Raises `StorageError`; all is closed all the same."""
        unused = self.fresh and not len(self.record.view.log)
        try:
            await self.agent.close()
        finally:
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
    model = await asyncio.to_thread(create_model, _model_name(settings, view))
    trace = await Trace.open(store)
    try:
        workspace = Workspace(arguments.folder, map(Path, settings.permissions.folders), read_roots=(store.folder,))
        registry = ToolRegistry(_tools(settings))
        toolbox = Toolbox(registry, _gate(settings, arguments, workspace), ask, workspace, store.folder)
        project = ""
        if arguments.trusted:
            project = await asyncio.to_thread(
                instructions, arguments.project, arguments.folder.resolve(), settings.context.instruction_files
            )
        prompt = system_prompt(prompt_text("system"), project, arguments.folder, date.today())
        record = Record(view, store, trace)
        agent = Agent(
            record,
            model,
            toolbox,
            _tracker(entries),
            _limits(settings),
            Prefix(system=prompt, tools=registry.definitions),
            news(view.prefix.system, project, _told(entries)) if view.prefix else "",
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
        store.folder.name, store.folder, agent, tuple(notices), bool(entries), _is_new(arguments), record, store
    )


def _model_name(settings: Settings, view: View) -> str:
    """A flag's model, else the conversation's own, else the configured one, else the best there is a key for."""
    if settings.source("model.id").startswith("--") or (settings.model.id and not view.model):
        return settings.model.id
    if view.model:
        return view.model
    task = _task(settings)
    tier = task.tier if task else "mid"
    for provider, models in (("anthropic", settings.models.anthropic), ("gemini", settings.models.gemini)):
        name = f"{provider}:{getattr(models, tier)}"
        if missing_key(name) is None:
            return name
    return "offline"


def _task(settings: Settings) -> TaskClass | None:
    name = settings.session.task_class
    return getattr(settings.tasks, name) if name else None


def _mode(settings: Settings) -> PermissionMode:
    task = _task(settings)
    return task.mode if task and not settings.is_set("permissions.mode") else settings.permissions.mode


def _limits(settings: Settings) -> Limits:
    context = settings.context
    return Limits(context.context_window, context.default_window, context.max_tokens, context.max_tokens_share)


def _told(entries: list[AnyEntry]) -> list[str]:
    """The notices the model was given."""
    notices = (entry for entry in entries if isinstance(entry, Message) and entry.kind == "notice")
    return [block.text for message in notices for block in message.blocks if isinstance(block, Text)]


def _tools(settings: Settings) -> list[Tool]:
    output = settings.output
    pages = PageLimits(output.max_lines, output.max_bytes, output.max_chars)
    commands = RunCommand(stream_bytes=output.stream_bytes, raw_stream_bytes=output.raw_stream_bytes)
    return [ReadFile(pages), WriteFile(), EditFile(), ListDir(), Glob(), Grep(), commands]


def _gate(settings: Settings, arguments: Arguments, workspace: Workspace) -> PermissionGate:
    rules = settings.permissions
    return PermissionGate(
        _mode(settings),
        workspace,
        allow=rules.allow,
        ask=rules.ask,
        deny=rules.deny,
        remembered=RememberedRules(arguments.home / REMEMBERED_FILE, arguments.project),
    )


def _tracker(entries: list[AnyEntry]) -> UsageTracker:
    """What the conversation has cost so far, on every branch."""
    tracker = UsageTracker()
    for entry in entries:
        if isinstance(entry, Message | Summarized | Checkpointed) and entry.usage is not None:
            tracker.record(entry.model, entry.usage, entry.cost_usd)
    tracker.start_turn()
    return tracker
