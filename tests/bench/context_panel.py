"""What the context panel costs in the real app, resumed at several lengths: CPU milliseconds to open it and to bring it
up to date.
"""

import asyncio
import gc
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import process_time
from typing import Final

from tests.bench.branches import resumed
from tests.bench.report import Figure
from tests.tui.app_of_parts import until

TARGET_MS: Final = 100.0
UPDATES: Final = 5
TURNS: Final = (10, 1_000, 5_000)


def figures(turn_counts: Sequence[int] = TURNS) -> list[Figure]:
    """Opening and updating at every length, each in a process of its own."""
    found: list[Figure] = []
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        for turns in turn_counts:
            opened, updated = pool.submit(_measured, turns).result()
            found.append(Figure(f"{turns:>6,} turns: context panel, open", opened, "ms", TARGET_MS))
            found.append(Figure(f"{turns:>6,} turns: context panel, update", updated, "ms", TARGET_MS))
    return found


def _measured(turns: int) -> tuple[float, float]:
    return asyncio.run(_measure(turns))


async def _measure(turns: int) -> tuple[float, float]:
    async with resumed(turns) as (app, pilot):
        gc.collect()
        gc.freeze()
        began = process_time()
        await pilot.press("f2")
        await until(pilot, lambda: app.steering.panel is not None and app.steering.panel.overview is not None)
        opened = process_time() - began
        panel = app.steering.panel
        if panel is None:
            raise RuntimeError("the panel was closed")
        began = process_time()
        for _ in range(UPDATES):
            panel.look()
            await pilot.pause()
        return 1000 * opened, 1000 * (process_time() - began) / UPDATES
