"""The composition root: opens a session's folder and databases, and builds its model, tools and agent."""

import asyncio
import contextlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec import structs

from tui_agent.agent.active_model import SmallModels
from tui_agent.agent.agent import Agent, SessionParts
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.events import Notice
from tui_agent.agent.extensions.agents import RunAgent, own_agents
from tui_agent.agent.extensions.files import ExtensionFolder, style_text
from tui_agent.agent.extensions.hooks import Hooks, SessionFacts
from tui_agent.agent.extensions.placeholders import Here, skill_as_read
from tui_agent.agent.extensions.transcript import FILE as TRANSCRIPT
from tui_agent.agent.extensions.transcript import HookTranscript
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.inbox import WAITING, MemoryProposals
from tui_agent.agent.persistence import DiskPersistence, Persistence
from tui_agent.agent.presence import Presence
from tui_agent.agent.remembering import Remembering
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.watchdog import Watchdog
from tui_agent.arguments import Arguments
from tui_agent.context.cache_life import PauseCounts, Pauses
from tui_agent.context.counting import Ratios
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.entries import FilesChanged, FilesKept
from tui_agent.conversation.file_changes import kept_contents
from tui_agent.conversation.log import Entries
from tui_agent.models.base import Model, ModelError, SeveralModels
from tui_agent.models.choice import (
    SmallTierRefused,
    check_names,
    check_parent,
    compaction_threshold,
    configured_model,
    meant_model,
    model_name,
)
from tui_agent.session_parts import (
    briefing_of,
    gate_of,
    guards_of,
    knowledge_of,
    sandbox_of,
    searching_tools,
    telemetry_of,
    theirs_of,
    tools_of,
    workspace_of,
)
from tui_agent.settings import Settings
from tui_agent.settings.brought import CONFIG, brought
from tui_agent.settings.kept_keys import bring_keys
from tui_agent.settings.schema import PermissionMode
from tui_agent.settings.trust import tightens
from tui_agent.settings.writing import with_setting
from tui_agent.storage.errors import StorageError
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import (
    TITLE,
    NoSuchSession,
    create_session,
    noted_folder,
    session_to_continue,
    session_to_resume,
    subtask_folder,
    subtask_folders,
)
from tui_agent.system.durable import one_at_a_time, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.system.programs import keep_out_of
from tui_agent.text import counted
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import Ask
from tui_agent.tools.files.buffers import Buffers
from tui_agent.tools.files.tree import TreeLimits
from tui_agent.tools.gate.remembered import RememberedError
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.mcp.configuration import plugins_of
from tui_agent.tools.mcp.servers import ToolServers
from tui_agent.tools.notes.skills import skill_roots
from tui_agent.tools.recall import Recall
from tui_agent.tools.sandbox.interrupted import restore_interrupted
from tui_agent.tools.sandbox.sandbox import JOURNALS, Sandbox
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.version import __version__

RATIOS_FILE: Final = "token-ratios.json"
PAUSES_FILE: Final = "pauses.json"
WINDOW: Final = "context.context_window"
MODE_KEY: Final = "permissions.mode"
MODE_NOTE: Final = "permission_mode"
WINDOW_NOTE: Final = "context_window"
"""The window that was set for a session at a start, among the facts about it."""


