"""The parts of a session, each built from the settings and the arguments of a start; and what it leaves to the next."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.briefing.briefing import (
    BY_NEED,
    OWN_INSTRUCTIONS,
    Briefing,
    SectionReader,
    included_in_project,
    system_prompt,
)
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.agent.events import AgentEvent
from tui_agent.agent.extensions.claude import TRANSCRIPT, ClaudeRules, HookTranscript, tightening_rules
from tui_agent.agent.extensions.files import ExtensionFolder, skill_folders
from tui_agent.agent.extensions.hook_calls import HookConnections
from tui_agent.agent.extensions.hook_files import Event, read_hooks
from tui_agent.agent.extensions.hooks import HookAnswer, Hooks, SessionFacts
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.persistence import DiskPersistence
from tui_agent.agent.subtasks import SubtaskRunner
from tui_agent.agent.turn.guards import TODAY, CostCeiling, Guards, Limits, LogShare, WatchdogGuard, ledger_of_today
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
from tui_agent.models.choice import compaction_threshold, larger_model, permission_mode
from tui_agent.models.usage import UsageTracker
from tui_agent.settings import Settings
from tui_agent.settings.brought import plugin_name
from tui_agent.settings.trust import CLAUDE_FOLDER, PROJECT_FOLDER
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.ledger import Ledger
from tui_agent.storage.log import LogStore
from tui_agent.system.durable import one_at_a_time, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.system.regular import is_folder
from tui_agent.system.resources import prompt_text
from tui_agent.telemetry.telemetry import Telemetry, installed, problem, spans_for, wanted
from tui_agent.text import expanded
from tui_agent.tools.asking import AskUser, SubmitPlan
from tui_agent.tools.base import Ask, Effect, PermissionAnswer, PermissionQuestion, Tool, ToolFailure
from tui_agent.tools.files.editing import Buffers, EditFile, WriteFile
from tui_agent.tools.files.paging import PageLimits
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.files.tree import TreeLimits
from tui_agent.tools.gate.permissions import NobodyToAsk, PermissionGate
from tui_agent.tools.gate.read_first import run_by_themselves, scripts_in
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.repository import configured_in, git_folders, unknown_setting
from tui_agent.tools.gate.rules import Rule, RuleError
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.lsp.diagnosing import Checks, Diagnosing, LateDiagnostics
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.mcp.configuration import plugins_of
from tui_agent.tools.mcp.servers import ToolServers
from tui_agent.tools.notes.memory import Memory, Notes, memory_folder
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.sandbox.proxy import asking
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxAware, SandboxFolders
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.tasks import EpisodeTool, MarkTaskDone, Todo
from tui_agent.tools.web.fetch_url import FetchUrl
from tui_agent.tools.web.web_search import SERVICES, ProviderSearch, WebSearch
from tui_agent.visible import visible
from tui_agent.worktrees import WorktreeError

RATIOS_FILE: Final = "token-ratios.json"
PAUSES_FILE: Final = "pauses.json"

REMEMBERED_FILE: Final = "permissions.json"
APPROVED_FOLDER: Final = "approved"
"""The folder for what commands that were allowed without a sandbox run first."""


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
        prefix = f"{plugin_name(place).lower()}:"
        extensions.append(ExtensionFolder(place, "yours", kind="plugin", prefix=prefix, data=data))
    if arguments.trusted:
        claude = [ExtensionFolder(project / CLAUDE_FOLDER, "project", within=project, kind="claude")]
        extensions = [theirs, *(claude if settings.session.other_folders else ()), *extensions]
    return SectionReader(
        root=arguments.project,
        folder=arguments.folder.resolve(),
        names=settings.context.instruction_files if arguments.trusted else (),
        skills=tuple(each for root in extensions for each in skill_folders(root)),
        notes=Notes(memory_folder(arguments.home, arguments.project)),
        extensions=tuple(extensions),
        style=settings.session.style,
        skills_tokens=settings.context.skills_index_tokens,
        memory_tokens=settings.context.memory_index_tokens,
        own=arguments.home / OWN_INSTRUCTIONS,
    )


class WorktreeHooks:
    """The hooks that make and clean up worktrees, before there is a session: what `session_worktree` asks in place of
    git. `say` gets what hooks have to tell. Runs an event loop.

    `gate` tells what has changed that a command line runs first: the user is asked about it at the terminal, and
    without one it is not run.
    """

    def __init__(self, hooks: Hooks, folder: Path, say: Callable[[str], None], gate: PermissionGate) -> None:
        self._hooks, self._folder, self._say, self._gate = hooks, folder, say, gate
        hooks.ways = HookConnections(_none_yet, _none_yet, _none_yet, self._may_run)

    def made(self, name: str) -> Path | None:
        """The folder that a hook has made; None if there is no such hook. Raises `WorktreeError`."""
        said = self._fire("WorktreeCreate", name=name)
        if said.refused:
            raise WorktreeError(f"a hook could not make it: {said.refused}")
        if not said.worktree:
            return None
        place = self._folder / said.worktree
        if ".." in place.parts or not place.is_dir():
            raise WorktreeError(f"the folder that a hook has made cannot be used: {place}")
        return place

    def unwanted(self, folder: Path) -> bool:
        """Whether the user wants the folder removed, of which git cannot say whether anything changed.

        They are asked at the terminal; without one, it stays.
        """
        return _at_terminal() and self._agreed(f"Remove the worktree {folder}?")

    def may_set_up(self, line: str) -> bool:
        """Whether to run the user's command line for new worktrees."""
        try:
            return asyncio.run(self._may_run(line, asks=True))
        except NobodyToAsk as unasked:
            self._say(unasked.question.reason)
            return False

    def removing(self, folder: Path) -> bool:
        """Have hooks clean up; whether the folder is gone."""
        self._fire("WorktreeRemove", worktree_path=str(folder))
        return not folder.exists()

    async def _may_run(self, line: str, asks: bool) -> bool:
        return await self._gate.check_own(line, self._ask, title="Run it for worktrees")

    async def _ask(self, question: PermissionQuestion) -> PermissionAnswer:
        if not _at_terminal():
            raise NobodyToAsk(question)
        preview = question.preview
        changed = (f"{change.title}\n{change.diff}" for change in preview.changes)
        shown = "\n".join(map(visible, (f"{preview.title}: {preview.command}", question.reason, *changed)))
        return PermissionAnswer(await asyncio.to_thread(self._agreed, f"{shown}\nRun it?"))

    def _agreed(self, question: str) -> bool:
        self._say(f"{question} [y/N]")
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _fire(self, event: Event, **fields: str) -> HookAnswer:
        async def fired() -> HookAnswer:
            try:
                return await self._hooks.fire(event, fields, self._tell)
            finally:
                await self._hooks.close()

        return asyncio.run(fired())

    def _tell(self, event: AgentEvent) -> None:
        if isinstance(event, events.Notice):
            self._say(f"{event.title}: {event.text}")


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _none_yet(*_: object) -> str:
    raise ToolFailure("no session is open yet, with models and servers to ask")


