"""A provider that writes and signs summaries: the thinking of what is kept stays valid, and no rule breaks."""

import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import Serve
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import failures, of, pages, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_compaction import COMPACT_BETA
from tests.servers.elsewhere import ClaudeOnVertexServer, service_account
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.context.compaction.draft import Draft
from tui_agent.conversation.entries import Summarized
from tui_agent.conversation.request import WORDS_HEADING
from tui_agent.conversation.view import View
from tui_agent.session import Session

CLAUDE = "claude-opus-5-5"
SETTINGS = {
    "model.id": CLAUDE,
    "models.anthropic.small": CLAUDE,  # no cheaper writer than itself
    "context.context_window": "200000",
    "compaction.threshold_by_tier.frontier": "0.12",
    "compaction.keep_recent_tokens": "4000",
    "compaction.thrift": "0",
    "clearing.by_price": "false",
    "compaction.background": "false",
    "permissions.mode": "allow",
}


class Reading:
    """Reads as many pages as the prompt says, thinking before each, and then is done. `held`: the provider writes no
    summary until it is set. `asked`: it was asked for one.
    """

    def __init__(self) -> None:
        self.read = 0
        self.held: threading.Event | None = None
        self.asked = threading.Event()
        self._asked = ""
        self._left = 0

    def __call__(self, request: ParsedRequest) -> Step:
        if asks_for_summary(request):
            return Step(text=HANDOVER)
        if "compaction" in request.body:
            self.asked.set()
            return Step(held=self.held)
        said = next((line for line in reversed(request.prompt.splitlines()) if line.startswith("Read ")), "")
        if said != self._asked:
            self._asked, self._left = said, int(said.split()[1]) if said else 0
        if self._left:
            self._left -= 1
            self.read += 1
            page = Call("read_file", {"path": f"page_{self.read % 30}.txt"})
            return Step(text="I read on.", reasoning=f"Page {self.read} is next. " * 60, calls=(page,))
        return Step(text="Done.", reasoning="That was all.")


def signing_server(folder: Path, serve: Serve, make: type[AnthropicServer] = AnthropicServer) -> AnthropicServer:
    """A provider that signs summaries, beside a project of 30 pages."""
    if not (folder / "project").exists():
        pages(folder, 30, lines=250)
    server = serve(make(Reading()), may_break=True)
    server.compacts = True
    return server


@asynccontextmanager
async def signing(
    folder: Path, serve: Serve, *, resume: str | None = None, **settings: str
) -> AsyncIterator[tuple[Session, AnthropicServer]]:
    server = signing_server(folder, serve)
    async with talking(folder, {**SETTINGS, **dotted(settings)}, resume=resume) as session:
        yield session, server
        check(session, server)


def dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in settings.items()}


def check(session: Session, server: AnthropicServer) -> None:
    view = session.agent.engine.view
    assert [each for each in server.violations if "injected" not in each] == []
    assert server.dropped_thinking == []
    assert broken_rules(view.messages()) == []
    assert View(list(view.log)).messages(view.policy) == view.messages()


def without_marks(value: Any) -> Any:
    """A request without its cache marks."""
    if isinstance(value, dict):
        return {name: without_marks(each) for name, each in value.items() if name != "cache_control"}
    return [without_marks(each) for each in value] if isinstance(value, list) else value


def asked_for(server: AnthropicServer) -> list[dict[str, Any]]:
    """The requests for signed summaries."""
    return [each.json for each in server.model_requests if each.json is not None and "compaction" in each.json]


def summaries(session: Session) -> list[Summarized]:
    return of(Summarized, session.agent.engine.view.log)


async def test_a_long_session_keeps_its_thinking(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, compaction__background="true") as (session, server):
        for number in range(4):
            told = await say(session, f"Read {12 + number} pages please")
            assert failures(told) == []
        assert len(summaries(session)) > 2
        assert all(entry.signed and entry.through for entry in summaries(session))
        assert len(asked_for(server)) >= len(summaries(session))
        assert session.agent.engine.view.reasoning_dropped() == 0
        last = server.model_requests[-1]
        assert last.json is not None
        assert [block["type"] for block in last.json["messages"][0]["content"]] == ["compaction"]
        assert COMPACT_BETA in last.headers["anthropic-beta"]
        assert str(last.json["messages"][1:]).count(WORDS_HEADING[:60]) == 1


async def test_what_we_add_stands_behind_what_is_kept_and_stays_there(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve) as (session, server):
        await say(session, "Read 3 pages for the word chrysanthemum")
        await session.agent.context.compact()
        (entry,) = summaries(session)
        assert entry.signed
        await say(session, "Read 2 pages more")
        await say(session, "Read 1 page more")
        bodies = [without_marks(each.json) for each in server.model_requests if each.json is not None]
        (asked,) = asked_for(server)
        first, *later = bodies[bodies.index(without_marks(asked)) + 1 :]
        added = first["messages"][-1]["content"]
        assert ["chrysanthemum" in str(each) for each in added] == [True, False, False, False]
        assert [entry.state in str(each["text"]) for each in added] == [False, True, False, False]
        assert [entry.facts in str(each["text"]) for each in added] == [False, False, True, False]
        for before, after in pairwise((first, *later)):
            assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_an_edited_summary_is_ours_and_the_preview_tells_what_thinking_that_costs(
    tmp_path: Path, serve: Serve
) -> None:
    async with signing(tmp_path, serve) as (session, _server):
        await say(session, "Read 6 pages")
        draft = await session.agent.context.draft()
        assert isinstance(draft, Draft)
        assert draft.boundary.signed
        engine = session.agent.engine
        edited = engine.current(draft, f"{draft.text}\nAnd mind the gap.")
        assert isinstance(edited, Draft)
        assert edited.boundary.signed == ""
        kept = engine.preview_draft(draft).preview.reasoning_dropped
        lost = engine.preview_draft(edited).preview.reasoning_dropped
        assert (kept, lost > 0) == (0, True)
        await session.agent.context.accept(draft, f"{draft.text}\nAnd mind the gap.")
        await say(session, "Read 1 page")
        assert "mind the gap" in shown(engine.view)


@pytest.mark.parametrize("kind", ["bad_request", "overloaded", "truncate"])
async def test_if_the_provider_fails_we_write_it(kind: str, tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve) as (session, server):
        await say(session, "Read 4 pages")
        message = "compaction: injected, is not supported here" if kind == "bad_request" else ""
        server.inject(Fault(kind=kind, times=2 if kind != "bad_request" else 1, message=message))  # type: ignore[arg-type]
        await session.agent.context.compact()
        (entry,) = summaries(session)
        assert (entry.signed, bool(entry.text)) == ("", True)
        asked = len(asked_for(server))
        await say(session, "Read 4 pages more")
        await session.agent.context.compact()
        again = len(asked_for(server)) - asked
        assert again == (0 if kind == "bad_request" else 1), "a refusal of the feature is remembered, a failure is not"


async def test_google_s_cloud_signs_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    server = signing_server(tmp_path, serve, ClaudeOnVertexServer)
    account = tmp_path / "account.json"
    account.write_text(service_account(server.url))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    there = {**SETTINGS, "model.id": f"vertex:{CLAUDE}"}
    async with talking(tmp_path, there) as session:
        await say(session, "Read 4 pages")
        await session.agent.context.compact()
        (entry,) = summaries(session)
        assert entry.signed
        await say(session, "Read 1 page")
        check(session, server)
    assert COMPACT_BETA in server.model_requests[-1].headers["anthropic-beta"]
