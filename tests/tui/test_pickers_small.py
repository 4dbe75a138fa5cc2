"""A picker in a terminal that has no room for it."""

from textual.app import App

from tui_agent.tui.dialogs.pickers import Choices, Option, PickerScreen


async def test_page_keys_where_no_choice_shows() -> None:
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(PickerScreen("Theme", [Option(str(number), str(number)) for number in range(30)]))
        await pilot.pause()
        for width, height in ((80, 1), (1, 24), (1, 1)):
            await pilot.resize_terminal(width, height)
            await pilot.press("pageup", "pagedown", "down", "up")
        await pilot.resize_terminal(80, 24)
        await pilot.press("pagedown", "escape")
        assert len(app.screen_stack) == 1


async def test_a_click_on_what_was_just_narrowed_away() -> None:
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        picker = PickerScreen("Theme", [Option(str(number), str(number)) for number in range(9)], search=True)
        app.push_screen(picker)
        await pilot.pause()
        choices = picker.query_one(Choices)
        painted = choices.region
        choices.clear_options()
        choices.add_option("the only one")
        await pilot.click(offset=(painted.x + 2, painted.y + 5))
        assert app.screen is picker
