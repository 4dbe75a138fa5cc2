"""What is in the store counts: whatever is raised around an append, the conversation goes on, and nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from typing_extensions import override

from tests.agent.models import PROFILE, Scripted, answers
from tests.agent.talking import of, say
from tui_agent.agent import events
from tui_agent.agent.agent import Agent, nobody
from tui_agent.agent.persistence import Persistence
from tui_agent.agent.record import Record
from tui_agent.arguments import Arguments
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    HeadMoved,
    Message,
    Queued,
    Usage,
    Withdrawn,
    encode,
    model_call,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.models.base import Completed, InvalidRequest, StreamEvent, TextDelta
from tui_agent.session import open_session
from tui_agent.session_parts import RATIOS_FILE, keep_learned
from tui_agent.settings import load_settings
from tui_agent.storage.errors import DiskFull
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session
from tui_agent.storage.store import MemoryStore

PRICED = msgspec.structs.replace(PROFILE, id="priced", prices=Prices(input=1_000.0, output=1_000.0))
USED = Usage(input_tokens=100, output_tokens=80)


def answer(text: str = "Done.", *calls: ToolCall) -> Completed:
    return Completed(
        blocks=(Text(text), *calls), usage=USED, stop_reason="tool_calls" if calls else "end_turn", model="priced"
    )


says = answers(Text("Done."), usage=USED)


class Tearing(ContextEngine):
    """Raises between the commit of the next entry and its place in the view."""

    def __init__(self, view: View | None = None) -> None:
        super().__init__(view=view)
        self.after = -1

    @override
    def apply(self, entry: AnyEntry) -> None:
        self.after -= 1
        if self.after == 0:
            raise MemoryError("just now")
        super().apply(entry)


@pytest.mark.parametrize("after", range(1, 5))
async def test_an_entry_that_is_stored_counts_even_if_it_could_not_be_applied(after: int, tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    engine = Tearing()
    async with Agent(Scripted(says), context=engine, persistence=Persistence(engine.view, store=store)) as agent:
        engine.after = after
        assert isinstance((await say(agent, "Hello."))[-1], events.TurnFinished)
        await say(agent, "Again.")
        shown = agent.engine.view.messages()
        assert list(agent.engine.view.log) == list(await store.load())
    assert View(await store.load()).messages() == shown
    assert [message.role for message in shown] == ["user", "assistant", "user", "assistant"]
    await store.close()


async def test_a_store_whose_conversation_was_not_read_is_read_and_said() -> None:
    log = Log()
    log.append(log.stamp(user_message("Earlier."), 1.0))
    async with Agent(Scripted(says), persistence=Persistence(store=MemoryStore(log))) as agent:
        (failed,) = [event for event in await say(agent, "Hello.") if isinstance(event, events.TurnFailed)]
        assert failed.kind == "storage"
        assert "1 entries, of which this conversation knew 0" in failed.message
        assert (await say(agent, "Hello."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]
        assert agent.engine.view.messages()[0].blocks == (Text("Earlier."), Text("Hello."))


async def test_texts_that_are_no_unicode_are_stored_all_the_same(tmp_path: Path) -> None:
    async def broken(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        yield answer("half a \ud83d pair")

    store = await LogStore.open(tmp_path)
    async with Agent(Scripted(broken), persistence=Persistence(store=store)) as agent:
        assert (await say(agent, "Hello \ud800."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]
        assert [encode(entry) for entry in agent.engine.view.log] == [encode(entry) for entry in await store.load()]
    await store.close()


class Odd:
    """A writer of summaries that writes none."""

    def __init__(self, text: object) -> None:
        self._text = text

    async def write(self, parts: tuple[str, ...], instruction: str, subject: str) -> str:
        return self._text  # type: ignore[return-value]


@pytest.mark.parametrize("text", [None, b"bytes", 3, "half a \ud83d pair " * 40])
async def test_a_writer_of_summaries_may_give_back_anything(text: object) -> None:
    async with Agent(Scripted(says), compactor=Odd(text)) as agent:
        for number in range(8):
            await say(agent, f"{number}: {'word ' * 2_000}")
        done = await agent.compact()
        assert done.error or done.after < done.before
        assert (await say(agent, "Again."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]


def raising(_: events.AgentEvent) -> None:
    raise RuntimeError("a listener's own fault")


async def test_a_listener_that_raises_changes_nothing() -> None:
    heard: list[events.AgentEvent] = []
    async with Agent(Scripted(says)) as agent:
        agent.listen(raising)
        agent.listen(heard.append)
        await say(agent, "Hello.")
        (prompt,) = agent.branches.prompts()
        assert await agent.branches.rewind(prompt.seq) == "Hello."
        assert any(isinstance(event, events.BranchChanged) for event in heard)
        assert (await say(agent, "Again."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]


class Counting(MemoryStore):
    """Keeps what each append had."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[list[type[AnyEntry]]] = []

    @override
    async def append(self, entries: Sequence[AnyEntry]) -> None:
        self.appended.append([type(entry) for entry in entries])
        await super().append(entries)


