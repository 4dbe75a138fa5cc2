"""A cache that is gone is told of before the call, and a cache that was missed after it, with the reason."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from tests.agent.serving import MODELS, Serve, serving
from tests.agent.talking import goes_on, of, put, say, talking
from tests.agent.test_nothing_bricks import prose
from tests.servers.script import Step
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.context.cache_life import CacheState
from tui_agent.context.cache_watch import CacheMiss, CacheWatch, ColdCache
from tui_agent.context.economics import StepPrice
from tui_agent.conversation.blocks import Text, ToolDefinition
from tui_agent.conversation.entries import Message, Shortened, Usage
from tui_agent.conversation.profile import Rates
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.session import Session
from tui_agent.storage.trace import read_events

RATES = Rates(read=0.05, write=1.25, output=5.0, input_usd=4.0)
WARM, COLD = CacheState(False, "the cache is warm"), CacheState(True, "the last call was 9m00s ago")
LEFT = Usage(input_tokens=50_000, cache_read_tokens=40_000, cache_write_tokens=10_000)


LONG = tuple(prose(50_000, seed) for seed in range(5))
"""About 80,000 tokens: 40 cents to write anew."""
STEADY = {"model.id": MODELS["anthropic"], "compaction.thrift": "0"}
"""Nothing is compacted for its price."""


def cold_notices(told: Sequence[events.AgentEvent]) -> list[str]:
    return [event.text for event in of(events.Notice, told) if event.title == "The cache is cold"]


def grow_old(session: Session) -> None:
    """Let an hour go by."""
    before = session.agent.engine.clock
    session.agent.engine.clock = lambda: before() + 3_600


async def usage_of(session: Session) -> str:
    return (await run_command(session.agent, "/stats")).text


async def test_a_cold_send_is_announced_once_and_a_miss_is_explained(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", lambda _: Step(text="I have read it."), 1_000_000))
    async with talking(tmp_path, STEADY) as session:
        await goes_on(session, *LONG)
        assert cold_notices(await say(session, "And now?")) == []
        assert "Missed caches" not in await usage_of(session)
        grow_old(session)
        server.cache.clear()
        (notice,) = cold_notices(await say(session, "Are you still there?"))
        assert "tokens anew, about $0." in notice
        assert "the last call was 1h00m ago" in notice
        assert "/compact" in notice
        assert "Missed caches: 1 call" in await usage_of(session)
        assert "1 since the cache had expired" in await usage_of(session)
        assert cold_notices(await say(session, "And now?")) == []
        # The provider may lose it before its time.
        server.cache.clear()
        assert cold_notices(await say(session, "And now?")) == []
        stats = await usage_of(session)
        assert "Missed caches: 2 calls" in stats
        assert "though nothing had changed" in stats
    missed = [json.loads(event.body) for event in read_events(session.folder) if event.kind == "cache_miss"]
    assert [each["part"] for each in missed] == ["expired", "provider"]
    assert all(each["expected"] > 60_000 > each["read"] for each in missed)


async def test_below_its_price_nothing_is_said(tmp_path: Path, serve: Serve) -> None:
    serve(serving("anthropic", lambda _: Step(text="I have read it."), 1_000_000))
    settings = {**STEADY, "context.cold_notice_usd": "2"}
    async with talking(tmp_path, settings) as session:
        await goes_on(session, *LONG)
        grow_old(session)
        assert cold_notices(await goes_on(session, "Are you still there?")) == []


async def test_what_a_context_step_changed_is_named(tmp_path: Path, serve: Serve) -> None:
    serve(serving("anthropic", lambda _: Step(text="I have read it."), 1_000_000))
    async with talking(tmp_path, {"model.id": MODELS["anthropic"]}) as session:
        await goes_on(session, prose(60_000), prose(60_000, 2), prose(60_000, 3), prose(60_000, 4), "And now?")
        await session.agent.compact()
        await goes_on(session, "And now?")
        assert "earlier messages had changed (by a context step" in await usage_of(session)


async def test_what_the_provider_says_of_a_miss_is_passed_on(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", lambda _: Step(text="I have read it."), 1_000_000))
    async with talking(tmp_path, STEADY) as session:
        await goes_on(session, *LONG)
        # A layer that nobody knows of changes an early message.
        first = next(e for e in session.agent.engine.view.log if isinstance(e, Message) and e.role == "user")
        change = Shortened(items=(first.seq,), blocks=((Text("Something else."),),), reason="a test")
        await put(session, change)
        await goes_on(session, "And now?")
        stats = await usage_of(session)
        assert "earlier messages had changed" in stats
        assert stats.endswith("the provider says: messages_changed")
        server.cache.clear()
        await goes_on(session, "And now?")
        assert (await usage_of(session)).endswith("though nothing had changed")
    asked = [json.loads(request.body)["diagnostics"]["previous_message_id"] for request in server.model_requests]
    assert asked[0] is None
    assert all(each.startswith("msg_") for each in asked[1:])


def test_a_request_follows_only_an_answer_of_its_own_model() -> None:
    watch, request = CacheWatch(), ModelRequest(system="", messages=(), tools=(), max_tokens=100)
    for model, answer, follows in (("a", "msg_1", ""), ("a", "msg_2", "msg_1"), ("b", "resp_1", ""), ("a", "", "")):
        watch.sends(model, request, WARM, edits=0, last=None)
        assert watch.follows(model) == follows
        watch.answered(Usage(), None, answer=answer)


async def test_nothing_is_expected_of_a_provider_that_promises_nothing(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("gemini", lambda _: Step(text="I have read it."), 1_000_000))
    async with talking(tmp_path, {**STEADY, "model.id": MODELS["gemini"]}) as session:
        await goes_on(session, *LONG, "And now?")
        server.cache.clear()
        await goes_on(session, "And now?")
        assert "Missed caches" not in await usage_of(session)


# What changed


def request(*texts: str, system: str = "You help.", tools: tuple[str, ...] = ("read",)) -> ModelRequest:
    roles = ("user", "assistant")
    messages = tuple(RequestMessage(roles[i % 2], (Text(text),)) for i, text in enumerate(texts))  # type: ignore[arg-type]
    told = tuple(ToolDefinition(name, "A tool.", "{}") for name in tools)
    return ModelRequest(system=system, tools=told, messages=messages, max_tokens=100)


def missed(then: ModelRequest, *, model: str = "a", cache: CacheState = WARM, read: int = 0) -> CacheMiss | None:
    """What is found where a request of three messages came before."""
    watch = CacheWatch()
    watch.sends("a", request("one", "two", "three"), WARM, edits=0, last=None)
    assert watch.answered(LEFT, RATES) is None
    watch.sends(model, then, cache, edits=0, last=LEFT)
    found = watch.answered(Usage(input_tokens=51_000, cache_read_tokens=read), RATES)
    assert watch.misses == ([found] if found else [])
    return found


GROWN = request("one", "two", "three", "four", "five")


@pytest.mark.parametrize(
    ("find", "part", "detail"),
    [
        (lambda: missed(GROWN), "provider", ""),
        (lambda: missed(GROWN, cache=COLD), "expired", "the last call was 9m00s ago"),
        (lambda: missed(GROWN, model="b", cache=COLD), "model", ""),
        (lambda: missed(request("one", "two", "three", system="You try.")), "system", ""),
        (lambda: missed(request("one", "two", "three", tools=("read", "write"))), "tools", "write"),
        (lambda: missed(request("one", "2", "three")), "messages", "by no context step, from message 2 of 3 on"),
        (lambda: missed(request("one")), "messages", "by no context step, from message 2 of 3 on"),
    ],
)
def test_the_part_that_changed_is_named(find: Callable[[], CacheMiss | None], part: str, detail: str) -> None:
    found = find()
    assert found is not None
    assert (found.part, found.detail) == (part, detail)
    assert (found.expected, found.read) == (50_000, 0)
    assert found.cost_usd == pytest.approx(50_000 * 1.2 * 4 / 1e6)


def test_what_was_read_is_no_miss() -> None:
    assert missed(GROWN, read=50_000) is None
    assert missed(GROWN, read=49_000) is None
    assert missed(GROWN, read=40_000) is not None


def test_without_a_summary_to_offer_only_the_cost_is_told() -> None:
    told = ColdCache(100_000, 0.5, "the last call was 9m00s ago")
    assert told.text() == "This call reads 100,000 tokens anew, about $0.500: the last call was 9m00s ago."
    more = structs.replace(told, compaction=StepPrice(0.5, 0.2, 0.0, writing=0.1)).text()
    assert more.endswith("After a /compact of about $0.100 it would be about $0.200.")


def test_tokens_that_a_step_has_removed_are_no_miss() -> None:
    watch = CacheWatch()
    for edits in (0, 1):
        watch.sends("m", GROWN, WARM, edits=edits, last=LEFT)
        miss = watch.answered(Usage(input_tokens=50_000 if not edits else 8_000, cache_read_tokens=2_000), RATES)
    assert miss is not None
    assert (miss.expected, miss.read) == (8_000, 2_000)
