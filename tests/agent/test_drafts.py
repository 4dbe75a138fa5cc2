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

from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import saved, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Step
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
ASKED = ("read calc.py", "read test_calc.py", "find 'return' in .", "read calc.py and test_calc.py")
CLAUDE = "claude-opus-5-5"


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session of some length, to be copied."""
    folder = tmp_path_factory.mktemp("talked")

    async def talk() -> None:
        async with talking(folder) as session:
            for prompt in ASKED * 4:
                await say(session, prompt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
        asyncio.run(talk())
    return folder


@asynccontextmanager
async def resumed(talked: Path, to: Path) -> AsyncIterator[Session]:
    """The session of a copy of that folder."""
    folder = Path(shutil.copytree(talked, to, dirs_exist_ok=True))
    async with talking(folder, resume=name_in(folder)) as session:
        yield session


def name_in(folder: Path) -> str:
    (name,) = (each.name for each in (folder / "home" / "sessions").iterdir())
    return name


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


async def test_its_own_text_given_back_changes_nothing(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        draft = await drafted(session)
        result = await session.agent.context.accept(draft, draft.text)
        assert (result.error, result.after) == ("", draft.after)
        assert draft.text in result.text
        assert "edited" not in str([entry for entry in session.agent.engine.view.log if isinstance(entry, Summarized)])


async def test_its_preview_is_exact(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        draft = await drafted(session)
        preview = await session.agent.context.preview_draft(draft)
        assert preview.exact
        assert (preview.preview.before, preview.preview.after) == (draft.before, draft.after)
        result = await session.agent.context.accept(draft)
        boundary = session.agent.engine.view.log[result.seq]
        assert isinstance(boundary, Summarized)
        assert (boundary.before, boundary.after) == (result.before, result.after) == (draft.before, draft.after)
        states = {item.seq: item.state for item in session.agent.context.items()}
        assert {states[item.seq] for item in preview.preview.leaving} == {"summarized"}


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


async def test_an_accepted_draft_can_be_undone(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        before = shown(session.agent.engine.view)
        await session.agent.context.accept(await drafted(session))
        assert shown(session.agent.engine.view) != before
        assert not isinstance(await session.agent.context.undo(), Refusal)
        assert shown(session.agent.engine.view) == before


async def test_what_cannot_be_summarised_gives_no_draft(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        assert isinstance(await session.agent.context.draft(), Refusal)
        assert isinstance(await session.agent.context.draft("checkpoint"), Refusal)


# Left


def said(session: Session) -> int:
    """How many entries the conversation has; what a call cost and what only the trace shows are none of it."""
    return sum(not isinstance(entry, UnattributedCall | Recorded) for entry in session.agent.engine.view.log)


async def test_a_dropped_draft_leaves_nothing(talked: Path, tmp_path: Path) -> None:
    async with resumed(talked, tmp_path) as session:
        before, calls = shown(session.agent.engine.view), session.agent.tracker.session.calls
        length = said(session)
        await drafted(session)
        assert (shown(session.agent.engine.view), said(session)) == (before, length)
        assert archive(session) == ""
        assert session.agent.tracker.session.calls == calls + 1


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
    folder = Path(shutil.copytree(talked, tmp_path, dirs_exist_ok=True))
    before = shown(View(await saved(folder)))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.agent.drafting", str(folder), name_in(folder)),
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
    async with talking(folder, resume=name_in(folder)) as session:
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
    folder: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch, more: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Session, AnthropicServer]]:
    """A session that has read four pages, with a server of its own."""
    project = folder / "project"
    project.mkdir()
    for number in range(4):
        text = "".join(f"line {each} of page {number} names item_{number}_{each}\n" for each in range(200))
        (project / f"page_{number}.txt").write_text(text)
    with in_thread(AnthropicServer(reader, windows={CLAUDE: 1_000_000})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(folder, {"model.id": CLAUDE, **(more or {})}) as session:
            await say(session, "Read the pages. Never touch page_3.txt!")
            yield session, server


def of_the_length_asked(request: ParsedRequest) -> Step:
    """A summary of two thirds of the words it may have."""
    words = int(re.findall(r"(\d+) words", str(request.body))[-1])
    lines = (f"- page_{each % 4}.txt has item_{each % 4}_{each} in line {each}.\n" for each in range(words // 10))
    return Step(text=f"{HANDOVER}\n{''.join(lines)}", chunk=400)


@pytest.mark.parametrize("small", ["", CLAUDE])
async def test_what_a_summary_is_expected_to_cost_is_near_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: str
) -> None:
    """Whether a small model writes it, from a transcript with its results cut, or the conversation's own."""
    more = {"agentic.small_model": small}
    async with reading_session(tmp_path, Reader(reading, of_the_length_asked), monkeypatch, more) as (session, _):
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


async def test_an_edited_text_is_what_the_model_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(reading)
    async with reading_session(tmp_path, reader, monkeypatch) as (session, server):
        draft = await drafted(session)
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
        assert server.violations == []
        assert archive(session).count("line 198 of page 3") == 1


async def test_what_writing_it_has_cost_counts_whether_it_is_used_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(reading)
    async with reading_session(tmp_path, reader, monkeypatch) as (session, _):
        before = session.agent.tracker.session.cost_usd
        draft = await drafted(session)
        assert draft.spent_usd is not None
        assert draft.spent_usd > 0
        assert session.agent.tracker.session.cost_usd == pytest.approx(before + draft.spent_usd)
        price = (await session.agent.context.preview_draft(draft)).price
        assert price is not None
        assert price.writing == draft.spent_usd
        assert price.calls is not None


async def test_a_text_that_is_empty_or_frees_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reading_session(tmp_path, Reader(reading), monkeypatch) as (session, _):
        draft = await drafted(session)
        length = len(session.agent.engine.view.log)
        for text, why in (("  \n", "empty"), ("more words " * 40_000, "replaces only")):
            assert isinstance(session.agent.context.revise(draft, text), Refusal)
            result = await session.agent.context.accept(draft, text)
            assert why in result.error
            assert len(session.agent.engine.view.log) == length
        assert (await session.agent.context.accept(draft)).error == ""


async def test_a_summariser_that_fails_leaves_an_extract_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Step(text=HANDOVER, fault=Fault(kind="bad_request", times=99, message="no summaries today"))
    async with reading_session(tmp_path, Reader(reading, lambda _: failing), monkeypatch) as (session, _):
        draft = await drafted(session)
        assert draft.model == ""
        assert "no summaries today" in draft.failures[-1]
        assert draft.spent_usd == 0
        result = await session.agent.context.accept(draft)
        boundary = session.agent.engine.view.log[result.seq]
        assert isinstance(boundary, Summarized)
        assert boundary.model == ""
