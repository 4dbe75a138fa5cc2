"""Choosing a policy in the real app: what each would have cost is shown first, and the choice decides at once."""

from pathlib import Path

import pytest
from textual.widgets import OptionList

from tests.tui.app_of_parts import agent_of, answered, blocks, project_of_parts, running, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import POLICIES, load_settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock
from tui_agent.tui.dialogs.pickers import PickerScreen


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=2)


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
        await answered(app, pilot, "read part0.txt")
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
