"""The real program against a server that others wrote: aimock, an npm package, speaks every protocol in its own way.

It is not installed for this: these run where `AIMOCK` names it or it is on the path (`npm install @copilotkit/aimock`).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.talking import closing, create_model, finish, name_endpoint, request, user
from tests.models.test_every_provider import Waits
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.models.base import AuthFailed, ContextOverflow, ModelError, ModelRetrying, RateLimited
from tui_agent.models.retry import stream_with_retries

AIMOCK = os.environ.get("AIMOCK") or shutil.which("aimock") or ""
SAID = "Grüße, 世界 🌍: hello."

pytestmark = pytest.mark.skipif(not AIMOCK, reason="aimock is not here: npm install @copilotkit/aimock, and set AIMOCK")

VARIABLES = {
    "claude-opus-5-5": ("ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY"),
    "gemini-3.8-flash": ("GOOGLE_GEMINI_BASE_URL", "", "GEMINI_API_KEY"),
    "mine:gpt-6.1-sol": ("", "/v1", "OPENAI_API_KEY"),
    "openrouter:x/y": ("OPENROUTER_BASE_URL", "/v1", "OPENROUTER_API_KEY"),
    "groq:m": ("GROQ_BASE_URL", "/v1", "GROQ_API_KEY"),
    "ollama:qwen3": ("OLLAMA_HOST", "", ""),
}


def fixtures() -> list[dict[str, Any]]:
    """What it answers to what a user says; the model's name is part of that, as it counts each for itself."""

    def error(kind: str, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": kind}}

    reading = {"name": "read_file", "arguments": {"path": "note.txt"}}
    listing: dict[str, Any] = {"name": "list_dir", "arguments": {}}
    calling = {"reasoning": "I should look.", "content": "Looking.", "toolCalls": [reading, listing]}
    long = error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    told: list[dict[str, Any]] = [
        {"match": {"userMessage": "read the note", "hasToolResult": False}, "response": calling},
        {"match": {"userMessage": "read the note"}, "response": {"content": "It says forty-two."}},
        {"match": {"userMessage": "too long"}, "response": {**long, "status": 400}},
        {"match": {"userMessage": "wrong key"}, "response": {**error("authentication_error", "no"), "status": 401}},
        {"match": {"userMessage": "hello"}, "response": {"content": SAID}},
    ]
    for name in VARIABLES:
        once = {"userMessage": f"busy {name}", "sequenceIndex": 0}
        told.append({"match": once, "response": {**error("rate_limit_error", "slow"), "status": 429}})
        told.append({"match": {"userMessage": f"busy {name}"}, "response": {"content": SAID}})
        once = {"userMessage": f"cut {name}", "sequenceIndex": 0}
        told.append({"match": once, "response": {"content": SAID}, "truncateAfterChunks": 2, "chunkSize": 3})
        told.append({"match": {"userMessage": f"cut {name}"}, "response": {"content": SAID}})
    return told


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it listens."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures()}))
    (folder / "aimock.json").write_text(json.dumps({"llm": {"fixtures": str(folder / "fixtures.json")}}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [AIMOCK, "--config", str(folder / "aimock.json"), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def point_at(url: str, name: str, set_variable: Callable[[str, str], None]) -> None:
    variable, root, key = VARIABLES[name]
    if variable:
        set_variable(variable, url + root)
    else:
        name_endpoint("mine", url + root)
    if key:
        set_variable(key, "test-key-1234")


@pytest.mark.parametrize("name", VARIABLES)
async def test_answers_calls_and_errors(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(url, name, monkeypatch.setenv)
    async with closing(create_model(name)) as model:
        _, completed = await finish(model.stream(request(user("hello"))))
        assert completed.blocks[-1] == Text(SAID)
        _, completed = await finish(model.stream(request(user("read the note"))))
        calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [
            ("read_file", {"path": "note.txt"}),
            ("list_dir", {}),
        ]
        assert completed.stop_reason == "tool_calls"
        meant: dict[str, type[ModelError]] = {"too long": ContextOverflow, "wrong key": AuthFailed}
        for said, error in meant.items():
            with pytest.raises(error):
                await finish(model.stream(request(user(said))))
        for said, once in ((f"busy {name}", RateLimited), (f"cut {name}", ModelError)):
            events, completed = await finish(stream_with_retries(model, request(user(said)), sleep=Waits()))
            retries = [event.error for event in events if isinstance(event, ModelRetrying)]
            assert len(retries) == 1
            assert isinstance(retries[0], once)
            assert completed.blocks[-1] == Text(SAID)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_program_calls_tools_and_answers(name: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("forty-two")
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    point_at(url, name, environment.__setitem__)
    endpoints = {"mine": {"url": f"{url}/v1", "key": "OPENAI_API_KEY", "api": "responses"}}
    environment |= {"TUI_AGENT_HOME": str(tmp_path / "home"), "TUI_AGENT__MODELS__ENDPOINTS": json.dumps(endpoints)}
    command = [sys.executable, "-m", "tui_agent", "-p", "read the note", "--model", name, "--output-format", "json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    told = json.loads(done.stdout)
    assert told["result"] == "It says forty-two."
    assert told["turns"] >= 1
