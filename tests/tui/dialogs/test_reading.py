"""Texts to read: opened at the place that is looked for, whatever their length."""

from tests.tui.dialogs.test_pickers import StyledApp
from tui_agent.tui.dialogs.reading import ABOVE, MAX_CHARS, TextScreen
from tui_agent.tui.dialogs.row_list import RowList

LINES = [f"line {number}" for number in range(80_000)]
TEXT = "\n".join(LINES)


async def test_a_text_opens_at_the_line_that_is_looked_for_else_at_its_beginning() -> None:
    assert len(TEXT) > MAX_CHARS
    app = StyledApp()
    async with app.run_test(size=(80, 24)) as pilot:
        for number in (0, 1, 700, 40_000, 79_000, None):
            at = None if number is None else TEXT.index(f"line {number}\n") + 3
            screen = TextScreen("Text", TEXT, at=at)
            await app.push_screen(screen)
            for _ in range(3):
                await pilot.pause()
            rows = screen.query_one(RowList)
            shown = ["".join(segment.text for segment in rows.render_line(y)).rstrip() for y in range(rows.size.height)]
            assert shown.index(f"line {number or 0}") == min(number or 0, ABOVE)
            assert (rows.scroll_y > 0) == ((number or 0) >= ABOVE)
            await pilot.press("escape")


async def test_a_line_with_a_space_beyond_the_edge_is_read_in_full() -> None:
    app = StyledApp()
    async with app.run_test(size=(60, 24)) as pilot:
        lines = ["x" * before + "! " for before in range(48, 53)]
        await app.push_screen(screen := TextScreen("Text", "\n".join(lines)))
        for _ in range(3):
            await pilot.pause()
        rows = screen.query_one(RowList)
        shown = ["".join(segment.text for segment in rows.render_line(y)).strip() for y in range(8)]
        assert "x" * (rows.measure - 1) + "!" in shown
