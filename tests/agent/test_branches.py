"""Rewind, fork and going back: nothing is lost, and each branch is the conversation as if there were no other."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from tests.agent.serving import MODELS, OPUS, Serve, serving
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import goes_on, of, saved, say, shown, talking
from tests.agent.test_wire import pieces
from tests.servers.script import Call, ParsedRequest, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.persistence import Persistence
from tui_agent.agent.turn.turns import AgentBusy
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Queued
from tui_agent.conversation.view import View
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.session import Session
from tui_agent.storage.store import MemoryStore
from tui_agent.storage.verify import verify

KEEPING = {"compaction.keep_recent_tokens": "500"}
SETTINGS = {**OPUS, **KEEPING}


def answering(request: ParsedRequest) -> Step:
    """Look at a file, with a thought, then say so."""
    if asks_for_summary(request):
        return Step(text=HANDOVER)
    if request.position == 0 and "look" in request.prompt:
        return Step(reasoning="I look first.", text="One moment.", calls=(Call("read_file", {"path": "calc.py"}),))
    return Step(reasoning="That is it.", text=f"Answer to: {request.prompt[-60:]}")


def prompt_number(agent: Agent, text: str) -> int:
    """The number of the user's newest message with this text, on the present branch."""
    return [event.seq for event in of(events.UserMessage, agent.branches.history()) if event.text == text][-1]


def requests(server: ProtocolServer) -> list[list[bytes]]:
    return [pieces(request.json) for request in server.model_requests if request.json]


@pytest.mark.parametrize(("provider", "reopened"), [("anthropic", True), ("gemini", False)])
async def test_after_a_rewind_the_request_is_that_of_the_unbroken_session(
    provider: str, reopened: bool, tmp_path: Path, serve: Serve
) -> None:
    server = serve(serving(provider, answering))
    async with talking(tmp_path, {"model.id": MODELS[provider], **KEEPING}) as session:
        await goes_on(session, "look at A")
        before_b = len(server.model_requests)
        await goes_on(session, "look at B")
        await goes_on(session, "look at C")
        unbroken, entries = requests(server), list(session.agent.engine.view.log)
        told: list[events.AgentEvent] = []
        session.agent.listen(told.append)
        assert await session.agent.branches.rewind(prompt_number(session.agent, "look at B")) == "look at B"
        (moved,) = told
        assert isinstance(moved, events.BranchChanged)
        assert moved.reason == "rewind"
        assert moved.after < moved.before
        assert moved.after == session.agent.context_stats().tokens
        if not reopened:
            await goes_on(session, "look at B")
        name = session.id
    if reopened:
        async with talking(tmp_path, {"model.id": MODELS[provider], **KEEPING}, resume=name) as session:
            await goes_on(session, "look at B")
    first, second = requests(server)[len(unbroken) :]
    assert first == unbroken[before_b]
    # What the model answered has another id and signature this time.
    assert second[: len(first)] == first
    assert len(second) == len(unbroken[before_b + 1])
    log = await saved(tmp_path)
    assert log[: len(entries)] == entries
    folder = tmp_path / "home" / "sessions" / name
    assert verify(folder).ok