def worktree_hooks(settings: Settings, arguments: Arguments, say: Callable[[str], None]) -> WorktreeHooks:
    """The hooks that make and clean up the session's worktree. Raises `WorktreeError` if git would do what the settings
    of a repository say that the user does not trust, which may be filters.
    """
    setting = ""
    with suppress(OSError, ValueError):
        setting = unknown_setting(git_folders(arguments.project / ".git")[1], but="submodule.")
    if setting and not arguments.trusted:
        why = f"the repository sets `{setting}`, and git might run what it says"
        raise WorktreeError(f"{why}: trust the project first, with --trust or in the app")
    facts = SessionFacts(
        "",
        arguments.folder,
        arguments.project,
        arguments.home,
        mode=lambda: permission_mode(settings),
        model=lambda: settings.model.id,
        resumed=False,
    )
    workspace = Workspace(arguments.folder, map(Path, settings.permissions.folders))
    gate = PermissionGate(permission_mode(settings), workspace, approved=arguments.home / APPROVED_FOLDER)
    hooks = Hooks(knowledge_of(settings, arguments).extensions, facts)
    return WorktreeHooks(hooks, arguments.folder, say, gate)


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
    """The folders of a session. Guarded are the program's own, what git's settings name, the scripts of hooks, and what
    instruction files name.
    """
    folders = tuple(map(Path, settings.permissions.folders))
    commands = [hook.line for hook in read_hooks(extensions).every()]
    bare = Workspace(arguments.folder, folders)
    scripts = (*scripts_in(commands, bare, arguments.project), *run_by_themselves(arguments.project, bare))
    names = settings.context.instruction_files if arguments.trusted else ()
    parts = included_in_project(arguments.project, arguments.folder.resolve(), names)
    guarded = (arguments.home, *configured_in(arguments.project), *scripts, *parts)
    return Workspace(arguments.folder, folders, read_roots, guarded)


