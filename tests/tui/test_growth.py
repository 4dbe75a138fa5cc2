"""A long day in one app: what is closed is gone, and memory levels off."""

import asyncio
import gc
import sys
from pathlib import Path

import pytest

from tests.tui.app_of_parts import OFFLINE, project_of_parts
from tests.tui.growth import DIALOGS, PARTS, Day, live, until
from tui_agent.system.process import share_heap
from tui_agent.tui.app.app import TuiAgent

OBJECTS_A_TURN, OBJECTS_A_DIALOG = 60, 120
BYTES_A_TURN = 24_000
"""What a turn may add for good: the log, compressed; what the pane shows of it; what the view knows of it."""


async def test_closed_dialogs_leave_nothing_and_the_process_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frozen, process = gc.get_freeze_count(), (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval())
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, PARTS), OFFLINE)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.conductor.session)
        day = Day(app, pilot)
        for _ in range(5):
            await day.turn()
        for _ in DIALOGS:
            await day.dialog()
        before = day.sample()
        for _ in DIALOGS:
            await day.dialog()
        # A task that saves or packs something may be about to end.
        await until(pilot, lambda: len(asyncio.all_tasks()) <= before.tasks)
        after = day.sample()
        assert after.widgets == before.widgets
        assert after.objects - before.objects < OBJECTS_A_DIALOG * len(DIALOGS)
    assert gc.get_freeze_count() <= frozen
    assert (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval()) == process


@pytest.mark.soak
async def test_a_day_of_two_thousand_turns_and_two_hundred_dialogs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    share_heap()  # as the program's entry does
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, PARTS), OFFLINE)
    samples = await live(app, 2_000, 200, tell=lambda sample: print(sample.line, flush=True))
    middle, last = samples[len(samples) // 2], samples[-1]
    turns = last.turns - middle.turns
    assert last.widgets <= samples[0].widgets
    assert last.tasks <= samples[0].tasks + 2
    assert last.objects - middle.objects < OBJECTS_A_TURN * turns
    assert last.resident - middle.resident < BYTES_A_TURN * turns
