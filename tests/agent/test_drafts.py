"""A summary that is written, looked at, edited, and only then entered, or not at all."""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.agent.serving import OPUS, Serve
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import copied, goes_on, pages, saved, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.commands.session import cost
from tui_agent.agent.turn.turns import AgentBusy
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import CHANGED
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    Delivered,
    Queued,
    Recorded,
    Summarized,
    UnattributedCall,
)
from tui_agent.conversation.view import View
from tui_agent.session import Session

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def resumed(talked: Path, to: Path) -> AsyncIterator[Session]:
    """The session of a copy of that folder."""
    folder, name = copied(talked, to)
    async with talking(folder, resume=name) as session:
        yield session


def archive(session: Session) -> str:
    path = session.folder / "conversation_history" / "main.md"
    return path.read_text() if path.exists() else ""


def timeless(entries: list[AnyEntry]) -> list[AnyEntry]:
    """The entries of the conversation without their times and numbers: what only the trace shows is none of it."""
    kept = [replace(entry, time=0.0, seq=0, parent=0) for entry in entries if not isinstance(entry, Recorded)]
    return [replace(each, duration_ms=0) if isinstance(each, UnattributedCall) else each for each in kept]


async def drafted(session: Session, focus: str = "") -> Draft:
    draft = await session.agent.context.draft("compact", focus)
    assert isinstance(draft, Draft), draft
    return draft


# Accepted as it is


async def test_a_draft_that_is_accepted_is_what_compact_does_in_one_go(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path / "session") as session:
        at_once, seen = await session.agent.compact("the tests"), shown(session.agent.engine.view)
        kept, entries = archive(session), timeless(list(session.agent.engine.view.log))
    # In the same place, since the system prompt names it.
    shutil.rmtree(tmp_path / "session")
    async with resumed(talked, tmp_path / "session") as session:
        draft = await drafted(session, "the tests")
        assert (draft.before, draft.after) == (at_once.before, at_once.after)
        accepted = await session.agent.context.accept(draft)
        assert (accepted.before, accepted.after, accepted.text) == (at_once.before, at_once.after, at_once.text)
        assert shown(session.agent.engine.view) == seen
        assert archive(session) == kept
        assert timeless(list(session.agent.engine.view.log)) == entries


