"""The same hostile texts in lists, dialogs, the context panel, the title, and a conversation that goes on."""

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from tests.agent.talking import put
from tests.tui.app_of_parts import until, workers_finished
from tests.tui.test_hostile_text import _FORBIDDEN, HOSTILE, SIZES, app, check, opened, resized
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Message, Pinned, Summarized, Usage, tool_result, user_message
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.brought import BroughtFile
from tui_agent.storage.sessions import SessionInfo
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import HelpScreen, TextScreen
from tui_agent.tui.dialogs.sessions_screen import SessionsScreen
from tui_agent.tui.dialogs.trust import TrustScreen
from tui_agent.tui.prompt.completion import Completion, CompletionItem
from tui_agent.tui.terminal.attention import Attention

__all__ = ["app"]


def dialogs(text: str, app: TuiAgent) -> list[Screen[str | None]]:
    info = SessionInfo(id=text, folder=Path("/x"), title=text, cwd=text, model=text, messages=3, updated=1.0, size=5)
    return [
        SessionsScreen([info, replace_id(info)], {info.id: text}, info.folder),
        KeyScreen("ANTHROPIC_API_KEY", text),
        TrustScreen(Path("/") / text.replace("\x00", ""), [BroughtFile(text, text)]),
    ]


def replace_id(info: SessionInfo) -> SessionInfo:
    return SessionInfo(id="20261122-000000-aaaa", folder=Path("/x"), title="plain", cwd="/plain", messages=3)


def in_the_quick_run(place: int) -> list[object]:
    """All texts: every second one in the quick run, the others in the soak. Each is in one of two tests of the quick
    run, and in `test_in_everything_the_agent_tells`.
    """
    return [
        name if number % 2 == place else pytest.param(name, marks=pytest.mark.soak)
        for number, name in enumerate(HOSTILE)
    ]


def first_size(name: str) -> tuple[int, int]:
    return SIZES[0] if list(HOSTILE).index(name) % 4 < 2 else SIZES[2]


async def at_another_size(app: TuiAgent, pilot: Pilot[object]) -> None:
    """Small and usual by turns: half of the texts begin with either, so that each place is seen at both."""
    await resized(app, pilot, SIZES[2] if app.size == SIZES[0] else SIZES[0])
    await pilot.pause()
    check(app)


@pytest.mark.parametrize("name", in_the_quick_run(0))
async def test_in_dialogs_and_completions(app: TuiAgent, name: str) -> None:
    text = HOSTILE[name][:30_000]
    async with app.run_test(size=first_size(name)) as pilot:
        await opened(app, pilot)
        for screen in dialogs(text, app):
            await app.push_screen(screen)
            await at_another_size(app, pilot)
            await pilot.press("escape")
        for reading in (TextScreen(text, text), HelpScreen({"title": "text"})):
            await app.push_screen(reading)
            await at_another_size(app, pilot)
            await pilot.press("escape")
        app.entry.completions.show(Completion(0, (CompletionItem(text, text, text), CompletionItem("b", "b", "plain"))))
        await at_another_size(app, pilot)
        app.entry.completions.show(None)
        app.give_back(text)
        await at_another_size(app, pilot)
        app.entry.prompt.text = text[:2_000]
        await at_another_size(app, pilot)


@pytest.mark.parametrize("name", in_the_quick_run(1))
async def test_in_the_context_panel_and_after_a_restart(app: TuiAgent, name: str) -> None:
    text = valid_text(HOSTILE[name])
    arguments = json.dumps({"path": text, text: text})
    async with app.run_test(size=first_size(name)) as pilot:
        await opened(app, pilot)
        session = app.conductor.session
        assert session is not None
        calls = (ToolCall("1", text, arguments), ToolCall("2", "edit_file", arguments))
        said = (Reasoning(text), Text(text), *calls)
        last = await put(
            session,
            user_message(text),
            Message(role="assistant", blocks=said, model=text, usage=Usage(input_tokens=9), stop_reason=text),
            tool_result(ToolResult("1", text), summary=text),
            tool_result(ToolResult("2", text, is_error=True), summary=text, stop_reason=text),
            user_message(f"{text} again"),
        )
        await put(
            session,
            Pinned(items=(last,), reason=text),
            Summarized(first=1, last=last - 1, text=text, reason=text, model=text, before=9, after=5),
        )
        await pilot.press("f2")
        await workers_finished(pilot)
        await at_another_size(app, pilot)
        await pilot.press("tab", "i", "down", "enter")
        await workers_finished(pilot)
        await at_another_size(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, TextScreen))
        await app.run_command("/context text")
        for command in ("/items", "/stats"):
            app.run_worker(app.run_command(command))
            await until(pilot, lambda: isinstance(app.screen, TextScreen))
            await at_another_size(app, pilot)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, TextScreen))
        app.run_worker(app.run_command("/recall again"))
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await at_another_size(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape")
        assert app.session_folder is not None
        resumed = app.arguments._replace(resume=app.session_folder.name)
    again = TuiAgent(resumed, Settings(model=ModelSettings(id="offline")))
    async with again.run_test() as pilot:
        await opened(again, pilot)
        assert len(again.pane.transcript) > 5
        again.action_toggle_cards()
        again.pane.action_top()
        await at_another_size(again, pilot)


@pytest.mark.parametrize("name", HOSTILE)
def test_in_the_title(name: str) -> None:
    sent: list[str] = []
    attention = Attention(sent.append, {}, place=HOSTILE[name])
    attention.show(working=True, focused=True)
    attention.name = HOSTILE[name]
    attention.question(HOSTILE[name], focused=False)
    for sequence in sent:
        body = sequence.removeprefix("\x1b]2;").removeprefix("\x1b]9;").removesuffix("\x07")
        assert len(body) < 200
        assert not _FORBIDDEN.search(body)
