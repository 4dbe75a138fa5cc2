"""The composition root: opens a session's folder and databases, and builds its model, tools and agent."""

import asyncio
import contextlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.agent.active_model import SmallModels
from tui_agent.agent.agent import Agent, SessionParts
from tui_agent.agent.briefing.briefing import OWN_INSTRUCTIONS, Briefing, SectionReader, system_prompt
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.events import Notice
from tui_agent.agent.extensions.agents import RunAgent, own_agents
from tui_agent.agent.extensions.files import ExtensionFolder, style_text
from tui_agent.agent.extensions.hook_files import read_hooks
from tui_agent.agent.extensions.hooks import Hooks, SessionFacts
from tui_agent.agent.extensions.placeholders import Here, skill_as_read
from tui_agent.agent.extensions.transcript import FILE as TRANSCRIPT
from tui_agent.agent.extensions.transcript import HookTranscript
from tui_agent.agent.extensions.worktree_hooks import WorktreeHooks
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.inbox import WAITING, MemoryProposals
from tui_agent.agent.persistence import DiskPersistence, Persistence
from tui_agent.agent.presence import Presence
from tui_agent.agent.remembering import Remembering
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.guards import CostCeiling, Guards, Limits, WatchdogGuard
from tui_agent.agent.turn.sharing import TODAY, LogShare, ledger_of_today
from tui_agent.agent.turn.watchdog import Observer, Watchdog, default_watchdog
from tui_agent.arguments import Arguments
from tui_agent.context.cache_life import PauseCounts, Pauses
from tui_agent.context.counting import Ratios
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.entries import FilesChanged, FilesKept
from tui_agent.conversation.file_changes import kept_contents
from tui_agent.conversation.log import Entries
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.view import View
from tui_agent.durable import one_at_a_time, write_file
from tui_agent.models.base import ModelError
from tui_agent.models.choice import (
    SmallTierRefused,
    check_names,
    check_parent,
    compaction_threshold,
    configured_model,
    larger_model,
    model_name,
    permission_mode,
)
from tui_agent.models.usage import UsageTracker
from tui_agent.programs import keep_out_of
from tui_agent.regular import is_regular
from tui_agent.resources import prompt_text
from tui_agent.settings import Settings
from tui_agent.settings.brought import CONFIG, brought
from tui_agent.settings.kept_keys import bring_keys
from tui_agent.settings.trust import CLAUDE_FOLDER, PROJECT_FOLDER
from tui_agent.settings.writing import with_setting
from tui_agent.storage.errors import StorageError
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.ledger import Ledger
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
from tui_agent.telemetry.telemetry import Telemetry, installed, problem, spans_for, wanted
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.asking import AskUser, SubmitPlan
from tui_agent.tools.base import Ask, Effect, Tool
from tui_agent.tools.files.buffers import Buffers
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.paging import PageLimits
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.files.tree import TreeLimits
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.read_first import scripts_in
from tui_agent.tools.gate.remembered import RememberedError, RememberedRules
from tui_agent.tools.gate.repository import configured_in
from tui_agent.tools.gate.rules import RuleError
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.lsp.diagnosing import Checks, Diagnosing, LateDiagnostics
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.mcp.configuration import plugins_of
from tui_agent.tools.mcp.servers import ToolServers
from tui_agent.tools.notes.memory import Memory, Notes, memory_folder
from tui_agent.tools.notes.skills import SKILLS_FOLDER, SkillFolder, skill_roots
from tui_agent.tools.recall import Recall
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.sandbox.domains import asking
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxAware, SandboxFolders
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.tasks import EpisodeTool, MarkTaskDone, Todo
from tui_agent.tools.web.fetch_url import FetchUrl
from tui_agent.tools.web.web_search import SERVICES, ProviderSearch, WebSearch
from tui_agent.version import __version__

REMEMBERED_FILE: Final = "permissions.json"
APPROVED_FOLDER: Final = "approved"
"""The folder for what commands that were allowed without a sandbox run first."""
RATIOS_FILE: Final = "token-ratios.json"
PAUSES_FILE: Final = "pauses.json"
WINDOW: Final = "context.context_window"
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


