"""What the model saw at each call: exactly the request that the server got, whatever happened before and since."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import MODELS, Serve, serving
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import say, talking
from tests.agent.test_wire import pieces
from tests.bench.long_session import long_view
from tests.context.sessions import Session as Grown
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.history.calls import CallHistory
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message, Usage, user_message
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.view import View
from tui_agent.session import Session


def answering(request: ParsedRequest) -> Step:
    if request.position == 0 and "look" in request.prompt:
        return Step(reasoning="I look first.", text="One moment.", calls=(Call("read_file", {"path": "calc.py"}),))
    return Step(reasoning="That is it.", text=f"Answer to: {request.prompt[-60:]}")


async def _walk(session: Session, chance: random.Random) -> None:
    """Everything that changes what the model sees, in an order of chance."""
    agent = session.agent
    for number in range(14):
        await say(session, f"{chance.choice(['look at', 'say'])} {number} {'word ' * chance.randrange(200)}")
        match chance.choice(["", "clear", "compact", "undo", "rewind", "fork", "tree", "pin"]):
            case "clear":
                await run_command(agent, "/clear-results")
            case "compact":
                await agent.compact()
            case "undo":
                await agent.context.undo()
            case "rewind":
                said = agent.branches.prompts()
                await agent.branches.rewind(chance.choice(said[-3:]).seq)
            case "fork":
                await agent.branches.fork(chance.choice(agent.branches.prompts()[-3:]).seq)
            case "tree" if len(branches := agent.branches.all()) > 1:
                await agent.branches.switch(branches[1].tip)
            case "pin":
                await agent.context.pin([agent.context.items()[-1].seq])
            case _:
                pass


@pytest.mark.parametrize(
    ("provider", "seed"),
    [
        ("anthropic", 0),
        pytest.param("gemini", 1, marks=pytest.mark.soak),
        pytest.param("anthropic", 1, marks=pytest.mark.soak),
        pytest.param("gemini", 0, marks=pytest.mark.soak),
    ],
)
async def test_the_view_at_a_call_is_the_request_that_was_sent(
    provider: str, seed: int, tmp_path: Path, serve: Serve
) -> None:
    reader = Reader(answering, lambda _: Step(text=HANDOVER))
    chance = random.Random(seed)
    serve(serving(provider, reader))
    settings = {"model.id": MODELS[provider], "compaction.keep_recent_tokens": "300"}
    async with talking(tmp_path, settings) as session:
        await _walk(session, chance)
    async with talking(tmp_path, settings, resume=session.id) as session:
        await _walk(session, chance)
        past = await session.agent.context.past()
        sent = [request.body for request in reader.own]
        assert len(past.calls) == len(sent)
        numbers = [call.number for call in past.calls]
        chance.shuffle(numbers)
        for number in numbers:
            seen = past.at(number)
            assert seen.exact, number
            assert _encoded(provider, past.messages(number)) == _sent(sent[number - 1])
            assert sum(seen.categories.values()) == seen.call.usage.input_tokens
        assert {call.moved for call in past.calls} > {""}
        assert any(call.steps for call in past.calls)
        assert not all(call.present for call in past.calls)


def _sent(body: dict[str, Any]) -> list[bytes]:
    return [piece for piece in pieces(body) if piece.startswith(b'["')]


def _encoded(provider: str, messages: tuple[RequestMessage, ...]) -> list[bytes]:
    """The messages as the provider's adapter writes them."""
    request = ModelRequest(system="", tools=(), messages=messages, max_tokens=1)
    if provider == "anthropic":
        from tui_agent.models.anthropic.request import AnthropicEncoder, AnthropicOptions

        return _sent(
            json.loads(AnthropicEncoder().encode(request, AnthropicOptions(MODELS[provider], "off", True, False)))
        )
    from tui_agent.models.gemini.request import GeminiEncoder

    return _sent(json.loads(GeminiEncoder(MODELS[provider]).encode(request)))


async def test_the_plain_form_lists_the_calls_and_shows_one(session: Session) -> None:
    assert (await run_command(session.agent, "/at")).title == "No call was answered yet"
    await say(session, "read calc.py")
    await run_command(session.agent, "/clear-results")
    await say(session, "hello")
    listed = await run_command(session.agent, "/at")
    assert listed.title == "3 calls"
    assert len(listed.text.splitlines()) == 1 + 3 + 2
    shown = await run_command(session.agent, "/at 2")
    assert shown.title == "Call 2 of 3"
    assert "Since call 1:\n  added: 1 answer, 1 result" in shown.text
    for wrong in ("0", "4", "x"):
        assert (await run_command(session.agent, f"/at {wrong}")).failed


def test_a_difference_is_what_was_added() -> None:
    past = CallHistory(long_view(40))
    told = past.difference(11, 10)
    added = [line[1:] for line in told.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert not [line for line in told.splitlines() if line.startswith("-") and not line.startswith("---")]
    old, new = past.request(10).split("\n"), past.request(11).split("\n")
    assert Counter(filter(None, new)) - Counter(old) == Counter(filter(None, added))
    assert past.difference(11, 11) == ""


def test_wherever_one_looked_before_the_view_is_the_same() -> None:
    view, chance = long_view(30), random.Random(5)
    log, past = view.log, CallHistory(view.copy())
    for _ in range(30):
        number = chance.randrange(1, len(past.calls) + 1)
        seen, call = past.at(number), past.calls[number - 1]
        fresh = View(log.path(call.asked))
        assert list(seen.items) == fresh.items()
        assert past.messages(number) == tuple(fresh.messages(View().policy))


def test_what_a_call_was_told_is_weighed_as_it_was_measured() -> None:
    grown, meter = Grown("s" * 60_000), TokenMeter()
    for said, tokens in (("hello", 19_900), ("x" * 30_000, 40_000)):
        grown.add(user_message(said))
        meter.tokens(grown.view)
        grown.answer(Usage(tokens, 0, 0, 10), text="ok")
        meter.measure(grown.view, Usage(tokens, 0, 0, 10))
    past = CallHistory(grown.view.copy(), meter)
    systems = [past.at(number).categories["system"] for number in (1, 2)]
    assert systems == [pytest.approx(meter.breakdown(grown.view)["system"], abs=10)] * 2


def test_keys_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh-12345678")
    view = View()
    for entry in (
        user_message("my key is abcdefgh-12345678"),
        Message(role="assistant", blocks=(Text("ok"),), model="a:b", usage=Usage(input_tokens=10)),
    ):
        view.apply(view.log.stamp(entry, 1.0))
    shown = CallHistory(view).request(1)
    assert "my key is [key]" in shown
    assert "abcdefgh" not in shown
