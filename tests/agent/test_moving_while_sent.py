"""A prompt that is sent just as the head of the log moves is answered, whichever comes first."""

import asyncio
from collections.abc import Sequence

import pytest
from typing_extensions import override

from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.persistence import Persistence
from tui_agent.agent.turn.turns import AgentBusy
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Queued
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.storage.store import MemoryStore


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


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


async def ask(agent: Agent, prompt: str) -> list[events.AgentEvent]:
    return [event async for event in agent.run(prompt)]


def asked(agent: Agent) -> list[str]:
    return [prompt.text for prompt in agent.branches.prompts()]


def answered(told: list[events.AgentEvent]) -> bool:
    return any(isinstance(event, events.AssistantMessage) and event.text for event in told)


async def test_a_prompt_sent_while_the_head_moves_is_answered_there() -> None:
    store = Watched()
    agent = Agent(OfflineModel(), persistence=Persistence(store=store))
    await ask(agent, "What is in the first?")
    await ask(agent, "And in the second?")
    rewinding = asyncio.create_task(agent.branches.rewind(agent.branches.prompts()[1].seq))
    await store.moving.wait()
    turn = asyncio.create_task(ask(agent, "And in the third?"))
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
    await ask(agent, "What is in the first?")
    await ask(agent, "And in the second?")
    async with agent.turns.held():
        rewinding = asyncio.create_task(agent.branches.rewind(agent.branches.prompts()[1].seq))
        await asyncio.sleep(0)
        turn = asyncio.create_task(ask(agent, "And in the third?"))
        await store.queued.wait()
    with pytest.raises(AgentBusy):
        await rewinding
    assert answered(await turn)
    assert asked(agent) == ["What is in the first?", "And in the second?", "And in the third?"]
