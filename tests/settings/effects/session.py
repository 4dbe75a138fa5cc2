"""Probes of whole sessions: with the offline model, or with a provider's server behind the real SDK."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.agent.summaries import Reader
from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tests.settings.effects.probe import Observe, Probe
from tests.tools.support import call
from tests.tools.web.test_fetch_url import answer, server
from tui_agent.agent import events, remembering
from tui_agent.settings import Settings
from tui_agent.telemetry.telemetry import spans_for, wanted
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.lsp import programs
from tui_agent.tools.notes.memory import memory_folder
from tui_agent.tools.sandbox.sandbox import SandboxMechanism, mechanism
from tui_agent.tools.web.web_search import WebSearch
from tui_agent.worktrees import session_worktree

HERE = Path(__file__)
OFFLINE = {"model.id": "offline"}
UNCONFINED = OFFLINE | {"permissions.sandbox": "off"}
SEARXNG = OFFLINE | {"search.service": "searxng"}
OPUS = {"model.id": "claude-opus-5-5"}


@asynccontextmanager
async def without_delay() -> AsyncIterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
        yield patch


def doing(prompt: str) -> Observe:
    """What a turn asks, and each call's status and what the model sees of its result; times and the folder left out."""

    async def observe(settings: Settings, folder: Path) -> object:
        asked: list[str] = []

        async def yes(question: PermissionQuestion) -> PermissionAnswer:
            asked.append(question.tool)
            return PermissionAnswer(allowed=True)

        async with without_delay(), talking(folder, settings, ask=yes) as session:
            told = await say(session, prompt)
        done = [event for event in told if isinstance(event, events.ToolFinished)]
        return asked, [(each.status, re.sub(r"\d+\.\d s", "", each.text.replace(str(folder), "~"))) for each in done]

    return observe


def broken(text: str) -> Observe:
    """How many problems the result of writing this text names."""

    async def observe(settings: Settings, folder: Path) -> object:
        async with without_delay() as patch, talking(folder, settings) as session:
            patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
            patch.setattr(programs, "PROGRAMS", programs.PROGRAMS[1:2])
            told = await say(session, f'write "{text}" to broken.py')
        texts = [event.text for event in told if isinstance(event, events.ToolFinished)]
        return sum(text.count("(Ruff") + text.count("checked") for text in texts)

    return observe


def set_up(settings: Settings, folder: Path) -> object:
    """What is in a new worktree."""
    repository, before = folder / "repository", Path.cwd()
    repository.mkdir()
    commit = ["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"]
    for words in (["init", "-q"], commit):
        subprocess.run(["git", *words], cwd=repository, check=True)
    os.chdir(repository)
    try:
        with session_worktree(repository, "side", settings.worktree.setup, lambda _: None) as place:
            return sorted(path.name for path in place.iterdir())
    finally:
        os.chdir(before)


async def remembered(settings: Settings, folder: Path) -> object:
    """How many subtasks follow what was said, once a session is idle."""
    async with without_delay() as patch, talking(folder, settings) as session:
        patch.setattr(remembering, "IDLE_S", 0.0)
        await say(session, "It matters that the port stays what it is. " * 8)
        for _ in range(200 if settings.memory.by_model else 1):
            await asyncio.sleep(0.05)
            if session.agent.tracker.subtask_count:
                break
        return session.agent.tracker.subtask_count


def search_tool(settings: Settings, folder: Path) -> object:
    """What a call of web_search would touch; None: there is no such tool."""
    if not settings.search.service:
        return None
    return WebSearch(settings.search).access('{"query": "x"}', Workspace(folder))


async def searched(settings: Settings, folder: Path) -> object:
    """How many pages a search gives, and its price."""
    pages = [{"title": str(number), "url": "https://a.example/", "content": ""} for number in range(20)]
    async with server({"/search?q=x&format=json": answer(json.dumps({"results": pages}).encode())}) as served:
        tool = WebSearch(replace(settings.search, url=f"{served.url}/search"))
        output = await call(tool, folder, query="x")
    return output.text.count("https://"), output.cost_usd


async def raw_output(settings: Settings, folder: Path) -> object:
    """How much of a command's raw output is kept."""
    async with without_delay(), talking(folder, settings) as session:
        await say(session, "run seq 1 2000")
        return [path.stat().st_size for path in sorted((session.folder / "raw").iterdir())]


async def put_back(settings: Settings, folder: Path) -> object:
    """What can be put back, and what not, of what a command has changed."""
    async with without_delay(), talking(folder, settings) as session:
        await say(session, "run echo more >> calc.py")
        planned = await session.agent.files.changes(session.agent.branches.prompts()[0].seq)
    return [step.name for step in planned.ours], planned.impossible, planned.gaps


