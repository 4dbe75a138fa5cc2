"""What else happens to a session with a summary that the provider signed: branches, Esc, damage, words and pins."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path

import pytest

from tests.agent.talking import put, saved, say, talking
from tests.agent.test_pictures import photograph
from tests.agent.test_signed_summaries import (
    CLAUDE,
    SETTINGS,
    Reading,
    asked_for,
    check,
    dotted,
    signing,
    signing_server,
    summaries,
)
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Fault
from tests.storage.test_damage import damage
from tui_agent.agent import events
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import CHANGED
from tui_agent.conversation.blocks import Image, Text
from tui_agent.conversation.entries import Message, Prefix, Words
from tui_agent.conversation.request import CARRIED_HEADING, WORDS_HEADING
from tui_agent.conversation.view import View
from tui_agent.session import Session
from tui_agent.storage.log import LOG_NAME
from tui_agent.storage.verify import verify

ROOT = Path(__file__).resolve().parents[2]
FAST = [("rewind", 2), ("fork", 4)]
BY_HAND = {"context__context_window": "200000", "compaction__auto": "false"}
"""Nothing is summarised unless it is asked for."""


async def go_on(session: Session, prompt: str = "Read 1 page more") -> None:
    told = await say(session, prompt)
    assert [event for event in told if isinstance(event, events.TurnFailed)] == []


def texts(view: View) -> list[str]:
    return [block.text for message in view.messages() for block in message.blocks if isinstance(block, Text)]


def prompt_of(session: Session, text: str) -> int:
    return next(each.seq for each in session.agent.branches.prompts() if each.text.startswith(text))


@pytest.mark.parametrize(
    ("how", "place"),
    [
        pytest.param(how, f"Read {number}", marks=[] if (how, number) in FAST else [pytest.mark.soak])
        for how in ("rewind", "fork")
        for number in range(1, 6)
    ],
)
async def test_going_back_to_before_within_and_after_what_is_covered(
    how: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        agent = session.agent
        for pages in (1, 2, 3):
            await go_on(session, f"Read {pages} pages")
        await agent.context.compact()
        (entry,) = summaries(session)
        assert entry.signed
        for pages in (4, 5):
            await go_on(session, f"Read {pages} pages")
        seq, tip = prompt_of(session, place), agent.engine.view.head
        if how == "rewind":
            await agent.branches.rewind(seq)
        else:
            await agent.branches.fork(seq)
        check(session, server)
        await go_on(session)
        check(session, server)
        await agent.context.undo()
        await go_on(session)
        await agent.context.compact()
        await go_on(session)
        await agent.branches.switch(tip)
        await go_on(session)
        assert server.dropped_thinking == []
        name = session.id
    async with signing(tmp_path, monkeypatch, resume=name, **BY_HAND) as (session, server):
        await go_on(session)
        assert server.dropped_thinking == []
        assert not verify(session.folder).problems


@pytest.mark.parametrize("background", ["true", "false"])
async def test_stopped_while_it_is_written(background: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, compaction__background=background) as (session, server):
        agent, reading = session.agent, server.script
        assert isinstance(reading, Reading)
        reading.held = threading.Event()
        before = summaries(session)
        if background == "true":
            await go_on(session, "Read 9 pages")
            assert agent.context.stop_writing()
        else:
            await go_on(session, "Read 4 pages")
            writing = asyncio.create_task(agent.context.compact())
            assert await asyncio.to_thread(reading.asked.wait, 30)
            writing.cancel()
            await asyncio.wait([writing])
        reading.held.set()
        reading.held = None
        assert summaries(session) == before == []
        await go_on(session)
        await agent.context.compact()
        assert summaries(session)[-1].signed
        await go_on(session)
        assert server.dropped_thinking == []
        assert not verify(session.folder).problems


async def test_words_and_pins_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        agent = session.agent
        await go_on(session, "Read 2 pages for the word chrysanthemum")
        await go_on(session, "Read 3 pages")
        await agent.context.compact()
        await go_on(session)
        first = agent.engine.view.words()[0]
        await agent.context.edit_words([Words(first.seq, "Look for the word dahlia", first.time)])
        await go_on(session)
        (words,) = [text for text in texts(agent.engine.view) if text.startswith(WORDS_HEADING)]
        assert ("dahlia" in words, "chrysanthemum" in words) == (True, False)
        await agent.context.undo()
        await go_on(session)
        await agent.context.pin([first.seq])
        check(session, server)
        await go_on(session)
        await agent.context.compact()
        await go_on(session)
        await agent.context.pin([first.seq], pinned=False)
        await go_on(session)
        await agent.context.compact()
        assert summaries(session)[-1].signed
        await go_on(session)
        assert server.dropped_thinking == []
        assert not verify(session.folder).problems


@pytest.mark.parametrize("row", ["summary", "covered", "kept", "prefix"])
async def test_a_damaged_row(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        await go_on(session, "Read 5 pages")
        await session.agent.context.compact()
        await go_on(session, "Read 2 pages")
        (entry,), log = summaries(session), session.agent.engine.view.log
        said = [each.seq for each in log if isinstance(each, Message) and each.role == "assistant"]
        seq = {
            "summary": entry.seq,
            "covered": next(each for each in said if each <= entry.last),
            "kept": next(each for each in said if each > entry.last),
            "prefix": next(each.seq for each in log if type(each).__name__ == "Prefix"),
        }[row]
        folder, name = session.folder, session.id
    damage(folder / LOG_NAME, seq, random.Random(1))
    async with signing(tmp_path, monkeypatch, resume=name, **BY_HAND) as (session, server):
        check(session, server)
        await go_on(session)
        await session.agent.context.compact()
        await go_on(session)
        assert server.dropped_thinking == []


async def test_thinking_is_not_sent_under_another_system_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        await go_on(session, "Read 5 pages")
        await session.agent.context.compact()
        await go_on(session)
        view = session.agent.engine.view
        assert view.prefix is not None
        kept = view.reasoning_shown()
        for system, shown in ((f"{view.prefix.system} Be brief.", 0), (view.prefix.system, kept)):
            await put(session, Prefix(system=system, tools=view.prefix.tools))
            assert view.reasoning_shown() == shown
            await go_on(session)
        assert server.dropped_thinking == []


async def test_a_pin_while_it_is_written_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        agent = session.agent
        await go_on(session, "Read 2 pages")
        await go_on(session, "Read 3 pages")
        draft = await agent.context.draft()
        assert isinstance(draft, Draft)
        assert draft.boundary.signed
        await agent.context.pin([prompt_of(session, "Read 2")])
        assert (await agent.context.accept(draft)).error == CHANGED
        await go_on(session)
        assert server.dropped_thinking == []


async def test_at_whatever_entry_the_log_ends_the_view_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves the log up to some entry: everything that was committed."""
    async with signing(tmp_path, monkeypatch, compaction__background="true") as (session, _):
        await go_on(session, "Read 14 pages")
        entries, policy = list(session.agent.engine.view.log), session.agent.engine.view.policy
    (first, *_) = summaries(session)
    assert first.signed
    for end in range(1, len(entries) + 1):
        left = View(entries[:end])
        assert broken_rules(left.messages(policy)) == []
        assert left.reasoning_dropped() == 0
        signed = [block for message in left.messages(policy) for block in message.blocks if _opaque(block)]
        assert len(signed) == (end >= first.seq)


