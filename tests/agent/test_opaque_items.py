"""A provider that compacts to an item that only its model reads: ours stands beside it in the log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.agent.serving import Serve
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import goes_on, of, pages, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.openai_responses import ENDPOINT, ResponsesServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.context.compaction.draft import Draft
from tui_agent.conversation.entries import Summarized
from tui_agent.session import Session
from tui_agent.settings.schema import Endpoint


def reading(request: ParsedRequest) -> Step:
    """Reads a page after each prompt."""
    if asks_for_summary(request):
        return Step(text=HANDOVER)
    if request.results:
        return Step(text="It was read.", reasoning="Good.")
    return Step(calls=(Call("read_file", {"path": "page_0.txt"}),), reasoning="The page is next.")


@asynccontextmanager
async def compacting(
    folder: Path, serve: Serve, *, offered: bool = True
) -> AsyncIterator[tuple[Session, ResponsesServer]]:
    pages(folder, 1, lines=80)
    server = serve(ResponsesServer(reading), may_break=not offered)
    server.compacts = offered
    there = Endpoint(url=f"{server.url}/v1", key="OPENAI_API_KEY", api="responses")
    settings: dict[str, Any] = {
        "model.id": f"{ENDPOINT}:gpt-6.1-sol",
        "models.endpoints": {ENDPOINT: there},
        "compaction.opaque_items": True,
        "compaction.auto": False,
        "permissions.mode": "allow",
    }
    async with talking(folder, settings) as session:
        yield session, server
        view = session.agent.engine.view
        assert broken_rules(view.messages()) == []


def summary_of(session: Session) -> Summarized:
    (entry,) = of(Summarized, session.agent.engine.view.log)
    return entry


def windows(server: ResponsesServer) -> list[bytes]:
    """What was sent in place of older turns, in each of the conversation's own requests that had it."""
    bodies = [each.body for each in server.model_requests if each.json is not None and each.json.get("tools")]
    sent = [body.partition(b'"input":[')[2] for body in bodies]
    ends = [each.find(b"}", each.find(b'"compaction"')) for each in sent]
    return [each[: end + 1] for each, end in zip(sent, ends, strict=True) if b'"compaction"' in each]


async def test_its_model_reads_the_item_as_it_came_and_we_read_ours(tmp_path: Path, serve: Serve) -> None:
    async with compacting(tmp_path, serve) as (session, server):
        await goes_on(session, *(f"Read page {number}, é" for number in range(4)))
        await session.agent.context.compact()
        entry = summary_of(session)
        assert "The files are being read one by one." in entry.text
        assert "item_0_7" in shown(session.agent.engine.view)
        await goes_on(session, *(f"Read page {number} again" for number in range(2)))
        first, *later = windows(server)
        assert len(later) == 3
        assert set(later) == {first}
        assert b"The files are being read one by one." not in server.model_requests[-1].body
        # Another model of the same provider could not read it.
        await session.agent.swap_model(f"{ENDPOINT}:gpt-4.1")
        await say(session, "Read page 1 as another")
        assert len(windows(server)) == 4
        assert b"The files are being read one by one." in server.model_requests[-1].body
        await session.agent.swap_model(f"{ENDPOINT}:gpt-6.1-sol")
        await say(session, "Read page 1 as before")
        assert set(windows(server)) == {first}
        assert server.violations == []


async def test_an_edited_text_is_what_the_model_reads(tmp_path: Path, serve: Serve) -> None:
    async with compacting(tmp_path, serve) as (session, server):
        await goes_on(session, *(f"Read page {number}" for number in range(4)))
        draft = await session.agent.context.draft()
        assert isinstance(draft, Draft)
        assert draft.boundary.signed
        await session.agent.context.accept(draft, f"{draft.text}\nAnd mind the gap.")
        await say(session, "Read one page")
        assert windows(server) == []
        assert b"mind the gap" in server.model_requests[-1].body
        assert server.violations == []


async def test_where_it_is_not_offered_ours_is_all_there_is_and_it_is_asked_for_once(
    tmp_path: Path, serve: Serve
) -> None:
    async with compacting(tmp_path, serve, offered=False) as (session, server):
        for _ in range(2):
            for number in range(4):
                await say(session, f"Read page {number}")
            await session.agent.context.compact()
        entries = of(Summarized, session.agent.engine.view.log)
        assert [(entry.signed, bool(entry.text)) for entry in entries] == [("", True)] * 2
        assert len([each for each in server.violations if "/responses/compact" in each]) == len(server.violations) == 1
