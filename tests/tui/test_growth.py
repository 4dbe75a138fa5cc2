"""What a long day leaves in memory: turns, and dialogs opened and closed, in one app. What is closed is gone.

`python -m tests.tui.test_growth [TURNS] [DIALOGS]` prints a table; 2,000 and 200 without numbers.
"""

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from tests.tui.app_of_parts import OFFLINE, project_of_parts, send, until
from tui_agent.system.process import share_heap
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.session.states import Phase

SAMPLES = 20
DIALOGS = ("f1", "ctrl+p", "/theme", "/model", "/mode", "/rewind", "/resume", "/config", "ctrl+r", "/policy")
PROMPTS = (
    "read part{part}.txt",
    "run echo {number}",
    "list .",
    "find line in part{part}.txt",
    "hello, number {number}",
)
PARTS = 20

OBJECTS_A_TURN, OBJECTS_A_DIALOG = 60, 120
BYTES_A_TURN = 24_000
"""What a turn may add for good: the log, compressed; what the pane shows of it; what the view knows of it."""
patiently = partial(until, within_s=600)
HEADING = f"{'turns':>6} {'dialogs':>8} {'blocks':>10} {'objects':>9} {'resident':>11} {'tasks':>6} {'widgets':>8}"


class Sample(NamedTuple):
    """After so many turns and dialogs: blocks of memory and objects with references that are alive, resident bytes,
    asyncio's tasks, and widgets.
    """

    turns: int
    dialogs: int
    blocks: int
    objects: int
    resident: int
    tasks: int
    widgets: int

    @property
    def line(self) -> str:
        """The sample below `HEADING`."""
        return (
            f"{self.turns:>6,} {self.dialogs:>8,} {self.blocks:>10,} {self.objects:>9,}"
            f" {self.resident / 2**20:>8.1f} MB {self.tasks:>6} {self.widgets:>8}"
        )


class Day:
    """Lives through a day, and samples memory along the way."""

    def __init__(self, app: TuiAgent, pilot: Pilot[object]) -> None:
        self._app = app
        self._pilot = pilot
        self.turns = self.dialogs = 0

    async def turn(self) -> None:
        """Send a prompt, and wait for the end of its turn."""
        number = self.turns
        self.turns += 1
        await send(self._app, self._pilot, PROMPTS[number % len(PROMPTS)].format(part=number % PARTS, number=number))
        conductor = self._app.conductor
        await patiently(self._pilot, lambda: not conductor.busy and conductor.phase is Phase.IDLE)

    async def dialog(self) -> None:
        """Open a dialog and close it."""
        opens = DIALOGS[self.dialogs % len(DIALOGS)]
        self.dialogs += 1
        if opens.startswith("/"):
            await send(self._app, self._pilot, opens)
        else:
            await self._pilot.press(opens)
        await patiently(self._pilot, lambda: len(self._app.screen_stack) > 1)
        await self._pilot.press("escape")
        await patiently(self._pilot, lambda: len(self._app.screen_stack) == 1)

    def sample(self) -> Sample:
        """What is alive now, once all garbage is collected."""
        gc.collect()
        objects = gc.get_objects()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Sample(
            self.turns,
            self.dialogs,
            sys.getallocatedblocks(),
            len(objects),
            resident,
            len(asyncio.all_tasks()),
            sum(isinstance(each, Widget) for each in objects),
        )


async def live(
    app: TuiAgent, turns: int, dialogs: int, samples: int = SAMPLES, tell: Callable[[Sample], object] = lambda _: None
) -> list[Sample]:
    """Live through so many turns and dialogs, evenly mixed; `tell` is called with each sample."""
    found: list[Sample] = []
    async with app.run_test(size=(100, 30)) as pilot:
        await patiently(pilot, lambda: app.conductor.session)
        day = Day(app, pilot)
        for number in range(1, samples + 1):
            while day.turns < turns * number // samples:
                await day.turn()
            while day.dialogs < dialogs * number // samples:
                await day.dialog()
            await pilot.pause()
            found.append(day.sample())
            tell(found[-1])
    return found


async def test_closed_dialogs_leave_nothing_and_the_process_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frozen, process = gc.get_freeze_count(), (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval())
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, PARTS), OFFLINE)
    async with app.run_test(size=(100, 30)) as pilot:
        await patiently(pilot, lambda: app.conductor.session)
        day = Day(app, pilot)
        for _ in range(5):
            await day.turn()
        for _ in DIALOGS:
            await day.dialog()
        before = day.sample()
        for _ in DIALOGS:
            await day.dialog()
        # A task that saves or packs something may be about to end.
        await patiently(pilot, lambda: len(asyncio.all_tasks()) <= before.tasks)
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


def main() -> None:
    """Print the table of one day."""
    turns, dialogs = (int(each) for each in (*sys.argv[1:], *("2000", "200")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as monkeypatch:
        app = TuiAgent(project_of_parts(monkeypatch, Path(place), PARTS), OFFLINE)
        print(HEADING)
        asyncio.run(live(app, turns, dialogs, tell=lambda sample: print(sample.line, flush=True)))


if __name__ == "__main__":
    share_heap()
    main()
