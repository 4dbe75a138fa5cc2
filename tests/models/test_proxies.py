"""Behind a SOCKS proxy, as ALL_PROXY names it: requests go through it, and it resolves the names."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.openai_chat import ChatServer
from tests.servers.running import in_thread
from tests.servers.script import Script, Step
from tui_agent.agent import events

NAME = "provider.example"
"""A host that only the proxy knows."""
MODELS = {"claude-opus-5-5": AnthropicServer, "openai:gpt-4.1": ChatServer, "gemini-3.8-flash": GeminiServer}


@pytest.fixture
def proxy() -> Iterator[tuple[int, list[str]]]:
    """A SOCKS 5 proxy (RFC 1928) that takes every host for this machine: its port, and the hosts it was asked for."""
    asked: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=passed_on, args=(listening.accept()[0],), daemon=True).start()

    def passed_on(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(257)  # the ways to sign in that it offers
            client.sendall(b"\x05\x00")
            size = client.recv(5)[4]
            asked.append(client.recv(size).decode())
            port = int.from_bytes(client.recv(2), "big")
            with socket.create_connection(("127.0.0.1", port)) as server:
                client.sendall(b"\x05\x00\x00\x01" + bytes(6))
                threading.Thread(target=copied, args=(server, client), daemon=True).start()
                copied(client, server)

    def copied(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1], asked
    listening.close()


@pytest.mark.parametrize("model", MODELS)
async def test_a_model_answers_through_it(
    model: str, proxy: tuple[int, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = proxy
    with in_thread(MODELS[model](Script(after=Step(text="Hello from afar.")))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value.replace("127.0.0.1", NAME))
        monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{port}")
        async with talking(tmp_path, {"model.id": model}) as session:
            told = await say(session, "Hi.")
    assert [event for event in told if isinstance(event, events.TurnFailed)] == []
    assert set(asked) == {NAME}
