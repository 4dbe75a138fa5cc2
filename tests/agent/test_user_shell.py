"""Commands the user runs themselves: what joins the conversation, durable and valid, whatever happens meanwhile."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.agent.talking import put, saved, say, talking
from tests.conversation.logs import broken_rules
from tui_agent.agent import events
from tui_agent.agent.turn.user_shell import USER_SHELL, UserCommand, as_note, read_note
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Queued
from tui_agent.conversation.view import View
from tui_agent.session import Session


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


def texts(view: View) -> list[str]:
    return [block.text for message in view.messages() for block in message.blocks if isinstance(block, Text)]


def listening(session: Session) -> list[events.AgentEvent]:
    told: list[events.AgentEvent] = []
    session.agent.listen(told.append)
    return told


@pytest.mark.parametrize(("command", "output"), [("ls", "a\nb"), ("cat <<E\n</output>\nE", "</output>"), ("x", "")])
def test_a_note_is_read_back(command: str, output: str) -> None:
    assert read_note(as_note(UserCommand(command, output))) == UserCommand(command, output)
    assert read_note(f"see {as_note(UserCommand(command, output))}") is None


@pytest.mark.parametrize(
    ("output", "stopped", "ending"),
    [
        ("a\n[exit code 0, 1.0 s]", False, "exit code 0, 1.0 s"),
        ("a\n[stopped by the user]", True, "stopped by the user"),
        ("a list: [1]", False, ""),
    ],
)
def test_how_it_ended(output: str, stopped: bool, ending: str) -> None:
    run = UserCommand("x", output)
    assert (run.stopped, run.ending) == (stopped, ending)


async def test_the_output_is_in_the_next_request_and_outlives_the_program(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = listening(session)
        await session.agent.run_shell("echo from-the-shell; false")
        assert any("from-the-shell" in text for text in texts(session.agent.engine.view))
        finished = told[-1]
        assert isinstance(finished, events.ToolFinished)
        assert (finished.name, finished.status) == (USER_SHELL, "error")
        assert "exit code 1" in finished.text
        await say(session, "read calc.py")
        assert broken_rules(session.agent.engine.view.messages()) == []
    assert any("from-the-shell" in text for text in texts(View(await saved(tmp_path))))


async def test_it_asks_nobody_and_sees_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-for-children")
    async with talking(tmp_path) as session:
        session.agent.permissions.mode = "plan"
        await session.agent.run_shell("env")
        assert "sk-not-for-children" not in "\n".join(texts(session.agent.engine.view))
        assert any("PATH=" in text for text in texts(session.agent.engine.view))


async def test_stopped_it_notes_what_was_printed_so_far(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = listening(session)
        begun = asyncio.Event()
        session.agent.listen(lambda event: begun.set() if "begun" in getattr(event, "text", "") else None)
        running = asyncio.ensure_future(session.agent.run_shell("echo $$ > pid; echo begun; sleep 60"))
        await asyncio.wait_for(begun.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert isinstance(told[-1], events.ToolFinished)
        assert told[-1].status == "interrupted"
        (text,) = [text for text in texts(session.agent.engine.view) if "<user-command>" in text]
        assert "begun\n[stopped by the user]" in text
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "project" / "pid").read_text()), 0)


async def test_while_a_turn_runs_it_joins_without_another_answer(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        noted, told = False, []
        async for event in session.agent.run("read calc.py"):
            told.append(event)
            # The last step has been answered, or is about to be: what joins now must not be answered again.
            if isinstance(event, events.TextDelta) and not noted:
                noted = True
                await session.agent.run_shell("echo meanwhile")
        calls = sum(isinstance(event, events.ModelCallStarted) for event in told)
        assert (noted, calls) == (True, 2)
        more = await say(session, "read calc.py")
        assert sum(isinstance(event, events.ModelCallStarted) for event in more) == 2
        assert broken_rules(session.agent.engine.view.messages()) == []
        assert any("meanwhile" in text for text in texts(session.agent.engine.view))


async def test_what_was_not_delivered_waits_for_the_next_prompt_after_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await put(session, Queued(blocks=(Text(as_note(UserCommand("ls", "calc.py"))),)))
        name = session.folder.name
    async with talking(tmp_path, resume=name) as session:
        told = await say(session, "read calc.py")
        assert [event.text for event in told if isinstance(event, events.UserMessage)] == [
            as_note(UserCommand("ls", "calc.py")),
            "read calc.py",
        ]
        assert session.agent.turns.queued() == ()


async def test_a_large_output_is_shortened_and_kept_on_disk(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = listening(session)
        await session.agent.run_shell("seq 1 60000")
        finished = told[-1]
        assert isinstance(finished, events.ToolFinished)
        assert finished.artifact
        assert len(finished.text) < finished.size
