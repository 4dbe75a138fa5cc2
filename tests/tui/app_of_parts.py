"""The real app, with the offline model, in a project of a few files named ``part0.txt`` and so on."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, PermissionSettings, Settings
from tui_agent.tui.app.app import TuiAgent

OFFLINE = Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(unasked="known"))


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
