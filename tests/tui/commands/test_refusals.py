"""Commands that cannot be done say why, and change nothing."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.app_of_parts import ALLOW, agent_of, answered, blocks, project_of_parts, running, send, until
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock, ToolBlock
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen


def notices(app: TuiAgent) -> list[str]:
    return [block.plain_text for block in blocks(app, NoticeBlock)]


async def told(app: TuiAgent, pilot: Pilot[object], text: str) -> str:
    """What the app says to this command, which replaces nothing."""
    before = len(notices(app))
    app.status.show(hint="")
    await send(app, pilot, text)
    await until(pilot, lambda: len(notices(app)) > before or app.status.status.hint)
    return "\n".join(notices(app)[before:]) or app.status.status.hint


async def test_while_a_turn_runs_what_would_change_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), ALLOW, size=(100, 40)) as (app, pilot):
        await send(app, pilot, "run sleep 60")
        await until(pilot, lambda: blocks(app, ToolBlock))
        agent = agent_of(app)
        policy, model = agent.settings.context.policy, agent.profile.name
        assert "stays offline:offline while a turn runs" in await told(app, pilot, "/model claude-haiku-4-5")
        assert f"The policy stays {policy} while a turn runs" in await told(app, pilot, "/policy thrifty")
        for command in ("/compact!", "/clear-results!", "/undo-step"):
            assert "turn" in await told(app, pilot, command), command
        assert (agent.settings.context.policy, agent.profile.name) == (policy, model)
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)


async def test_what_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), size=(100, 40)) as (app, pilot):
        assert "The model stays offline:offline" in await told(app, pilot, "/model nonesuch")
        assert "There is no policy lavish" in await told(app, pilot, "/policy lavish")
        assert "There is no theme plaid" in await told(app, pilot, "/theme plaid")
        await answered(app, pilot, "read part0.txt")
        for place in ("nowhere/at/all.md", "~nobody-here/all.md", "all.txt"):
            assert "Nothing was exported" in await told(app, pilot, f"/export {place}")
        assert "/talk of it.md" in await told(app, pilot, '/export "part/../talk of it.md"')
        await send(app, pilot, "/model gemini-3 ")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, KeyScreen))
        await pilot.press("escape")
        await until(pilot, lambda: any("There is no key for gemini:gemini-3" in each for each in notices(app)))
