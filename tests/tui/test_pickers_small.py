"""A picker in a terminal that has no room for it."""

from textual.app import App

from tui_agent.tui.dialogs.pickers import Option, PickerScreen


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
