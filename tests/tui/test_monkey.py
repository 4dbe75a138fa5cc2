"""Random keys, pastes, clicks and sizes against the real app: no exception, no hang, no lost prompt."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from textual import events
from textual.pilot import Pilot

from tests.tui.app_of_parts import project_of_parts
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, PermissionSettings, Settings
from tui_agent.tui.app.app import TuiAgent

KEYS: Final = (
    *"abz/@!?[]jkync:N1234 ",
    "enter", "enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "home", "end", "pageup", "pagedown",
    "backspace", "delete", "ctrl+j", "ctrl+o", "ctrl+a", "ctrl+e", "ctrl+k", "ctrl+u", "ctrl+w", "ctrl+p", "f1", "f2",
    "ctrl+underscore", "shift+left", "shift+up", "alt+enter", "slash", "left_square_bracket",
)  # fmt: skip
TEXTS: Final = (
    "read part0.txt",
    "list .",
    "run echo out; sleep 0.05; echo more",
    "write made.txt: some text",
    "/help",
    "/context",
    "/theme ",
    "/model ",
    "/compact",
    "/mode ask",
    "/tools",
    "@par",
    "日本語 e\u0301\u0301 \u202egnp.exe \x1b[31mred",
    "a\tb" * 40,
)
SIZES: Final = ((80, 24), (120, 40), (20, 5), (1, 1), (8, 2), (40, 12), (200, 60), (79, 3))
HANG_S: Final = 100.0
LEAVING: Final = "closing"
"""What the status bar says once the monkey has chosen to quit."""


class Monkey:
    """Does one random thing after another, all of them decided by the seed."""

    def __init__(self, app: TuiAgent, pilot: Pilot[object], seed: int) -> None:
        self._app = app
        self._pilot = pilot
        self._random = random.Random(seed)
        self.done: list[str] = []

    async def step(self) -> None:
        """One thing; a hang is a TimeoutError."""
        actions: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (70, self._press), (10, self._type), (6, self._resize), (4, self._click), (3, self._paste), (3, self._focus)
        )  # fmt: skip
        (action,) = self._random.choices([act for _, act in actions], [weight for weight, _ in actions])
        async with asyncio.timeout(HANG_S):
            await action()

    async def _press(self) -> None:
        key = self._random.choice(KEYS)
        self.done.append(key)
        await self._pilot.press("space" if key == " " else key)

    async def _type(self) -> None:
        text = self._random.choice(TEXTS)
        self.done.append(repr(text))
        self._app.entry.prompt.type(text)
        await self._pilot.pause()

    async def _resize(self) -> None:
        size = self._random.choice(SIZES)
        self.done.append(str(size))
        await self._pilot.resize_terminal(*size)

    async def _click(self) -> None:
        width, height = self._app.size
        offset = (self._random.randrange(width), self._random.randrange(height))
        self.done.append(f"click {offset}")
        await self._pilot.click(offset=offset, times=self._random.choice((1, 1, 2)))

    async def _paste(self) -> None:
        text = "pasted line\n" * self._random.choice((1, 3, 3000))
        self.done.append(f"paste {len(text)}")
        self._app.post_message(events.Paste(text))
        await self._pilot.pause()

    async def _focus(self) -> None:
        self.done.append("focus")
        self._app.post_message(self._random.choice((events.AppFocus, events.AppBlur))())
        await self._pilot.pause()


async def play(arguments: Arguments, seed: int, steps: int) -> None:
    """The monkey's `steps`, in another app whenever it has chosen to quit; the last prompt must still be answered."""
    print(f"seed {seed}, {steps} steps")
    left = steps
    while left > 0:
        left -= await _in_one_app(arguments, seed + left - steps, left)


async def _in_one_app(arguments: Arguments, seed: int, steps: int) -> int:
    """How many of the steps were done before the monkey quit."""
    settings = Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(mode="ask"))
    app = TuiAgent(arguments, settings)
    async with app.run_test(size=(80, 24)) as pilot:
        monkey = Monkey(app, pilot, seed)
        try:
            while app.session_folder is None:
                await pilot.pause(0.02)
            for number in range(steps):
                await monkey.step()
                assert not app.crash
                if app.status.status.hint == LEAVING:
                    return number + 1
            await _still_answers(app, pilot)
        except BaseException:
            print(f"after {len(monkey.done)} steps: {' '.join(monkey.done[-40:])}")
            print(f"{app.screen_stack}, {app.focused}, {app.status.status}, prompt {app.entry.prompt.text[:200]!r}")
            raise
        assert not app.crash
    return steps


async def _still_answers(app: TuiAgent, pilot: Pilot[object]) -> None:
    await pilot.resize_terminal(80, 24)
    app.post_message(events.AppFocus())
    async with asyncio.timeout(60):
        while len(app.screen_stack) > 1:
            await pilot.press("escape")
        while app.conductor.busy or app.permission.asking:
            await pilot.press("escape")
            await pilot.pause(0.05)
        await pilot.press("escape")
        app.entry.prompt.clear_draft()
        app.entry.prompt.focus()
        await pilot.pause()
        app.entry.prompt.type("the last words")
        assert app.entry.prompt.text == "the last words"
        before = len(app.pane.transcript)
        await pilot.press("enter")
        while len(app.pane.transcript) < before + 2 or app.conductor.busy:
            # A summary that was being written is shown now, and the prompt waits for a word about it.
            if len(app.screen_stack) > 1:
                await pilot.press("escape")
            await pilot.pause(0.02)
    assert "the last words" in "\n".join(str(getattr(block, "text", "")) for block in app.pane.transcript)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    monkeypatch.delenv("EDITOR", raising=False)
    return project_of_parts(monkeypatch, tmp_path, 1)


async def test_random_keys_and_sizes(arguments: Arguments) -> None:
    """The same ones each time; others in the soak."""
    await play(arguments, 1, 120)


@pytest.mark.soak
@pytest.mark.parametrize("run", range(20))
async def test_random_keys_and_sizes_for_long(arguments: Arguments, run: int) -> None:
    seed = int(os.environ.get("MONKEY_SEED") or random.SystemRandom().randrange(1_000_000))
    await play(arguments, seed + run, 1000)
