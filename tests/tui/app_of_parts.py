"""The real app, with the offline model, in a project of a few files named ``part0.txt`` and so on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from textual.pilot import Pilot

from tui_agent.agent.agent import Agent
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, PermissionSettings, Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import UserBlock

B = TypeVar("B")
OFFLINE = Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(unasked="known"))
ALLOW = Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(mode="allow"))


def project_of_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: int) -> Arguments:
    """Make the project, and forget the keys and addresses of this machine's user."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(parts):
        (folder / f"part{number}.txt").write_text(f"part {number}\n" + f"line of part {number}, not short\n" * 40)
    monkeypatch.chdir(folder)
    return Arguments(folder=folder, home=tmp_path / "home", project=folder)


async def until(pilot: Pilot[object], true: Callable[[], object], *, within_s: float = 60) -> None:
    """Wait until it is true and the screen has its parts, which a dialog that was just opened has not."""
    async with asyncio.timeout(within_s):
        while not (true() and pilot.app.screen.is_mounted):
            await pilot.pause(0.02)


async def workers_finished(pilot: Pilot[object]) -> None:
    """Wait until no worker runs. Unlike `wait_for_complete`, one that a later one replaced is no failure."""
    await until(pilot, lambda: all(worker.is_finished for worker in pilot.app.workers))


async def send(app: TuiAgent, pilot: Pilot[object], text: str) -> None:
    app.entry.prompt.focus()
    app.entry.prompt.type(text)
    await pilot.pause()
    await pilot.press("enter")


@asynccontextmanager
async def running(
    arguments: Arguments, settings: Settings = OFFLINE, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    """The app with its session open. Nothing may go wrong inside it, which would be said there and pass unseen."""
    app = TuiAgent(arguments, settings)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.conductor.session is not None and bool(app.status.status.model))
        yield app, pilot
        assert "Something went wrong inside the program" not in said(app)


def agent_of(app: TuiAgent) -> Agent:
    assert app.conductor.session is not None
    return app.conductor.session.agent


def blocks(app: TuiAgent, kind: type[B]) -> list[B]:
    return [block for block in app.pane.transcript if isinstance(block, kind)]


def said(app: TuiAgent) -> str:
    return "\n".join(block.plain_text for block in app.pane.transcript)


def prompts(app: TuiAgent) -> list[str]:
    return [block.text for block in blocks(app, UserBlock)]


async def answered(app: TuiAgent, pilot: Pilot[object], text: str) -> None:
    """Send it, and wait until its turn is over."""
    before = len(app.pane.transcript)
    await send(app, pilot, text)
    await until(pilot, lambda: len(app.pane.transcript) > before and not app.conductor.busy)