async def tools(settings: Settings, folder: Path) -> object:
    async with talking(folder, settings) as session:
        return [tool.name for tool in session.agent.tools()]


async def prompt_lines(settings: Settings, folder: Path) -> object:
    """What of the project's instructions, skills and notes is in the system prompt."""
    project = folder / "project"
    for number in range(30):
        skill = project / ".agents" / "skills" / f"skill-{number}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: Marked SKILL, {number}.\n---\n")
    (project / "AGENTS.md").write_text("Marked by AGENTS.\n")
    (project / "RULES.md").write_text("Marked by RULES.\n")
    memory = memory_folder(folder / "home", project)
    memory.mkdir(parents=True)
    (memory / "MEMORY.md").write_text("".join(f"- note-{number}: Marked NOTE.\n" for number in range(30)))
    async with without_delay(), talking(folder, settings, trusted=True) as session:
        await say(session, "help")
        prefix = session.agent.engine.view.prefix
        assert prefix is not None
        return [prefix.system.count(mark) for mark in ("AGENTS.", "RULES.", "Marked SKILL", "Marked NOTE")]


async def alerts(settings: Settings, folder: Path) -> object:
    """What the watchdog does about a turn that goes in circles."""
    async with without_delay(), talking(folder, settings) as session:
        told = await say(session, ", then ".join(["read calc.py"] * 7))
    return [event.action for event in told if isinstance(event, events.Alert)]


async def confinement(settings: Settings, folder: Path) -> object:
    """Whether a command is confined, and whether it is begun at all."""
    async with talking(folder, settings) as session:
        sandbox = session.sandbox
        return sandbox.confines, bool(sandbox.trouble) and sandbox.choice == "required"


async def unasked(settings: Settings, folder: Path) -> object:
    """Whether commands run unasked where a full sandbox confines them."""
    async with talking(folder, settings) as session:
        session.sandbox._offered = SandboxMechanism("namespaces", "whatever this machine has")
        return session.agent.permissions.runs_confined


async def network(settings: Settings, folder: Path) -> object:
    """Whether a command that is confined may use the network."""
    async with talking(folder, settings) as session:
        return session.sandbox.request(["/bin/true"], folder, {}, guard=session.sandbox.guard()).network


async def read_besides(settings: Settings, folder: Path) -> object:
    """Whether a command that is confined may read this folder."""
    async with talking(folder, settings) as session:
        request = session.sandbox.request(["/bin/true"], folder, {}, guard=session.sandbox.guard())
        return str(HERE.parent) in request.readonly


async def variables(settings: Settings, folder: Path) -> object:
    """Whether a command sees a variable that looks like a secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MY_SERVICE_TOKEN", "a token")
        async with without_delay(), talking(folder, settings) as session:
            told = await say(session, "run printenv MY_SERVICE_TOKEN")
    return [event.status for event in told if isinstance(event, events.ToolFinished)]


def reading(request: ParsedRequest) -> Step:
    if request.position < 4:
        return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{request.position}.txt"}),))
    return Step(text="All pages are read.")


def reading_all_at_once(request: ParsedRequest) -> Step:
    if request.position:
        return Step(text="All pages are read.")
    return Step(calls=tuple(Call("read_file", {"path": f"page_{number}.txt"}) for number in range(4)))


async def calls_at_once(settings: Settings, folder: Path) -> object:
    """How the calls of one answer ended."""
    (folder / "project").mkdir()
    for number in range(4):
        (folder / "project" / f"page_{number}.txt").write_text("a line\n")
    with in_thread(AnthropicServer(Reader(reading_all_at_once))) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        async with talking(folder, settings) as session:
            told = await say(session, "Read.")
    return [event.status for event in told if isinstance(event, events.ToolFinished)]


def asking(*prompts: str, overflow: bool = False) -> Observe:
    """The failures of turns with a server, and how often it was asked; the last request may be refused as too large."""

    async def observe(settings: Settings, folder: Path) -> object:
        (folder / "project").mkdir()
        for number in range(4):
            (folder / "project" / f"page_{number}.txt").write_text("a line of some length\n" * 300)
        reader, failed = Reader(reading), []
        with in_thread(AnthropicServer(reader)) as server, pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            async with talking(folder, settings) as session:
                for prompt in prompts:
                    if overflow and prompt is prompts[-1]:
                        server.inject(Fault(kind="context_overflow"))
                    told = await say(session, prompt)
                    failed += [event.kind for event in told if isinstance(event, events.TurnFailed)]
        return failed, len(reader.own)

    return observe


async def limited(settings: Settings, folder: Path) -> object:
    """What a turn does whose provider's limit is reached for a moment longer than the retries last."""
    with in_thread(AnthropicServer(Reader(reading))) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        async with talking(folder, settings) as session:
            server.inject(Fault(kind="rate_limited", times=6, retry_after=0.01))
            told = await say(session, "Hello.")
            kinds = events.TurnFailed | events.ModelChanged
            waits = [bool(event.until) for event in told if isinstance(event, events.Retrying)]
            return waits, [type(event) for event in told if isinstance(event, kinds)], session.agent.profile.name