class SessionError(Exception):
    """A session cannot be opened. `message` says what happened and what was kept, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SessionRefused(SessionError):
    """The settings do not allow the session that was asked for."""


class Session(msgspec.Struct, eq=False):
    """An open session.

    `resumed`: it has a conversation already. `notices` are for the user.
    """

    id: str
    folder: Path
    agent: Agent
    notices: tuple[Notice, ...]
    resumed: bool
    persistence: DiskPersistence
    home: Path
    background: BackgroundCommands
    sandbox: Sandbox
    offered: OfferedTools
    presence: Presence
    closing: AsyncExitStack

    async def rename(self, title: str) -> None:
        """Change the session's title in the list. Raises `StorageError`."""
        await self.persistence.store.set_meta({TITLE: title})

    async def note_mode(self) -> None:
        """Keep the permission mode with the session, for `enter_stricter_mode`. Raises `StorageError`."""
        if not self.persistence.store.read_only:
            await self.persistence.store.set_meta({MODE_NOTE: self.agent.permissions.mode})

    async def enter_stricter_mode(self) -> None:
        """Enter the mode that was kept with the session, if it allows less than the present one."""
        noted, gate = (await self.persistence.store.meta()).get(MODE_NOTE, ""), self.agent.permissions
        stricter = (mode for mode in get_args(PermissionMode) if mode == noted)
        gate.mode = next((mode for mode in stricter if tightens(MODE_KEY, gate.mode, mode)), gate.mode)

    async def close(self) -> None:
        """End what runs, write what is pending, close the files; a new session's folder is removed if nothing was said.

        Closes everything even if it raises `StorageError`.
        """
        await self.closing.aclose()


async def open_session(
    settings: Settings,
    arguments: Arguments,
    ask: Ask,
    *,
    watchdog: Watchdog | None = None,
    buffers: Buffers | None = None,
) -> Session:
    """Open the session named by `arguments`, or a new one. Raises `SessionError`.

    `watchdog` replaces the built-in one, for instance by `default_watchdog` with another signal; the settings still
    decide what follows from its alerts. `buffers` are files that an editor has open.
    """
    try:
        async with AsyncExitStack() as closing:
            session = await _open(settings, arguments, ask, watchdog, buffers, closing)
            session.closing = closing.pop_all()
            return session
    except StorageError as error:
        raise SessionError(error.message, error.hint) from error
    except (RuleError, RememberedError) as error:
        raise SessionError(str(error)) from error
    except SmallTierRefused as refused:
        raise SessionRefused(refused.message, refused.hint) from refused
    except SeveralModels as error:
        raise SessionError(
            error.message, "Name one of them; with its provider in front, a name is used as it is."
        ) from error
    except ModelError as error:
        raise SessionError(error.message, "`tui-agent --help` shows the forms a model's name can take.") from error


class _Found(msgspec.Struct, frozen=True):
    """A session's folder. `made`: it was created now. `taken_over`: the recording it was imported from, or empty."""

    folder: Path
    made: bool = False
    taken_over: str = ""


async def _found(arguments: Arguments) -> _Found:
    if arguments.resume:
        try:
            return _Found(await session_to_resume(arguments.home, arguments.resume))
        except NoSuchSession:
            if not await asyncio.to_thread(lambda: _recorded(arguments).is_file()):
                raise
            return await _taken_over(arguments)
    if arguments.continue_last:
        return _Found(await session_to_continue(arguments.home, arguments.folder))
    return _Found(await asyncio.to_thread(create_session, arguments.home), made=True)


def _recorded(arguments: Arguments) -> Path:
    return arguments.folder / Path(arguments.resume or "").expanduser()


async def _taken_over(arguments: Arguments) -> _Found:
    # Imported here because it is rarely needed.
    from tui_agent.storage.recordings.taking_over import take_over

    taken = await take_over(arguments.home, await asyncio.to_thread(_recorded, arguments))
    return _Found(taken.folder, made=True, taken_over=taken.description)


async def _with_window(settings: Settings, store: LogStore) -> Settings:
    """The settings with the window that an earlier start set for this session, unless this start sets one."""
    if WINDOW in settings.overridden:
        if not store.read_only:
            await store.set_meta({WINDOW_NOTE: str(settings.context.context_window)})
        return settings
    noted = (await store.meta()).get(WINDOW_NOTE, "")
    known = int(noted) if noted.removeprefix("-").isdecimal() and len(noted) < 12 else 0
    return with_setting(settings, WINDOW, known, "the session") if known else settings


