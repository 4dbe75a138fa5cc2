"""What else happens to a session with a summary that the provider signed: branches, Esc, damage, words and pins."""

import asyncio
import random
import threading
from base64 import b64encode
from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import goes_on, put, texts
from tests.agent.test_pictures import photograph
from tests.agent.test_signed_summaries import (
    Reading,
    check,
    signing,
    summaries,
)
from tests.conversation.logs import broken_rules
from tests.storage.test_damage import damage
from tui_agent.agent import events
from tui_agent.context.compaction.draft import Draft
from tui_agent.conversation.blocks import Image, Text
from tui_agent.conversation.entries import Message, Prefix, Words
from tui_agent.conversation.request import CARRIED_HEADING, WORDS_HEADING
from tui_agent.conversation.view import View
from tui_agent.session import Session
from tui_agent.storage.log import LOG_NAME
from tui_agent.storage.verify import verify

MORE = "Read 1 page more"
BY_HAND = {"context__context_window": "200000", "compaction__auto": "false"}
"""Nothing is summarised unless it is asked for."""


def prompt_of(session: Session, text: str) -> int:
    return next(each.seq for each in session.agent.branches.prompts() if each.text.startswith(text))


@pytest.mark.parametrize(("how", "place"), [("rewind", "Read 2"), ("fork", "Read 4")])
async def test_going_back_to_before_within_and_after_what_is_covered(
    how: str, place: str, tmp_path: Path, serve: Serve
) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, server):
        agent = session.agent
        await goes_on(session, *(f"Read {pages} pages" for pages in (1, 2, 3)))
        await agent.context.compact()
        (entry,) = summaries(session)
        assert entry.signed
        await goes_on(session, "Read 4 pages", "Read 5 pages")
        seq, tip = prompt_of(session, place), agent.engine.view.head
        if how == "rewind":
            await agent.branches.rewind(seq)
        else:
            await agent.branches.fork(seq)
        check(session, server)
        await goes_on(session, MORE)
        check(session, server)
        await agent.context.undo()
        await goes_on(session, MORE)
        await agent.context.compact()
        await goes_on(session, MORE)
        await agent.branches.switch(tip)
        await goes_on(session, MORE)
    async with signing(tmp_path, serve, resume=session.id, **BY_HAND) as (session, server):
        await goes_on(session, MORE)
        assert not verify(session.folder).problems


@pytest.mark.parametrize("background", ["true", "false"])
async def test_stopped_while_it_is_written(background: str, tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, compaction__background=background) as (session, server):
        agent, reading = session.agent, server.script
        assert isinstance(reading, Reading)
        reading.held = threading.Event()
        before = summaries(session)
        if background == "true":
            await goes_on(session, "Read 9 pages")
            assert agent.context.stop_writing()
        else:
            await goes_on(session, "Read 4 pages")
            writing = asyncio.create_task(agent.context.compact())
            assert await asyncio.to_thread(reading.asked.wait, 30)
            writing.cancel()
            await asyncio.wait([writing])
        reading.held.set()
        reading.held = None
        assert summaries(session) == before == []
        await goes_on(session, MORE)
        await agent.context.compact()
        assert summaries(session)[-1].signed
        await goes_on(session, MORE)
        assert not verify(session.folder).problems


async def test_words_and_pins_behind_it(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, _server):
        agent = session.agent
        await goes_on(session, "Read 2 pages for the word chrysanthemum")
        await goes_on(session, "Read 3 pages")
        await agent.context.compact()
        await goes_on(session, MORE)
        first = agent.engine.view.words()[0]
        await agent.context.edit_words([Words(first.seq, "Look for the word dahlia", first.time)])
        await goes_on(session, MORE)
        (words,) = [text for text in texts(agent.engine.view) if text.startswith(WORDS_HEADING)]
        assert ("dahlia" in words, "chrysanthemum" in words) == (True, False)
        await agent.context.undo()
        await goes_on(session, MORE)
        await agent.context.compact()
        assert summaries(session)[-1].signed
        await goes_on(session, MORE)
        assert not verify(session.folder).problems


