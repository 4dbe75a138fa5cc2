"""Text that wants to escape, in every field that a model, a tool, a file or a server can fill, on the real screen."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from tests.tui.app_of_parts import OFFLINE, project_of_parts, until
from tui_agent.agent import events
from tui_agent.conversation.entries import Usage
from tui_agent.tools.base import PermissionQuestion, Preview, SubtaskProgress
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.session.turns import TurnView
from tui_agent.tui.terminal.attention import notification

HOSTILE: Final = {
    "sequences": "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]52;c;AAAA\x1b\\\x9b31m\x90q\x9c\x1bPq\x1b\\ after",
    "cut": "start \x1b[38;5;",
    # As many columns as the second of the sizes has, and each kind of character that must not be there.
    "unseen": (
        "a\x00b\x07c\x08\x08d\x0be\x0cf\x7fg\x85h\u2028i\rj\u202egnp.exe\u202c \u2066hidden\u2069 \u200f\u061c"
        "a\u200b\u200c\u200d\ufeff\u2060b\U000e0041\U000e0042c\u00ad\ud800,\udfff\udc80\udcff"
    ),
    "markup": "[bold]b[/bold] [@click=app.quit]x[/] [/] [link=file:///]y[/link] $error {0} %s",
    "combining": "z" + "\u0301\u0489\u20dd" * 60 + "end",
    "wide": "日本語のテキスト" * 6 + "👩‍👩‍👧‍👦🏳️‍🌈👍🏽☁️" * 4,
    "tabs": "\t\ta\tb\t" * 12,
    "lines": "one\r\ntwo\rthree\n\n\nfour",
    "long": "x" * 1_000_000,
    "long wide": "漢" * 20_000,
}
SIZES: Final = ((33, 12), (7, 5), (80, 24))
_FORBIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def check(app: TuiAgent) -> None:
    """Every line of the screen is as wide as the screen, and holds nothing that a terminal obeys."""
    strips = app.screen._compositor.render_strips(app.size)
    assert len(strips) == app.size.height
    for strip in strips:
        text = "".join(segment.text for segment in strip if not segment.control)
        assert not _FORBIDDEN.search(text), ascii(text)
        assert cell_len(text) == app.size.width, ascii(text)
        assert not any("click" in str(segment.style.meta) for segment in strip if segment.style and segment.style._meta)


def widths(app: TuiAgent) -> set[int]:
    strips = app.screen._compositor.render_strips(app.size)
    return {sum(segment.cell_length for segment in strip if not segment.control) for strip in strips}


async def resized(app: TuiAgent, pilot: Pilot[object], size: tuple[int, int]) -> None:
    """The terminal has another size, and each part of the screen has followed."""
    await pilot.resize_terminal(*size)
    await until(pilot, lambda: widths(app) == {app.size.width})


async def everywhere(app: TuiAgent, pilot: Pilot[object]) -> None:
    for size in SIZES:
        await resized(app, pilot, size)
        app.action_toggle_cards()
        app.pane.action_top()
        for _ in range(2):
            await pilot.pause()
            check(app)
            app.pane.action_page(1)
        app.pane.action_tail()
        await pilot.pause()
        check(app)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuiAgent:
    return TuiAgent(project_of_parts(monkeypatch, tmp_path, 0), OFFLINE)


def told(text: str) -> list[events.AgentEvent]:
    """A turn in which every field is `text`."""
    usage = Usage()
    arguments = json.dumps({text: text, "path": text, "command": text})
    diff = f"@@ -1,1 +1,1 @@\n-{text}\n+{text} changed"
    return [
        events.TurnStarted(seq=1, text=text),
        events.UserMessage(seq=1, text=text),
        events.ModelCallStarted(model=text, tokens=1),
        events.ReasoningDelta(text=text),
        events.TextDelta(text=f"{text}\n\n- {text}\n\n> {text}\n\n| {text} | b |\n|---|---|\n| {text} | c |\n\n"),
        events.TextDelta(text=f"```{text}\n{text}\n```\n\n[{text}]({text}) `{text}` # {text}"),
        events.ToolCallDelta(index=0, name=text, size=3),
        events.AssistantMessage(
            seq=2, model=text, text=text, reasoning=text, usage=usage, cost_usd=0.1, stop_reason=text, duration_ms=1
        ),
        events.ToolStarted(call_id="1", name=text, arguments=arguments),
        events.ToolProgress(call_id="1", text=text),
        events.ToolFinished(call_id="1", name=text, status="ok", text=text, size=9, tokens=9, summary=text, diff=diff),
        events.ToolStarted(call_id="2", name="agentic_read", arguments=text),
        events.ToolProgress(
            call_id="2",
            text=text,
            subtask=SubtaskProgress(text, text, calls=((text, arguments), (text, text)), log=text),
        ),
        events.ToolStarted(call_id="3", name=text, arguments=text),
        events.ToolFinished(call_id="3", name=text, status="error", text=text, size=9, tokens=9, summary=text),
        events.Retrying(attempt=1, delay_s=1, kind=text, message=text),
        events.ContextStepStarted(step=text, tokens=1, reason=text),
        events.ContextStep(step=text, seq=3, before=9, after=5, reason=text, text=text),
        events.ContextStep(step="summary", seq=3, before=9, after=9, reason=text, error=text),
        events.ModelChanged(model=text, window=1000, tier=text),
        events.Notice(level="error", title=text, text=text, hint=text),
        events.Alert(signal=text, text=text, action="warn", hint=text),
        events.TurnFailed(kind=text, message=text, retryable=False, hint=text),
    ]


async def opened(app: TuiAgent, pilot: Pilot[object]) -> None:
    async with asyncio.timeout(60):
        while app.session_folder is None or not app.status.status.model:
            await pilot.pause(0.02)


async def test_in_everything_the_agent_tells(app: TuiAgent) -> None:
    async with app.run_test() as pilot:
        await opened(app, pilot)
        for text in HOSTILE.values():
            view = TurnView(app.pane.transcript, app.status, app.conductor)
            view.begin()
            for event in told(text):
                view.show(event)
            await everywhere(app, pilot)
            view.end()
            app.conductor.add(1, text)
            app.say(Level.ERROR, text, text, text)
            app.status.show(model=text, activity=text, hint="")
            await everywhere(app, pilot)
            app.pane.transcript.truncate(0)


QUICK = ("sequences", "combining", "wide")


@pytest.mark.parametrize("names", [QUICK, pytest.param((*HOSTILE,), marks=pytest.mark.soak)])
async def test_in_lists_and_questions(app: TuiAgent, names: tuple[str, ...]) -> None:
    async with app.run_test() as pilot:
        await opened(app, pilot)
        for text in map(HOSTILE.__getitem__, names):
            question = PermissionQuestion("1", text, text, (), Preview(title=text, text=text), text, (text,))
            asked = asyncio.create_task(app.permission.ask(question))
            await pilot.pause()
            await everywhere(app, pilot)
            asked.cancel()
            await asyncio.wait({asked})
            picker = PickerScreen(text, [Option("1", text, text), Option("2", "plain", text)], "1")
            await app.push_screen(picker)
            await pilot.pause()
            for size in SIZES:
                await resized(app, pilot, size)
                await pilot.pause()
                check(app)
            picker.dismiss(None)
            await pilot.pause()


@pytest.mark.parametrize("name", HOSTILE)
def test_in_what_goes_to_the_terminal_itself(name: str) -> None:
    text = HOSTILE[name]
    for environ in ({}, {"VTE_VERSION": "7600"}, {"TMUX": "x"}):
        sent = notification(text, text, environ)
        inner = sent.removeprefix("\x1bPtmux;\x1b").removesuffix("\x1b\\")
        body = re.fullmatch(r"\x1b\](?:9|777;notify);(.*)\x07", inner.replace("\x1b\x1b", "\x1b"), re.DOTALL)
        assert body is not None
        assert not _FORBIDDEN.search(body[1])
        assert len(body[1]) < 200
