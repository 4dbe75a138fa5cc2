"""What goes wrong in other agents' context work and must not here: each a session that would show it.

Stopping, killing and failing compactions are in test_compaction_failures, overflows in test_overflow, requests that
change their beginning in test_long_sessions, reasoning that is refused and edits that are lost in test_walks.
"""

from pathlib import Path

from tests.agent.serving import OPUS, Serve
from tests.agent.summaries import Reader
from tests.agent.talking import goes_on, of, pages, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events


def thinking(request: ParsedRequest) -> Step:
    """Two pages a turn, with reasoning."""
    if request.position < 2:
        path = f"page_{(len(request.body['messages']) + request.position) % 8}.txt"
        return Step(reasoning="I look.", text="Next.", calls=(Call("read_file", {"path": path}),))
    return Step(reasoning="I am done.", text="Read.")


async def test_rules_and_constraints_outlive_every_summary_and_none_grows(tmp_path: Path, serve: Serve) -> None:
    pages(tmp_path, 8)
    (tmp_path / "project" / "AGENTS.md").write_text("Always sign commits with the blue key.\n")
    reader = Reader(thinking)
    serve(AnthropicServer(reader))
    async with talking(tmp_path, {**OPUS, "compaction.facts_tokens": "1000"}, trusted=True) as session:
        await goes_on(session, "Read on. Never touch page_3.txt, whatever happens.")
        sizes = []
        for turn in range(6):
            await goes_on(session, f"Read on, {turn}.")
            result = await session.agent.compact()
            assert result.error == ""
            sizes.append(len(result.text))
        await goes_on(session, "Once more.")
    assert max(sizes[2:]) < 1.3 * sizes[1]
    assert "blue key" in reader.own[-1].system
    assert "Never touch page_3.txt, whatever happens." in str(reader.own[-1].body["messages"])
    assert all("blue key" not in str(request.body["messages"]) for request in reader.summaries)


async def test_a_file_read_again_after_it_was_cleared_is_shown_whole(tmp_path: Path) -> None:
    async with talking(tmp_path, {"clearing.keep": "0"}) as session:
        await say(session, "read test_calc.py")
        await session.agent.context.clear_results()
        assert "def test_double" not in str([m for m in session.agent.engine.view.messages() if m.role == "user"])
        told = await say(session, "read test_calc.py")
        (read,) = of(events.ToolFinished, told)
        assert "def test_double" in read.text
        assert of(events.Alert, told) == []
        assert broken_rules(session.agent.engine.view.messages()) == []
