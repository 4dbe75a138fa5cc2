"""A theme, a mode and a policy that were chosen are there at the next start; what each policy would have cost."""

import pytest
from textual.widgets import OptionList

from tests.tui.app.test_prompt_actions import _environment, arguments
from tests.tui.app_of_parts import agent_of, answered, blocks, running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import POLICIES, Settings, load_settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock
from tui_agent.tui.dialogs.pickers import PickerScreen

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


def notices(app: TuiAgent) -> list[NoticeBlock]:
    """What was said about policies."""
    return [block for block in blocks(app, NoticeBlock) if "olicy" in block.title]


def shown(app: TuiAgent) -> list[str]:
    choices = app.screen.query_one(OptionList)
    return [str(choices.get_option_at_index(place).prompt) for place in range(choices.option_count)]


async def test_what_each_would_have_cost_is_shown_and_the_choice_decides(arguments: Arguments) -> None:
    async with running(arguments, size=(120, 40)) as (app, pilot):
        await send(app, pilot, "/policy")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        assert not any("$" in row for row in shown(app)), "nothing was said yet"
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, PickerScreen))
        assert notices(app) == []
        await answered(app, pilot, "read hello.txt")
        await send(app, pilot, "/policy")
        await until(pilot, lambda: app.status.status.activity.startswith("replaying"))
        await pilot.press("escape")
        await until(pilot, lambda: not app.status.status.activity)
        assert not isinstance(app.screen, PickerScreen)
        await send(app, pilot, "/policy")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        assert [row.split()[0 if not row.startswith("•") else 1] for row in shown(app)] == list(POLICIES)
        # The offline model is free, and all of a short session stays in view.
        assert all("$0" in row and "100%" in row for row in shown(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: any(block.title.startswith("Policy careful") for block in notices(app)))
        agent = agent_of(app)
        assert agent.settings.context.policy == "careful"
        assert agent.settings.compaction.keep_recent_tokens == 40_000
        assert agent.engine.settings is agent.settings


async def test_a_name_sets_it_at_once_and_what_is_set_by_hand_stays(arguments: Arguments) -> None:
    settings = load_settings(
        arguments.home, None, overrides={"model.id": "offline", "compaction.keep_recent_tokens": 9_000}
    )
    async with running(arguments, settings, size=(120, 40)) as (app, pilot):
        await send(app, pilot, "/policy careful")
        await until(pilot, lambda: notices(app))
        (notice,) = notices(app)
        assert "compaction.keep_recent_tokens: as you have set it" in notice.text
        assert agent_of(app).settings.compaction.keep_recent_tokens == 9_000
