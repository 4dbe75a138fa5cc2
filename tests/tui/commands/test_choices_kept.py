"""A theme and a mode that were chosen are there at the next start; that they are kept is said once of each."""

import pytest

from tests.tui.app.test_prompt_actions import _environment, arguments
from tests.tui.app_of_parts import running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings, load_settings
from tui_agent.tui.app.app import TuiAgent

__all__ = ["_environment", "arguments"]


async def test_choices_are_kept_and_that_is_said_once(arguments: Arguments) -> None:
    async with running(arguments, Settings()) as (app, pilot):
        await send(app, pilot, "/theme mist")
        await until(pilot, lambda: "The theme is saved for every project" in said(app))
        await send(app, pilot, "/mode plan")
        await until(pilot, lambda: app.settings.permissions.mode == "plan")
        await send(app, pilot, "/mode allow")
        await until(pilot, lambda: app.status.status.mode == "allow")
        await send(app, pilot, "/mode plan")
        await until(pilot, lambda: app.status.status.mode == "plan")
        assert said(app).count("The mode is saved for every project") == 1
    settings = load_settings(arguments.home, None)
    assert (settings.ui.theme, settings.permissions.mode) == ("mist", "plan")
    assert app.settings == settings


async def test_a_theme_that_was_only_looked_at_is_not_kept_and_a_broken_file_is_left_alone(
    arguments: Arguments,
) -> None:
    async with running(arguments, Settings()) as (app, pilot):
        before = app.theme
        await send(app, pilot, "/theme ")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        await pilot.press("down")
        assert app.theme != before
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == before)
        assert not (arguments.home / "config.json").exists()
        assert app.settings.sources == {}
        (arguments.home / "config.json").write_text("{")
        await send(app, pilot, "/theme light")
        await until(pilot, lambda: app.theme == "paper")
        await send(app, pilot, "/theme mist")
        await until(pilot, lambda: "counts until the program ends" in said(app))
        assert app.theme == "mist"
    assert (arguments.home / "config.json").read_text() == "{"


def test_a_terminal_of_sixteen_colours_gets_its_own(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    for term, theme in (("xterm-256color", "dusk"), ("xterm", "terminal"), ("linux", "terminal")):
        monkeypatch.setenv("TERM", term)
        assert TuiAgent(arguments, Settings()).theme == theme
    assert TuiAgent(arguments, load_settings(arguments.home, None, overrides={"ui.theme": "mist"})).theme == "mist"
