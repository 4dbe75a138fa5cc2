"""`/loop`: a prompt that is sent again and again."""

from pathlib import Path

import pytest

from tests.tui.app_of_parts import blocks, project_of_parts, running, until
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock, UserBlock
from tui_agent.tui.commands import loop


def said(app: TuiAgent) -> list[str]:
    return [block.title for block in blocks(app, NoticeBlock)]


async def test_a_prompt_is_sent_again_until_it_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    async with running(arguments) as (app, pilot):

        def sent() -> int:
            return len(blocks(app, UserBlock))

        await app.run_command("/loop 9s read part0.txt")
        assert said(app)[-1] == "That is no loop"
        await app.run_command("/loop 1h read part0.txt")
        await until(pilot, lambda: sent() == 1 and not app.conductor.busy)  # at once
        await app.run_command("/loop 10s read part0.txt")
        assert said(app)[-1] == "Every 10s: read part0.txt"
        monkeypatch.setattr(loop, "SHORTEST_S", 1)
        await app.run_command("/loop 1s read part0.txt")
        await until(pilot, lambda: sent() >= 3)
        await app.run_command("/loop")
        assert said(app)[-1] == "Every 1s: read part0.txt"
        assert app.status.status.loop == "1s"
        await app.run_command("/loop off")
        assert not app.status.status.loop
        assert said(app)[-1] == "The loop has ended"
        await app.run_command("/loop")
        assert said(app)[-1] == "No loop runs"


async def test_it_ends_with_a_turn_that_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0.5")
    monkeypatch.setattr(loop, "SHORTEST_S", 1)
    async with running(arguments) as (app, pilot):
        await app.run_command("/loop 1s read part0.txt")
        await until(pilot, lambda: app.status.status.activity == "thinking")
        app.conductor.stop()
        await until(pilot, lambda: said(app)[-1].startswith("The loop has ended"))