def _main_model(settings: Settings, conversation: str) -> Model:
    """The session's model; the user may have named it by a part of its name. Raises `UnknownModel`."""
    name = model_name(settings, conversation)
    return configured_model(settings, meant_model(settings, name) if name == settings.model.id else name)


async def _open(
    settings: Settings,
    arguments: Arguments,
    ask: Ask,
    watchdog: Watchdog | None,
    buffers: Buffers | None,
    closing: AsyncExitStack,
) -> Session:
    """Open a session; `closing` gets what has to be done at its end, or if this fails."""
    found = await _found(arguments)
    home, name = arguments.home, found.folder.name
    restored = await asyncio.to_thread(restore_interrupted, home / JOURNALS)

    session: Session | None = None

    async def remove_if_unused() -> None:
        if found.made and not (session is not None and len(session.agent.engine.view.log)):
            await asyncio.to_thread(shutil.rmtree, found.folder, ignore_errors=True)

    knowledge = await asyncio.to_thread(knowledge_of, settings, arguments)
    inbox = MemoryProposals(home, knowledge.notes.folder, noted_folder(arguments.folder))

    async def take_note() -> None:
        if session is not None and len(session.agent.engine.view.log):
            await asyncio.to_thread(inbox.note, found.folder)

    closing.push_async_callback(remove_if_unused)
    closing.push_async_callback(take_note)
    subtask_places = (partial(subtask_folder, home, name), partial(subtask_folders, home, name))
    kept = await Persistence.on_disk(found.folder, subtasks=subtask_places)
    closing.push_async_callback(kept.close)
    check_names(settings)
    settings = await _with_window(settings, kept.store)
    keyless = await asyncio.to_thread(bring_keys, arguments.home, os.environ)
    view, store, tracker = kept.view, kept.store, kept.tracker
    presence = Presence(home, name, ask)
    ask = presence.ask
    entries = view.log.entries()
    model = await asyncio.to_thread(_main_model, settings, view.model)
    small_parent = check_parent(settings, model.profile, one_shot=arguments.one_shot, yolo=arguments.yolo)
    readable = (*await asyncio.to_thread(skill_roots, knowledge.skills), knowledge.notes.folder)
    workspace = await asyncio.to_thread(
        workspace_of, settings, arguments, knowledge.extensions, (store.folder, *readable)
    )
    keep_out_of(workspace.folders)
    gate = await asyncio.to_thread(gate_of, settings, arguments, workspace)
    # What is read from skills and notes is never cleared.
    engine = ContextEngine(
        settings,
        view=view,
        ratios=Ratios(decoded_file(arguments.home / RATIOS_FILE, dict[str, list[float]]) or {}),
        pauses=Pauses(decoded_file(arguments.home / PAUSES_FILE, PauseCounts)),
        task_threshold=compaction_threshold(settings),
        checkpoints=settings.checkpoints.enabled,
        never_clear=list(map(str, readable)),
    )
    background = BackgroundCommands(settings.output.stream_bytes)
    engine.running = lambda: background.running
    sandbox = gate.confinement = sandbox_of(settings, arguments, workspace, store.folder, readable, gate.limits)
    languages = LanguageServers(settings.diagnostics, sandbox, arguments.project, trusted=arguments.trusted)
    here = Here(workspace.root, store.folder.name, lambda: engine.settings.model.effort)
    tools = tools_of(
        settings,
        gate,
        knowledge.notes,
        background,
        sandbox,
        languages,
        buffers,
        view,
        partial(skill_as_read, knowledge.extensions, here),
        trusted=arguments.trusted,
    )
    files = gate.history = await files_of(settings, arguments, workspace, store, entries)
    subtasks = SubtaskRunner(ask)
    parent = view.model or model.profile.name
    run_agent = RunAgent(subtasks, lambda: own_agents(knowledge.extensions), settings, lambda: view.model or parent)
    tools.append(run_agent)
    tools += agentic_tools(subtasks, tools) if settings.agentic.enabled else []
    tools += searching_tools(settings, gate, subtasks, model.profile)
    tools.append(Recall(kept.recall, kept.recall_elsewhere))
    project = arguments.project if arguments.trusted else None
    servers = await asyncio.to_thread(
        ToolServers.opened,
        settings.mcp,
        arguments.home,
        store.folder,
        workspace.folders,
        project,
        languages,
        plugins_of(settings, arguments.folder, arguments.home),
    )
    offered = OfferedTools(servers, settings.mcp)
    small = SmallModels(settings)
    facts = SessionFacts(
        store.folder.name,
        arguments.folder,
        arguments.project,
        arguments.home,
        mode=lambda: gate.mode,
        model=lambda: view.model or parent,
        resumed=bool(entries),
        transcript=HookTranscript(
            store.folder / TRANSCRIPT, store.folder.name, arguments.folder, lambda: kept.view.log
        ),
    )
    hooks = Hooks(knowledge.extensions, facts)
    await asyncio.to_thread(hooks.look)  # what the project adds from here on is not what the user said yes to
    await asyncio.to_thread(hooks.resume, entries)
    telemetry, unsent = telemetry_of(settings, name, closing)
    agent = Agent(
        model,
        tools=tools,
        context=engine,
        persistence=kept,
        permissions=gate,
        ask=ask,
        workspace=workspace,
        session=SessionParts(
            guards=guards_of(settings, view, tracker, tools, ask, watchdog, arguments.ledger, home),
            small=small,
            briefing=briefing_of(arguments, knowledge, tools, offered),
            subtasks=subtasks,
            files=files,
            offered=offered,
            extensions=knowledge.extensions,
            hooks=hooks,
            telemetry=telemetry,
            languages=languages,
            inbox=inbox,
        ),
    )
    closing.push_async_callback(asyncio.to_thread, keep_learned, engine, arguments.home)
    closing.push_async_callback(asyncio.to_thread, sandbox.close)
    for part in (sandbox.proxy, servers, languages, background, small, agent):
        closing.push_async_callback(part.close)
    if settings.memory.by_model and not store.read_only:
        closing.push_async_callback(Remembering(agent, inbox, store.folder.name).close)
    if not store.read_only:
        closing.push_async_callback(presence.close)
        await presence.show(agent)
    if not store.read_only and "cwd" not in await store.meta():
        await store.set_meta({"cwd": noted_folder(arguments.folder)})
    program = {"version": __version__, "python": platform.python_version(), "cwd": noted_folder(arguments.folder)}
    agent.record("session", {**program, "model": view.model})
    forks = arguments.fork and bool(view.head)
    if forks:
        await agent.branches.fork()
    notices = [Notice(level="warning", title="Session", text=text) for text in store.notices]
    notices += [Notice(level="warning", title="Guarded files", text=text) for text in restored]
    if found.taken_over:
        notices.append(Notice(level="info", title="Taken over", text=found.taken_over))
    if forks:
        message = "It begins with your next message; /tree then leads back to the other one"
        notices.append(Notice(level="info", title="A new branch from here", text=message))
    notices += [Notice(level="warning", title="Subtasks", text=text) for text in kept.problems]
    notices += [Notice(level="warning", title="Keyring", text=keyless, hint="enter it with /key")] if keyless else []
    notices += [Notice(level="info", title="Settings", text=text) for text in settings.notices]
    notices += await asyncio.to_thread(lambda: list(_notices(settings, arguments, knowledge.extensions, servers)))
    notices += [Notice(level="warning", title="Permissions", text=text) for text in gate.notices]
    if unsent:
        notices.append(Notice(level="warning", title="Nothing is sent to OpenTelemetry", text=unsent))
    if not arguments.one_shot and not entries and (waiting := await asyncio.to_thread(inbox.waiting)):
        text = WAITING.format(counted(waiting, "thing"))
        notices.append(Notice(level="info", title="Memory", text=text, hint="/memory shows them"))
    if small_parent:
        notices.append(Notice(level="warning", title="Small-tier parent", **structs.asdict(small_parent)))
    session = Session(
        id=store.folder.name,
        folder=store.folder,
        agent=agent,
        notices=tuple(notices),
        resumed=bool(entries),
        persistence=kept,
        home=arguments.home,
        background=background,
        sandbox=sandbox,
        offered=offered,
        presence=presence,
        closing=closing,
    )
    return session


