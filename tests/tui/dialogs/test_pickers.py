"""A list to choose one from: what is marked, what typing leaves of it, and terminals that have no room for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rich.style import Style
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from tui_agent.system.resources import styles_folder
from tui_agent.tui.dialogs.pickers import ChoiceList, Option, PickerScreen, _without_stubs

MODELS = (
    Option("", "Now", heading=True),
    Option("fable", "fable-2", "$3 mid"),
    Option("", "Another", heading=True),
    *(Option(f"model-{number}", f"model-{number}", "$1 small") for number in range(20)),
    Option("old", "ancient-model", "$9 large", folded=True),
)


class StyledApp(App[None]):
    """Has the style sheet of dialogs."""

    CSS_PATH = styles_folder() / "dialogs.tcss"


def marked(picker: PickerScreen) -> str:
    place = picker.query_one(OptionList).highlighted
    assert place is not None
    return str(picker.query_one(OptionList).get_option_at_index(place).prompt).split()[0]


@asynccontextmanager
async def shown(
    picker: PickerScreen, ended: Callable[[str | None], None] = lambda _: None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Pilot[None], OptionList]]:
    app = StyledApp()
    async with app.run_test(size=size) as pilot:
        app.push_screen(picker, ended)
        await pilot.pause()
        yield pilot, picker.query_one(ChoiceList)


async def test_it_begins_at_what_holds_now_and_no_heading_is_ever_marked() -> None:
    picker = PickerScreen("Model", MODELS, "model-3", search=True)
    async with shown(picker) as (pilot, choices):
        assert isinstance(pilot.app.focused, Input)
        assert marked(picker) == "•"
        await pilot.press("up")
        assert marked(picker) == "model-2"
        await pilot.press("ctrl+home")
        assert marked(picker) == "fable-2"
        await pilot.press("down")
        assert marked(picker) == "model-0"
        await pilot.resize_terminal(80, 16)
        await pilot.pause()
        page = choices.size.height - 1
        assert 4 < page < 12
        await pilot.press("ctrl+home", "pagedown")
        assert choices.highlighted == 1 + page
        await pilot.press("ctrl+end", "pageup")
        assert choices.highlighted == len(MODELS) - 2 - page
        await pilot.press("pagedown", "pagedown")
        assert marked(picker) == "model-19"


async def test_typing_narrows_it_and_finds_what_is_folded() -> None:
    chosen: list[str | None] = []
    picker = PickerScreen("Model", MODELS, search=True)
    async with shown(picker, chosen.append) as (pilot, choices):
        assert choices.option_count == len(MODELS) - 1
        await pilot.press(*"ancient")
        assert (choices.option_count, marked(picker)) == (1, "ancient-model")
        await pilot.press("space", *"small")
        assert "nothing fits" in str(choices.get_option_at_index(0).prompt)
        await pilot.press("pageup", "ctrl+end", "enter")
        assert pilot.app.screen is picker
        await pilot.press(*["backspace"] * 6, "enter")
        assert chosen == ["old"]


async def test_other_options_take_the_place_of_those_shown_and_the_marked_one_stays_marked() -> None:
    picker = PickerScreen("Model", MODELS, "model-3", search=True)
    async with shown(picker) as (pilot, choices):
        before = choices.options
        picker.use(MODELS)
        assert choices.options == before
        fewer = [option for option in MODELS if option.value not in ("model-1", "model-5")]
        picker.use(fewer)
        assert (choices.option_count, choices.highlighted) == (len(fewer) - 1, 5)
        await pilot.press(*"small")
        picker.use(option for option in MODELS if option.value != "model-3")
        assert (choices.option_count, choices.highlighted) == (19, 0)
        picker.use([Option("x", "a \x1b[1m b", "small \n")])
        assert str(choices.get_option_at_index(0).prompt).split() == ["a", "b", "small"]


async def test_what_is_marked_is_shown_and_leaving_chooses_nothing() -> None:
    seen: list[str] = []
    chosen: list[str | None] = []
    names = [Option(name, name) for name in ("dusk", "paper", "mist")]
    async with shown(PickerScreen("Theme", names, "paper", preview=seen.append), chosen.append) as (pilot, choices):
        assert pilot.app.focused is choices
        await pilot.press("down", "escape")
        assert (seen[0], seen[-1], chosen) == ("paper", "mist", [None])


async def test_sentences_are_broken_anew_where_the_width_is_another_one() -> None:
    told = "edits here, runs read-only commands, asks about the rest"
    picker = PickerScreen("Mode", [Option("auto", "auto", told), Option("ask", "ask", told)], "ask")
    async with shown(picker) as (pilot, choices):
        for width, lines in ((80, 1), (50, 2), (80, 1)):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            assert str(choices.get_option_at_index(0).prompt).count("\n") == lines - 1
            assert choices.highlighted == 1


async def test_what_its_keys_do_is_in_view_below_a_text_of_any_length() -> None:
    many = [Option(str(number), f"setting-{number}", "its value") for number in range(90)]
    picker = PickerScreen("Settings: " + "value and origin, " * 5, many, text="/a/long/folder" * 9, search=True)
    async with shown(picker) as (pilot, choices):
        for size in ((60, 20), (80, 24), (120, 40), (160, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            frame, keys = picker.query_one(".dialog").region, picker.query_one(".dialog-keys").region
            assert keys.height
            assert choices.region.bottom < keys.y < keys.bottom < frame.bottom <= size[1]
            assert choices.region.height > 4


async def test_page_keys_where_no_choice_shows() -> None:
    picker = PickerScreen("Theme", [Option(str(number), str(number)) for number in range(30)])
    async with shown(picker) as (pilot, _):
        for width, height in ((80, 1), (1, 24), (1, 1)):
            await pilot.resize_terminal(width, height)
            await pilot.press("pageup", "pagedown", "down", "up")
        await pilot.resize_terminal(80, 24)
        await pilot.press("pagedown", "escape")
        assert len(pilot.app.screen_stack) == 1


async def test_what_is_said_of_a_choice_is_there_at_any_width() -> None:
    model = Option("one", "provider:a-model-with-a-long-name-2", "  $2 / $10    1.0M  mid")
    async with shown(PickerScreen("Model", [model], search=True)) as (pilot, choices):
        for width in (24, 30, 40, 60, 120):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            lines = [choices.render_line(place).text for place in range(choices.size.height)]
            assert any("$2 / $10 " in line for line in lines)
            assert "provider:a-" in lines[0]
    bare = PickerScreen("Model", [Option("one", "a label that is wider than the screen is")])
    async with shown(bare, size=(8, 12)):
        assert marked(bare) == "a"


async def test_a_click_on_what_was_just_narrowed_away() -> None:
    picker = PickerScreen("Theme", [Option(str(number), str(number)) for number in range(9)], search=True)
    async with shown(picker) as (pilot, choices):
        choices.clear_options()
        choices.add_option("the only one")
        # What the mouse points at still looks as it was painted.
        painted = Style(meta={"option": 5})
        choices.post_message(events.Click(choices, 2, 5, 0, 0, 1, False, False, False, style=painted))
        await pilot.pause()
        assert pilot.app.screen is picker


def test_a_last_column_of_which_next_to_nothing_would_be_seen_is_left_out() -> None:
    for told, room, left in (
        ("27  $0.05  a few last words", 27, "27  $0.05  a few last words"),
        ("27  $0.05  a few last words", 22, "27  $0.05  a few last words"),
        ("27  $0.05  a few last words", 20, "27  $0.05"),
        ("$2 / $10    1.0M  mid", 18, "$2 / $10    1.0M"),
        ("$2 / $10    1.0M  mid       no key", 21, "$2 / $10    1.0M  mid"),
        ("all one sentence", 6, "all one sentence"),
    ):
        assert _without_stubs(told, room) == left


async def test_a_sentence_stands_below_a_label_that_leaves_it_less_than_half_the_width() -> None:
    told = "a place that was found, with the words around it and some more"
    picker = PickerScreen("Found", [Option("long", "result of your shell " * 2, told), Option("b", "b", "short")])
    async with shown(picker) as (_, choices):
        rows = [str(choices.get_option_at_index(place).prompt) for place in (0, 1)]
        assert rows[0].splitlines()[1].strip() == told
        assert "\n" not in rows[1]
