"""A compaction that is stopped, killed, or whose model fails: the view is the old one or the new one."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.agent.compacting import SETTINGS
from tests.agent.serving import OPUS, Serve, serving
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import ASKED, NEVER_BY_PRICE, copied, goes_on, of, pages, saved, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.context.compaction.state import HEADING as WHERE
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Delivered, Queued, Summarized
from tui_agent.conversation.request import WORDS_HEADING as WORDS
from tui_agent.conversation.view import View
from tui_agent.session import Session

ROOT = Path(__file__).resolve().parents[2]
EARLY = {"compaction.threshold": "0.3", "context.max_tokens": "1024", "compaction.keep_recent_tokens": "200"}
AWAITED = {"compaction.background": "false"}
"""A turn waits for its summary, as it does where its request does not fit."""
FIRST = 5
"""Steps of the event loop to the first moment at which a compaction is stopped."""
SHARES = pytest.mark.parametrize("share", [1, pytest.param(8, marks=pytest.mark.soak)])
"""By which part of its steps each next moment comes later: how many a compaction takes hangs on the machine's speed."""


def summaries(session: Session) -> list[Summarized]:
    return of(Summarized, session.agent.engine.view.log)


# Stopped


async def stopped_after(ticks: int, folder: Path, name: str) -> bool:
    """Cancel a compaction at one of its awaits; whether it was over by then."""
    async with talking(folder, NEVER_BY_PRICE, resume=name) as session:
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
        await goes_on(session, "read calc.py")
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
    async with talking(folder, {**NEVER_BY_PRICE, **EARLY, **AWAITED}, resume=name) as session:
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
        (waiting,) = of(Queued, session.agent.engine.view.log)
        assert isinstance((await say(session))[-1], events.TurnFinished)
        assert [entry.queued for entry in of(Delivered, session.agent.engine.view.log)] == [waiting.seq]
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


async def test_killed_during_a_compaction(tmp_path: Path, serve: Serve) -> None:
    asked, killed = threading.Event(), threading.Event()

    def slowly(request: ParsedRequest) -> Step:
        asked.set()
        if killed.is_set():
            return Step(text=HANDOVER)
        return Step(text=HANDOVER, delay=1.0, chunk=4)

    pages(tmp_path, 4, lines=600)
    reader = Reader(reading, slowly)
    serve(AnthropicServer(reader, windows={"claude-opus-5-5": 200_000}))
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
        assert [event.text for event in of(events.UserMessage, told)] == ["And now go on."]
        assert len(summaries(session)) == 1
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"


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


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=[pytest.mark.soak] if way in ("rate limited", "overloaded", "garbage", "empty") else [])
        for way in FAILING
    ],
)
async def test_a_summariser_that_fails_is_done_without(way: str, tmp_path: Path, serve: Serve) -> None:
    reader = Reader(reading, lambda request: FAILING[way])
    pages(tmp_path, 4, lines=40 if way.startswith("longer") else 300)
    server = serve(AnthropicServer(reader), may_break=True)
    async with talking(tmp_path, OPUS) as session:
        await goes_on(session, "Read the pages. Never touch page_3.txt!")
        view = session.agent.engine.view
        old = len(str(view.messages()))
        result = await session.agent.compact()
        assert (result.error, result.after < result.before) == ("", True)
        (summary,) = summaries(session)
        assert summary.model == ""
        assert len(str(view.messages())) < old
        assert "Never touch page_3.txt!" in str(view.messages())
        await goes_on(session, "Go on.")
        assert [each for each in server.violations if "bad" not in each] == []
        assert LONG[:200] not in str(view.messages())
        assert all("rate_limit" not in str(request.body["messages"]) for request in reader.own)


async def test_a_compaction_that_is_refused_says_so_once_and_then_backs_off(tmp_path: Path, serve: Serve) -> None:
    """No headroom gained: what is left is new, pinned or a summary already."""
    small = {
        "compaction.threshold_by_tier.frontier": "0.35",
        "compaction.thrift": "0",
        "context.context_window": "20000",
    }

    def talkative(request: ParsedRequest) -> Step:
        return Step(text="Word. " * 400)

    serve(AnthropicServer(Reader(talkative, lambda _: Step(text="# Current state\n" + "Same. " * 900))))
    async with talking(tmp_path, {**OPUS, **small}) as session:
        compacted = []
        for number in range(14):
            told = await goes_on(session, f"{number}: " + "please go on " * 150)
            compacted.append(len(of(events.ContextStep, told)))
        # A compaction, and with it at most the merging of the summaries before it.
        assert max(compacted) <= 2
        assert 0 < sum(compacted) < 14


# What a compaction must leave alone


async def test_a_compaction_during_a_parallel_step_leaves_the_step_whole(tmp_path: Path, serve: Serve) -> None:
    def parallel(request: ParsedRequest) -> Step:
        if "Again" not in request.prompt:
            return reading(request)
        calls = tuple(Call("read_file", {"path": f"page_{number}.txt"}) for number in range(3))
        return Step(text="Done.") if request.position else Step(text="All at once.", calls=calls)

    reader = Reader(parallel)
    pages(tmp_path, 4, lines=300)
    serve(serving("anthropic", reader, 60_000))
    more = {"compaction.threshold_by_tier.frontier": "0.45", "context.preset": "summary-only", "compaction.thrift": "0"}
    async with talking(tmp_path, {**OPUS, **more, **AWAITED}) as session:
        await goes_on(session, "Read the pages.")
        before = len(reader.own)
        told = await say(session, "Again, all at once.")
        kinds = [type(event) for event in told if isinstance(event, events.ToolFinished | events.ContextStep)]
        assert kinds == [*[events.ToolFinished] * 3, events.ContextStep]
        after = reader.own[before + 1]
        assert len(after.results) == 3
        assert all(f"item_{number}_250" in text for number, text in enumerate(after.results))


async def test_pins_inside_a_summary_stay_and_go_with_the_next_once_taken_off(tmp_path: Path) -> None:
    async with talking(tmp_path, NEVER_BY_PRICE) as session:
        await goes_on(session, *ASKED)
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


# What the user said


async def test_the_words_of_the_user_are_listed_changed_dropped_and_had_back(tmp_path: Path) -> None:
    async with talking(tmp_path, NEVER_BY_PRICE) as session:
        agent, view = session.agent, session.agent.engine.view
        await goes_on(session, *ASKED * 2)
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
        refused = await run_command(agent, "/words 99999 what")
        assert refused.failed
        assert "/words lists" in refused.text
    async with talking(tmp_path, NEVER_BY_PRICE, resume=session.id) as session:
        agent, view = session.agent, session.agent.engine.view
        assert "]\nnever touch calc.py" in shown(view)
        await goes_on(session, *ASKED)
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
    async with talking(tmp_path, {**NEVER_BY_PRICE, "permissions.mode": "allow"}) as session:
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
        await goes_on(session, *ASKED * 2)
        assert (await agent.compact()).seq
        assert shown(view).count(WHERE) == 1
        assert "ship it" in shown(view)[shown(view).index(WHERE) :]
        twice = shown(view)
    async with talking(tmp_path, NEVER_BY_PRICE, resume=session.id) as session:
        assert shown(session.agent.engine.view) == twice
        await session.agent.context.undo()
        assert shown(session.agent.engine.view).count(WHERE) == 1
        assert shown(session.agent.engine.view).startswith(first[: first.index(WHERE) + 60])
