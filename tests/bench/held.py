"""How long a step holds up the event loop in a long session: a key press waits as long.

A callback that comes every millisecond notes what lies between two of its calls: how much the whole program worked,
which on a machine with nothing else to do is the most that a key waits; how much of that the loop's own thread did; and
how long it took, which on a busy machine says more of the machine.
"""

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.report import Figure
from tui_agent.agent.agent import Agent
from tui_agent.agent.persistence import Persistence
from tui_agent.cli import SWITCH_INTERVAL_S
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Prefix, Usage, tool_result, user_message
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.models.base import Completed, StreamEvent
from tui_agent.settings import CompactionSettings, Settings
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.log import LogStore
from tui_agent.system.durable import in_thread
from tui_agent.tools.files.tree import Tree, TreeLimits

TURNS: Final = 5_000
TOKENS: Final = 900_000
ROUNDS: Final = 5
FILES: Final = 20_000
TICK_S: Final = 0.001
MOST_MS: Final = 16.0
"""How long a key press may wait."""
NAME: Final = "bench:still"
SUMMARY: Final = "# Current state\nAll steps so far are done.\n\n# Exact next steps\n1. Go on."


class Held(NamedTuple):
    """The most between two ticks, in seconds: that the program worked, that the loop's own thread did, that went by."""

    worked: float
    own: float
    longest: float


