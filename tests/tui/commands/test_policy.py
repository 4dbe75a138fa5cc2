"""Choosing a policy in the real app: what each would have cost is shown first, and the choice decides at once."""

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.tui.app_of_parts import OFFLINE, project_of_parts, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import POLICIES, load_settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import Level, NoticeBlock, ToolBlock
from tui_agent.tui.dialogs.pickers import PickerScreen


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=2)


async def ready(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: app.conductor.session is not None and bool(app.status.status.model))


def notices(app: TuiAgent) -> list[NoticeBlock]:
    """What was said about policies."""
    return [block for block in app.pane.transcript if isinstance(block, NoticeBlock) and "olicy" in block.title]


async def test_what_each_would_have_cost_is_shown_and_the_choice_decides(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await send(app, pilot, "read part0.txt")
        await until(pilot, lambda: any(isinstance(each, ToolBlock) for each in app.pane.transcript))
        await until(pilot, lambda: not app.conductor.busy)
        await send(app, pilot, "/policy")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        choices = app.screen.query_one(OptionList)
        shown = [str(choices.get_option_at_index(place).prompt) for place in range(choices.option_count)]
        assert [row.split()[0 if not row.startswith("•") else 1] for row in shown] == list(POLICIES)
        # The offline model is free, and all of a short session stays in view.
        assert all("$0" in row and "100%" in row for row in shown)
        await pilot.press("down", "enter")
        await until(pilot, lambda: any(block.title.startswith("Policy careful") for block in notices(app)))
        assert app.conductor.session is not None
        agent = app.conductor.session.agent
        assert agent.settings.context.policy == "careful"
        assert agent.settings.compaction.keep_recent_tokens == 40_000
        assert agent.engine.settings is agent.settings


async def test_a_name_sets_it_at_once_and_what_is_set_by_hand_stays(arguments: Arguments) -> None:
    settings = load_settings(
        arguments.home, None, overrides={"model.id": "offline", "compaction.keep_recent_tokens": 9_000}
    )
    app = TuiAgent(arguments, settings)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await send(app, pilot, "/policy careful")
        await until(pilot, lambda: notices(app))
        (notice,) = notices(app)
        assert "compaction.keep_recent_tokens: as you have set it" in notice.text
        assert app.conductor.session is not None
        assert app.conductor.session.agent.settings.compaction.keep_recent_tokens == 9_000
        await send(app, pilot, "/policy lavish")
        await until(pilot, lambda: len(notices(app)) == 2)
        assert (notices(app)[1].level, notices(app)[1].title) == (Level.WARNING, "There is no policy lavish")


async def test_before_anything_was_said_the_names_alone_are_shown(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await send(app, pilot, "/policy")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        choices = app.screen.query_one(OptionList)
        assert all("$" not in str(choices.get_option_at_index(place).prompt) for place in range(3))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, PickerScreen))
        assert notices(app) == []
