"""A provider's server for a test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import ASKED, NEVER_BY_PRICE, goes_on, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Script
from tests.servers.server import ProtocolServer
from tui_agent.session import Session


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    strict: list[ProtocolServer] = []
    for module in ("adapter", "anthropic.adapter"):  # a busy machine takes long to import the SDK
        monkeypatch.setattr(f"tui_agent.models.{module}.DESCRIBE_TIMEOUT_S", 60.0)
    with ExitStack() as stack:

        def started(server: ProtocolServer, *, may_break: bool = False) -> ProtocolServer:
            stack.enter_context(in_thread(server))
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            strict.extend([] if may_break else [server])
            return server

        yield started  # type: ignore[misc]
        for server in strict:
            assert (server.violations, server.dropped_thinking) == ([], [])


@pytest.fixture
def server(serve: Serve) -> AnthropicServer:
    """A server of Claude, whose `script` a test sets."""
    return serve(AnthropicServer(Script()))


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    """An open session with the offline model."""
    async with talking(tmp_path) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project of that session."""
    return tmp_path / "project"


@pytest.fixture(scope="session")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session of some length, to be copied."""
    folder = tmp_path_factory.mktemp("talked")

    async def talk() -> None:
        async with talking(folder, NEVER_BY_PRICE) as session:
            await goes_on(session, *ASKED * 6)

    asyncio.run(talk())
    return folder
