"""On-demand compaction as the server plays it, asked by the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_client import DROP, TOOLS, Talk, assistant, body, result, text, use, user
from tests.servers.anthropic_compaction import COMPACT_BETA
from tests.servers.anthropic_schema import BINDING_BETA
from tests.servers.script import Script, Step

BETAS = (COMPACT_BETA, BINDING_BETA)
STRICT = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
SUMMARIZE = {"type": "summarize"}


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    server = AnthropicServer(Script(after=Step(text="Done.", reasoning="let me see")))
    server.compacts = True
    async with server:
        yield Talk(server)


async def said(talk: Talk, turns: int, history: list[Any] | None = None) -> list[Any]:
    """A conversation of so many turns, with thinking."""
    history = list(history or [])
    for number in range(turns):
        history.append(user(f"question {len(history)}.{number}"))
        answer = await talk.ask(history, betas=BETAS, thinking=STRICT)
        history.append(assistant([block.model_dump(exclude_none=True) for block in answer.content]))
    return history


async def summary(talk: Talk, messages: list[Any], **more: Any) -> dict[str, Any]:
    answer = await talk.ask(messages, betas=BETAS, thinking=STRICT, compaction=SUMMARIZE, **more)
    assert (answer.stop_reason, len(answer.content)) == ("compaction", 1)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (0, 0)
    assert answer.usage.iterations is not None
    assert answer.usage.iterations[0].output_tokens > 0
    return assistant([answer.content[0].model_dump(exclude_none=True)])


async def test_the_thinking_of_kept_turns_stays_valid_behind_the_block_and_behind_the_next_one(talk: Talk) -> None:
    history = await said(talk, 3)
    first = [await summary(talk, history[:2]), *history[2:]]
    more = await said(talk, 2, first)
    second = [await summary(talk, more[:4]), *more[4:]]
    await said(talk, 1, second)
    assert (talk.server.dropped_thinking, talk.server.violations) == ([], [])


@pytest.mark.parametrize(
    ("cut", "between", "system"),
    [
        pytest.param(2, [], "another", id="another system prompt"),
        pytest.param(2, [user("the facts")], "", id="a message between the summary and the kept turns"),
        pytest.param(3, [], "", id="a cut inside a turn, with something left out"),
    ],
)
async def test_a_broken_condition_costs_the_kept_thinking(
    talk: Talk, cut: int, between: list[Any], system: str
) -> None:
    history = await said(talk, 3)
    kept = history[cut:] if cut == 2 else history[4:]
    sent = [await summary(talk, history[:cut]), *between, *kept, user("and now?")]
    await talk.ask(sent, betas=BETAS, thinking=DROP, system=system)
    assert len(talk.server.dropped_thinking) == 2 - (cut == 3)


async def test_thinking_of_a_request_that_ignores_a_summary_it_could_carry_is_lost_behind_it(talk: Talk) -> None:
    history = await said(talk, 2)
    block = await summary(talk, history[:2])
    late = await said(talk, 2, history)  # the first of them may have been on its way already
    await talk.ask([block, *late[2:], user("and now?")], betas=BETAS, thinking=DROP)
    assert [each.split()[2:] for each in talk.server.dropped_thinking] == [
        ["messages.6.content.0", "prefix_binding_mismatch"]
    ]


async def test_thinking_of_a_fork_to_before_a_summary_stays_valid_behind_one_of_its_own(talk: Talk) -> None:
    history = await said(talk, 2)
    await summary(talk, history[:2])
    fork = await said(talk, 2, history)
    block = await summary(talk, history[:2])
    more = await said(talk, 1, fork)
    await talk.ask([block, *more[2:], user("and now?")], betas=BETAS, thinking=DROP)
    assert talk.server.dropped_thinking == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"content": "other"}, "differs from what was signed", id="another text"),
        pytest.param({"signature": "AAAA"}, "Invalid `signature`", id="another signature"),
        pytest.param({"tool_changes": None}, "differs from what was signed", id="a field less"),
        pytest.param({"citations": None}, "Extra inputs", id="a field more"),
    ],
)
async def test_a_block_goes_back_as_it_came(talk: Talk, change: dict[str, Any], message: str) -> None:
    block = await summary(talk, [user("hi")])
    block["content"][0] |= change
    sent = body([block, user("go on")], thinking=STRICT)
    assert message in (await talk.refusal(sent, **{"anthropic-beta": ",".join(BETAS)}))[1]


async def test_what_a_summary_is_not_given_for(talk: Talk) -> None:
    beta = {"anthropic-beta": COMPACT_BETA}
    opened = [user("hi"), assistant([use()])]
    for sent, said_so in [
        (body(opened, compaction=SUMMARIZE), "without a result"),
        (body(compaction={"type": "summarize", "more": 1}), "Extra inputs"),
        (body(compaction=SUMMARIZE, stop_sequences=["x"]), "cannot be combined"),
    ]:
        assert said_so in (await talk.refusal(sent, **beta))[1]
    assert COMPACT_BETA in (await talk.refusal(body(compaction=SUMMARIZE)))[1]


async def test_the_block_stands_first_and_alone_and_needs_the_beta(talk: Talk) -> None:
    block = await summary(talk, [user("hi"), assistant([use()]), user([result()])])
    beta = {"anthropic-beta": COMPACT_BETA}
    assert "must be the first" in (await talk.refusal(body([user("a"), block, user("b")]), **beta))[1]
    assert "more than one" in (await talk.refusal(body([block, block, user("b")]), **beta))[1]
    assert "compaction" in (await talk.refusal(body([block, user("b")])))[1]
    inside = user([*block["content"], text("go on")])
    assert (await talk.ask([inside], betas=(COMPACT_BETA,))).stop_reason == "end_turn"


@pytest.mark.parametrize("offered", [True, False])
async def test_the_models_api_says_whether_it_is_offered_to_who_asks_with_the_beta(talk: Talk, offered: bool) -> None:
    talk.server.compacts = offered
    told = await talk.client.beta.models.retrieve("claude-opus-5-5", betas=[COMPACT_BETA])
    assert (told.capabilities is not None and told.capabilities.compaction is not None) is offered
    plain = await talk.client.beta.models.retrieve("claude-opus-5-5")
    assert plain.capabilities is not None
    assert plain.capabilities.compaction is None
    assert TOOLS


async def test_a_summary_that_does_not_end_with_a_text_is_no_summary(talk: Talk) -> None:
    talk.server.script = Script.of(Step(stop_reason="max_tokens", text="cut"))
    answer = await talk.ask([user("hi")], betas=BETAS, compaction=SUMMARIZE)
    assert (answer.stop_reason, answer.content) == ("max_tokens", [])