@dataclass(slots=True)
class Session:
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
    except ModelError as error:
        raise SessionError(error.message, "`tui-agent --help` shows the forms a model's name can take.") from error


class _Found(NamedTuple):
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
    from tui_agent.storage.recordings.recording import UnreadableRecording
    from tui_agent.storage.recordings.taking_over import take_over

    try:
        taken = await take_over(arguments.home, await asyncio.to_thread(_recorded, arguments))
    except UnreadableRecording as error:
        raise SessionError(str(error)) from error
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
    model = await asyncio.to_thread(configured_model, settings, model_name(settings, view.model))
    small_parent = check_parent(settings, model.profile, one_shot=arguments.one_shot, yolo=arguments.yolo)
    readable = (*await asyncio.to_thread(skill_roots, knowledge.skills), knowledge.notes.folder)
    workspace = await asyncio.to_thread(
        workspace_of, settings, arguments, knowledge.extensions, (store.folder, *readable)
    )
    keep_out_of(workspace.folders)
    gate = gate_of(settings, arguments, workspace)
    # What is read from skills and notes is never cleared.
    engine = ContextEngine(
        settings,
        view=view,
        ratios=Ratios(_known_ratios(arguments.home / RATIOS_FILE)),
        pauses=Pauses(_known_pauses(arguments.home / PAUSES_FILE)),
        task_threshold=compaction_threshold(settings),
        checkpoints=settings.checkpoints.enabled,
        never_clear=list(map(str, readable)),
    )
    background = BackgroundCommands(settings.output.stream_bytes)
    engine.running = lambda: background.running
    sandbox = gate.confinement = sandbox_of(settings, arguments, workspace, store.folder, readable)
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
            briefing=briefing_of(settings, arguments, knowledge, tools, offered),
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
        notices.append(Notice(level="info", title="Memory", text=WAITING.format(waiting), hint="/memory shows them"))
    if small_parent:
        notices.append(Notice(level="warning", title="Small-tier parent", **small_parent._asdict()))
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


def knowledge_of(settings: Settings, arguments: Arguments) -> SectionReader:
    """Where the session finds instructions, extensions and memory; for an untrusted project only the user's own."""
    own, project = ExtensionFolder(arguments.home, "yours"), arguments.project
    theirs = ExtensionFolder(project / PROJECT_FOLDER, "project", within=project)
    extensions = [own]
    if (user := arguments.user_home) is not None and settings.session.other_folders:
        extensions += [
            ExtensionFolder(user / PROJECT_FOLDER, "yours"),
            ExtensionFolder(user / CLAUDE_FOLDER, "yours", kind="claude"),
        ]
    for place, data in plugins_of(settings, arguments.folder, arguments.home):
        extensions.append(ExtensionFolder(place, "yours", kind="plugin", prefix=f"{place.name.lower()}:", data=data))
    if arguments.trusted:
        claude = [ExtensionFolder(project / CLAUDE_FOLDER, "project", within=project, kind="claude")]
        extensions = [theirs, *(claude if settings.session.other_folders else ()), *extensions]
    return SectionReader(
        root=arguments.project,
        folder=arguments.folder.resolve(),
        names=settings.context.instruction_files if arguments.trusted else (),
        skills=tuple(SkillFolder(root.folder / SKILLS_FOLDER, within=root.within) for root in extensions),
        notes=Notes(memory_folder(arguments.home, arguments.project)),
        extensions=tuple(extensions),
        style=settings.session.style,
        skills_tokens=settings.context.skills_index_tokens,
        memory_tokens=settings.context.memory_index_tokens,
        own=arguments.home / OWN_INSTRUCTIONS,
    )


def worktree_hooks(settings: Settings, arguments: Arguments, say: Callable[[str], None]) -> WorktreeHooks:
    """The hooks that make and clean up the session's worktree."""
    facts = SessionFacts(
        "",
        arguments.folder,
        arguments.project,
        arguments.home,
        mode=lambda: permission_mode(settings),
        model=lambda: settings.model.id,
        resumed=False,
    )
    return WorktreeHooks(Hooks(knowledge_of(settings, arguments).extensions, facts), arguments.folder, say)


