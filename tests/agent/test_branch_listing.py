"""Which branches a conversation has: what a fork leaves is one, and what only begins another is none."""

from collections.abc import Sequence

import pytest

from tui_agent.agent.agent import Agent
from tui_agent.models.offline.adapter import OfflineModel


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


@pytest.fixture
async def agent() -> Agent:
    agent = Agent(OfflineModel())
    await ask(agent, "one", "two")
    return agent


async def ask(agent: Agent, *prompts: str) -> None:
    for prompt in prompts:
        async for _ in agent.run(prompt):
            pass


def listed(agent: Agent) -> Sequence[tuple[str, int]]:
    return [(branch.text, branch.messages) for branch in agent.branches.all()]


async def test_a_fork_at_the_end_leaves_a_branch_that_ends_there(agent: Agent) -> None:
    await agent.branches.fork()
    assert listed(agent) == [("one", 4)]
    await ask(agent, "three")
    assert listed(agent) == [("three", 6), ("two", 4)]


async def test_a_fork_before_the_end_leaves_one_branch_alone(agent: Agent) -> None:
    await agent.branches.fork(agent.branches.prompts()[0].seq)
    assert listed(agent) == [("one", 1), ("two", 4)]
    await ask(agent, "three")
    assert listed(agent) == [("three", 3), ("two", 4)]


async def test_a_branch_that_is_gone_on_with_is_one_still(agent: Agent) -> None:
    place = await agent.branches.fork()
    await ask(agent, "three")
    await agent.branches.switch(place)
    await ask(agent, "four")
    assert listed(agent) == [("four", 6), ("three", 6)]


async def test_a_prompt_says_what_a_rewind_to_it_takes_back(agent: Agent) -> None:
    assert [(prompt.text, prompt.messages) for prompt in agent.branches.prompts()] == [("one", 4), ("two", 2)]
    for prompt in reversed(agent.branches.prompts()):
        before = agent.branches.all()[0].messages
        assert await agent.branches.rewind(prompt.seq) == prompt.text
        assert before - sum(branch.messages for branch in agent.branches.all() if branch.present) == 2
