"""The Ollama server, spoken to by the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from ollama import AsyncClient, ChatResponse, ResponseError

from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.ollama import OllamaServer
from tests.servers.script import Call, Script, Step

MODEL = "qwen3:8b"
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": PARAMETERS}}
    for name in ("read_file", "grep", "list_dir", "edit_file", "run_command")
]
USER = {"role": "user", "content": "go"}


@pytest.fixture
async def server() -> AsyncIterator[OllamaServer]:
    async with OllamaServer(Script()) as running:
        yield running


async def ask(server: OllamaServer, messages: list[Any], **options: Any) -> list[ChatResponse]:
    """The lines of one streamed answer, by the real client."""
    client = AsyncClient(server.url)
    stream = await client.chat(**{"model": MODEL, "messages": messages, "stream": True, **options})
    return [line async for line in stream]


async def post(server: OllamaServer, *messages: Any, **fields: Any) -> httpx.Response:
    """A raw request, for what the client does not send."""
    body = {"model": MODEL, "messages": list(messages), "stream": False, **fields}
    async with httpx.AsyncClient() as client:
        return await client.post(f"{server.url}/api/chat", json=body)


async def test_the_real_client_reads_an_answer(server: OllamaServer) -> None:
    server.script = Script.of(Step(text="I look.", reasoning="Where?", calls=(Call("grep", {"a": 1}), Call("x"))))
    lines = await ask(server, [USER], tools=TOOLS, think=True)
    assert "".join(line.message.content or "" for line in lines) == "I look."
    assert "".join(line.message.thinking or "" for line in lines) == "Where?"
    calls = [call.function for line in lines for call in line.message.tool_calls or ()]
    assert [(call.name, call.arguments) for call in calls] == [("grep", {"a": 1}), ("x", {})]
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1].done_reason == "stop"
    assert lines[-1].prompt_eval_count == server.usage_total["prompt_eval_count"]
    assert server.violations == []


async def test_the_whole_coding_task(server: OllamaServer) -> None:
    server.script = coding_task_script()
    messages: list[Any] = [USER]
    while True:
        answer = (await post(server, *messages, tools=TOOLS)).json()["message"]
        messages.append({name: value for name, value in answer.items() if value})
        if not answer["tool_calls"]:
            break
        for call in answer["tool_calls"]:
            name = call["function"]["name"]
            messages.append({"role": "tool", "content": "ok", "tool_name": name, "tool_call_id": call["id"]})
    assert messages[-1]["content"] == ANSWER
    assert server.violations == []


async def test_what_the_real_client_asks_besides(server: OllamaServer) -> None:
    client = AsyncClient(server.url)
    assert MODEL in [model.model for model in (await client.list()).models]
    shown = await client.show(MODEL)
    assert (shown.modelinfo or {})["qwen3.context_length"] == 40_960
    assert set(shown.capabilities or ()) == {"completion", "tools", "thinking"}
    await ask(server, [USER], options={"num_ctx": 8_192})
    assert [(model.model, model.context_length) for model in (await client.ps()).models] == [(MODEL, 8_192)]
    with pytest.raises(ResponseError, match="not found") as caught:
        await client.show("nobody")
    assert caught.value.status_code == 404


async def test_another_context_loads_the_model_anew(server: OllamaServer) -> None:
    for size in (8_192, 8_192, 16_384, 1_000_000):
        await post(server, USER, options={"num_ctx": size})
    assert server.loads == [(MODEL, 8_192), (MODEL, 16_384), (MODEL, 40_960)]
