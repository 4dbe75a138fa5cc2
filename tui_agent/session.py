"""The composition root: opens a session's folder and databases, and builds its model, tools and agent."""

import asyncio
import os
import platform
import shutil
from collections.abc import Iterable, Iterator
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
from tui_agent.agent.extensions.placeholders import Here, skill_as_read
from tui_agent.agent.inbox import WAITING, MemoryProposals
from tui_agent.agent.persistence import DiskPersistence, Persistence
from tui_agent.agent.presence import Presence
from tui_agent.agent.remembering import Remembering
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.watchdog import Watchdog
from tui_agent.arguments import Arguments
from tui_agent.models.base import Model, ModelError, SeveralModels
from tui_agent.models.choice import (
    SmallTierRefused,
    check_parent,
    configured_model,
    meant_model,
    model_name,
    with_meant_models,
)
from tui_agent.session_parts import (
    briefing_of,
    check_rules,
    engine_of,
    files_of,
    gate_of,
    guards_of,
    hooks_of,
    keep_learned,
    knowledge_of,
    sandbox_of,
    searching_tools,
    servers_of,
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
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import (
    TITLE,
    WINDOW_NOTE,
    NoSuchSession,
    create_session,
    noted_folder,
    session_to_continue,
    session_to_resume,
    subtask_folder,
    subtask_folders,
    window_of,
)
from tui_agent.system.durable import uncancelled
from tui_agent.system.programs import keep_out_of
from tui_agent.text import counted, expanded
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import Ask
from tui_agent.tools.files.editing import Buffers
from tui_agent.tools.gate.remembered import RememberedError
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.mcp.servers import ToolServers
from tui_agent.tools.notes.skills import skill_roots
from tui_agent.tools.recall import Recall
from tui_agent.tools.sandbox.interrupted import restore_interrupted
from tui_agent.tools.sandbox.sandbox import JOURNALS, Sandbox
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.version import __version__

NEW_BRANCH: Final = "It begins with your next message; /tree then leads back to the other one"
WINDOW: Final = "context.context_window"
MODE_KEY: Final = "permissions.mode"
MODE_NOTE: Final = "permission_mode"


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

    @uncancelled
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
        raise SessionError(f"{error}.", "Mend that and start again.") from error
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
    return arguments.folder / expanded(arguments.resume or "")


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
    known = window_of(await store.meta())
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
    knowledge = await asyncio.to_thread(knowledge_of, settings, arguments)
    inbox = MemoryProposals(home, knowledge.notes.folder, noted_folder(arguments.folder))
    session: Session | None = None

    async def put_away() -> None:
        if session is not None and len(session.agent.engine.view.log):
            await asyncio.to_thread(inbox.note, found.folder)
        elif found.made:
            await asyncio.to_thread(shutil.rmtree, found.folder, ignore_errors=True)

    closing.push_async_callback(put_away)
    subtask_places = (partial(subtask_folder, home, name), partial(subtask_folders, home, name))
    kept = await Persistence.on_disk(found.folder, subtasks=subtask_places)
    closing.push_async_callback(kept.close)
    view, store = kept.view, kept.store
    entries = view.log.entries()

    check_rules(settings)
    settings = await _with_window(await asyncio.to_thread(with_meant_models, settings), store)
    keyless = await asyncio.to_thread(bring_keys, home, os.environ)
    model = await asyncio.to_thread(_main_model, settings, view.model)
    small_parent = check_parent(settings, model.profile, one_shot=arguments.one_shot, yolo=arguments.yolo)
    first = view.model or model.profile.name

    readable = (*await asyncio.to_thread(skill_roots, knowledge.skills), knowledge.notes.folder)
    workspace = await asyncio.to_thread(
        workspace_of, settings, arguments, knowledge.extensions, (store.folder, *readable)
    )
    keep_out_of(workspace.folders)
    gate = await asyncio.to_thread(gate_of, settings, arguments, workspace)
    gate.history = await files_of(settings, arguments, workspace, store, entries)
    sandbox = gate.confinement = sandbox_of(settings, arguments, workspace, store.folder, readable, gate.limits)

    background = BackgroundCommands(settings.output.stream_bytes)
    engine = engine_of(settings, home, view, readable)
    engine.running = lambda: background.running
    presence = Presence(home, name, ask)
    subtasks = SubtaskRunner(presence.ask)
    languages = LanguageServers(settings.diagnostics, sandbox, arguments.project, trusted=arguments.trusted)
    here = Here(workspace.root, name, lambda: engine.settings.model.effort)
    as_read = partial(skill_as_read, knowledge.extensions, here)
    tools = tools_of(settings, arguments, gate, knowledge.notes, background, sandbox, languages, buffers, view, as_read)
    tools.append(RunAgent(subtasks, lambda: own_agents(knowledge.extensions), settings, lambda: view.model or first))
    tools += agentic_tools(subtasks, tools) if settings.agentic.enabled else []
    tools += searching_tools(settings, gate, subtasks, model.profile)
    tools.append(Recall(kept.recall, kept.recall_elsewhere))
    servers = await asyncio.to_thread(servers_of, settings, arguments, workspace, store.folder, languages)
    offered, small = OfferedTools(servers, settings.mcp), SmallModels(settings)
    hooks = hooks_of(arguments, knowledge, kept, lambda: gate.mode, lambda: view.model or first)
    await asyncio.to_thread(hooks.look)  # what the project adds from here on is not what the user said yes to
    await asyncio.to_thread(hooks.resume, entries)
    telemetry, unsent = telemetry_of(settings, name, closing)

    agent = Agent(
        model,
        tools=tools,
        context=engine,
        persistence=kept,
        permissions=gate,
        ask=presence.ask,
        workspace=workspace,
        session=SessionParts(
            guards=guards_of(settings, arguments, view, kept.tracker, tools, presence.ask, watchdog),
            small=small,
            briefing=briefing_of(arguments, knowledge, tools, offered),
            subtasks=subtasks,
            files=gate.history,
            offered=offered,
            extensions=knowledge.extensions,
            hooks=hooks,
            telemetry=telemetry,
            languages=languages,
            inbox=inbox,
        ),
    )
    closing.push_async_callback(asyncio.to_thread, keep_learned, engine, home)
    closing.push_async_callback(asyncio.to_thread, sandbox.close)
    for part in (sandbox.proxy, servers, languages, background, small, agent):
        closing.push_async_callback(part.close)
    if settings.memory.by_model and not store.read_only:
        closing.push_async_callback(Remembering(agent, inbox, name).close)
    if not store.read_only:
        closing.push_async_callback(presence.close)
        await presence.show(agent)
    forks = await _begin(agent, store, arguments)

    waiting = 0 if arguments.one_shot or entries else await asyncio.to_thread(inbox.waiting)
    notices = [
        *_told("warning", "Session", store.notices),
        *_told("warning", "Guarded files", restored),
        *_told("info", "Taken over", [found.taken_over]),
        *_told("info", "A new branch from here", [NEW_BRANCH] if forks else []),
        *_told("warning", "Subtasks", kept.problems),
        *_told("warning", "Keyring", [keyless], "enter it with /key"),
        *_told("info", "Settings", settings.notices),
        *await asyncio.to_thread(lambda: list(_notices(settings, arguments, knowledge.extensions, servers))),
        *_told("warning", "Permissions", gate.notices),
        *_told("warning", "Nothing is sent to OpenTelemetry", [unsent]),
        *_told("info", "Memory", [WAITING.format(counted(waiting, "thing"))] if waiting else [], "/memory shows them"),
    ]
    if small_parent:
        notices.append(Notice(level="warning", title="Small-tier parent", **structs.asdict(small_parent)))
    session = Session(
        id=name,
        folder=store.folder,
        agent=agent,
        notices=tuple(notices),
        resumed=bool(entries),
        persistence=kept,
        home=home,
        background=background,
        sandbox=sandbox,
        offered=offered,
        presence=presence,
        closing=closing,
    )
    return session


async def _begin(agent: Agent, store: LogStore, arguments: Arguments) -> bool:
    """Note the start of the program in the session; whether it begins another branch."""
    here = noted_folder(arguments.folder)
    if not store.read_only and "cwd" not in await store.meta():
        await store.set_meta({"cwd": here})
    program = {"version": __version__, "python": platform.python_version(), "cwd": here}
    view = agent.engine.view
    agent.record("session", {**program, "model": view.model})
    forks = arguments.fork and bool(view.head)
    if forks:
        await agent.branches.fork()
    return forks


def _told(level: str, title: str, texts: Iterable[str], hint: str = "") -> list[Notice]:
    """A notice for each text that is not empty."""
    return [Notice(level=level, title=title, text=text, hint=hint) for text in texts if text]


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