def _notices(
    settings: Settings, arguments: Arguments, extensions: tuple[ExtensionFolder, ...], servers: ToolServers
) -> Iterator[Notice]:
    """Notices on what of the project and the user's folders is ignored, missing, or waits for a decision. Reads files.

    Ignored settings of an untrusted project are in the notices of `settings`.
    """
    new = () if arguments.trusted else arguments.new_in_project
    found = () if arguments.trusted else brought(arguments.folder, settings.context.instruction_files)
    names = [each.name for each in found if Path(each.name).name != CONFIG]
    hint = "--trust uses it" if arguments.one_shot else "/trust uses it"
    if new:
        message = "\n".join(
            (*new, "You were not shown this when you trusted the project: all that it brings is ignored")
        )
        yield Notice(level="warning", title="Changed since you trusted it", text=message, hint=hint)
    elif names:
        yield Notice(level="info", title="Not trusted, so ignored", text=", ".join(names), hint=hint)
    if (style := settings.session.style) and not style_text(extensions, style):
        message = f"There is no style {style} that could be used: answers are written as always."
        yield Notice(level="warning", title="Output style", text=message, hint="/style lists those there are")
    for text in theirs_of(settings, arguments).problems:
        yield Notice(level="warning", title="A rule does not count", text=text)
    for text in servers.problems:
        yield Notice(level="warning", title="MCP servers", text=text)
    if waiting := servers.new:
        listed = "\n".join(f"{server.name}: {server.shown}" for server in waiting)
        name = waiting[0].name
        hint = f"/mcp on {name} starts it, now and in later sessions; /mcp off {name} asks no more."
        message = f"This project names MCP servers, which would run:\n{listed}"
        yield Notice(level="info", title="MCP servers", text=message, hint=hint)