def sandbox_of(
    settings: Settings,
    arguments: Arguments,
    workspace: Workspace,
    session: Path,
    readable: Iterable[Path],
    limits: Iterable[Rule],
) -> Sandbox:
    """The sandbox for commands. Of the program's own files, they may read the session's and those in `readable`, and no
    file that one of the rules in `limits` is about.
    """
    project = arguments.project.resolve()
    # Without what is above the working folder, git finds no repository. A home that is a repository stays unseen.
    above = () if Path.home().resolve().is_relative_to(project) else (project,)
    places = SandboxFolders(
        folders=workspace.folders,
        project=project,
        program=arguments.home.resolve(),
        session=session.resolve(),
        shown=(session.resolve(), *above, *(folder.resolve() for folder in readable)),
        added=tuple(Path(arguments.folder, expanded(path)) for path in settings.permissions.read),
        guarded=tuple(path for path in workspace.guarded if not is_folder(path) and workspace.contains(path)),
    )
    return Sandbox(settings.permissions.sandbox, places, network=settings.permissions.network, limits=limits)


def engine_of(settings: Settings, home: Path, view: View, readable: Iterable[Path]) -> ContextEngine:
    """The context engine, with what earlier sessions learned. What is read in `readable` places is never cleared."""
    return ContextEngine(
        settings,
        view=view,
        ratios=Ratios(decoded_file(home / RATIOS_FILE, dict[str, list[float]]) or {}),
        pauses=Pauses(decoded_file(home / PAUSES_FILE, PauseCounts)),
        task_threshold=compaction_threshold(settings),
        checkpoints=settings.checkpoints.enabled,
        never_clear=list(map(str, readable)),
    )


def keep_learned(engine: ContextEngine, home: Path) -> None:
    """Save the token ratios and pauses that this session learned, beside those of others; errors of the disk are
    ignored.
    """
    learned, pauses = engine.meter.ratios.learned(), engine.pauses
    with contextlib.suppress(OSError):
        if sum(pauses.new.calls):
            with one_at_a_time(home / f".{PAUSES_FILE}.lock"):
                known = Pauses(decoded_file(home / PAUSES_FILE, PauseCounts)).all
                together = known.plus(structs.replace(pauses.new, ends=1.0))
                write_file(home / PAUSES_FILE, msgspec.json.encode(together))
        if learned:
            with one_at_a_time(home / f".{RATIOS_FILE}.lock"):
                known_ratios = decoded_file(home / RATIOS_FILE, dict[str, list[float]]) or {}
                write_file(home / RATIOS_FILE, json.dumps({**known_ratios, **learned}).encode())


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


def servers_of(
    settings: Settings, arguments: Arguments, workspace: Workspace, session: Path, languages: LanguageServers
) -> ToolServers:
    """The MCP servers of the settings, of plugins and of a trusted project. Reads files: call it off the loop."""
    plugins = plugins_of(settings, arguments.folder, arguments.home)
    project = arguments.project if arguments.trusted else None
    return ToolServers.opened(settings.mcp, arguments.home, session, workspace.folders, project, languages, plugins)