def telemetry_of(settings: Settings, session: str, closing: AsyncExitStack) -> tuple[Telemetry | None, str]:
    """What sends the session's telemetry, if that is wanted; and why it cannot be sent, if so."""
    if not wanted(settings, os.environ):
        return None, ""
    if (why := problem(settings, os.environ)) or not installed():
        return None, why
    from tui_agent.telemetry.otlp import OtlpExporter

    exporter = OtlpExporter()
    closing.push_async_callback(asyncio.to_thread, exporter.close)
    return Telemetry(spans_for(session, settings, os.environ), exporter), ""


def workspace_of(
    settings: Settings, arguments: Arguments, extensions: Sequence[ExtensionFolder], read_roots: Iterable[Path]
) -> Workspace:
    """The folders of a session. Guarded are the program's own, what git's settings name, and the scripts of hooks."""
    folders = tuple(map(Path, settings.permissions.folders))
    commands = [hook.command for hook in read_hooks(extensions).hooks]
    scripts = scripts_in(commands, Workspace(arguments.folder, folders), arguments.project)
    guarded = (arguments.home, *configured_in(arguments.project), *scripts)
    return Workspace(arguments.folder, folders, read_roots, guarded)


def sandbox_of(
    settings: Settings, arguments: Arguments, workspace: Workspace, session: Path, readable: Iterable[Path]
) -> Sandbox:
    """The sandbox for commands. Of the program's own files, they may read the session's and those in `readable`."""
    project = arguments.project.resolve()
    # Without what is above the working folder, git finds no repository. A home that is a repository stays unseen.
    above = () if Path.home().resolve().is_relative_to(project) else (project,)
    places = SandboxFolders(
        folders=workspace.folders,
        project=project,
        program=arguments.home.resolve(),
        session=session.resolve(),
        shown=(session.resolve(), *above, *(folder.resolve() for folder in readable)),
        added=tuple(Path(arguments.folder, path).expanduser() for path in settings.permissions.read),
        guarded=tuple(path for path in workspace.guarded if is_regular(path) and workspace.contains(path)),
    )
    return Sandbox(settings.permissions.sandbox, places, network=settings.permissions.network)


def tools_of(
    settings: Settings,
    gate: PermissionGate,
    notes: Notes,
    background: BackgroundCommands,
    sandbox: Sandbox,
    languages: LanguageServers,
    buffers: Buffers | None,
    view: View,
    as_read: Callable[[Path, str], str],
    *,
    trusted: bool,
) -> list[Tool]:
    """The tools of the session. `as_read`: how the text of a file is shown to the model."""
    output = settings.output
    pages = PageLimits(output.max_lines, output.max_bytes, output.max_chars)
    commands: Tool = RunCommand(
        keep_variables=settings.permissions.variables,
        asking=partial(asking, gate),
        stream_bytes=output.stream_bytes,
        raw_stream_bytes=output.raw_stream_bytes,
        background=background,
        sandbox=sandbox,
        only_reads=lambda: gate.mode == "plan",
    )
    confined = (SandboxAware(tool, sandbox) for tool in (WriteFile(buffers), EditFile(buffers)))
    checks = Checks(settings.diagnostics.checks, languages.shell_request, settings.diagnostics.wait_s)
    editing = (Diagnosing(tool, languages, checks) for tool in confined)
    reading, commands = (LateDiagnostics(tool, languages) for tool in (ReadFile(pages, buffers, as_read), commands))
    tools: list[Tool] = [reading, *editing, ListDir(), Glob(), Grep(), commands]
    tools += [
        CommandOutput(background),
        StopCommand(background),
        FetchUrl(gate),
        Memory(notes, trusted=trusted),
        Todo(),
        AskUser(),
        SubmitPlan(gate),
    ]
    if settings.checkpoints.enabled:
        tools.append(MarkTaskDone())
    if settings.checkpoints.episodes:
        tools.append(EpisodeTool(view))
    return tools