async def test_a_record_is_drafted_too(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        draft = await session.agent.context.draft("checkpoint", "the sums are right")
        assert isinstance(draft, Draft)
        assert draft.step == "checkpoint"
        assert (await session.agent.context.preview_draft(draft)).step == "checkpoint"
        result = await session.agent.context.accept(draft)
        boundary = session.agent.engine.view.log[result.seq]
        assert isinstance(boundary, Checkpointed)
        assert boundary.note == "the sums are right"


async def test_a_draft_is_dropped_previewed_accepted_and_undone(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        context, view = session.agent.context, session.agent.engine.view
        before, calls, length = shown(view), session.agent.tracker.session.calls, said(session)
        await drafted(session)
        assert (shown(view), said(session), archive(session)) == (before, length, "")
        assert session.agent.tracker.session.calls == calls + 1
        draft = await drafted(session)
        preview = await context.preview_draft(draft)
        assert preview.exact
        assert (preview.preview.before, preview.preview.after) == (draft.before, draft.after)
        # Its own text given back changes nothing.
        result = await context.accept(draft, draft.text)
        boundary = view.log[result.seq]
        assert isinstance(boundary, Summarized)
        assert "edited" not in boundary.reason
        assert draft.text in result.text
        assert (boundary.before, boundary.after) == (result.before, result.after) == (draft.before, draft.after)
        states = {item.seq: item.state for item in context.items()}
        assert {states[item.seq] for item in preview.preview.leaving} == {"summarized"}
        assert not isinstance(await context.undo(), Refusal)
        assert shown(view) == before


async def test_what_cannot_be_summarised_gives_no_draft(session: Session) -> None:
    assert isinstance(await session.agent.context.draft(), Refusal)
    assert isinstance(await session.agent.context.draft("checkpoint"), Refusal)


# Left


def said(session: Session) -> int:
    """How many entries the conversation has; what a call cost and what only the trace shows are none of it."""
    return sum(not isinstance(entry, UnattributedCall | Recorded) for entry in session.agent.engine.view.log)


async def test_writing_that_is_stopped_anywhere_changes_nothing(talked: Path, tmp_path: Path) -> None:
    for ticks in range(0, 20_000, 41):
        async with resumed(talked, tmp_path / str(ticks)) as session:
            before, length = shown(session.agent.engine.view), said(session)
            drafting = asyncio.ensure_future(session.agent.context.draft())
            for _ in range(ticks):
                await asyncio.sleep(0)
            over = drafting.done()
            drafting.cancel()
            await asyncio.wait([drafting])
            assert (shown(session.agent.engine.view), said(session)) == (before, length)
            assert archive(session) == ""
            assert (await session.agent.compact()).error == ""
        if over:
            break
    assert ticks > 41


async def test_killed_with_a_draft_the_view_is_the_old_one(talked: Path, tmp_path: Path) -> None:
    folder, name = copied(talked, tmp_path)
    before = shown(View(await saved(folder)))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.drafting", str(folder), name),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert child.stdout is not None
        assert int(await asyncio.wait_for(child.stdout.readline(), 60)) > 0
    finally:
        child.send_signal(signal.SIGKILL)
        await child.wait()
    assert shown(View(await saved(folder))) == before
    async with talking(folder, resume=name) as session:
        assert archive(session) == ""
        assert (await session.agent.compact()).error == ""


# The conversation goes on meanwhile


async def test_a_turn_between_writing_and_accepting_stays_after_the_summary(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        draft = await drafted(session)
        await say(session, "find 'assert' in .")
        before = session.agent.context_stats().tokens
        result = await session.agent.context.accept(draft)
        assert result.error == ""
        assert result.before == before > draft.before
        assert result.after < before
        texts = shown(session.agent.engine.view)
        assert texts.index(draft.text) < texts.index("find 'assert' in .")
        assert broken_rules(session.agent.engine.view.messages()) == []
        assert isinstance((await say(session, "read calc.py"))[-1], events.TurnFinished)


async def test_a_prompt_waits_on_disk_while_a_draft_is_held(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        agent = session.agent
        async with agent.turns.held():
            draft = await drafted(session)
            turn = asyncio.ensure_future(say(session, "find 'assert' in ."))
            async with asyncio.timeout(60):
                while not agent.turns.queued():  # noqa: ASYNC110 (the log tells nobody of an entry)
                    await asyncio.sleep(0)
            assert [text for _, text in agent.turns.queued()] == ["find 'assert' in ."]
            with pytest.raises(AgentBusy):
                await asyncio.create_task(agent.compact())
            result = await agent.context.accept(draft)
            assert result.error == ""
            assert not turn.done()
        told = await turn
        assert isinstance(told[-1], events.TurnFinished)
        log = list(session.agent.engine.view.log)
        kinds = [type(entry) for entry in log if isinstance(entry, Queued | Summarized | Delivered)]
        assert kinds == [Queued, Summarized, Delivered]


async def test_a_draft_of_what_changed_meanwhile_is_refused(talked: Path, tmp_path: Path) -> None:
    for change in ("summarised", "cleared", "pinned", "accepted"):
        async with resumed(talked, tmp_path / change) as session:
            agent = session.agent
            draft = await drafted(session)
            first = next(item.seq for item in agent.context.items() if item.category == "results")
            match change:
                case "summarised":
                    await agent.compact()
                case "cleared":
                    assert not isinstance(await agent.context.clear_results([first]), Refusal)
                case "pinned":
                    assert not isinstance(await agent.context.pin([first]), Refusal)
                case _:
                    await agent.context.accept(draft)
            before, kept = shown(session.agent.engine.view), archive(session)
            assert agent.context.revise(draft, "another text") == Refusal(CHANGED)
            result = await agent.context.accept(draft)
            assert (result.error, result.seq) == (CHANGED, 0)
            assert result.before == result.after == agent.context_stats().tokens
            assert (shown(session.agent.engine.view), archive(session)) == (before, kept)


async def test_nothing_is_accepted_while_a_turn_runs(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        draft = await drafted(session)
        running = session.agent.run("read calc.py")
        await anext(running)
        with pytest.raises(AgentBusy):
            await session.agent.context.accept(draft)
        with pytest.raises(AgentBusy):
            await session.agent.context.draft()
        await running.aclose()
        assert (await session.agent.context.accept(draft)).error == ""


# Edited, and on the wire


def reading(request: ParsedRequest) -> Step:
    if request.position < 4 and "go on" not in request.prompt.lower():
        return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{request.position}.txt"}),))
    return Step(text="All pages are read.")


@asynccontextmanager
async def reading_session(
    folder: Path, reader: Reader, serve: Serve, more: Mapping[str, str] | None = None
) -> AsyncIterator[Session]:
    """A session that has read four pages, with a server of its own."""
    pages(folder, 4)
    serve(AnthropicServer(reader), may_break=True)
    async with talking(folder, {**OPUS, **(more or {})}) as session:
        await goes_on(session, "Read the pages. Never touch page_3.txt!")
        yield session


def of_the_length_asked(request: ParsedRequest) -> Step:
    """A summary of two thirds of the words it may have."""
    words = int(re.findall(r"(\d+) words", str(request.body))[-1])
    lines = (f"- page_{each % 4}.txt has item_{each % 4}_{each} in line {each}.\n" for each in range(words // 10))
    return Step(text=f"{HANDOVER}\n{''.join(lines)}", chunk=400)


@pytest.mark.parametrize("small", ["", OPUS["model.id"]])
async def test_what_a_summary_is_expected_to_cost_is_near_what_it_costs(
    tmp_path: Path, serve: Serve, small: str
) -> None:
    """Whether a small model writes it, from a transcript with its results cut, or the conversation's own."""
    more = {"agentic.small_model": small}
    async with reading_session(tmp_path, Reader(reading, of_the_length_asked), serve, more) as session:
        expected = await session.agent.context.preview("compact")
        draft = await drafted(session)
        found = await session.agent.context.preview_draft(draft)
        assert draft.model.partition(":")[2] == (small or "claude-haiku-5-5")
        assert not isinstance(expected, Refusal)
        assert found.price is not None
        assert expected.price is not None
        assert found.price.calls is not None
        assert expected.price.calls is not None
        assert 0.6 < expected.price.cost / found.price.cost < 1.7
        assert 0.5 < expected.price.calls / found.price.calls < 2


async def test_an_edited_text_is_what_the_model_sees_and_a_useless_one_is_refused(tmp_path: Path, serve: Serve) -> None:
    reader = Reader(reading)
    async with reading_session(tmp_path, reader, serve) as session:
        before = session.agent.tracker.session.cost_usd
        draft = await drafted(session)
        # What writing it has cost counts whether it is used or not.
        price = (await session.agent.context.preview_draft(draft)).price
        assert price is not None
        assert price.writing == draft.spent_usd
        assert session.agent.tracker.session.cost_usd == pytest.approx(before + price.writing)
        length = len(session.agent.engine.view.log)
        for text, why in (("  \n", "empty"), ("more words " * 40_000, "replaces only")):
            assert isinstance(session.agent.context.revise(draft, text), Refusal)
            assert why in (await session.agent.context.accept(draft, text)).error
            assert len(session.agent.engine.view.log) == length
        assert draft.model
        assert draft.facts_appended > 0
        edited = "# Current state\nAll four pages are known. Only page_2.txt matters: item_2_7."
        revised = session.agent.context.revise(draft, edited)
        assert isinstance(revised, Draft)
        assert revised.after < draft.after
        assert revised.facts_left_out > draft.facts_left_out
        result = await session.agent.context.accept(draft, edited)
        assert (result.error, result.after) == ("", revised.after)
        expected = re.search(r"for \$([\d.]+) plus", (await cost(session.agent, "")).text)
        spent = session.agent.tracker.session.cost_usd
        await say(session, "Go on.")
        assert expected is not None
        assert 0.5 < (session.agent.tracker.session.cost_usd - spent) / float(expected[1]) < 2
        sent = str(reader.own[-1].body["messages"])
        assert "All four pages are known. Only page_2.txt matters: item_2_7." in sent
        assert "The files are being read one by one." not in sent
        assert "# Facts kept verbatim" not in sent
        boundary = session.agent.engine.view.log[result.seq]
        assert isinstance(boundary, Summarized)
        assert boundary.reason.endswith(", edited")
        assert archive(session).count("line 198 of page 3") == 1
