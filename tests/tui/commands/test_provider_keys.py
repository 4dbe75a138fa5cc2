"""A key that is entered works at once, is seen nowhere, and is kept only where the user wants it."""

import os
from collections.abc import Iterator

import keyring
import keyring.backends.fail
import pytest
from textual import events
from textual.pilot import Pilot

from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.settings.keyrings import Broken, InMemory
from tests.tui.app.test_prompt_actions import SECRET, _environment, arguments, cards, until_screen
from tests.tui.app_of_parts import running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.settings.kept_keys import kept_variables
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import ToolState
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen

__all__ = ["_environment", "arguments"]


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnthropicServer]:
    with in_thread(AnthropicServer(lambda _: Step(text="At your service."), api_key=SECRET)) as made:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", made.url)
        yield made


@pytest.fixture(autouse=True)
def backend() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    keyring.set_keyring(mine := InMemory())
    yield mine
    keyring.set_keyring(before)


async def give_key(app: TuiAgent, pilot: Pilot[object]) -> None:
    await send(app, pilot, "/key ")
    await until_screen(app, pilot, PickerScreen)
    await pilot.press("enter")
    await until_screen(app, pilot, KeyScreen)
    await pilot.press("enter")
    assert isinstance(app.screen, KeyScreen)
    assert app.screen.focused is not None
    app.screen.focused.post_message(events.Paste(SECRET))
    await pilot.pause()
    assert SECRET not in app.export_screenshot()
    await pilot.press("enter")


async def test_a_key_is_hidden_works_at_once_and_is_kept_nowhere(arguments: Arguments, backend: InMemory) -> None:
    async with running(arguments, Settings()) as (app, pilot):
        assert app.status.status.model == "offline:offline"
        await give_key(app, pilot)
        await until_screen(app, pilot, PickerScreen)
        assert app.status.status.model == "anthropic:claude-sonnet-5-5"
        await pilot.press("enter")
        await until(pilot, lambda: "used until the program ends" in said(app))
        await send(app, pilot, "hello")
        await until(pilot, lambda: "At your service." in said(app))
        await send(app, pilot, "!env")
        await until(pilot, lambda: bool(cards(app)) and cards(app)[0].state is ToolState.OK)
    kept = [path for path in arguments.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []
    assert backend.kept == {}


async def test_a_key_in_the_keyring_is_used_at_the_next_start_and_can_be_forgotten(
    arguments: Arguments, backend: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(arguments, Settings()) as (app, pilot):
        await give_key(app, pilot)
        await until_screen(app, pilot, PickerScreen)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "kept in the system's keyring" in said(app))
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    async with running(arguments, Settings()) as (again, pilot):
        assert again.status.status.model == "anthropic:claude-sonnet-5-5"
        assert os.environ["ANTHROPIC_API_KEY"] == SECRET
        await send(again, pilot, "/key ")
        await until_screen(again, pilot, PickerScreen)
        await pilot.press("ctrl+end", "enter")
        await until(pilot, lambda: "out of the system's keyring" in said(again))
    assert backend.kept == {}
    assert kept_variables(arguments.home) == ()


async def test_without_a_keyring_the_key_works_and_the_way_to_keep_it_is_told(arguments: Arguments) -> None:
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
    async with running(arguments) as (app, pilot):
        await give_key(app, pilot)
        await until(pilot, lambda: "set ANTHROPIC_API_KEY in your shell" in said(app))
        assert app.status.status.model == "anthropic:claude-sonnet-5-5"


async def test_a_keyring_that_fails_is_told_and_keeps_nobody_from_starting(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring.set_keyring(Broken())
    async with running(arguments) as (app, pilot):
        await give_key(app, pilot)
        await until_screen(app, pilot, PickerScreen)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "The key is not kept" in said(app))
        assert SECRET not in said(app)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (arguments.home / "keyring.json").write_text('{"kept": ["ANTHROPIC_API_KEY"]}')
    async with running(arguments, Settings()) as (again, pilot):
        await until(pilot, lambda: "cannot be read" in said(again))
