"""The Gemini server, spoken to by the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.gemini import GeminiServer
from tests.servers.gemini_rules import estimate_tokens
from tests.servers.script import Script, Step

NAMES = ("read_file", "grep", "list_dir", "edit_file", "run_command")
PATH = types.Schema(type=types.Type.OBJECT, properties={"path": types.Schema(type=types.Type.STRING)})
TOOLS = [types.Tool(function_declarations=[types.FunctionDeclaration(name=name, parameters=PATH) for name in NAMES])]
MODEL = "gemini-3.8-flash"


class Talk:
    """A server and the real client, with short cuts."""

    def __init__(self, server: GeminiServer) -> None:
        self.server = server
        options = types.HttpOptions(base_url=server.url, retry_options=types.HttpRetryOptions(attempts=1))
        self.client = genai.Client(api_key=server.api_key, http_options=options)

    async def ask(
        self, contents: list[Any], *, model: str = MODEL, **options: Any
    ) -> list[types.GenerateContentResponse]:
        """The chunks of one streamed answer."""
        config = types.GenerateContentConfig(tools=list(TOOLS), **options)
        stream = await self.client.aio.models.generate_content_stream(model=model, contents=contents, config=config)
        return [chunk async for chunk in stream]


def parts_of(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    """The parts that may be sent back: the API closes a stream with an empty text part that it does not take itself."""
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [part for c in candidates if c.content is not None for part in c.content.parts or []]
    return [part for part in parts if part.text != "" or part.thought_signature]


def answered(parts: list[types.Part]) -> types.Content:
    calls = [part.function_call for part in parts if part.function_call is not None]
    responses = [types.FunctionResponse(id=call.id, name=call.name, response={"output": "ok"}) for call in calls]
    return types.Content(role="user", parts=[types.Part(function_response=response) for response in responses])


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with GeminiServer(Script.of(Step(text="Hello there, friend.", reasoning="Greet."))) as server:
        yield Talk(server)


@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-2.5-pro"])
async def test_coding_task_completes_with_no_rule_broken(model: str) -> None:
    async with GeminiServer(coding_task_script()) as server:
        talk = Talk(server)
        contents: list[Any] = [types.UserContent("fix the bug")]
        calls: list[list[str | None]] = []
        while True:
            chunks = await talk.ask(contents, model=model)
            parts = parts_of(chunks)
            calls.append([part.function_call.name for part in parts if part.function_call])
            if not calls[-1]:
                break
            contents += [types.Content(role="model", parts=parts), answered(parts)]
        assert calls == [["read_file"], ["grep", "list_dir"], ["edit_file"], ["run_command"], []]
        assert "".join(part.text or "" for part in parts) == ANSWER
        assert server.violations == []
        assert len(server.model_requests) == 5


async def test_answer_shape(talk: Talk) -> None:
    thinking = types.ThinkingConfig(include_thoughts=True)
    chunks = await talk.ask([types.UserContent("hi")], thinking_config=thinking)
    parts = parts_of(chunks)
    assert [part.text for part in parts if part.thought] == ["Greet."]
    assert "".join(part.text or "" for part in parts if not part.thought) == "Hello there, friend."
    assert parts[-1].thought_signature
    last = chunks[-1]
    assert last.candidates is not None
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == MODEL
    usage = last.usage_metadata
    assert usage is not None
    assert usage.thoughts_token_count == 2
    assert usage.total_token_count == (usage.prompt_token_count or 0) + (usage.candidates_token_count or 0) + 2
    assert talk.server.usage_total["promptTokenCount"] == usage.prompt_token_count
    again = [types.UserContent("hi"), types.Content(role="model", parts=parts), types.UserContent("more")]
    await talk.ask(again)
    assert talk.server.violations == []


async def test_whole_and_cut_answers(talk: Talk) -> None:
    answer = await talk.client.aio.models.generate_content(model=MODEL, contents="hi")
    assert answer.text == "Hello there, friend."
    chunks = await talk.ask([types.UserContent("hi")], max_output_tokens=4)
    assert chunks[-1].candidates is not None
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert parts_of(chunks)[0].text == "Hello "
    talk.server.script = Script.of(Step(text="x", stop_reason="blocked"))
    (chunk,) = await talk.ask([types.UserContent("hi")])
    assert chunk.prompt_feedback is not None
    assert chunk.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT


async def test_models_tokens_keys_and_the_window() -> None:
    async with GeminiServer(Script.of(Step(text="x")), windows={MODEL: 500}) as server:
        models = Talk(server).client.aio.models
        assert len([model async for model in await models.list(config={"page_size": 2})]) == 3
        model = await models.get(model="gemini-2.5-pro")
        assert (model.input_token_limit, model.output_token_limit) == (1_048_576, 65_536)
        counted = await models.count_tokens(model=MODEL, contents="a" * 300)
        body = {"contents": [{"parts": [{"text": "a" * 300}], "role": "user"}]}
        assert counted.total_tokens == estimate_tokens(body) > 100
        with pytest.raises(errors.ClientError, match="is not found for API version"):
            await models.get(model="gemini-9")
        with pytest.raises(errors.ClientError, match=r"The input token count \(\d+\) exceeds .* allowed \(500\)\."):
            await models.generate_content(model=MODEL, contents="a" * 3000)
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{server.url}/v1/models")).status_code == 403
            wrong = await client.get(f"{server.url}/v1/models?key=wrong")
        assert wrong.status_code == 400
        assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"


async def test_implicit_cache(talk: Talk) -> None:
    system = "rules " * 4000
    cold = await talk.ask([types.UserContent("hi")], system_instruction=system)
    warm = await talk.ask([types.UserContent("hello")], system_instruction=system)
    first, second = cold[-1].usage_metadata, warm[-1].usage_metadata
    assert first is not None
    assert second is not None
    assert first.cached_content_token_count is None
    assert 4096 < (second.cached_content_token_count or 0) < (second.prompt_token_count or 0)


async def test_a_signature_belongs_to_its_call() -> None:
    async with GeminiServer(coding_task_script()) as server:
        talk = Talk(server)
        parts = parts_of(await talk.ask([types.UserContent("go")]))
        changed = [part.model_copy(deep=True) for part in parts]
        found = next(part.function_call for part in changed if part.function_call)
        assert found is not None
        found.args = {"path": "other.py"}
        with pytest.raises(errors.ClientError, match="Corrupted thought signature"):
            await talk.ask([types.UserContent("go"), types.Content(role="model", parts=changed), answered(changed)])