def _opaque(block: object) -> bool:
    return isinstance(block, Text) and bool(block.opaque)


@pytest.mark.soak
@pytest.mark.parametrize("after_s", [None, 0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
async def test_killed_while_the_provider_writes_it(
    after_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed by SIGKILL some seconds after it was asked for; None: before the provider has written anything."""
    with signing_server(tmp_path, monkeypatch) as server:
        by_hand = {**SETTINGS, **dotted(BY_HAND)}
        async with talking(tmp_path, by_hand) as session:
            await go_on(session, "Read 5 pages")
            folder, name = session.folder, session.id
        reading = server.script
        assert isinstance(reading, Reading)
        reading.held = threading.Event() if after_s is None else None
        background = json.dumps({**SETTINGS, "compaction.background": "true"})
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "tests.agent.compacting", str(tmp_path), name, "Read 20 pages", background],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            assert await asyncio.to_thread(reading.asked.wait, 200), "no summary was asked for"
            await asyncio.sleep(after_s or 0.0)
        finally:
            child.kill()
            child.wait()
            if reading.held is not None:
                reading.held.set()
                reading.held = None
        assert broken_rules(View(await saved(tmp_path)).messages()) == []
        asked = len(asked_for(server))
        async with talking(tmp_path, by_hand, resume=name) as session:
            check(session, server)
            before = len(summaries(session))
            assert before <= asked
            await go_on(session)
            await session.agent.context.compact()
            assert len(summaries(session)) == before + 1
            assert summaries(session)[-1].signed
            await go_on(session)
            check(session, server)
        assert server.dropped_thinking == []
        assert not [each for each in verify(folder).problems if "killed" not in each]


def carried(view: View) -> str:
    """What stands behind what is kept, in one text."""
    return "\n".join(texts(view)).rpartition(CARRIED_HEADING)[2]


async def test_pins_are_carried_behind_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        agent, view = session.agent, session.agent.engine.view
        for prompt in ("Read 1 page for the word chrysanthemum", "Read 4 pages", "Read 3 pages"):
            await go_on(session, prompt)
        (words, result) = prompt_of(session, "Read 1"), min(each.seq for each in view.live_results())
        for number in (1, 2):
            await agent.context.pin([words])
            await agent.context.pin([result])
            await agent.context.compact()
            assert len(summaries(session)) == number
            assert summaries(session)[-1].signed
            await go_on(session, f"Read {3 + number} pages more")
            _, *behind = texts(view)
            shown = "\n".join(behind)
            assert shown.count("chrysanthemum") == shown.count("names item_1_249") == 1
            assert shown.count(CARRIED_HEADING) == 2
            assert "names item_1_249" in carried(view)
        await agent.context.pin([result], pinned=False)
        await go_on(session)
        assert server.dropped_thinking == []
        await agent.context.compact()
        assert "\n".join(texts(view)[1:]).count(CARRIED_HEADING) == 1
        await go_on(session)
        await agent.context.undo()
        await go_on(session)
        assert server.dropped_thinking == []
        await agent.swap_model("anthropic:claude-haiku-4-5")
        await go_on(session)
        assert "chrysanthemum" in "\n".join(texts(view))
        assert not verify(session.folder).problems


async def test_pictures_of_the_newest_request_are_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing(tmp_path, monkeypatch, **BY_HAND) as (session, server):
        agent, view = session.agent, session.agent.engine.view
        picture = Image("image/png", b64encode(photograph(size=(64, 64), kind="PNG")).decode())
        async for event in agent.run("Read 7 pages", images=(picture,)):
            assert not isinstance(event, events.TurnFailed)

        def pictures() -> list[int]:
            return [place for place, each in enumerate(view.messages()) for block in each.blocks if block == picture]

        assert pictures() == [0]
        await agent.context.compact()
        assert summaries(session)[-1].signed
        (place,) = pictures()
        assert place > 0
        await agent.context.undo()
        assert pictures() == [0]
        draft = await agent.context.draft()
        assert isinstance(draft, Draft)
        await agent.context.accept(draft, f"{draft.text}\nAnd mind the gap.")
        assert not summaries(session)[-1].signed
        assert pictures() != []
        await go_on(session)
        assert server.dropped_thinking == []


Happening = Callable[[Session, AnthropicServer], Awaitable[None]]


async def slow(session: Session, server: AnthropicServer) -> None:
    reading = server.script
    assert isinstance(reading, Reading)
    reading.held = held = threading.Event()
    later = threading.Timer(0.5, held.set)
    later.start()
    await go_on(session, "Read 12 pages, slowly")
    later.join()
    reading.held = None


async def failing(session: Session, server: AnthropicServer) -> None:
    server.inject(Fault(kind="overloaded", times=2))
    await session.agent.context.compact()


async def interrupted(session: Session, server: AnthropicServer) -> None:
    turn = asyncio.create_task(say(session, "Read 12 pages, and stop"))
    await asyncio.sleep(0.3)
    turn.cancel()
    await asyncio.wait([turn])


async def edited(session: Session, server: AnthropicServer) -> None:
    draft = await session.agent.context.draft()
    if isinstance(draft, Draft):
        await session.agent.context.accept(draft, f"{draft.text}\nAnd mind the gap.")


async def accepted_late(session: Session, server: AnthropicServer) -> None:
    draft = await session.agent.context.draft()
    await go_on(session, "Read 2 pages, meanwhile")
    if isinstance(draft, Draft):
        await session.agent.context.accept(draft)


async def undone(session: Session, server: AnthropicServer) -> None:
    await session.agent.context.compact()
    await go_on(session, "Read 1 page, before undoing")
    await session.agent.context.undo()


async def switched(session: Session, server: AnthropicServer) -> None:
    await session.agent.swap_model("anthropic:claude-haiku-4-5")
    await go_on(session, "Read 2 pages, as another")
    await session.agent.swap_model(f"anthropic:{CLAUDE}")


async def forked(session: Session, server: AnthropicServer) -> None:
    branches, tip = session.agent.branches, session.agent.engine.view.head
    await branches.fork(branches.prompts()[-1].seq)
    await go_on(session, "Read 2 pages, elsewhere")
    await branches.switch(tip)


async def pinned(session: Session, server: AnthropicServer) -> None:
    await session.agent.context.pin([session.agent.branches.prompts()[-1].seq])


@pytest.mark.soak
async def test_five_hundred_calls_and_all_that_happens_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed before each thing that happens. Between them the thinking of the conversation stays valid."""
    happenings: tuple[Happening, ...] = (
        slow, failing, interrupted, edited, accepted_late, undone, switched, forked, pinned,
    )  # fmt: skip
    name, settings = None, {**SETTINGS, "compaction.background": "true"}
    with signing_server(tmp_path, monkeypatch) as server:
        for number, happens in enumerate(cycle(happenings)):
            async with talking(tmp_path, settings, resume=name) as session:
                name = session.id
                await go_on(session, f"Read 20 pages, part {number}")
                await happens(session, server)
                await go_on(session, f"Read 1 page, after part {number}")
                check(session, server)
                assert server.dropped_thinking == [], happens.__name__
                signed = [entry for entry in summaries(session) if entry.signed]
                folder, calls = session.folder, len(server.model_requests) - len(asked_for(server))
            if calls >= 500:
                break
        assert len(signed) > 50
        assert not verify(folder).problems
        server.inject(Fault(kind="bad_request", times=1, message="compaction: injected, is not supported here"))
        async with talking(tmp_path, settings, resume=name) as session:
            await session.agent.context.compact()
            assert summaries(session)[-1].signed == ""
            await go_on(session, "Read 9 pages, and be done")
            check(session, server)
        assert server.dropped_thinking == []
