"""A provider's limit is a pause: the turn waits until it resets, or a fallback goes on, and what it costs is told."""

import time
from pathlib import Path

import pytest

from tests.agent.serving import OPUS, Serve
from tests.agent.talking import failures, of, say, shown, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Fault, Script, Step
from tui_agent.agent import events
from tui_agent.agent.turn.model_calls import MOST_SHORT, LimitPauses
from tui_agent.conversation.entries import ModelSwitched
from tui_agent.models.base import Overloaded, RateLimited

AT_ONCE = Fault(kind="rate_limited", times=6, retry_after=0.01)
"""Refuses longer than the retries last."""


def far(hours: float = 5.0) -> Fault:
    """A subscription's window that is used up, as its headers say it (router-for-me/CLIProxyAPI, pull request 3148)."""
    reset = str(int(time.time() + 3_600 * hours))
    told = {"status": "rejected", "5h-status": "rejected", "5h-reset": reset, "reset": reset}
    return Fault(kind="rate_limited", headers={f"anthropic-ratelimit-unified-{key}": told[key] for key in told})


@pytest.fixture
def server(serve: Serve) -> AnthropicServer:
    return serve(AnthropicServer(Script(after=Step(text="Here."))))


async def test_a_turn_waits_for_the_reset_and_goes_on(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS) as session:
        server.inject(AT_ONCE)
        told = await say(session, "Where?")
        waits = [event for event in of(events.Retrying, told) if event.until]
        assert len(waits) == 1
        assert waits[0].sentence.startswith("Anthropic's rate limit is reached; waiting until ")
        assert told[-1].text == "Here."  # type: ignore[union-attr]
        assert failures(told) == []


async def test_esc_ends_the_wait_and_nothing_is_lost(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS | {"model.wait_for_reset": "600"}) as session:
        server.inject(far())
        told: list[events.AgentEvent] = []
        async for event in session.agent.run("Where is it?"):
            told.append(event)
            if isinstance(event, events.Retrying):
                assert event.delay_s == pytest.approx(5 * 3_600, abs=60)
                assert event.until == pytest.approx(time.time() + event.delay_s, abs=60)
                session.agent.interrupt()
        assert told[-1].stop_reason == "interrupted"  # type: ignore[union-attr]
        assert "Where is it?" in shown(session.agent.engine.view)
        assert (await say(session, "Where is it?"))[-1].text == "Here."  # type: ignore[union-attr]


async def test_a_longer_wait_than_allowed_fails_with_what_to_do(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS) as session:
        server.inject(far())
        (failed,) = of(events.TurnFailed, await say(session, "Where?"))
        assert failed.kind == "rate_limited"
        assert "--wait-for-reset" in failed.hint
        assert len(server.model_requests) == 1


@pytest.mark.parametrize("limit", ["reset", "overloaded"])
async def test_a_fallback_goes_on_and_says_what_that_costs(limit: str, server: AnthropicServer, tmp_path: Path) -> None:
    fallbacks = ["gemini-3.8-flash", "claude-opus-5-5", "claude-sonnet-5-5"]
    async with talking(tmp_path, OPUS | {"model.fallbacks": fallbacks}) as session:
        server.inject(far() if limit == "reset" else AT_ONCE)
        told = await say(session, "Where?")
        titles = [event.title for event in of(events.Notice, told)]
        assert titles[:2] == [
            "gemini-3.8-flash cannot go on for anthropic:claude-opus-5-5",
            "anthropic:claude-sonnet-5-5 goes on for anthropic:claude-opus-5-5",
        ]
        (handed,) = [event for event in of(events.Notice, told) if "goes on for" in event.title]
        assert "Handing over costs about $0.0" in handed.text
        assert ("It resets at" in handed.text) is (limit == "reset") or limit == "overloaded"
        assert [event.model for event in of(events.ModelChanged, told)] == ["anthropic:claude-sonnet-5-5"]
        assert told[-1].text == "Here."  # type: ignore[union-attr]
        assert not any(event.until for event in of(events.Retrying, told))
        assert of(ModelSwitched, session.agent.engine.view.log)


def test_pauses_end() -> None:
    allowed, waited = LimitPauses(60), 0.0
    pauses = []
    while (pause := allowed.next(Overloaded("It is overloaded"))) is not None:
        pauses.append(pause)
        waited += pause
    assert pauses[:4] == [15.0, 30.0, 60.0, 60.0]
    assert len(pauses) == MOST_SHORT
    assert LimitPauses(0).next(Overloaded("It is overloaded")) is None
    day = RateLimited("The limit is reached", retry_after=86_400.0)
    assert LimitPauses(60).next(day) is None
    assert LimitPauses(10_080).next(day) == 86_400.0
