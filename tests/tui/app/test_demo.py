"""The demonstration: what the package carries opens, tells what to press next, and shows real figures without a key."""

import re
from pathlib import Path

import pytest
from textual.screen import ModalScreen

from tests.tui.app_of_parts import said, send, until
from tui_agent.agent.history.calls import CallHistory
from tui_agent.arguments import Arguments, ExitCode
from tui_agent.conversation.entries import Message
from tui_agent.conversation.view import View
from tui_agent.demo import MODEL, PLACE, RECORDING, make_demo
from tui_agent.replay.many import policy_costs
from tui_agent.settings import Settings
from tui_agent.storage.log import log_file, read_entries
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.demo_guide import DONE, STEPS, DemoGuide
from tui_agent.tui.app.start import say_goodbye
from tui_agent.tui.app.welcome import DEMO_HINT, PROMISE
from tui_agent.tui.cards.notice import NoticeBlock
from tui_agent.tui.dialogs.pickers import PickerScreen


async def test_the_recording_is_small_and_names_no_other_place(tmp_path: Path) -> None:
    text = RECORDING.read_text()
    assert len(text) < 150_000
    assert "making-demo" not in text
    assert not re.search(r"/(?:root|home|usr|work|opt|tmp)/", text.replace(PLACE, ""))
    demo = await make_demo(tmp_path)
    entries = list(read_entries(log_file(demo.home / "sessions" / demo.session)))
    answers = [entry for entry in entries if isinstance(entry, Message) and entry.usage is not None]
    assert len(answers) == 40
    assert all(entry.cost_usd for entry in answers)
    calls = CallHistory(View(entries))
    assert all(calls.at(number).exact for number in (1, 17, 40))
    # What /policy says of the default is what it cost: the recording is of today's rules.
    costs = await policy_costs(demo.home / "sessions" / demo.session, Settings(), MODEL, window=32_768)
    default = next(cost for cost in costs if cost.policy == Settings().context.policy)
    assert default.cost_usd == pytest.approx(sum(entry.cost_usd or 0 for entry in answers), rel=0.01)
    assert (demo.project / "tides" / "extremes.py").read_text().count("half + 1") == 1
    assert entries == sorted(entries, key=lambda entry: entry.time)


async def test_each_of_its_steps_can_be_taken_and_it_ends_with_the_way_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = await make_demo(tmp_path)
    monkeypatch.chdir(demo.project)
    arguments = Arguments(
        folder=demo.project, home=demo.home, project=demo.project, resume=demo.session, demo=True, trusted=True
    )
    app = TuiAgent(arguments, Settings())

    def line() -> str:
        return str(app.query_one(DemoGuide).content)

    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.conductor.session is not None and app.status.status.tokens > 10_000)
        assert STEPS[0].shows in line()
        # A step taken early is not asked for again, and none before it is left out.
        await send(app, pilot, "/cost")
        await until(pilot, lambda: "Session" in said(app))
        assert STEPS[0].shows in line()
        await pilot.press("f2")
        await until(pilot, lambda: STEPS[1].shows in line())
        await pilot.press("escape")
        app.pane.transcript.add_boundary("pinned")
        await send(app, pilot, "/compact")
        await until(pilot, lambda: isinstance(app.screen, ModalScreen))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ModalScreen))
        assert STEPS[1].shows in line()
        await send(app, pilot, "/compact!")
        await until(pilot, lambda: app.status.status.tokens < 12_000 and STEPS[2].shows in line())
        assert re.search(r"saves \$0\.00[12]\d* a call", said(app))
        # The system prompt is that of the day: the summary brings no other one, so the cache of it is kept.
        assert app.conductor.session is not None
        assert not app.conductor.session.agent.context.forecast().cache.cold
        await send(app, pilot, "/undo-step")
        await until(pilot, lambda: app.status.status.tokens > 12_000 and STEPS[3].shows in line())
        await send(app, pilot, "/rewind")
        await until(pilot, lambda: isinstance(app.screen, ModalScreen))
        await pilot.press("escape")
        await until(pilot, lambda: DONE in line())
        assert app.status.status.cost_usd
    say_goodbye(app)
    left = capsys.readouterr().out
    assert "To start for real" in left
    assert demo.session not in left


async def test_the_app_can_leave_for_it(tmp_path: Path) -> None:
    app = TuiAgent(Arguments(folder=tmp_path, home=tmp_path / "home", project=tmp_path), Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.conductor.session is not None)
        welcome = app.pane.transcript.blocks[0]
        assert isinstance(welcome, NoticeBlock)
        assert welcome.lead == PROMISE
        assert DEMO_HINT in welcome.hint
        app.status.show(jobs=1)
        await send(app, pilot, "/demo")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("escape")
        assert not app.leaving.start_next, "a later end is one"
        app.status.show(jobs=0)
        await send(app, pilot, "/demo")
        await until(pilot, lambda: not app.is_running)
    assert app.leaving.start_next == ("--demo",)
    assert app.return_code == ExitCode.DONE
