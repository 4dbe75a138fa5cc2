"""Every call counts once, whatever became of its answer, and still does after a restart."""

from pathlib import Path

import pytest

from tests.agent.serving import MODELS, OPUS, PROVIDERS, Serve, serving
from tests.agent.talking import failures, of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.openai_chat import ChatServer
from tests.servers.script import Fault, Script, Step
from tui_agent.agent import events
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import UnattributedCall
from tui_agent.models.usage import Totals
from tui_agent.session import Session
from tui_agent.storage.sessions import list_sessions

ANSWER = "A sentence that takes a while. " * 8


def unfinished(session: Session) -> list[UnattributedCall]:
    return of(UnattributedCall, session.agent.engine.view.log)


async def after_a_restart(folder: Path, session_id: str, settings: dict[str, str]) -> Totals:
    async with talking(folder, settings, resume=session_id) as session:
        return session.agent.tracker.session


@PROVIDERS
async def test_an_answer_that_broke_off_is_paid_for(provider: str, tmp_path: Path, serve: Serve) -> None:
    step = Step(text=ANSWER, fault=Fault(kind="reset", after=4))
    serve(serving(provider, Script.of(step)))
    settings = {"model.id": MODELS[provider]}
    async with talking(tmp_path, settings) as session:
        told = await say(session, "Say something.")
        assert failures(told) == []
        total, name = session.agent.tracker.session, session.id
        (broken,) = unfinished(session)
    assert total.calls == 2
    assert total.usage.input_tokens == 2 * broken.usage.input_tokens > 0
    assert broken.cost_usd
    assert await after_a_restart(tmp_path, name, settings) == total
    (listed,) = await list_sessions(tmp_path / "home")
    assert listed.cost_usd == pytest.approx(total.cost_usd)


async def test_an_answer_that_was_stopped_is_paid_for(tmp_path: Path, serve: Serve) -> None:
    serve(AnthropicServer(Script.of(Step(text=ANSWER, delay=0.01))))
    async with talking(tmp_path, OPUS) as session:
        async for event in session.agent.run("Say something."):
            if isinstance(event, events.TextDelta):
                session.agent.interrupt()
        total, name = session.agent.tracker.session, session.id
    assert total.calls == 1
    assert total.usage.input_tokens > 0
    assert total.cost_usd > 0
    assert await after_a_restart(tmp_path, name, OPUS) == total


async def test_a_call_that_never_began_costs_nothing(tmp_path: Path, serve: Serve) -> None:
    serve(AnthropicServer(Script.of(Step(text="Yes.", fault=Fault(kind="disconnect")))))
    async with talking(tmp_path, OPUS) as session:
        await say(session, "Say something.")
        assert session.agent.tracker.session.calls == 1
        assert unfinished(session) == []


async def test_what_the_server_says_a_call_cost_counts(tmp_path: Path, serve: Serve) -> None:
    """The answers and the summary of them, whatever the price list says."""
    server = ChatServer(Script(after=Step(text=60 * ANSWER)), make="openrouter")
    server.charged_usd = 0.25
    settings = {"model.id": "openrouter:qwen/qwen3-coder"}
    serve(server)
    async with talking(tmp_path, settings) as session:
        for _ in range(3):
            await say(session, "Say something.")
        assert (await session.agent.compact()).error == ""
        total, name = session.agent.tracker.session, session.id
    assert total.calls >= 4
    assert total.cost_usd == 0.25 * total.calls
    assert await after_a_restart(tmp_path, name, settings) == total


async def test_a_dropped_draft_and_a_digest_count_after_a_restart(tmp_path: Path) -> None:
    settings = {"context.preset": "digest", "digests.cutoff": "3"}
    async with talking(tmp_path, settings) as session:
        await say(session, ", then ".join(f"read calc.py and list {place}" for place in (".", "tests", ".")))
        assert not isinstance(await session.agent.context.draft("compact", "what was read"), Refusal)
        purposes = {entry.purpose for entry in unfinished(session)}
        total, name = session.agent.tracker.session, session.id
    assert purposes == {"digest", "summary"}
    assert await after_a_restart(tmp_path, name, settings) == total