class Still:
    """Answers at once, costs what a large model does, and has a window in which nothing is due."""

    def __init__(self, name: str = "still") -> None:
        self.profile = ModelProfile(
            "bench", name, 1_200_000, 16_000, "frontier", Prices(4.0, 20.0, 0.2, 5.0), source="provider"
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        yield Completed((Text(SUMMARY),), Usage(input_tokens=TOKENS, output_tokens=40), "end_turn")

    async def describe(self) -> ModelProfile:
        return self.profile

    async def close(self) -> None: ...


def figures() -> list[Figure]:
    """For every step the median of the longest blocks of a few rounds."""
    found: list[Figure] = []
    # As the app does once it is ready.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    for name, rounds in asyncio.run(_measured()).items():
        worked, own, longest = (1000 * statistics.median(each) for each in zip(*rounds, strict=True))
        found.append(Figure(f"{name}, {TURNS:,} turns: CPU before a key is seen", worked, "ms", MOST_MS))
        found.append(Figure("  the loop's own part at most", own, "ms"))
        found.append(Figure("  time that went by at most", longest, "ms"))
    return [*found, *_around_a_command()]


def _around_a_command() -> list[Figure]:
    """What of the loop's own thread the looks at a project's files take that are taken around every command."""
    with tempfile.TemporaryDirectory(dir="/var/tmp" if Path("/var/tmp").is_dir() else None) as place:
        project = Path(place).resolve() / "project"
        for folder in range(FILES // 100):
            (project / f"d{folder}").mkdir(parents=True)
            for number in range(100):
                (project / f"d{folder}" / f"f{number}.py").write_text(f"x = {folder * number}\n")
        tree = Tree(project, (), KeptFiles(Path(place) / "kept", FILES * 1_000), TreeLimits(2 * FILES, 60, 1_000_000))
        found = asyncio.run(_looked_at(tree, project))
    return [
        Figure(
            f"{name}, {FILES:,} files: the loop's own part at most",
            1000 * statistics.median(each.own for each in rounds),
            "ms",
            MOST_MS,
        )
        for name, rounds in found.items()
    ]


async def _looked_at(tree: Tree, project: Path) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {}
    await tree.look()
    for number in range(ROUNDS):
        found.setdefault("before a command", []).append(await held(tree.look))
        await asyncio.to_thread((project / f"d{number}" / "f0.py").write_text, "changed\n")
        found.setdefault("after it", []).append(await held(tree.changes))
    return found


async def _measured() -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        await _write(folder)
        for number in range(ROUNDS):
            # In a call of its own, so that what a round leaves is freed before the next one is measured.
            await _round(folder, found, number)
            gc.collect()
    return found


async def _round(folder: Path, found: dict[str, list[Held]], number: int) -> None:
    async with _opened(folder, found) as agent:
        for name, step in _steps(agent, number).items():
            found.setdefault(name, []).append(await held(step))


def _steps(agent: Agent, number: int) -> dict[str, Callable[[], Awaitable[object]]]:
    async def panel() -> object:
        return agent.context.overview()

    async def turn() -> None:
        async for _ in agent.run(f"please do one thing more, {number}"):
            pass

    tip = 0

    async def listing() -> None:
        nonlocal tip
        tip = next(branch.tip for branch in await in_thread(agent.branches.all) if not branch.present)

    prompts = [item.seq for item in agent.context.items() if item.category == "user"]
    return {
        "a turn": turn,
        "opening the panel": panel,
        "a preview of /compact": lambda: agent.context.preview("compact"),
        "a preview of /clear-results": lambda: agent.context.preview("clear"),
        "/clear-results": agent.context.clear_results,
        "undoing it": agent.context.undo,
        "/pin": lambda: agent.context.pin([prompts[5]]),
        "/compact": lambda: agent.compact("the steps"),
        "undoing that": agent.context.undo,
        "/rewind": lambda: agent.branches.rewind(prompts[-10]),
        "listing the branches": listing,
        "/tree NUMBER": lambda: agent.branches.switch(tip),
        "/fork": agent.branches.fork,
        "/model": lambda: agent.swap_model(Still(f"still-{number}")),
    }


async def held(step: Callable[[], Awaitable[object]]) -> Held:
    """How long a step holds up the event loop."""
    loop = asyncio.get_running_loop()
    last, most, over = _clocks(), Held(0, 0, 0), False

    def tick() -> None:
        nonlocal last, most
        now = _clocks()
        between = Held(*(later - earlier for later, earlier in zip(now, last, strict=True)))
        most = Held(*map(max, most, between._replace(longest=between.longest - TICK_S)))
        last = now
        if not over:
            loop.call_later(TICK_S, tick)

    tick()
    await asyncio.sleep(10 * TICK_S)
    most = Held(0, 0, 0)
    await step()
    await asyncio.sleep(5 * TICK_S)
    over = True
    await asyncio.sleep(5 * TICK_S)
    return most


def _clocks() -> Held:
    return Held(time.process_time(), time.thread_time(), time.perf_counter())


@asynccontextmanager
async def _opened(folder: Path, found: dict[str, list[Held]]) -> AsyncIterator[Agent]:
    """The session, opened as the program does; what that holds up the loop is measured too."""
    opened: list[Persistence] = []

    async def opening() -> None:
        opened.append(await Persistence.on_disk(folder))

    found.setdefault("opening the session", []).append(await held(opening))
    (kept,) = opened
    agent = Agent(Still(), settings=Settings(compaction=CompactionSettings(thrift=0)), persistence=kept)
    await agent.connect()
    try:
        yield agent
    finally:
        await agent.close()
        await kept.close()


async def _write(folder: Path) -> None:
    view = View()
    for entry in _said():
        view.apply(view.log.stamp(entry, time.time()))
    store = await LogStore.open(folder)
    try:
        await store.load()
        await store.append(list(view.log))
    finally:
        await store.close()


def _said() -> list[AnyEntry]:
    """A prompt, a call with its result and an answer for each turn; as many tokens as wanted in all."""
    entries: list[AnyEntry] = [ModelSwitched(model=NAME), Prefix(system="rules\n" * 500)]
    for number in range(TURNS):
        path, read = f"src/module_{number}.py", 1_000 + (TOKENS - 1_000) * number // TURNS
        call = ToolCall(f"c{number}", "read_file", f'{{"path":"{path}"}}')
        told = f"line of code number {number} in {path} value={7 * number}\n" * 5
        entries += [
            user_message(f"please do step {number} of {path} " + "x" * 60),
            Message(role="assistant", model=NAME, blocks=(Text("I look."), call), usage=Usage(read, output_tokens=30)),
            tool_result(ToolResult(call.id, told)),
            Message(
                role="assistant",
                model=NAME,
                blocks=(Text(f"Done with {number}: " + "word " * 20),),
                usage=Usage(read + 120, output_tokens=40),
            ),
        ]
    return entries
