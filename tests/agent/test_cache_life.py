"""A cache that lives an hour, and a summary before one expires, at a server that enforces the rules of the marks."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.serving import OPUS, Serve, serving
from tests.agent.summaries import Reader, asks_for_summary
from tests.agent.talking import goes_on, say, talking
from tests.agent.test_nothing_bricks import prose
from tests.servers.script import Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.context.cache_life import PauseCounts, Pauses
from tui_agent.conversation.entries import Message, Usage
from tui_agent.models.anthropic.claude import refused_feature
from tui_agent.models.usage import cost_usd
from tui_agent.session import Session
from tui_agent.session_parts import PAUSES_FILE

CLAUDE = {**OPUS, "compaction.thrift": "0"}
LONG = tuple(prose(50_000, seed) for seed in range(5))


def marks(value: Any) -> Iterator[dict[str, str]]:
    """Every cache mark of a request."""
    if isinstance(value, dict):
        if "cache_control" in value:
            yield value["cache_control"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from marks(each)


def lives(request: ParsedRequest) -> set[str]:
    return {mark.get("ttl", "5m") for mark in marks(request.body)}


def usages(session: Session) -> list[Usage]:
    log = session.agent.engine.view.log
    return [entry.usage for entry in log if isinstance(entry, Message) and entry.usage is not None]


def later(session: Session, seconds: float) -> None:
    before = session.agent.engine.clock
    session.agent.engine.clock = lambda: before() + seconds


async def test_a_cache_of_an_hour_is_asked_for_billed_and_lives_through_a_pause(tmp_path: Path, serve: Serve) -> None:
    asked = Reader(lambda _: Step(text="I have read it."))
    serve(serving("anthropic", asked, 1_000_000))
    async with talking(tmp_path, {**CLAUDE, "context.cache_life": "1h"}) as session:
        await goes_on(session, *LONG[:2])
        used = usages(session)
        assert all(0 < each.cache_write_hour_tokens == each.cache_write_tokens for each in used)
        prices = session.agent.engine.model.prices
        costs = [cost_usd(each, prices) for each in used]
        stats = session.agent.context.stats()
        assert stats.cost_usd == pytest.approx(sum(cost for cost in costs if cost is not None))
        later(session, 1_800)
        assert 1_700 < (session.agent.context.expires_in or 0) <= 1_800
        assert not session.agent.context.forecast().cache.cold
        assert "it lives until" in (await run_command(session.agent, "/context")).text
        later(session, 1_800)
        assert session.agent.context.expires_in == 0.0
    async with talking(tmp_path, CLAUDE, resume=session.id) as again:
        # What was written for an hour is known from the log.
        later(again, 1_800)
        assert not again.agent.context.forecast().cache.cold
        await say(again, "And now?")
    assert {*map(frozenset, map(lives, asked.own))} == {frozenset({"1h"})}


async def test_the_pauses_of_earlier_sessions_decide_and_are_kept(tmp_path: Path, serve: Serve) -> None:
    often = Pauses()
    for number in range(100):
        often.learn(900 if number % 5 == 0 else 5, 60_000, 1_000)

    asked = Reader(lambda _: Step(text="I have read it."))
    serve(serving("anthropic", asked, 1_000_000))
    async with talking(tmp_path, CLAUDE) as session:
        await goes_on(session, "Hello.")
    known = tmp_path / "home" / PAUSES_FILE
    assert not known.exists()  # nothing was paused
    known.write_bytes(msgspec.json.encode(often.all))
    async with talking(tmp_path, CLAUDE) as session:
        await goes_on(session, "Hello.", "And now?")
    kept = msgspec.json.decode(known.read_bytes(), type=PauseCounts)
    assert sum(kept.calls) == 101
    assert kept.ends == 1
    assert [lives(request) for request in asked.own] == [{"5m"}, {"1h"}, {"1h"}]


async def test_a_server_that_knows_no_hour_gets_none(tmp_path: Path, serve: Serve) -> None:
    refusal = "system.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"
    assert refused_feature(refusal, frozenset()) == "hour"
    assert refused_feature("system.0.cache_control: Extra inputs are not permitted", frozenset()) == "caching"

    def answer(request: ParsedRequest) -> Step:
        if "1h" in lives(request):
            return Step(fault=Fault(kind="bad_request", message=refusal))
        return Step(text="I have read it.")

    serve(serving("anthropic", answer, 1_000_000))
    async with talking(tmp_path, {**CLAUDE, "context.cache_life": "1h"}) as session:
        await goes_on(session, *LONG[:1], "And now?")
        assert {each.cache_write_hour_tokens for each in usages(session)} == {0}
        later(session, 400)
        assert session.agent.context.forecast().cache.cold


@pytest.mark.parametrize("case", ["worth it", "off", "seldom back", "ceiling"])
async def test_a_summary_is_written_before_a_large_cache_expires(case: str, tmp_path: Path, serve: Serve) -> None:
    asked = Reader(lambda _: Step(text="I have read it."))
    settings = {
        **CLAUDE,
        "compaction.keep_recent_tokens": "2000",
        "compaction.user_words_tokens": "500",
        "clearing.by_price": "false",
        "context.cold_notice_usd": "0.05",
        "compaction.before_expiry": "false" if case == "off" else "true",
    }
    if case == "ceiling":
        settings["agent.max_session_cost_usd"] = "0.6"

    serve(serving("anthropic", asked, 1_000_000))
    async with talking(tmp_path, settings) as session:
        await goes_on(session, *LONG)
        spent = session.agent.context.stats().cost_usd
    assert spent is not None
    if case == "ceiling":
        settings["agent.max_session_cost_usd"] = f"{spent + 0.01:.4f}"
    async with talking(tmp_path, settings, resume=session.id) as session:
        await session.agent.context.preview("compact")  # connects, which looks up the prices
        counts = session.agent.engine.pauses
        for _ in range(10):
            counts.learn(20 if case == "seldom back" else 900, 60_000, 1_000)
        counts.new = msgspec.structs.replace(counts.new, ends=5.0)
        context, done = session.agent.context, asyncio.Event()

        def heard(event: events.AgentEvent) -> None:
            if isinstance(event, events.ContextStep) and event.step == "summary":
                done.set()

        session.agent.listen(heard)
        worth = await context.summary_before_expiry(start=True)
        assert (worth is not None) is (case == "worth it")
        if worth is None:
            assert not asked.summaries
            return
        assert worth.writing_usd + worth.then_usd < worth.without_usd
        await asyncio.wait_for(done.wait(), 60)
        assert session.agent.engine.tokens < worth.plan.before / 2
        await context.undo()
        assert session.agent.engine.tokens > worth.plan.before / 2
        assert await context.summary_before_expiry() is None  # the user took it back
    assert all(map(asks_for_summary, asked.summaries))