async def test_moving_the_head_withdraws_what_was_queued_there_in_one_step() -> None:
    store = Counting()
    record = Record(ContextEngine(), store)
    await record.append(user_message("Hello."), Queued(blocks=(Text("Later."),)))
    await record.append(Delivered(queued=2))
    await record.append(HeadMoved(to=2, reason="rewind"))
    assert store.appended[2:] == [[HeadMoved, Withdrawn]]
    assert record.view.queued() == ()
    assert View(await store.load()).messages() == record.view.messages()


@pytest.mark.parametrize("ticks", range(12))
async def test_a_complete_answer_counts_when_it_is_stopped_just_then(ticks: int) -> None:
    completed = asyncio.Event()

    async def slow_to_close(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        try:
            yield TextDelta("Done.")
            completed.set()
            yield answer("Done.", ToolCall("c1", "nothing", "{}"))
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async with Agent(Scripted(slow_to_close, profile=PRICED)) as agent:
        running = asyncio.ensure_future(say(agent, "Hello."))
        await completed.wait()
        for _ in range(ticks):
            await asyncio.sleep(0)
        agent.interrupt()
        await running
        calls = [call for entry in agent.engine.view.log if (call := model_call(entry)) is not None]
        cost = sum(call.cost_usd or 0.0 for call in calls)
        assert cost == agent.tracker.session.cost_usd
        said = [entry for entry in agent.engine.view.log if isinstance(entry, Message) and entry.role == "assistant"]
        assert len(said) == 1
        if calls:
            assert cost == pytest.approx(0.18 * len(calls))
            assert said[0].blocks == (Text("Done."), ToolCall("c1", "nothing", "{}"))


async def test_a_turn_without_a_prompt_goes_on_with_an_answer_that_broke_off() -> None:
    async def breaks(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta("The first half")
        raise InvalidRequest("gone")

    model = Scripted(breaks, says)
    async with Agent(model) as agent:
        told = await say(agent, "Hello.")
        assert any(of(events.TurnFailed, told))
        again = await say(agent)
        assert again[-1].text == "Done."  # type: ignore[union-attr]
        assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "user"]
        assert (await say(agent))[-1].steps == 0  # type: ignore[union-attr]


class Forgetful(Scripted):
    """Cannot be asked for its facts, at first."""

    asked = 0

    @override
    async def describe(self) -> ModelProfile:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("not now")
        return PROFILE


async def test_a_model_that_cannot_tell_its_facts_answers_with_what_is_known() -> None:
    model = Forgetful(says)
    async with Agent(model) as agent:
        for _ in range(3):
            assert (await say(agent, "Hello."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]
    assert model.asked == 2


async def test_a_model_is_swapped_by_its_name() -> None:
    async with Agent(Scripted(says)) as agent:
        await agent.swap_model("offline")
        assert agent.profile.provider == "offline"
        assert (await say(agent, "Hello."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]


async def test_a_model_lent_to_one_turn_is_given_back_on_every_way_out() -> None:
    full = False

    class Filling(MemoryStore):
        @override
        async def append(self, entries: Sequence[AnyEntry]) -> None:
            if full:
                raise DiskFull("no room")
            await super().append(entries)

    own = Scripted(says)
    async with Agent(own, persistence=Persistence(store=Filling())) as agent:
        await say(agent, "Hello.")
        agent.turns.answer_next_with("Read", "offline")
        told = await say(agent, "Read nothing.")
        assert agent.profile is own.profile
        assert not own.closed
        assert next(event.model for event in told if isinstance(event, events.AssistantMessage)).startswith("offline")
        agent.turns.answer_next_with("Read", "offline")
        full = True
        with pytest.raises(DiskFull):
            await say(agent, "Read nothing.")
        full = False
        assert agent.profile is own.profile
        assert (await say(agent, "Again."))[-1].stop_reason == "end_turn"  # type: ignore[union-attr]
        assert agent.engine.view.model == own.profile.name


async def test_a_session_without_a_message_is_resumed_with_fork(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    folder = create_session(home)
    store = await LogStore.open(folder)
    await store.set_meta({"title": "nothing yet"})
    await store.close()
    settings = load_settings(home, project, trusted=True, environ={}, overrides={"model.id": "offline"})
    arguments = Arguments(folder=project, home=home, project=project, resume=folder.name, fork=True)
    session = await open_session(settings, arguments, nobody)
    assert not [notice for notice in session.notices if "branch" in notice.title]
    await session.close()


async def test_ratios_of_sessions_that_end_together_are_all_kept(tmp_path: Path) -> None:
    engines = [ContextEngine() for _ in range(3)]
    for number, engine in enumerate(engines):
        assert engine.meter.ratios.learn(f"m{number}", "rule", "prose", measured=1_100.0, estimated=1_000.0)
    await asyncio.gather(*(asyncio.to_thread(keep_learned, engine, tmp_path) for engine in engines))
    known = json.loads((tmp_path / RATIOS_FILE).read_bytes())
    assert sorted(known) == ["m0|rule|prose", "m1|rule|prose", "m2|rule|prose"]
