"""Every call counts once, whatever became of its answer, and still does after a restart."""

from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.openai_chat import ChatServer
from tests.servers.running import in_thread
from tests.servers.script import Fault, Script, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import UnattributedCall
from tui_agent.models.usage import Totals
from tui_agent.session import Session
from tui_agent.storage.sessions import list_sessions

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
ANSWER = "A sentence that takes a while. " * 8


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


def use(server: ProtocolServer, monkeypatch: pytest.MonkeyPatch) -> ProtocolServer:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def unfinished(session: Session) -> list[UnattributedCall]:
    return [entry for entry in session.agent.engine.view.log if isinstance(entry, UnattributedCall)]


async def after_a_restart(folder: Path, session_id: str, settings: dict[str, str]) -> Totals:
    async with talking(folder, settings, resume=session_id) as session:
        return session.agent.tracker.session


@pytest.mark.parametrize("provider", MODELS)
async def test_an_answer_that_broke_off_is_paid_for(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(text=ANSWER, fault=Fault(kind="reset", after=4))
    server = {"anthropic": AnthropicServer, "gemini": GeminiServer}[provider](Script.of(step))
    settings = {"model.id": MODELS[provider]}
    with in_thread(server):
        use(server, monkeypatch)
        async with talking(tmp_path, settings) as session:
            told = await say(session, "Say something.")
            assert [event for event in told if isinstance(event, events.TurnFailed)] == []
            total, name = session.agent.tracker.session, session.id
            (broken,) = unfinished(session)
        assert total.calls == 2
        assert total.usage.input_tokens == 2 * broken.usage.input_tokens > 0
        assert broken.cost_usd
        assert await after_a_restart(tmp_path, name, settings) == total
        (listed,) = await list_sessions(tmp_path / "home")
        assert listed.cost_usd == pytest.approx(total.cost_usd)


async def test_an_answer_that_was_stopped_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model.id": MODELS["anthropic"]}
    with in_thread(AnthropicServer(Script.of(Step(text=ANSWER, delay=0.01)))) as server:
        use(server, monkeypatch)
        async with talking(tmp_path, settings) as session:
            async for event in session.agent.run("Say something."):
                if isinstance(event, events.TextDelta):
                    session.agent.interrupt()
            total, name = session.agent.tracker.session, session.id
        assert total.calls == 1
        assert total.usage.input_tokens > 0
        assert total.cost_usd > 0
        assert await after_a_restart(tmp_path, name, settings) == total


async def test_a_call_that_never_began_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(AnthropicServer(Script.of(Step(text="Yes.", fault=Fault(kind="disconnect"))))) as server:
        use(server, monkeypatch)
        async with talking(tmp_path, {"model.id": MODELS["anthropic"]}) as session:
            await say(session, "Say something.")
            assert session.agent.tracker.session.calls == 1
            assert unfinished(session) == []


async def test_what_the_server_says_a_call_cost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers and the summary of them, whatever the price list says."""
    server = ChatServer(Script(after=Step(text=60 * ANSWER)), make="openrouter")
    server.charged_usd = 0.25
    settings = {"model.id": "openrouter:qwen/qwen3-coder"}
    with in_thread(server):
        use(server, monkeypatch)
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


async def test_a_summary_counts_once(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        for place in ("calc.py", "README.md", "calc.py", "README.md"):
            await say(session, f"read {place}")
        assert (await session.agent.compact()).error == ""
        total, name = session.agent.tracker.session, session.id
    assert await after_a_restart(tmp_path, name, {}) == total