async def test_a_fork_leaves_the_branch_it_came_from_to_go_back_to(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", answering))
    async with talking(tmp_path, SETTINGS) as session:
        agent = session.agent
        await goes_on(session, "look at A")
        measured = agent.context_stats().tokens
        after_a = prompt_number(agent, "look at A")
        first_answer = max(item.seq for item in agent.context.items())
        await goes_on(session, "look at B")
        longest, texts = requests(server)[-1], shown(agent.engine.view)
        tip = agent.engine.view.head
        assert await agent.branches.fork(first_answer) >= first_answer
        # The gauge is that of the branch, and measured: its last call says how large it is.
        stats = agent.context_stats()
        assert (stats.tokens, stats.measured) == (measured, True)
        await goes_on(session, "look at X")
        present, left = agent.branches.all()
        assert (present.present, present.text, left.present, left.tip) == (True, "look at X", False, tip)
        assert (left.text, left.fork >= after_a) == ("look at B", True)
        other_tip, length = agent.engine.view.head, len(agent.engine.view.log)
        await agent.branches.switch(other_tip)
        assert len(agent.engine.view.log) == length
        await agent.branches.switch(tip)
        assert shown(agent.engine.view) == texts
        await goes_on(session, "and now?")
        assert requests(server)[-1][: len(longest)] == longest
        assert "look at X" not in shown(agent.engine.view)
        name, state = session.id, (shown(agent.engine.view), agent.context_stats().tokens)
    async with talking(tmp_path, SETTINGS, resume=name) as session:
        assert (shown(session.agent.engine.view), session.agent.context_stats().tokens) == state
        await session.agent.branches.switch(other_tip)
        assert "look at X" in shown(session.agent.engine.view)
        await goes_on(session, "and here?")
        # What was said on another branch can still be found.
        assert (await session.agent.context.recall("look at B")).hits


async def test_what_waits_on_another_branch_is_not_delivered(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent = session.agent
        await say(session, "read calc.py")
        async for event in agent.run("run sleep 30"):
            if isinstance(event, events.ToolStarted):
                await agent.queue("read test_calc.py")
                agent.interrupt()
        assert len(agent.turns.queued()) == 1
        await agent.branches.rewind(prompt_number(agent, "run sleep 30"))
        assert agent.turns.queued() == ()
        told = await say(session, "find 'def' in .")
        assert [event.text for event in of(events.UserMessage, told)] == ["find 'def' in ."]
    async with talking(tmp_path, resume=session.id) as session:
        assert session.agent.turns.queued() == ()
        # On the branch that was left it was dealt with, by being left.
        (left,) = (branch for branch in session.agent.branches.all() if not branch.present)
        await session.agent.branches.switch(left.tip)
        assert session.agent.turns.queued() == ()
        assert not [event for event in await say(session) if isinstance(event, events.UserMessage)]


async def test_a_text_delivered_during_a_turn_can_be_taken_back_and_is_not_delivered_again(session: Session) -> None:
    agent, seq = session.agent, 0
    async for event in agent.run("read calc.py"):
        if isinstance(event, events.ToolStarted) and not seq:
            seq = await agent.queue("read test_calc.py")
    assert len(of(Queued, agent.engine.view.log)) == 1
    assert await agent.branches.rewind(prompt_number(agent, "read test_calc.py")) == "read test_calc.py"
    assert agent.turns.queued() == ()
    assert "test_calc" not in shown(agent.engine.view)
    told = await say(session, "find 'def' in .")
    assert [event.text for event in of(events.UserMessage, told)] == ["find 'def' in ."]


async def test_context_steps_are_of_their_branch(tmp_path: Path) -> None:
    async with talking(tmp_path, {"compaction.keep_recent_tokens": "200"}) as session:
        agent = session.agent
        for prompt in ("read calc.py", "read test_calc.py", "find 'def' in ."):
            await say(session, prompt)
        whole, tip = shown(agent.engine.view), agent.engine.view.head
        await agent.branches.fork()
        assert (await agent.compact()).error == ""
        await say(session, "find 'assert' in .")
        summarised = agent.engine.view.head
        assert agent.context_stats().compactions == 1
        await agent.branches.switch(tip)
        assert shown(agent.engine.view) == whole
        assert agent.context_stats().compactions == 0
        assert isinstance(await agent.context.undo(), Refusal)
        await agent.branches.switch(summarised)
        assert agent.context_stats().compactions == 1
        assert not isinstance(await agent.context.undo(), Refusal)


async def test_a_model_that_was_switched_to_later_still_answers(tmp_path: Path, serve: Serve) -> None:
    """Who answers is the user's last word, whatever the branch said then."""
    other = "claude-sonnet-4-6"
    serve(serving("anthropic", answering))
    async with talking(tmp_path, SETTINGS) as session:
        agent = session.agent
        await goes_on(session, "look at A")
        await goes_on(session, "look at B")
        await agent.swap_model(CATALOGUE.create_model(other))
        await goes_on(session, "look at C")
        await agent.branches.rewind(prompt_number(agent, "look at B"))
        assert agent.engine.view.model == f"anthropic:{other}"
        told = await goes_on(session, "look at D")
        asked = {event.model for event in of(events.ModelCallStarted, told)}
        assert asked == {f"anthropic:{other}"}
    async with talking(tmp_path, {"model.id": ""}, resume=session.id) as session:
        assert session.agent.profile.name == f"anthropic:{other}"
        await goes_on(session, "look at E")


async def test_what_is_no_message_of_the_user_here_cannot_be_taken_back(session: Session) -> None:
    agent = session.agent
    with pytest.raises(ValueError, match="no message"):
        await agent.branches.fork(3)
    await say(session, "read calc.py")
    await say(session, "read test_calc.py")
    first, second = (prompt_number(agent, text) for text in ("read calc.py", "read test_calc.py"))
    answer = next(item.seq for item in agent.context.items() if item.category == "assistant")
    for wrong in (0, -1, answer, len(agent.engine.view.log) + 1):
        with pytest.raises(ValueError, match="not a message of yours"):
            await agent.branches.rewind(wrong)
    await agent.branches.rewind(second)
    with pytest.raises(ValueError, match="not a message of yours"):
        await agent.branches.rewind(second)
    with pytest.raises(ValueError, match="no branch"):
        await agent.branches.switch(second)
    length = len(agent.engine.view.log)
    async for event in agent.run("find 'def' in ."):
        if isinstance(event, events.ToolStarted):
            for move in (agent.branches.rewind(first), agent.branches.fork(), agent.branches.switch(length)):
                with pytest.raises(AgentBusy):
                    await move
    assert await agent.branches.rewind(first) == "read calc.py"
    assert agent.context.items() == []
    await goes_on(session, "read test_calc.py")


async def test_a_move_that_is_cancelled_is_made_or_not(session: Session) -> None:
    agent = session.agent
    await say(session, "read calc.py")
    for ticks in range(12):
        await say(session, f"find 'def' in . # {ticks}")
        whole, seq = shown(agent.engine.view), prompt_number(agent, f"find 'def' in . # {ticks}")
        moving = asyncio.ensure_future(agent.branches.rewind(seq))
        for _ in range(ticks):
            await asyncio.sleep(0)
        moving.cancel()
        await asyncio.wait([moving])
        moved = isinstance(agent.engine.view.log[len(agent.engine.view.log)], HeadMoved)
        assert (shown(agent.engine.view) != whole) == moved
        assert shown(View(await session.persistence.store.load())) == shown(agent.engine.view)


# A prompt that is sent just as the head moves is answered, whichever comes first


class Watched(MemoryStore):
    """Tells of the entries this is about, and takes its time for the one that moves the head."""

    def __init__(self) -> None:
        super().__init__()
        self.moving = asyncio.Event()
        self.go_on = asyncio.Event()
        self.queued = asyncio.Event()

    @override
    async def append(self, entries: Sequence[AnyEntry]) -> None:
        if any(isinstance(entry, HeadMoved) for entry in entries):
            self.moving.set()
            await self.go_on.wait()
        await super().append(entries)
        if any(isinstance(entry, Queued) for entry in entries):
            self.queued.set()


def asked(agent: Agent) -> list[str]:
    return [prompt.text for prompt in agent.branches.prompts()]


def answered(told: list[events.AgentEvent]) -> bool:
    return any(isinstance(event, events.AssistantMessage) and event.text for event in told)


async def test_a_prompt_sent_while_the_head_moves_is_answered_there() -> None:
    store = Watched()
    agent = Agent(OfflineModel(), persistence=Persistence(store=store))
    await say(agent, "What is in the first?")
    await say(agent, "And in the second?")
    rewinding = asyncio.create_task(agent.branches.rewind(agent.branches.prompts()[1].seq))
    await store.moving.wait()
    turn = asyncio.create_task(say(agent, "And in the third?"))
    await asyncio.sleep(0)
    assert agent.busy
    store.go_on.set()
    assert await rewinding == "And in the second?"
    assert answered(await turn)
    assert asked(agent) == ["What is in the first?", "And in the third?"]


async def test_a_prompt_that_waits_already_keeps_the_head_where_it_is() -> None:
    store = Watched()
    store.go_on.set()
    agent = Agent(OfflineModel(), persistence=Persistence(store=store))
    await say(agent, "What is in the first?")
    await say(agent, "And in the second?")
    async with agent.turns.held():
        rewinding = asyncio.create_task(agent.branches.rewind(agent.branches.prompts()[1].seq))
        await asyncio.sleep(0)
        turn = asyncio.create_task(say(agent, "And in the third?"))
        await store.queued.wait()
    with pytest.raises(AgentBusy):
        await rewinding
    assert answered(await turn)
    assert asked(agent) == ["What is in the first?", "And in the second?", "And in the third?"]


# Which branches there are: what a fork leaves is one, and what only begins another is none


@pytest.fixture
async def two_asked() -> Agent:
    agent = Agent(OfflineModel())
    await ask(agent, "one", "two")
    return agent


async def ask(agent: Agent, *prompts: str) -> None:
    for prompt in prompts:
        await say(agent, prompt)


def listed(agent: Agent) -> Sequence[tuple[str, int]]:
    return [(branch.text, branch.messages) for branch in agent.branches.all()]


async def test_a_fork_at_the_end_leaves_a_branch_that_ends_there(two_asked: Agent) -> None:
    await two_asked.branches.fork()
    assert listed(two_asked) == [("one", 4)]
    await ask(two_asked, "three")
    assert listed(two_asked) == [("three", 6), ("two", 4)]


async def test_a_fork_before_the_end_leaves_one_branch_alone(two_asked: Agent) -> None:
    await two_asked.branches.fork(two_asked.branches.prompts()[0].seq)
    assert listed(two_asked) == [("one", 1), ("two", 4)]
    await ask(two_asked, "three")
    assert listed(two_asked) == [("three", 3), ("two", 4)]


async def test_a_branch_that_is_gone_on_with_is_one_still(two_asked: Agent) -> None:
    place = await two_asked.branches.fork()
    await ask(two_asked, "three")
    await two_asked.branches.switch(place)
    await ask(two_asked, "four")
    assert listed(two_asked) == [("four", 6), ("three", 6)]


async def test_a_prompt_says_what_a_rewind_to_it_takes_back(two_asked: Agent) -> None:
    assert [(prompt.text, prompt.messages) for prompt in two_asked.branches.prompts()] == [("one", 4), ("two", 2)]
    for prompt in reversed(two_asked.branches.prompts()):
        before = two_asked.branches.all()[0].messages
        assert await two_asked.branches.rewind(prompt.seq) == prompt.text
        assert before - sum(branch.messages for branch in two_asked.branches.all() if branch.present) == 2