def hooks_of(
    arguments: Arguments,
    knowledge: SectionReader,
    kept: DiskPersistence,
    mode: Callable[[], str],
    model: Callable[[], str],
) -> Hooks:
    """The hooks of a session, not read yet."""
    folder, log = kept.store.folder, kept.view.log
    facts = SessionFacts(
        folder.name,
        arguments.folder,
        arguments.project,
        arguments.home,
        mode=mode,
        model=model,
        resumed=bool(log.entries()),
        transcript=HookTranscript(folder / TRANSCRIPT, folder.name, arguments.folder, lambda: kept.view.log),
    )
    return Hooks(knowledge.extensions, facts)


def tools_of(
    settings: Settings,
    arguments: Arguments,
    gate: PermissionGate,
    notes: Notes,
    background: BackgroundCommands,
    sandbox: Sandbox,
    languages: LanguageServers,
    buffers: Buffers | None,
    view: View,
    as_read: Callable[[Path, str], str],
) -> list[Tool]:
    """The tools of the session. `as_read`: how the text of a file is shown to the model."""
    output = settings.output
    pages = PageLimits(output.max_lines, output.max_bytes, output.max_chars)
    commands: Tool = RunCommand(
        keep_variables=settings.permissions.variables,
        asking=partial(asking, gate),
        changed=gate.changed_since,
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
    tools: list[Tool] = [reading, *editing, ListDir(), Glob(), Grep(gate.limits), commands]
    tools += [
        CommandOutput(background),
        StopCommand(background),
        FetchUrl(gate),
        Memory(notes, trusted=arguments.trusted),
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


def theirs_of(settings: Settings, arguments: Arguments) -> ClaudeRules:
    """The user's and the project's rules of Claude Code that can only tighten, those of an untrusted project too."""
    counts = settings.session.other_folders
    return tightening_rules(arguments.project, arguments.user_home) if counts else ClaudeRules()


def check_rules(settings: Settings) -> None:
    """Raise `RuleError`, naming the setting and where it stands, for a rule that cannot be parsed."""
    rules = settings.permissions
    lists = {"permissions.allow": rules.allow, "permissions.ask": rules.ask, "permissions.deny": rules.deny}
    for key, texts in lists.items():
        for text in texts:
            try:
                Rule.read(text)
            except RuleError as error:
                raise RuleError(f"{key} ({settings.source(key)}): {error}") from error


def gate_of(settings: Settings, arguments: Arguments, workspace: Workspace) -> PermissionGate:
    """The permission gate, with the remembered rules. Raises `RuleError`, `RememberedError`."""
    rules, theirs = settings.permissions, theirs_of(settings, arguments)
    return PermissionGate(
        permission_mode(settings),
        workspace,
        allow=rules.allow,
        ask=(*rules.ask, *theirs.ask),
        deny=(*rules.deny, *theirs.deny),
        remembered=RememberedRules(arguments.home / REMEMBERED_FILE, arguments.project),
        unasked=rules.unasked,
        approved=arguments.home / APPROVED_FOLDER,
    )


def guards_of(
    settings: Settings,
    arguments: Arguments,
    view: View,
    tracker: UsageTracker,
    tools: Iterable[Tool],
    ask: Ask,
    watchdog: Watchdog | None,
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
    if arguments.ledger is not None:
        batch = Ledger(arguments.ledger)
        ceiling.sharing = (LogShare(lambda: batch, tracker),)
    if (usd := settings.limits.day_usd) is not None:
        ceiling.sharing = (*ceiling.sharing, LogShare(lambda: ledger_of_today(arguments.home, usd), tracker, TODAY))
    return Guards(ceiling, watch, settings.agent.max_turns)


def briefing_of(
    arguments: Arguments, knowledge: SectionReader, tools: Iterable[Tool], offered: OfferedTools
) -> Briefing:
    """What the model is told at the start of the conversation, and about later changes."""
    rules, started = prompt_text("system"), date.today()
    return Briefing(
        lambda sections: system_prompt(rules, sections, arguments.folder, started),
        ToolRegistry(tools).definitions,
        knowledge,
        offered,
        BY_NEED,
    )
