"""A model closes an episode: what it reads on the wire from then on, after a restart, a rewind and an undo."""

from pathlib import Path
from typing import Any

from tests.agent.serving import Serve
from tests.agent.talking import of, say, shown, talking
from tests.agent.test_signed_summaries import CLAUDE, check
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events

SETTINGS = {
    "model.id": CLAUDE,
    "checkpoints.episodes": "true",
    "permissions.mode": "allow",
    "permissions.sandbox": "off",
    "agentic.enabled": "false",
}
DONE = "the clause is in line 7 of page_2"


class Searching:
    """Opens an episode, reads pages in it, and closes it with its conclusion; thinks before each step."""

    def __init__(self) -> None:
        calls = [
            *(Call("episode", {"title": each}) for each in ("search", "deeper", "too deep")),
            *(Call("read_file", {"path": f"page_{number}.txt"}) for number in range(4)),
            Call("episode", {"title": "another", "conclusion": "none"}),
            Call("episode", {"title": "search", "conclusion": DONE}),
        ]
        self.left = calls[::-1]

    def __call__(self, request: ParsedRequest) -> Step:
        if self.left and "Find" in request.prompt:
            return Step(text="On.", reasoning="I go on.", calls=(self.left.pop(),))
        return Step(text="Done.", reasoning="That was all.")


def results(body: dict[str, Any]) -> str:
    return str(
        [block for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"]
    )


async def test_from_open_to_folded_and_back(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "project").mkdir()
    for number in range(4):
        text = "".join(f"clause {each} of page {number}\n" for each in range(400))
        (tmp_path / "project" / f"page_{number}.txt").write_text(text)
    server = serve(AnthropicServer(Searching()))
    async with talking(tmp_path, SETTINGS) as session:
        told = await say(session, "Find the clause.")
        steps = of(events.ContextStep, told)
        assert [(step.step, step.items, step.error) for step in steps] == [("folded", 1, "")]
        assert steps[0].after < steps[0].before
        errors = [event.text for event in told if isinstance(event, events.ToolFinished) and event.status == "error"]
        assert len(errors) == 2
        assert "2 at a time. Open now: search, deeper." in errors[0]
        assert "none with the name 'another' is open. Open now: search, deeper." in errors[1]
        last = server.model_requests[-1].json
        assert last is not None
        assert "clause 1 of page 1" not in str(last)
        assert DONE in str(last)
        assert "8 calls of “search” left the view" in results(last)
        assert "- read page_3.txt" in results(last)
        check(session, server)
        view, name = session.agent.engine.view, session.id
        before = view.messages()
        found = await session.agent.context.recall("clause 399 of page 2")
        assert "clause 399 of page 2" in str(found)
    async with talking(tmp_path, SETTINGS, resume=name) as session:
        agent = session.agent
        view = agent.engine.view
        assert view.messages() == before
        await agent.context.undo()
        assert "clause 1 of page 1" in shown(view)
        await say(session, "Go on.")
        assert "clause 1 of page 1" in str(server.model_requests[-1].json), "what was undone is folded again"
        tip, now = view.head, view.messages()
        await agent.branches.rewind(agent.branches.prompts()[0].seq)
        assert not view.context_entries()
        await agent.branches.switch(tip)
        assert view.messages() == now
        check(session, server)
