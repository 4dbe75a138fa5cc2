"""The first picture is drawn, and looks like what takes its place; what does not belong to it is loaded after it."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.events import Key
from typing_extensions import override

from tests.tui.app.test_prompt_actions import _environment, arguments
from tests.tui.app_of_parts import until
from tui_agent.arguments import Arguments
from tui_agent.session import Session
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.schema import UiSettings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.session.turns import TurnView

__all__ = ["_environment", "arguments"]


class Looking(TuiAgent):
    """Keeps the first picture, and opens no session until the next one was looked at."""

    first: Sequence[str] = ()

    def __init__(self, arguments: Arguments, settings: Settings) -> None:
        super().__init__(arguments, settings)
        self.looked_at = asyncio.Event()

    @override
    async def complete_screen(self) -> None:
        self.first = _picture(self)
        await super().complete_screen()

    @override
    async def _open(self, target: Arguments) -> "tuple[Session, TurnView]":
        await self.looked_at.wait()
        return await super()._open(target)


def _picture(app: TuiAgent) -> list[str]:
    """What is on the screen, a piece of a line each, without the name that Rich makes of it."""
    return re.sub(r"terminal-\d+", "terminal", app.export_screenshot()).split("><")


@pytest.mark.parametrize(
    ("size", "theme"),
    [((120, 40), "dusk"), ((80, 24), "paper"), ((60, 20), "terminal"), ((130, 13), "contrast"), ((72, 13), "mist")],
)
async def test_what_takes_its_place_looks_the_same(arguments: Arguments, size: tuple[int, int], theme: str) -> None:
    settings = Settings(model=ModelSettings(id="offline"), ui=UiSettings(theme=theme, keymap=("nothing=x",)))
    app = Looking(arguments, settings)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.completed)
        await pilot.pause()
        assert _picture(app) == app.first
        app.looked_at.set()
        await until(pilot, lambda: app.conductor.session)


async def test_a_screen_that_cannot_be_completed_ends_the_app_and_the_log_says_where(
    arguments: Arguments, tmp_path: Path
) -> None:
    class Broken(TuiAgent):
        @override
        async def complete_screen(self) -> None:
            raise LookupError("no such part")

    app = Broken(arguments, Settings(model=ModelSettings(id="offline")))
    with pytest.raises(LookupError):
        async with app.run_test() as pilot:
            await until(pilot, lambda: not app.is_running)
    assert app.crash.startswith("stopped by an unexpected error (LookupError); ")
    (log,) = (tmp_path / "home" / "logs").iterdir()
    assert "in complete_screen" in await asyncio.to_thread(log.read_text)


async def test_letters_typed_before_the_prompt_is_there_are_drawn_and_reach_it(arguments: Arguments) -> None:
    class Slow(Looking):
        may_complete = asyncio.Event()

        @override
        async def complete_screen(self) -> None:
            await self.may_complete.wait()
            await super().complete_screen()

    app = Slow(arguments, Settings(model=ModelSettings(id="offline")))
    async with app.run_test() as pilot:
        app.looked_at.set()
        for key in ("h", "i", "x", "backspace", "exclamation_mark", "left", "y"):
            app.post_message(Key(key, {"exclamation_mark": "!"}.get(key, key) if len(key) == 1 or "_" in key else None))
        await until(pilot, lambda: "hi!" in app.export_screenshot())
        assert "hi!y" not in app.export_screenshot()
        app.may_complete.set()
        await until(pilot, lambda: app.completed and app.entry.prompt.text == "hiy!")
