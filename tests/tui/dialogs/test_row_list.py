"""A list of any length that paints what is in view."""

from functools import partial

from textual.app import App, ComposeResult
from typing_extensions import override

from tests.tui.app_of_parts import until
from tui_agent.tui.dialogs.row_list import ListRow, RowList
from tui_agent.tui.painting.glyphs import UNICODE
from tui_agent.tui.painting.lines import Line, Run, make_line
from tui_agent.tui.painting.palette import Look

COUNT = 20_000


class Listed(App[object]):
    def __init__(self) -> None:
        super().__init__()
        self.painted: set[int] = set()
        self.opened: list[object] = []
        self.rows = RowList(UNICODE)

    @override
    def compose(self) -> ComposeResult:
        yield self.rows

    def fill(self, *keys: object) -> None:
        self.rows.show([ListRow(partial(self.draw, number), key) for number, key in enumerate(keys)])

    def draw(self, number: int, width: int, look: Look) -> Line:
        self.painted.add(number)
        return make_line([Run(f"  {number}".ljust(width), look.palette.base)])

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self.opened.append(message.key)


async def test_only_what_is_in_view_is_painted() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill(*range(COUNT))
        await pilot.press("end")
        await until(pilot, lambda: COUNT - 1 in app.painted)
        assert app.rows.key == COUNT - 1
        assert len(app.painted) <= 30


async def test_the_cursor_rests_on_rows_that_mean_something() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill(None, "a", None, None, "b", None)
        seen = []
        for key in ("down", "j", "down", "up", "k", "end", "home"):
            await pilot.press(key)
            seen.append(app.rows.key)
        assert seen == ["a", "b", "b", "a", "a", "b", "a"]


async def test_up_from_below_a_short_list() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill("a", None)
        await pilot.press("up")
        assert app.rows.key == "a"


async def test_arrows_scroll_where_nothing_can_be_chosen() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill(*[None] * 30, "far")
        await pilot.pause()
        await pilot.press("down", "down")
        assert (app.rows.scroll_y, app.rows.key) == (2, None)
        await pilot.press("pagedown", "pagedown", "pagedown", "down")
        assert app.rows.key == "far"


async def test_the_cursor_stays_on_what_it_was_on() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill("a", "b", "c")
        await pilot.press("down", "down")
        seen = []
        for keys in (("new", "a", "b", "c"), ("new", "a", "c"), (None,)):
            app.fill(*keys)
            seen.append(app.rows.key)
        assert seen == ["b", "c", None]


async def test_a_second_click_opens() -> None:
    app = Listed()
    async with app.run_test(size=(40, 10)) as pilot:
        app.fill("a", "b")
        await pilot.click(RowList, offset=(3, 1))
        assert (app.rows.key, app.opened) == ("b", [])
        await pilot.click(RowList, offset=(3, 1))
        assert app.opened == ["b"]
