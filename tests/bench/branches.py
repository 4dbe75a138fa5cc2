"""What going to another place of a long conversation costs in the real app: the longest block of the event loop, in
CPU milliseconds, while the agent moves and while the screen follows; and how long it takes.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

from textual.pilot import Pilot

from tests.bench.long_session import write_session
from tests.bench.report import Figure
from tests.tui.app_of_parts import until, workers_finished
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, Settings
from tui_agent.tui.app.app import TuiAgent

TARGET_MS: Final = 16.0
TURNS: Final = (200, 5000)


class Watch:
    """The longest that one round of the event loop has kept its thread busy."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def look(self) -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            self.longest, last = max(self.longest, now - last), now

    def taken(self) -> float:
        """Milliseconds since this was asked last."""
        longest, self.longest = 1000 * self.longest, 0.0
        return longest


@asynccontextmanager
async def _watching() -> AsyncIterator[Watch]:
    watch = Watch()
    task = asyncio.create_task(watch.look())
    try:
        yield watch
    finally:
        task.cancel()


def figures(turn_counts: tuple[int, ...] = TURNS) -> list[Figure]:
    """Taking the newest message back, and going back to it, at every length, each in a process of its own."""
    found: list[Figure] = []
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        for turns in turn_counts:
            for name, value, unit in pool.submit(_measured, turns).result():
                target = TARGET_MS if unit == "ms" else None
                found.append(Figure(f"{turns:>6,} turns: {name}", value, unit, target))
    return found


def _measured(turns: int) -> list[tuple[str, float, str]]:
    return asyncio.run(_measure(turns))


@asynccontextmanager
async def resumed(turns: int) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    """The app with a session of so many turns, 120 by 40 cells."""
    os.environ["TUI_AGENT_OFFLINE_DELAY_S"] = "0"
    with tempfile.TemporaryDirectory() as place:
        folder, home = Path(place) / "project", Path(place) / "home"
        folder.mkdir()
        session = await write_session(home, turns, cwd=folder)
        arguments = Arguments(folder=folder, home=home, project=folder, resume=session)
        app = TuiAgent(arguments, Settings(model=ModelSettings(id="offline")))
        async with app.run_test(size=(120, 40)) as pilot:
            await app.agent()
            await workers_finished(pilot)
            yield app, pilot


async def _measure(turns: int) -> list[tuple[str, float, str]]:
    async with resumed(turns) as (app, pilot), _watching() as watch:
        agent = await app.agent()
        prompts = await asyncio.to_thread(agent.branches.prompts)
        tip = agent.engine.view.head
        found = await _moved(app, pilot, watch, "rewind", agent.branches.rewind(prompts[-1].seq))
        return [*found, *await _moved(app, pilot, watch, "back", agent.branches.switch(tip))]


async def _moved(
    app: TuiAgent, pilot: Pilot[object], watch: Watch, name: str, move: Awaitable[object]
) -> list[tuple[str, float, str]]:
    await pilot.pause()
    watch.taken()
    before, began = app.pane.transcript, perf_counter()
    await move
    agent_ms = watch.taken()
    await until(pilot, lambda: app.pane.transcript is not before)
    seconds = perf_counter() - began
    await workers_finished(pilot)
    await pilot.pause()
    return [
        (f"{name}, longest block while the agent moves", agent_ms, "ms"),
        (f"{name}, longest block while the screen follows", watch.taken(), "ms"),
        (f"{name}, until it is shown", seconds, "s"),
    ]
