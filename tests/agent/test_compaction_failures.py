"""A compaction that is stopped, killed, or whose model fails: the view is the old one or the new one."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.compacting import SETTINGS
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import saved, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.turn.turns import AgentBusy
from tui_agent.context.compaction.state import HEADING as WHERE
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Delivered, Message, Queued, Summarized
from tui_agent.conversation.request import WORDS_HEADING as WORDS
from tui_agent.conversation.view import View
from tui_agent.session import Session

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = {"compaction.thrift": "0", "clearing.by_price": "false"}
EARLY = {"compaction.threshold": "0.3", "context.max_tokens": "1024", "compaction.keep_recent_tokens": "200"}
AWAITED = {"compaction.background": "false"}
"""A turn waits for its summary, as it does where its request does not fit."""
FIRST = 5
"""Steps of the event loop to the first moment at which a compaction is stopped."""
SHARES = pytest.mark.parametrize("share", [2, pytest.param(8, marks=pytest.mark.soak)])
"""By which part of its steps each next moment comes later: how many a compaction takes hangs on the machine's speed."""
ASKED = ("read calc.py", "read test_calc.py", "find 'return' in .", "read calc.py and test_calc.py")


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session of some length, to be copied."""
    folder = tmp_path_factory.mktemp("talked")

    async def talk() -> None:
        async with talking(folder, OFFLINE) as session:
            for prompt in ASKED * 8:
                await say(session, prompt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
        asyncio.run(talk())
    return folder


def copied(talked: Path, to: Path) -> tuple[Path, str]:
    """A copy of that folder, and the session's name."""
    folder = Path(shutil.copytree(talked, to, dirs_exist_ok=True))
    (name,) = (each.name for each in (folder / "home" / "sessions").iterdir())
    return folder, name


def summaries(session: Session) -> list[Summarized]:
    return [entry for entry in session.agent.engine.view.log if isinstance(entry, Summarized)]


# Stopped


async def stopped_after(ticks: int, folder: Path, name: str) -> bool:
    """Cancel a compaction at one of its awaits; whether it was over by then."""
    async with talking(folder, OFFLINE, resume=name) as session:
        old = shown(session.agent.engine.view)
        compacting = asyncio.ensure_future(session.agent.compact())
        for _ in range(ticks):
            await asyncio.sleep(0)
        over = compacting.done()
        compacting.cancel()
        await asyncio.wait([compacting])
        assert broken_rules(session.agent.engine.view.messages()) == []
        if summaries(session):
            assert len(summaries(session)) == 1
            assert shown(session.agent.engine.view).startswith(summaries(session)[0].text)
        else:
            assert shown(session.agent.engine.view) == old
        assert isinstance((await say(session, "read calc.py"))[-1], events.TurnFinished)
        new = shown(session.agent.engine.view)
    assert shown(View(await saved(folder))) == new
    return over