@pytest.mark.parametrize(
    "row", ["summary", "prefix", *(pytest.param(row, marks=pytest.mark.soak) for row in ("covered", "kept"))]
)
async def test_a_damaged_row(row: str, tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, server):
        await goes_on(session, "Read 5 pages")
        await session.agent.context.compact()
        await goes_on(session, "Read 2 pages")
        (entry,), log = summaries(session), session.agent.engine.view.log
        said = [each.seq for each in log if isinstance(each, Message) and each.role == "assistant"]
        seq = {
            "summary": entry.seq,
            "covered": next(each for each in said if each <= entry.last),
            "kept": next(each for each in said if each > entry.last),
            "prefix": next(each.seq for each in log if type(each).__name__ == "Prefix"),
        }[row]
        folder = session.folder
    damage(folder / LOG_NAME, seq, random.Random(1))
    async with signing(tmp_path, serve, resume=session.id, **BY_HAND) as (session, server):
        check(session, server)
        await goes_on(session, MORE)
        await session.agent.context.compact()
        await goes_on(session, MORE)


async def test_thinking_is_not_sent_under_another_system_prompt(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, _server):
        await goes_on(session, "Read 5 pages")
        await session.agent.context.compact()
        await goes_on(session, MORE)
        view = session.agent.engine.view
        assert view.prefix is not None
        kept = view.reasoning_shown()
        for system, shown in ((f"{view.prefix.system} Be brief.", 0), (view.prefix.system, kept)):
            await put(session, Prefix(system=system, tools=view.prefix.tools))
            assert view.reasoning_shown() == shown
            await goes_on(session, MORE)


async def test_at_whatever_entry_the_log_ends_the_view_is_the_old_one_or_the_new_one(
    tmp_path: Path, serve: Serve
) -> None:
    """A kill leaves the log up to some entry: everything that was committed."""
    async with signing(tmp_path, serve, compaction__background="true") as (session, _):
        await goes_on(session, "Read 14 pages")
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


def carried(view: View) -> str:
    """What stands behind what is kept, in one text."""
    return "\n".join(texts(view)).rpartition(CARRIED_HEADING)[2]


async def test_pins_are_carried_behind_what_is_kept(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, _server):
        agent, view = session.agent, session.agent.engine.view
        for prompt in ("Read 1 page for the word chrysanthemum", "Read 4 pages", "Read 3 pages"):
            await goes_on(session, prompt)
        (words, result) = prompt_of(session, "Read 1"), min(each.seq for each in view.live_results())
        for number in (1, 2):
            await agent.context.pin([words])
            await agent.context.pin([result])
            await agent.context.compact()
            assert len(summaries(session)) == number
            assert summaries(session)[-1].signed
            await goes_on(session, f"Read {3 + number} pages more")
            _, *behind = texts(view)
            shown = "\n".join(behind)
            assert shown.count("chrysanthemum") == shown.count("names item_1_249") == 1
            assert shown.count(CARRIED_HEADING) == 2
            assert "names item_1_249" in carried(view)
        await agent.context.pin([result], pinned=False)
        await goes_on(session, MORE)
        await agent.context.compact()
        assert "\n".join(texts(view)[1:]).count(CARRIED_HEADING) == 1
        await goes_on(session, MORE)
        await agent.context.undo()
        await goes_on(session, MORE)
        await agent.swap_model("anthropic:claude-haiku-4-5")
        await goes_on(session, MORE)
        assert "chrysanthemum" in "\n".join(texts(view))
        assert not verify(session.folder).problems


async def test_pictures_of_the_newest_request_are_carried(tmp_path: Path, serve: Serve) -> None:
    async with signing(tmp_path, serve, **BY_HAND) as (session, _server):
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
        await goes_on(session, MORE)
