"""Texts to read: opened at the place that is looked for, whatever their length."""

import pytest

from tests.tui.dialogs.test_pickers import StyledApp
from tui_agent.tui.dialogs.reading import ABOVE, MAX_CHARS, TextScreen
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.painting.glyphs import UNICODE

LINES = [f"line {number}" for number in range(80_000)]
TEXT = "\n".join(LINES)


@pytest.mark.parametrize("number", [0, 1, 700, 40_000, 79_000])
async def test_a_text_opens_at_the_line_that_is_looked_for(number: int) -> None:
    app = StyledApp()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = TextScreen("Text", TEXT, UNICODE, at=TEXT.index(f"line {number}\n") + 3)
        await app.push_screen(screen)
        for _ in range(3):
            await pilot.pause()
        rows = screen.query_one(RowList)
        top = round(rows.scroll_y)
        shown = ["".join(segment.text for segment in rows.render_line(y)).rstrip() for y in range(rows.size.height)]
        assert shown.index(f"line {number}") == min(number, ABOVE)
        assert top == 0 if number < ABOVE else top > 0


async def test_without_a_place_it_opens_at_its_beginning() -> None:
    assert len(TEXT) > MAX_CHARS
    app = StyledApp()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = TextScreen("Text", TEXT, UNICODE)
        await app.push_screen(screen)
        await pilot.pause()
        assert "".join(segment.text for segment in screen.query_one(RowList).render_line(0)).rstrip() == "line 0"


async def test_a_line_with_a_space_beyond_the_edge_is_read_in_full() -> None:
    app = StyledApp()
    async with app.run_test(size=(60, 24)) as pilot:
        lines = ["x" * before + "! " for before in range(48, 53)]
        await app.push_screen(screen := TextScreen("Text", "\n".join(lines), UNICODE))
        for _ in range(3):
            await pilot.pause()
        rows = screen.query_one(RowList)
        shown = ["".join(segment.text for segment in rows.render_line(y)).strip() for y in range(8)]
        assert "x" * (rows.measure - 1) + "!" in shown
