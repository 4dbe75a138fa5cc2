"""What goes wrong in other agents' context work and must not here: each a session that would show it.

Stopping, killing and failing compactions are in test_compaction_failures, overflows in test_overflow, requests that
change their beginning in test_wire.
"""

from pathlib import Path

import pytest

from tests.agent.summaries import Reader
from tests.agent.talking import say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.conversation.entries import Cleared, Message
from tui_agent.models.catalogue import CATALOGUE

OPUS = {"model.id": "claude-opus-5-5"}
FILLING = "names item_{} and nothing else of note\n"


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


def files(folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    for number in range(8):
        text = "".join(FILLING.format(f"{number}_{each}") for each in range(250))
        (project / f"f{number}.txt").write_text(text)


def thinking(request: ParsedRequest) -> Step:
    """Two pages a turn, with reasoning."""
    if request.position < 2:
        path = f"f{(len(request.body['messages']) + request.position) % 8}.txt"
        return Step(reasoning="I look.", text="Next.", calls=(Call("read_file", {"path": path}),))
    return Step(reasoning="I am done.", text="Read.")


async def test_edits_are_kept_so_a_resume_does_not_clear_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path)
    settings = {**OPUS, "compaction.auto": "false", "context.context_window": "60000", "context.max_tokens": "2000"}
    with in_thread(AnthropicServer(Reader(thinking))) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        async with talking(tmp_path, settings) as session:
            for turn in range(6):
                await say(session, f"Read on, {turn}.")
            cleared = [entry for entry in session.agent.engine.view.log if isinstance(entry, Cleared)]
            assert cleared
            before, name = session.agent.engine.view.messages(), session.id
        async with talking(tmp_path, settings, resume=name) as session:
            told = await say(session, "thanks, go on")
            done = [entry for entry in session.agent.engine.view.log if isinstance(entry, Cleared)]
            again = [seq for entry in done for seq in entry.results]
            assert len(again) == len(set(again))
            assert len(session.agent.engine.view.messages()) > len(before)
            assert isinstance(told[-1], events.TurnFinished)
        assert server.violations == []


async def test_project_rules_and_the_users_constraints_outlive_every_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path)
    (tmp_path / "project" / "AGENTS.md").write_text("Always sign commits with the blue key.\n")
    reader = Reader(thinking, lambda _: Step(text="# Current state\nSome files were read, nothing more is known."))
    with in_thread(AnthropicServer(reader)) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        async with talking(tmp_path, OPUS, trusted=True) as session:
            await say(session, "Read on. Never touch f3.txt, whatever happens.")
            for turn in range(3):
                await say(session, f"Read on, {turn}.")
                assert (await session.agent.compact()).error == ""
            await say(session, "Once more.")
        assert "blue key" in reader.own[-1].system
        assert "Never touch f3.txt, whatever happens." in str(reader.own[-1].body["messages"])
        assert all("blue key" not in str(request.body["messages"]) for request in reader.summaries)


async def test_reasoning_is_never_rejected_after_an_edit_or_a_switch_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path)
    with in_thread(AnthropicServer(Reader(thinking))) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        async with talking(tmp_path, OPUS) as session:
            for turn, model in enumerate(("", "claude-sonnet-4-6", "claude-opus-5-5", "claude-haiku-5-5")):
                if model:
                    await session.agent.swap_model(CATALOGUE.create_model(model))
                assert not [
                    event for event in await say(session, f"Read, {turn}.") if isinstance(event, events.TurnFailed)
                ]
                assert (await session.agent.compact()).error == ""
                told = await say(session, f"Read after the summary, {turn}.")
                assert not [event for event in told if isinstance(event, events.TurnFailed)]
        assert server.violations == []
        assert server.dropped_thinking == []


async def test_a_summary_does_not_grow_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path)
    with in_thread(AnthropicServer(Reader(thinking))) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        async with talking(tmp_path, {**OPUS, "compaction.facts_tokens": "1000"}) as session:
            sizes = []
            for turn in range(6):
                await say(session, f"Read on, {turn}.")
                result = await session.agent.compact()
                assert result.error == ""
                sizes.append(len(result.text))
        assert max(sizes[2:]) < 1.3 * sizes[1]


async def test_the_context_is_the_size_of_the_last_request_and_not_what_was_used_in_all(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        for _ in range(4):
            await say(session, "read calc.py")
        last = next(
            entry.usage
            for entry in reversed(list(session.agent.engine.view.log))
            if isinstance(entry, Message) and entry.usage is not None
        )
        size = session.agent.engine.tokens
        assert size == last.input_tokens + last.output_tokens
        assert session.agent.tracker.session.usage.input_tokens > 3 * size


async def test_a_file_read_again_after_it_was_cleared_is_shown_whole(tmp_path: Path) -> None:
    async with talking(tmp_path, {"clearing.keep": "0"}) as session:
        await say(session, "read test_calc.py")
        await session.agent.context.clear_results()
        assert "def test_double" not in str([m for m in session.agent.engine.view.messages() if m.role == "user"])
        told = await say(session, "read test_calc.py")
        (read,) = (event for event in told if isinstance(event, events.ToolFinished))
        assert "def test_double" in read.text
        assert [event for event in told if isinstance(event, events.Alert)] == []
        assert broken_rules(session.agent.engine.view.messages()) == []