@SHARES
async def test_stopping_a_compaction_anywhere_leaves_the_old_view_or_the_new_one(
    share: int, talked: Path, tmp_path: Path
) -> None:
    ticks = 0
    while not await stopped_after(ticks, *copied(talked, tmp_path / str(ticks))):
        ticks += max(FIRST, ticks // share)
    assert ticks > 4 * FIRST


async def stop_key_after(ticks: int, folder: Path, name: str) -> bool:
    """Interrupt a turn that begins with a compaction; whether that was over by then."""
    async with talking(folder, {**OFFLINE, **EARLY, **AWAITED}, resume=name) as session:
        old, compacting, over = shown(session.agent.engine.view), False, False
        running = session.agent.run("find 'assert' in .")
        async for event in running:
            if isinstance(event, events.ContextStepStarted):
                compacting = True
                for _ in range(ticks):
                    await asyncio.sleep(0)
                over = bool(summaries(session))
                session.agent.interrupt()
        assert compacting
        assert not session.agent.busy
        assert broken_rules(session.agent.engine.view.messages()) == []
        if not summaries(session):
            assert shown(session.agent.engine.view).startswith(old)
        (waiting,) = (entry.seq for entry in session.agent.engine.view.log if isinstance(entry, Queued))
        assert isinstance((await say(session))[-1], events.TurnFinished)
        assert [entry.queued for entry in session.agent.engine.view.log if isinstance(entry, Delivered)] == [waiting]
        assert session.agent.turns.queued() == ()
    assert broken_rules(View(await saved(folder)).messages()) == []
    return over


@SHARES
async def test_the_stop_key_works_during_a_compaction_and_the_prompt_that_waited_is_delivered(
    share: int, talked: Path, tmp_path: Path
) -> None:
    ticks = 0
    while not await stop_key_after(ticks, *copied(talked, tmp_path / str(ticks))):
        ticks += max(FIRST, ticks // share)
    assert ticks > 4 * FIRST


# Killed


def reading(request: ParsedRequest) -> Step:
    if request.position < 4 and "go on" not in request.prompt:
        return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{request.position}.txt"}),))
    return Step(text="All pages are read.")


def pages(folder: Path, lines: int = 300) -> None:
    project = folder / "project"
    project.mkdir()
    for number in range(4):
        text = "".join(f"line {each} of page {number} names item_{number}_{each}\n" for each in range(lines))
        (project / f"page_{number}.txt").write_text(text)


@asynccontextmanager
async def reading_session(
    folder: Path,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    *,
    window: int = 1_000_000,
    lines: int = 300,
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Session, AnthropicServer]]:
    """A session that has read four pages, with a server of its own."""
    pages(folder, lines)
    with in_thread(AnthropicServer(reader, windows={"claude-opus-5-5": window})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(folder, {"model.id": "claude-opus-5-5", **(more or {})}) as session:
            await say(session, "Read the pages. Never touch page_3.txt!")
            yield session, server


async def test_killed_during_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, killed = threading.Event(), threading.Event()

    def slowly(request: ParsedRequest) -> Step:
        asked.set()
        if killed.is_set():
            return Step(text=HANDOVER)
        return Step(text=HANDOVER, delay=1.0, chunk=4)

    pages(tmp_path, 600)
    reader = Reader(reading, slowly)
    with in_thread(AnthropicServer(reader, windows={"claude-opus-5-5": 200_000})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(tmp_path, {**SETTINGS, "compaction.auto": "false"}) as session:
            await say(session, "Read the pages.")
            old, name = shown(session.agent.engine.view), session.id
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "tests.agent.compacting", str(tmp_path), name, "And now go on."],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            assert await asyncio.to_thread(asked.wait, 200), "no summary was asked for"
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        killed.set()
        left = View(await saved(tmp_path))
        assert broken_rules(left.messages()) == []
        assert shown(left) == old
        assert [entry.blocks for entry in left.queued()] == [(Text("And now go on."),)]
        async with talking(tmp_path, SETTINGS, resume=name) as session:
            told = await say(session)
            assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["And now go on."]
            assert len(summaries(session)) == 1
            assert isinstance(told[-1], events.TurnFinished)
            assert told[-1].stop_reason == "end_turn"
        assert server.violations == []


# A model that fails


LONG = " ".join(f"word{number}" for number in range(30_000))
FAILING = {
    "rate limited": Step(fault=Fault(kind="rate_limited", times=99, retry_after=0.01)),
    "overloaded": Step(fault=Fault(kind="overloaded", times=99)),
    "overflow": Step(fault=Fault(kind="context_overflow", times=99)),
    "refused": Step(fault=Fault(kind="bad_request", times=99, message="no")),
    "cut off": Step(text=HANDOVER, fault=Fault(kind="truncate", times=99)),
    "garbage": Step(text="%% 0110 1001 @@ -- ?? 0000 1111"),
    "repeats itself": Step(text="again and " * 400),
    "empty": Step(text=" "),
    "longer than what it replaces": Step(text=LONG),
    "calls a tool": Step(calls=(Call("read_file", {"path": "page_0.txt"}),)),
}


@pytest.mark.parametrize("way", FAILING)
async def test_a_summariser_that_fails_is_done_without(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(reading, lambda request: FAILING[way])
    lines = 40 if way.startswith("longer") else 300
    async with reading_session(tmp_path, reader, monkeypatch, lines=lines) as (session, server):
        old = len(str(session.agent.engine.view.messages()))
        result = await session.agent.compact()
        assert result.error == ""
        assert result.after < result.before
        (summary,) = summaries(session)
        assert summary.model == ""
        assert len(str(session.agent.engine.view.messages())) < old
        assert broken_rules(session.agent.engine.view.messages()) == []
        assert "Never touch page_3.txt!" in str(session.agent.engine.view.messages())
        told = await say(session, "Go on.")
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"
        assert [each for each in server.violations if "bad" not in each] == []
        assert LONG[:200] not in str(session.agent.engine.view.messages())
        assert all("rate_limit" not in str(request.body["messages"]) for request in reader.own)


async def test_a_compaction_that_is_refused_says_so_once_and_then_backs_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No headroom gained: what is left is new, pinned or a summary already."""
    small = {
        "compaction.threshold_by_tier.frontier": "0.35",
        "compaction.thrift": "0",
        "context.context_window": "20000",
    }

    def talkative(request: ParsedRequest) -> Step:
        return Step(text="Word. " * 400)

    with in_thread(
        AnthropicServer(Reader(talkative, lambda _: Step(text="# Current state\n" + "Same. " * 900)))
    ) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(tmp_path, {"model.id": "claude-opus-5-5", **small}) as session:
            compacted = []
            for number in range(24):
                told = await say(session, f"{number}: " + "please go on " * 150)
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
                compacted.append(sum(isinstance(event, events.ContextStep) for event in told))
            # A compaction, and with it at most the merging of the summaries before it.
            assert max(compacted) <= 2
            assert 0 < sum(compacted) < 24


# What a compaction must leave alone


async def test_a_compaction_during_a_parallel_step_leaves_the_step_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parallel(request: ParsedRequest) -> Step:
        if request.position == 0 and "Again" in request.prompt:
            return Step(
                text="All at once.", calls=tuple(Call("read_file", {"path": f"page_{n}.txt"}) for n in range(3))
            )
        return reading(request) if "Again" not in request.prompt else Step(text="Done.")

    reader = Reader(parallel)
    more = {"compaction.threshold_by_tier.frontier": "0.45", "context.preset": "summary-only", "compaction.thrift": "0"}
    more |= AWAITED
    async with reading_session(tmp_path, reader, monkeypatch, window=60_000, more=more) as (session, server):
        before = len(reader.own)
        told = await say(session, "Again, all at once.")
        kinds = [type(event) for event in told if isinstance(event, events.ToolFinished | events.ContextStep)]
        assert kinds == [*[events.ToolFinished] * 3, events.ContextStep]
        after = reader.own[before + 1]
        assert len(after.results) == 3
        assert all(f"item_{number}_250" in text for number, text in enumerate(after.results))
        assert server.violations == []


async def test_automatic_and_manual_never_compact_at_once(tmp_path: Path) -> None:
    async with talking(tmp_path, OFFLINE) as session:
        for prompt in ASKED * 2:
            await say(session, prompt)
        running = session.agent.run("read calc.py")
        await anext(running)
        with pytest.raises(AgentBusy):
            await session.agent.compact()
        await running.aclose()
        one, other = await asyncio.gather(session.agent.compact(), session.agent.compact(), return_exceptions=True)
        assert not isinstance(one, BaseException)
        assert not isinstance(other, BaseException)
        assert broken_rules(session.agent.engine.view.messages()) == []
        assert one.error == ""
        assert other.before < one.before


async def test_a_prompt_sent_during_a_compaction_waits_and_is_answered(tmp_path: Path) -> None:
    async with talking(tmp_path, OFFLINE) as session:
        for prompt in ASKED * 2:
            await say(session, prompt)
        compacting = asyncio.ensure_future(session.agent.compact())
        await asyncio.sleep(0)
        told = await say(session, "read calc.py")
        assert (await compacting).error == ""
        assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["read calc.py"]
        newest = [
            entry for entry in session.agent.engine.view.log if isinstance(entry, Message) and entry.role == "assistant"
        ]
        assert newest[-1].seq > summaries(session)[-1].seq


async def test_pins_inside_a_summary_stay_and_go_with_the_next_once_taken_off(tmp_path: Path) -> None:
    async with talking(tmp_path, OFFLINE) as session:
        for prompt in ASKED:
            await say(session, prompt)
        pinned = next(item for item in session.agent.context.items() if item.category == "results")
        assert not isinstance(await session.agent.context.pin([pinned.seq]), Refusal)
        await say(session, "find 'def' in .")
        assert (await session.agent.compact()).error == ""
        state = {item.seq: item.state for item in session.agent.context.items()}
        assert state[pinned.seq] == "verbatim"
        assert state[pinned.group] == "verbatim"
        assert "def add" in str(session.agent.engine.view.messages())
        assert not isinstance(await session.agent.context.pin([pinned.seq], pinned=False), Refusal)
        assert {item.seq: item.state for item in session.agent.context.items()}[pinned.seq] == "summarized"
        assert broken_rules(session.agent.engine.view.messages()) == []


async def test_nested_summaries_undone_in_any_order_after_a_resume(tmp_path: Path) -> None:
    async with talking(tmp_path, OFFLINE) as session:
        for prompt in ASKED * 2:
            await say(session, prompt)
        first = (await session.agent.compact()).seq
        once = shown(session.agent.engine.view)
        for prompt in ASKED:
            await say(session, prompt)
        second = (await session.agent.compact()).seq
        assert 0 < first < second
        twice, name = shown(session.agent.engine.view), session.id
    async with talking(tmp_path, OFFLINE, resume=name) as session:
        assert shown(session.agent.engine.view) == twice
        assert twice.startswith(once[: once.index(WORDS)])
        assert not isinstance(await session.agent.context.undo(first), Refusal)
        assert len(shown(session.agent.engine.view)) > len(twice)
        assert not isinstance(await session.agent.context.undo(second), Refusal)
        whole = shown(session.agent.engine.view)
        assert "read test_calc.py" in whole
        assert len(whole) > len(twice)
        assert broken_rules(session.agent.engine.view.messages()) == []
    async with talking(tmp_path, OFFLINE, resume=name) as session:
        assert shown(session.agent.engine.view) == whole
        undone_first = next(
            seq for seq, entry in enumerate(session.agent.engine.view.log, 1) if getattr(entry, "target", 0) == first
        )
        assert not isinstance(await session.agent.context.undo(undone_first), Refusal)
        assert shown(session.agent.engine.view).startswith(once)
        assert isinstance((await say(session, "read calc.py"))[-1], events.TurnFinished)


# What the user said


async def test_the_words_of_the_user_are_listed_changed_dropped_and_had_back(tmp_path: Path) -> None:
    async with talking(tmp_path, OFFLINE) as session:
        agent, view = session.agent, session.agent.engine.view
        for prompt in ASKED * 2:
            await say(session, prompt)
        assert (await run_command(agent, "/words")).title == "All your words are still in the conversation"
        assert (await run_command(agent, "/compact")).failed is False
        first, second = view.shown_words().words[:2]
        listed = (await run_command(agent, "/words")).text
        assert f"{first.seq}  {first.text}" in listed
        assert not (await run_command(agent, f"/words {first.seq} never touch calc.py")).failed
        assert not (await run_command(agent, f"/words {second.seq} drop")).failed
        assert view.shown_words().words[0].text == "never touch calc.py"
        assert second.seq not in [each.seq for each in view.shown_words().words]
        assert "]\nnever touch calc.py" in shown(view)
        name = session.id
        refused = await run_command(agent, "/words 99999 what")
        assert refused.failed
        assert "/words lists" in refused.text
    async with talking(tmp_path, OFFLINE, resume=name) as session:
        agent, view = session.agent, session.agent.engine.view
        assert "]\nnever touch calc.py" in shown(view)
        for prompt in ASKED:
            await say(session, prompt)
        await agent.compact()
        assert view.shown_words().words[0].text == "never touch calc.py"
        assert second.seq not in [each.seq for each in view.words()]
        for _ in range(3):
            assert not isinstance(await agent.context.undo(), Refusal)
        assert view.shown_words().words[:2] == (first, second)
        await agent.context.pin([first.seq])
        assert first not in view.shown_words().words
        assert shown(view).count(first.text) >= 1
        assert broken_rules(view.messages()) == []


async def test_where_things_are_stands_after_a_summary_and_is_renewed_by_the_next(tmp_path: Path) -> None:
    async with talking(tmp_path, {**OFFLINE, "permissions.mode": "allow"}) as session:
        agent, view = session.agent, session.agent.engine.view
        await say(session, 'todo "[x] read it", "[>] mend it"')
        for prompt in (*ASKED, 'write "hello" to made.txt', "run echo it is broken; exit 3", *ASKED):
            await say(session, prompt)
        assert (await agent.compact()).seq
        first = shown(view)
        assert first.count(WHERE) == 1
        assert first.index(WORDS) < first.index(WHERE)
        told = first[first.index(WHERE) :]
        assert "mend it" in told
        assert "made.txt" in told
        assert "it is broken" in told
        await say(session, 'todo "[x] read it", "[x] mend it", "[>] ship it"')
        for prompt in ASKED * 2:
            await say(session, prompt)
        assert (await agent.compact()).seq
        assert shown(view).count(WHERE) == 1
        assert "ship it" in shown(view)[shown(view).index(WHERE) :]
        name = session.id
        twice = shown(view)
    async with talking(tmp_path, OFFLINE, resume=name) as session:
        assert shown(session.agent.engine.view) == twice
        await session.agent.context.undo()
        assert shown(session.agent.engine.view).count(WHERE) == 1
        assert shown(session.agent.engine.view).startswith(first[: first.index(WHERE) + 60])
