"""The cursor of a list whose rows become more or fewer, and whose keys come from elsewhere."""

from functools import partial

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Input
from typing_extensions import override

from tui_agent.tui.dialogs.row_list import ListRow, RowList
from tui_agent.tui.painting.glyphs import UNICODE
from tui_agent.tui.painting.lines import Line, Run, make_line
from tui_agent.tui.painting.palette import Look


class Listed(App[None]):
    def __init__(self, *, keys_elsewhere: bool = False) -> None:
        super().__init__()
        self.rows = RowList(UNICODE, keys_elsewhere=keys_elsewhere)

    @override
    def compose(self) -> ComposeResult:
        yield Input(compact=True)
        yield self.rows

    def fill(self, keys: range) -> None:
        self.rows.show([ListRow(partial(draw, key), key) for key in keys])

    @property
    def shown(self) -> list[str]:
        return [self.rows.render_line(y).text.strip() for y in range(self.rows.size.height)]


def draw(key: int, width: int, look: Look) -> Line:
    return make_line([Run(f"  {key}", look.palette.base)])


async def test_a_cursor_in_view_stays_in_view_when_rows_come_before_it() -> None:
    app = Listed()
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(range(100, 200))
        app.rows.focus()
        await pilot.press("down", "down", "down")
        app.fill(range(200))
        await pilot.pause()
        assert app.rows.key == 102
        assert "▎ 102" in app.shown


async def test_a_list_that_was_scrolled_away_from_its_cursor_stays_where_it_is() -> None:
    app = Listed()
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(range(100, 200))
        app.rows.focus()
        await pilot.press("down")
        app.rows.scroll_to(y=50, animate=False, immediate=True)
        await pilot.pause()
        app.fill(range(100, 201))
        await pilot.pause()
        assert app.rows.key == 100
        assert app.shown[0] == "150"


@pytest.mark.parametrize(("keys_elsewhere", "first"), [(True, "▎ 0"), (False, "0")])
async def test_whose_keys_come_from_elsewhere_is_always_marked(keys_elsewhere: bool, first: str) -> None:
    app = Listed(keys_elsewhere=keys_elsewhere)
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(range(10))
        app.rows.action_edge(-1)
        await pilot.click(Input)
        assert app.shown[0] == first
        await pilot.press("tab")
        assert app.rows.has_focus is not keys_elsewhere