def searching_tools(
    settings: Settings, gate: PermissionGate, subtasks: SubtaskRunner, profile: ModelProfile
) -> list[Tool]:
    """The tool that searches the web, if somebody does."""

    def is_off() -> bool:
        return gate.mode == "plan" and not settings.search.in_plan

    if settings.search.service in SERVICES:
        return [WebSearch(settings.search, is_off)]
    has_own = not settings.search.service and profile.search_usd is not None
    return [ProviderSearch(subtasks, profile.search_usd or 0.0, is_off)] if has_own else []


def gate_of(settings: Settings, arguments: Arguments, workspace: Workspace) -> PermissionGate:
    """The permission gate, with the remembered rules. Raises `RuleError`, `RememberedError`."""
    rules = settings.permissions
    return PermissionGate(
        permission_mode(settings),
        workspace,
        allow=rules.allow,
        ask=rules.ask,
        deny=rules.deny,
        remembered=RememberedRules(arguments.home / REMEMBERED_FILE, arguments.project),
        unasked=rules.unasked,
        approved=arguments.home / APPROVED_FOLDER,
    )


def guards_of(
    settings: Settings,
    view: View,
    tracker: UsageTracker,
    tools: Iterable[Tool],
    ask: Ask,
    watchdog: Watchdog | None,
    ledger: Path | None,
    home: Path,
) -> Guards:
    """Ceiling and watchdog, by default the built-in one; silent if guards are set to show no notices."""
    limits = Limits(None, settings.agent.max_turn_cost_usd, settings.agent.max_session_cost_usd)
    mode = settings.watchdog.mode
    effects: dict[str, Effect] = {tool.definition.name: tool.effect for tool in tools}
    watch = WatchdogGuard(
        watchdog or default_watchdog(settings.watchdog),
        Observer(view, tracker, lambda name: effects.get(name, "none")),
        "off" if mode == "warn" and not settings.safety.notices else mode,
        ask,
        lambda profile: larger_model(settings, profile),
    )
    ceiling = CostCeiling(limits, tracker, view.log)
    if ledger is not None:
        batch = Ledger(ledger)
        ceiling.sharing = (LogShare(lambda: batch, tracker),)
    if (usd := settings.limits.day_usd) is not None:
        ceiling.sharing = (*ceiling.sharing, LogShare(lambda: ledger_of_today(home, usd), tracker, TODAY))
    return Guards(ceiling, watch, settings.agent.max_turns)


def briefing_of(
    settings: Settings, arguments: Arguments, knowledge: SectionReader, tools: Iterable[Tool], offered: OfferedTools
) -> Briefing:
    """What the model is told at the start of the conversation, and about later changes."""
    rules, started = prompt_text("system"), date.today()
    return Briefing(
        lambda sections: system_prompt(rules, sections, arguments.folder, started),
        ToolRegistry(tools).definitions,
        knowledge,
        offered,
    )


def keep_learned(engine: ContextEngine, home: Path) -> None:
    """Save the token ratios and pauses that this session learned, beside those of others; errors of the disk are
    ignored.
    """
    learned, pauses = engine.meter.ratios.learned(), engine.pauses
    with contextlib.suppress(OSError):
        if sum(pauses.new.calls):
            with one_at_a_time(home / f".{PAUSES_FILE}.lock"):
                known = Pauses(_known_pauses(home / PAUSES_FILE)).all
                together = known.plus(msgspec.structs.replace(pauses.new, ends=1.0))
                write_file(home / PAUSES_FILE, msgspec.json.encode(together))
        if learned:
            with one_at_a_time(home / f".{RATIOS_FILE}.lock"):
                write_file(home / RATIOS_FILE, json.dumps({**_known_ratios(home / RATIOS_FILE), **learned}).encode())


def _known_pauses(path: Path) -> PauseCounts | None:
    """The pauses of earlier sessions; None if the file is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=PauseCounts)
    except (OSError, ValueError):
        return None


def _known_ratios(path: Path) -> dict[str, list[float]]:
    """The saved token ratios; empty if the file is missing or damaged, since they will be learned again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[float]])
    except (OSError, ValueError):
        return {}
