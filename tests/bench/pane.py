"""What the conversation pane costs: CPU milliseconds per operation, and memory, for transcripts of several lengths.

Runs without a terminal.
"""

import asyncio
import gc
import resource
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Input, Static
from typing_extensions import override

from tests.bench.long_session import ANSWER
from tests.bench.report import Figure
from tui_agent.tui.cards.blocks import ProseBlock, ToolState
from tui_agent.tui.painting.themes import DEFAULT_DARK, register_themes
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.transcript import Transcript

TARGETS = {
    "key": 8.0,
    "status": 8.0,
    "fragment": 15.0,
    "page_up": 30.0,
    "focus_change": 30.0,
    "toggle_all": 100.0,
    "resize": 100.0,
    "memory_mb": 120.0,
}
"""Upper bounds, CPU milliseconds (memory: megabytes resident at 5,000 turns)."""

TURNS = (10, 200, 1000, 5000)

_STYLES = Path(__file__).parents[2] / "styles" / "conversation.tcss"


def fill(transcript: Transcript, turns: int) -> None:
    """Add turns of a prompt, reasoning, three tool cards and an answer with code."""
    for turn in range(turns):
        transcript.add_user(f"Please look at module {turn} and explain what its main function does.")
        transcript.add_reasoning(f"I should read module {turn} first.\n" * 4, seconds=2.0, tokens=80)
        for number in range(3):
            tool = transcript.add_tool(f"{turn}-{number}", "read_file", summary=f"src/module_{turn}_{number}.py")
            lines = (f"{line:>4}  value_{line} = compute({turn}, {line})" for line in range(40))
            transcript.finish_tool(tool, ToolState.OK, "\n".join(lines))
        transcript.add_prose(ANSWER.format(turn=turn))


class _BenchApp(App[None]):
    CSS_PATH = _STYLES

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self.pane = ConversationPane(transcript)

    @override
    def compose(self) -> ComposeResult:
        yield self.pane
        yield Input()
        yield Static("status", id="status")

    def on_mount(self) -> None:
        register_themes(self)
        self.theme = DEFAULT_DARK
        self.query_one(Input).focus()


async def _measure(turns: int) -> dict[str, float]:
    """CPU milliseconds per operation on a transcript of `turns` turns, 120 by 40 cells; peak memory in megabytes."""
    started = process_time()
    transcript = Transcript()
    fill(transcript, turns)
    app = _BenchApp(transcript)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        load = (process_time() - started) * 1000
        status = app.query_one("#status", Static)
        prose = transcript.start_prose()
        # As the app does: a run of the collector over a long conversation would fall into any of the operations.
        gc.collect()
        gc.freeze()

        async def one(operation: Callable[[], object], count: int) -> float:
            return await _cost(pilot, operation, count)

        async def key() -> None:
            await pilot.press("a")

        ticks = iter(range(1_000_000))

        def fragment() -> None:
            _stream(app, prose, f"word{next(ticks)} **and** more `code` of this paragraph, ")

        def focus_change() -> None:
            app.app_focus = not app.app_focus

        figures = {
            "load": load,
            "key": await one(key, 20),
            "status": await one(lambda: status.update(f"status {next(ticks)}"), 20),
            "fragment": await one(fragment, 40),
        }
        figures["page_up"] = await one(lambda: app.pane.action_page(-1), 20)
        figures["focus_change"] = await one(focus_change, 10)
        figures["toggle_all"] = await one(app.pane.toggle_all, 4)
        sizes = iter([(100, 40), (120, 40), (90, 30), (120, 40)])
        figures["resize"] = await one(lambda: pilot.resize_terminal(*next(sizes)), 4)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
    return {**figures, "memory_mb": peak / (1024 if sys.platform == "darwin" else 1)}


async def _cost(pilot: Pilot[None], operation: Callable[[], object], count: int) -> float:
    started = process_time()
    for _ in range(count):
        result = operation()
        if isinstance(result, Awaitable):
            await result
        await pilot.pause()
    return (process_time() - started) * 1000 / count


def _stream(app: _BenchApp, prose: ProseBlock, delta: str) -> None:
    app.pane.transcript.stream(prose, delta)
    app.pane.flush()


def figures(turn_counts: Sequence[int] = TURNS) -> list[Figure]:
    """Every operation at every length, each length in a process of its own."""
    found: list[Figure] = []
    toggles: dict[int, float] = {}
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        for turns in turn_counts:
            measured = pool.submit(_measured, turns).result()
            toggles[turns] = measured["toggle_all"]
            for name in measured:
                target = TARGETS.get(name) if name not in _AT or turns == _AT[name] else None
                unit = "MB" if name == "memory_mb" else "ms"
                found.append(Figure(f"{turns:>6,} turns: {_LABELS.get(name, name)}", measured[name], unit, target))
    if {1000, 5000} <= set(toggles):
        ratio = toggles[5000] / toggles[1000]
        found.append(Figure(" 5,000 turns: Ctrl+O against what it took at 1,000", ratio, "x", 1.5))
    return found


def _measured(turns: int) -> dict[str, float]:
    return asyncio.run(_measure(turns))


_AT = {"toggle_all": 1000, "memory_mb": 5000}
"""Lengths for which a target is meant where it is not for all."""
_LABELS = {
    "load": "load and first paint",
    "key": "key press",
    "status": "status tick",
    "fragment": "stream fragment",
    "page_up": "page up",
    "focus_change": "focus change",
    "toggle_all": "Ctrl+O",
    "resize": "resize",
    "memory_mb": "memory, peak",
}