async def files_of(
    settings: Settings, arguments: Arguments, workspace: Workspace, store: LogStore, entries: Entries
) -> FileHistory | None:
    """The history of files that tools change, after cleaning up behind a killed program; None if it is turned off."""
    wanted = settings.file_history
    if not wanted.enabled or store.read_only:
        return None
    kept = KeptFiles(store.folder, wanted.max_bytes)
    limits = TreeLimits(wanted.max_files, wanted.max_seconds, wanted.max_file_bytes)
    history = FileHistory(kept, workspace.folders, [arguments.home.resolve()], limits)

    def mend() -> None:
        past = list(entries.of(FilesKept, FilesChanged))
        kept.remove_unreferenced(kept_contents(past))
        history.resume(past)

    await asyncio.to_thread(mend)
    return history


def keep_learned(engine: ContextEngine, home: Path) -> None:
    """Save the token ratios and pauses that this session learned, beside those of others; errors of the disk are
    ignored.
    """
    learned, pauses = engine.meter.ratios.learned(), engine.pauses
    with contextlib.suppress(OSError):
        if sum(pauses.new.calls):
            with one_at_a_time(home / f".{PAUSES_FILE}.lock"):
                known = Pauses(decoded_file(home / PAUSES_FILE, PauseCounts)).all
                together = known.plus(msgspec.structs.replace(pauses.new, ends=1.0))
                write_file(home / PAUSES_FILE, msgspec.json.encode(together))
        if learned:
            with one_at_a_time(home / f".{RATIOS_FILE}.lock"):
                known_ratios = decoded_file(home / RATIOS_FILE, dict[str, list[float]]) or {}
                write_file(home / RATIOS_FILE, json.dumps({**known_ratios, **learned}).encode())
