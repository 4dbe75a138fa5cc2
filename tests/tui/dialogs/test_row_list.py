"""A list of any length that paints what is in view."""

from functools import partial

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Input
from typing_extensions import override

from tests.tui.app_of_parts import until
from tui_agent.tui.dialogs.row_list import ListRow, RowList
from tui_agent.tui.painting.lines import Line, Run, make_line
from tui_agent.tui.painting.palette import Look

COUNT = 20_000


class Listed(App[object]):
    def __init__(self, *, keys_elsewhere: bool = False) -> None:
        super().__init__()
        self.painted: set[object] = set()
        self.opened: list[object] = []
        self.rows = RowList(keys_elsewhere=keys_elsewhere)

    @override
    def compose(self) -> ComposeResult:
        yield self.rows
        yield Input(compact=True)

    @property
    def shown(self) -> list[str]:
        return [self.rows.render_line(y).text.strip() for y in range(self.rows.size.height)]

    def fill(self, *keys: object) -> None:
        self.rows.show([ListRow(partial(self.draw, key), key) for key in keys])

    def draw(self, key: object, _width: int, look: Look) -> Line:
        self.painted.add(key)
        return make_line([Run(f"  {key}", look.palette.base)])

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self.opened.append(message.key)


async def test_only_what_is_in_view_is_painted() -> None:
    app = Listed()
    async with app.run_test(size=(40, 11)) as pilot:
        app.fill(*range(COUNT))
        await until(pilot, lambda: app.rows.has_focus)
        await pilot.press("end")
        await pilot.pause()
        assert COUNT - 1 in app.painted
        assert app.rows.key == COUNT - 1
        assert len(app.painted) <= 30


async def test_a_cursor_in_view_stays_in_view_when_rows_come_before_it() -> None:
    app = Listed()
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(*range(100, 200))
        app.rows.focus()
        await pilot.press("down", "down", "down")
        app.fill(*range(200))
        await pilot.pause()
        assert app.rows.key == 102
        assert "▎ 102" in app.shown


async def test_a_list_that_was_scrolled_away_from_its_cursor_stays_where_it_is() -> None:
    app = Listed()
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(*range(100, 200))
        app.rows.focus()
        await pilot.press("down")
        app.rows.scroll_to(y=50, animate=False, immediate=True)
        await pilot.pause()
        app.fill(*range(100, 201))
        await pilot.pause()
        assert app.rows.key == 100
        assert app.shown[0] == "150"


@pytest.mark.parametrize(("keys_elsewhere", "first"), [(True, "▎ 0"), (False, "0")])
async def test_whose_keys_come_from_elsewhere_is_always_marked(keys_elsewhere: bool, first: str) -> None:
    app = Listed(keys_elsewhere=keys_elsewhere)
    async with app.run_test(size=(20, 8)) as pilot:
        app.fill(*range(10))
        app.rows.action_edge(-1)
        await pilot.click(Input)
        assert app.shown[0] == first
        await pilot.press("tab")
        assert app.rows.has_focus is not keys_elsewhere


async def test_cursor_and_view_go_together() -> None:
    app = Listed()
    seen: list[str] = []
    async with app.run_test(size=(40, 7)) as pilot:

        def tell(what: str) -> None:
            seen.append(f"{what}: {app.rows.key} at {round(app.rows.scroll_y)}")

        app.fill(*(number if number % 5 in (0, 1) or number > 30 else None for number in range(40)))
        for key in (
            *["down"] * 3,
            "pagedown",
            "pagedown",
            "up",
            "end",
            "up",
            "pageup",
            "home",
            "pageup",
            *["down"] * 9,
        ):
            await pilot.press(key)
            tell(key)
        for y in (0, 2, 4, 4):
            await pilot.click(RowList, offset=(3, y))
            tell(f"click {y}")
        app.rows.go_to(20)
        tell("go to 20")
        app.rows.go_to(18)
        tell("go to 18")
        app.fill(*range(0, 40, 2))
        tell("half of them")
        app.fill(*range(1, 40, 2))
        tell("the others")
        app.fill(1, 3)
        tell("two")
        app.fill(None)
        tell("none")
        app.fill("a", None)
        await pilot.press("up")
        tell("up from below")
        app.fill()
        for key in ("down", "up", "pagedown", "end", "home"):
            await pilot.press(key)
        tell("empty")
        app.fill(*[None] * 20)
        for key in ("down", "down", "pagedown", "up"):
            await pilot.press(key)
            tell(key)
    assert app.opened == [20]
    assert seen == [
        "down: 0 at 0",
        "down: 1 at 0",
        "down: 5 at 0",
        "pagedown: 10 at 5",
        "pagedown: 15 at 10",
        "up: 11 at 10",
        "end: 39 at 35",
        "up: 38 at 35",
        "pageup: 33 at 30",
        "home: 0 at 0",
        "pageup: 0 at 0",
        "down: 1 at 0",
        "down: 5 at 0",
        "down: 6 at 1",
        "down: 10 at 5",
        "down: 11 at 6",
        "down: 15 at 10",
        "down: 16 at 11",
        "down: 20 at 15",
        "down: 21 at 16",
        "click 0: 16 at 16",
        "click 2: 16 at 16",
        "click 4: 20 at 16",
        "click 4: 20 at 16",
        "go to 20: 20 at 19",
        "go to 18: 20 at 19",
        "half of them: 20 at 10",
        "the others: 21 at 10",
        "two: 3 at 0",
        "none: None at 0",
        "up from below: a at 0",
        "empty: None at 0",
        "down: None at 1",
        "down: None at 2",
        "pagedown: None at 7",
        "up: None at 6",
    ]
