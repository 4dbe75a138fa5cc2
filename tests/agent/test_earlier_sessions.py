"""Sessions that an earlier version wrote still open, send the same bytes and have the same totals.

Each archive in ``tests/fixtures/sessions`` is the home of one session, as that version's command left it over the
protocol servers: turns, digests, a summary, a completion record, a stopped turn, a pin, an undone clearing, a subtask
and a switch of the model. ``expected.json`` beside it is what that version made of the session when it opened it again.
"""

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.serving import Serve
from tests.agent.talking import goes_on, of, talking
from tests.agent.test_wire import pieces
from tests.agent.walks import answering, request_bytes
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tui_agent.agent import events
from tui_agent.conversation.entries import Usage
from tui_agent.models.usage import Totals
from tui_agent.storage.sessions import list_sessions
from tui_agent.storage.verify import verify

SESSIONS = Path(__file__).parents[1] / "fixtures" / "sessions"
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "gemini", "offline"])
AS_IT_WAS = {"model.id": ""}


def unpacked(provider: str, folder: Path) -> dict[str, Any]:
    """The session's home below `folder`; what is expected of it."""
    with tarfile.open(SESSIONS / f"{provider}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return expected


@pytest.fixture(autouse=True)
def _nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "test-key")
    for name in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def assert_same(totals: Totals, expected: Mapping[str, Any]) -> None:
    # What is counted since then is 0 in those sessions.
    assert totals.usage == msgspec.convert(expected["usage"], Usage)
    assert totals.calls == expected["calls"]
    assert totals.cost_usd == pytest.approx(expected["cost_usd"])


@PROVIDERS
async def test_it_sends_the_same_bytes_and_has_the_same_totals(provider: str, tmp_path: Path) -> None:
    expected = unpacked(provider, tmp_path)
    async with talking(tmp_path, AS_IT_WAS, resume=expected["session"]) as session:
        view = session.agent.engine.view
        assert (len(view.log), view.model) == (expected["entries"], expected["model"])
        for each in ("anthropic", "gemini"):
            if provider in (each, "offline"):
                # With its reasoning, which that version bound to a hash without reasoning. What is said beside results
                # has been a content of its own since Gemini 3.
                body = expected["bodies"][each].replace('}}},{"text":', '}}}]},{"role":"user","parts":[{"text":')
                assert request_bytes(each, session).decode() == body
        items = [[item.seq, item.category, item.state, item.pinned] for item in session.agent.context.items()]
        assert items == expected["items"]
        steps = [[type(entry).__name__, entry.seq, counts] for entry, counts in view.context_entries()]
        assert steps == expected["steps"]
        tracker, stats = session.agent.tracker, session.agent.context_stats()
        assert_same(tracker.session, expected["totals"])
        assert_same(tracker.subtasks, expected["subtasks"])
        assert tracker.subtask_count == expected["subtasks"]["count"]
        assert tracker.by_model().keys() == expected["models"].keys()
        for name, totals in tracker.by_model().items():
            assert_same(totals, expected["models"][name])
        assert {name: getattr(stats, name) for name in expected["context"]} == expected["context"]
    (listed,) = await list_sessions(tmp_path / "home")
    assert listed.cost_usd == pytest.approx(expected["totals"]["cost_usd"])


@PROVIDERS
async def test_it_goes_on(provider: str, tmp_path: Path, serve: Serve) -> None:
    expected = unpacked(provider, tmp_path)
    server = serve((GeminiServer if provider == "gemini" else AnthropicServer)(answering))
    async with talking(tmp_path, AS_IT_WAS, resume=expected["session"]) as session:
        await goes_on(session, "read calc.py" if provider == "offline" else "read 3 please")
        undone = await session.agent.context.undo()
        assert isinstance(undone, events.ContextStep)
        await goes_on(session, "read calc.py" if provider == "offline" else "say 1 thing")
        said = [event.seq for event in of(events.UserMessage, session.agent.branches.history())]
        assert await session.agent.branches.rewind(said[0]) != ""
    if provider != "offline":
        before, first = pieces(json.loads(expected["bodies"][provider])), server.model_requests[0].json
        assert first is not None
        # All that version would have sent, and then what was said now.
        assert pieces(first)[: len(before)] == before
        assert (server.violations, server.dropped_thinking) == ([], [])
    assert verify(session.folder).ok
