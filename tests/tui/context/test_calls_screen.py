"""The calls of a session on the screen: moving along them, reading and comparing requests, forking."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.app_of_parts import project_of_parts, send, until
from tests.tui.context.test_panel import panel_of, read, talked
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.context.calls_screen import CallsScreen
from tui_agent.tui.context.drawing import SIGNS, Column, strip_lines
from tui_agent.tui.dialogs.reading import TextScreen
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.painting.palette import Look, Palette


def shown(app: TuiAgent) -> int:
    """The call whose view is shown; 0: none yet."""
    screen = app.screen
    return screen.seen.call.number if isinstance(screen, CallsScreen) and screen.seen is not None else 0


async def _text(app: TuiAgent, pilot: Pilot[object], key: str) -> str:
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, TextScreen))
    screen = app.screen
    assert isinstance(screen, TextScreen)
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, CallsScreen))
    return "\n".join(screen._lines)


async def test_a_person_goes_back_reads_compares_and_forks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tui_agent.tui.context.calls_screen.READ_AT_ONCE", 5)
    async with talked(project_of_parts(monkeypatch, tmp_path, parts=7), (80, 24)) as (app, pilot):
        await send(app, pilot, "/clear-results!")
        await read(app, pilot, 6)
        panel = await panel_of(app, pilot)
        panel.take_keys()
        await pilot.press("a")
        await until(pilot, lambda: shown(app) == 14)
        screen = app.screen
        assert isinstance(screen, CallsScreen)
        # The signs of many calls come later than their sizes.
        await until(pilot, lambda: any(column.sign == SIGNS["cleared"][0] for column in screen._columns))
        await pilot.press("left")
        await until(pilot, lambda: shown(app) == 13)
        assert screen.seen is not None
        assert screen.seen.call.cleared > 0
        assert "# System prompt" in await _text(app, pilot, "enter")
        assert "--- call 12" in await _text(app, pilot, "d")
        await pilot.press("home")
        await until(pilot, lambda: shown(app) == 1)
        assert len(screen.seen.items) == 1
        await pilot.press("left", "right", "right", "right")
        await until(pilot, lambda: shown(app) == 4)
        agent, answer = await app.agent(), screen.seen.call.seq
        await pilot.press("f")
        await until(pilot, lambda: agent.context.newest_answer == answer)


@pytest.mark.parametrize("count", [1, 5, 40, 41, 5_000])
@pytest.mark.parametrize("width", [20, 44, 120])
def test_every_call_has_its_place_in_the_strip(count: int, width: int) -> None:
    look = Look(Palette.from_theme({}), ASCII)
    columns = [Column(1_000 + number, "s" if number == count // 2 else " ", "warning") for number in range(count)]
    places = set()
    for chosen in {0, count // 2, count - 1}:
        lines = [
            "".join(segment.text for segment in line.segments) for line in strip_lines(columns, chosen, width, look)
        ]
        assert all(len(line) <= width for line in lines)
        assert lines[2].count("s") == 1
        assert lines[3].count("|") == 1
        places.add(lines[3].index("|"))
        if chosen == count // 2:
            assert lines[3].index("|") == lines[2].index("s")
    assert len(places) == min(3, count)