PROBES: Mapping[str, Probe] = {
    "telemetry.enabled": Probe("on", lambda settings, _: wanted(settings, {})),
    "telemetry.content": Probe(True, lambda settings, _: spans_for("a session", settings, {}).content),
    "model.wait_for_reset": Probe(0, limited, OPUS),
    "model.fallbacks": Probe(["claude-sonnet-5-5"], limited, OPUS),
    "context.skills_index_tokens": Probe(300, prompt_lines, OFFLINE),
    "context.memory_index_tokens": Probe(300, prompt_lines, OFFLINE),
    "context.instruction_files": Probe(["RULES.md"], prompt_lines, OFFLINE),
    "output.stream_bytes": Probe(500, doing("run seq 1 300"), OFFLINE),
    "output.error_bytes": Probe(20, doing("read absent.txt"), OFFLINE),
    "output.raw_stream_bytes": Probe(500, raw_output, OFFLINE),
    "compaction.max_compaction_recoveries": Probe(0, asking("Read.", "Again.", overflow=True), OPUS),
    "checkpoints.enabled": Probe(False, tools, OFFLINE),
    "checkpoints.episodes": Probe(True, tools, OFFLINE),
    "agentic.enabled": Probe(False, tools, OFFLINE),
    "agent.max_calls": Probe(1, calls_at_once, OPUS),
    "agent.max_turns": Probe(1, asking("Read."), OPUS),
    "agent.max_turn_cost_usd": Probe(0.0001, asking("Read."), OPUS),
    "agent.max_session_cost_usd": Probe(0.0001, asking("Read."), OPUS),
    "limits.day_usd": Probe(0.0001, asking("Read."), OPUS),
    "permissions.mode": Probe("allow", doing("run seq 3"), UNCONFINED),
    "permissions.allow": Probe(["run_command(seq 3)"], doing("run seq 3"), UNCONFINED),
    "permissions.ask": Probe(["read_file"], doing("read calc.py"), OFFLINE),
    "permissions.deny": Probe(["read_file"], doing("read calc.py"), OFFLINE),
    "permissions.sandbox": Probe("required" if mechanism().kind == "none" else "off", confinement, OFFLINE),
    "permissions.network": Probe(True, network, OFFLINE),
    "permissions.read": Probe([str(HERE.parent)], read_besides, OFFLINE),
    "permissions.variables": Probe(["MY_SERVICE_TOKEN"], variables, OFFLINE),
    "permissions.unasked": Probe("known", unasked, OFFLINE),
    "permissions.folders": Probe([str(HERE.parent)], doing(f"read {HERE}"), OFFLINE),
    "diagnostics.checks": Probe(
        ("*.py=grep -q . {file} && echo broken.py:1 checked; false",),
        broken("x"),
        OFFLINE | {"diagnostics.wait_s": 30.0},
    ),
    "diagnostics.enabled": Probe(False, broken("def f(:"), OFFLINE),
    "diagnostics.wait_s": Probe(0.0, broken("def f(:"), OFFLINE | {"diagnostics.wait_s": 30.0}),
    "diagnostics.warnings": Probe(True, broken("import os"), OFFLINE | {"diagnostics.wait_s": 30.0}),
    "worktree.setup": Probe("touch made", set_up, OFFLINE),
    "search.service": Probe("brave", search_tool, OFFLINE),
    "search.url": Probe("http://127.0.0.1:9/other", search_tool, SEARXNG),
    "memory.by_model": Probe(True, remembered, OFFLINE),
    "search.in_plan": Probe(
        False,
        doing('call web_search query="x"'),
        SEARXNG | {"search.url": "http://127.0.0.1:9/", "permissions.mode": "plan"},
    ),
    "search.results": Probe(1, searched, SEARXNG),
    "search.usd": Probe(0.5, searched, SEARXNG),
    "file_history.enabled": Probe(False, put_back, OFFLINE),
    "file_history.max_file_bytes": Probe(50, put_back, OFFLINE),
    "file_history.max_bytes": Probe(50, put_back, OFFLINE),
    "file_history.max_files": Probe(1, put_back, OFFLINE),
    "file_history.max_seconds": Probe(0.000001, put_back, OFFLINE),
    "safety.notices": Probe(False, alerts, OFFLINE),
    "watchdog.mode": Probe("off", alerts, OFFLINE),
}
