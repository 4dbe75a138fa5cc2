"""What is particular to the servers that speak OpenAI's APIs: what they send, refuse and tell."""

import asyncio
import contextlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.models.talking import (
    PNG,
    TOOLS,
    Talk,
    answered_by,
    assistant,
    closing,
    create_model,
    finish,
    point_at,
    request,
    user,
)
from tests.models.test_every_provider import until
from tests.servers.coding_task import coding_task_script
from tests.servers.openai_chat import ChatServer, Make
from tests.servers.openai_responses import ResponsesServer
from tests.servers.script import Script, Step
from tests.servers.wire import Exchange, Request
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.profile import FREE
from tui_agent.models.adapter import LazyClient
from tui_agent.models.base import AdapterFailed, AuthFailed, ContextOverflow, InvalidRequest, ModelError, Unavailable
from tui_agent.models.call_repair import repaired_answer
from tui_agent.models.catalogue import CATALOGUE, Catalogue, catalogue_of
from tui_agent.models.errors import ErrorReply, ServerRefusedError, failure
from tui_agent.models.http import read_error
from tui_agent.models.openai.adapter import reasons
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.openai.service import OPENAI, addressed
from tui_agent.models.records import OPENAI_LIKE
from tui_agent.models.retry import stream_with_retries
from tui_agent.settings import load_settings
from tui_agent.settings.schema import Endpoint, EndpointModel

RECORD = OPENAI_LIKE[0]


def refused(refusal: ErrorReply) -> ModelError:
    return failure(RECORD, "m", refusal)


def delta(finish_reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


WRITTEN = '{"name": "read_file", "arguments": {"file": "a.txt"}}'
HELD_BACK = {
    "message": "Tool call validation failed: parameters for tool read_file did not match schema",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": WRITTEN,
    "status_code": 400,
}


async def test_a_call_that_was_held_back_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groq checks the arguments itself; the model is told what is wrong with them, as everywhere else."""
    asked: list[Request] = []

    async def answer(request: Request, exchange: Exchange) -> None:
        asked.append(request)
        await exchange.respond(400, {"error": HELD_BACK})

    async with answered_by(answer, "groq:m", monkeypatch.setenv) as model:
        _, completed = await finish(stream_with_retries(model, request(user("go"))))
    assert len(asked) == 1
    assert completed.blocks == (Text(WRITTEN),)
    (call,) = repaired_answer(completed, TOOLS, in_text=True).blocks
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("read_file", '{"file":"a.txt"}')


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        ({"message": "no", "code": "tool_use_failed", "failed_generation": "", "status_code": 400}, InvalidRequest),
        ({"message": "filtered", "code": "content_filter", "status": 400}, InvalidRequest),
        ({"message": "no", "type": "invalid_request_error", "code": "unsupported_parameter"}, InvalidRequest),
        ({"message": "no", "type": "authentication_error", "code": "invalid_request_error"}, AuthFailed),
        ({"message": "Input does not fit in context length."}, ContextOverflow),
        ({"message": "what is this"}, Unavailable),
    ],
)
def test_an_error_in_a_stream_is_what_it_says(error: dict[str, object], meant: type[ModelError]) -> None:
    reply = ChatReply("m")
    reply.read(msgspec.json.encode(delta(content="a")))
    with pytest.raises(ServerRefusedError) as caught:
        reply.read(msgspec.json.encode({"error": error}))
    assert type(refused(caught.value.refusal)) is meant


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": {"message": "no", "type": "t", "code": "c"}}', ("c", "no")),
        (b'{"error": {"message": "no", "type": "t", "code": null}}', ("t", "no")),
        (b'{"error": {"message": "It failed", "code": 502, "metadata": {"raw": "why"}}}', ("502", "It failed why")),
        (b'{"object": "error", "message": "no", "type": "BadRequestError", "code": 400}', ("400", "no")),
        (b'{"error": "no", "error_type": "validation"}', ("validation", "no")),
        (b'{"detail": "no"}', ("", "no")),
        (b'{"detail": [{"msg": "no"}]}', ("", '[{"msg":"no"}]')),
        (b"upstream gone", ("", "upstream gone")),
        (b"[]", ("", "")),
    ],
)  # fmt: skip
def test_errors_in_every_shape(body: bytes, told: tuple[str, str]) -> None:
    refusal = read_error(body)
    assert (refusal.kind, refusal.text) == told


def test_a_key_s_quota_is_no_reason_to_wait() -> None:
    assert not refused(ErrorReply(429, "insufficient_quota", "You exceeded your current quota")).retryable


async def test_what_a_server_refuses_is_left_out_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ResponsesServer(coding_task_script()) as server:
        server.summaries = False
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("responses:gpt-6.1-sol")) as model:
            talk = Talk(model)
            await talk.say("fix the bug")
        assert len([each for each in server.violations if "verified" in each]) == len(server.violations) == 1
        assert any(isinstance(block, Reasoning) for answer in talk.answers for block in answer.blocks)
    async with ChatServer(Script(after=Step(text="ok"))) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("openai:gpt-4.1")) as model:
            for _ in range(2):
                await finish(model.stream(request(user("go"))))
        assert [each for each in server.violations if "max_tokens" in each] == server.violations
        assert len(server.violations) == 1


async def test_a_picture_that_is_not_seen_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer(Script(after=Step(text="ok")), make="deepseek") as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("deepseek:deepseek-v4-pro")) as model:
            for _ in range(2):
                await finish(model.stream(request(user("look", PNG))))
            assert not model.profile.images
        assert len(server.model_requests) == 3


@pytest.mark.parametrize("make", ["llamacpp", "lmstudio", "vllm"])
async def test_a_local_server_tells_the_window_it_has_loaded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{make}:deepseek-v4-pro"
    async with ChatServer(Script(), make=make, windows={"deepseek-v4-pro": 12_345}) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(name)) as model:
            profile = await model.describe()
        assert (profile.window, profile.fixed_window, profile.prices) == (12_345, True, FREE)
        assert CATALOGUE.missing_key(name) is None


def test_another_address_in_openai_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert addressed(OPENAI).api == "responses"
    for own in ("https://eu.api.openai.com/v1", "https://mine.openai.azure.com/openai/v1"):
        monkeypatch.setenv("OPENAI_BASE_URL", own)
        assert (addressed(OPENAI).api, CATALOGUE.missing_key("openai:gpt-6.1-sol")) == ("responses", "OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://openai.com.evil.test/v1")
    assert (addressed(OPENAI).api, CATALOGUE.missing_key("openai:gpt-6.1-sol")) == ("chat", None)
    assert CATALOGUE.quick_profile("openai:gpt-6.1-sol").catalogue == ""
    assert not [profile for profile in CATALOGUE.known_models() if profile.provider == "openai"]


def test_which_models_reason() -> None:
    do = ["gpt-6.1-sol", "o3", "gpt-5-mini", "gpt-oss-20b", "openai/gpt-10.2-x"]
    do_not = ["gpt-4.1", "gpt-5-chat-latest", "qwen3", "gpt-x", "o", "o3x", "p3"]
    assert [model for model in do + do_not if reasons(model)] == do


def test_endpoints_of_one_s_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").write_text(
        '{"models": {"endpoints": {"mine": {"url": "http://10.0.0.7/v1", "key": "MY_KEY",'
        ' "models": {"big": {"window": 9000, "input": 1, "output": 2, "tier": "small"}}}}}}'
    )
    environ = {"TUI_AGENT__MODELS__ENDPOINTS": '{"other": {"url": "http://localhost:9/v1"}}'}
    settings = load_settings(home, None, environ=environ)
    assert sorted(settings.models.endpoints) == ["mine", "other"]
    catalogue = catalogue_of(settings)
    profile = catalogue.quick_profile("mine:big")
    assert (profile.window, profile.tier, profile.source) == (9000, "small", "settings")
    assert profile.prices is not None
    assert (catalogue.missing_key("mine:big"), catalogue.missing_key("other:x")) == ("MY_KEY", None)
    assert str(catalogue.resolve("mine:org/model:q4")) == "mine:org/model:q4"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"mine": {}}', "missing required field `url`"),
        ('{"mine": {"url": "x", "modles": {}}}', "modles"),
        ('{"Mine!": {"url": "x"}}', "endpoints by name"),
        ('{"mine": {"url": "x", "api": "soap"}}', "soap"),
        ("[1]", "endpoints by name"),
    ],
)
def test_an_endpoint_that_is_none_says_why(text: str, problem: str, tmp_path: Path) -> None:
    from tui_agent.settings import SettingsError

    with pytest.raises(SettingsError, match=problem):
        load_settings(tmp_path, None, overrides={"models.endpoints": text})


def test_an_endpoint_may_stand_in_for_a_known_server_but_not_for_a_provider() -> None:
    named = Catalogue({"groq": Endpoint(url="http://10.0.0.7/v1", models={"x": EndpointModel(window=5)})})
    assert named.quick_profile("groq:x").window == 5
    with pytest.raises(ModelError, match="that name is taken"):
        Catalogue({"anthropic": Endpoint(url="http://10.0.0.7/v1")})


async def test_a_mistake_of_ours_is_neither_hidden_nor_paid_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer(Script(after=Step(text="ok")), make="deepseek") as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("deepseek:deepseek-v4-pro")) as model:

            def broken(*_: object) -> bytes:
                raise ValueError("a mistake")

            monkeypatch.setattr("tui_agent.models.openai.chat_request._encoded", broken)
            with pytest.raises(AdapterFailed, match="a mistake"):
                await finish(stream_with_retries(model, request(user("go"))))
        assert server.model_requests == []


async def test_leaving_a_call_that_was_not_answered_yet_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def silent(_: Request, exchange: Exchange) -> None:
        came.set()
        with contextlib.suppress(Exception):
            await exchange.wait(60)
        left.set()

    for name in ("openai:x", "claude-opus-5-5", "gemini-3.8-flash"):
        came.clear()
        left.clear()
        async with answered_by(silent, name, monkeypatch.setenv) as model:
            task = asyncio.ensure_future(finish(model.stream(request(user("go")))))
            await came.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            async with asyncio.timeout(60):
                await left.wait()


async def test_a_client_whose_making_was_left_is_closed_all_the_same() -> None:
    made: list[object] = []
    closed: list[object] = []

    class Client:
        def __init__(self) -> None:
            made.append(self)

        async def close(self) -> None:
            closed.append(self)

    connection = LazyClient(Client)
    waiting = asyncio.ensure_future(connection.client())
    await asyncio.sleep(0)
    waiting.cancel()
    await until(waiting.done)
    await connection.close()
    assert closed == made
    assert len(made) == 1


async def test_a_page_in_the_middle_of_a_name_is_no_api(monkeypatch: pytest.MonkeyPatch) -> None:
    async def page(_: Request, exchange: Exchange) -> None:
        await exchange.page("<html><title>Router</title></html>")

    async with answered_by(page, "llamacpp:x", monkeypatch.setenv) as model:
        assert (await model.describe()).source == "default"
        with pytest.raises(InvalidRequest, match=r"is not llama\.cpp: check LLAMACPP_BASE_URL"):
            await finish(model.stream(request(user("go"))))


async def test_nothing_at_all_is_answered_to_what_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """LM Studio's, with models in llama.cpp's format, and after the model was loaded anew with a smaller window."""
    loaded = {"id": "m", "max_context_length": 131_072, "loaded_context_length": 131_072}
    told = 36_000

    async def answer(asked: Request, exchange: Exchange) -> None:
        if asked.path == "/api/v0/models":
            await exchange.respond(200, {"data": [loaded]})
        elif asked.path == "/v1/chat/completions":
            await exchange.start()
            end = {**delta("stop"), "usage": {"prompt_tokens": told, "completion_tokens": 0}}
            await exchange.send(b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(end))
            await exchange.finish()
        else:
            await exchange.respond(404, {"error": "Unexpected endpoint"})

    async with answered_by(answer, "lmstudio:m", monkeypatch.setenv) as model:
        assert (await model.describe()).window == 131_072
        _, completed = await finish(model.stream(request(user("go"))))
        assert completed.blocks == ()
        loaded["loaded_context_length"] = 32_768
        with pytest.raises(ContextOverflow, match="36,000 tokens of at most 32,768"):
            await finish(model.stream(request(user("go"))))
        assert model.profile.window == 32_768


async def test_a_conversation_goes_on_with_a_model_of_mistral_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rules are found out by their refusals, once: another model's ids, and a word right after a result."""
    asked: list[list[dict[str, Any]]] = []

    async def answer(request: Request, exchange: Exchange) -> None:
        messages = msgspec.json.decode(request.body)["messages"]
        asked.append(messages)
        ids = [call["id"] for each in messages for call in each.get("tool_calls", ())]
        ids += [each["tool_call_id"] for each in messages if each["role"] == "tool"]
        odd = next((each for each in ids if not re.fullmatch("[a-zA-Z0-9]{9}", each)), None)
        after = any((one["role"], two["role"]) == ("tool", "user") for one, two in pairwise(messages))
        if odd is not None or after:
            said = f"Tool call id was {odd} but must be a-z, A-Z, 0-9, with a length of 9."
            said = said if odd is not None else "Unexpected role 'user' after role 'tool'"
            await exchange.respond(400, {"object": "error", "message": said, "code": "3280"})
            return
        await exchange.start()
        await exchange.send(b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(delta("stop", content="ok")))
        await exchange.finish()

    calls = (ToolCall("toolu_01A", "grep", "{}"), ToolCall("abcDEF123", "grep", "{}"))
    said = (assistant(*calls), user(*(ToolResult(call.id, "found") for call in calls), "and now?"))
    async with answered_by(answer, "groq:mistral", monkeypatch.setenv) as model:
        for _ in range(2):
            await finish(model.stream(request(user("go"), *said)))
    assert len(asked) == 3
    assert [each["role"] for each in asked[-1]] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [each["tool_call_id"] for each in asked[-1] if each["role"] == "tool"][1] == "abcDEF123"


@pytest.mark.parametrize(("model", "foreign"), [("moonshotai/kimi-k2.5", r"functions\.grep:\d+"), ("m", "toolu_1")])
async def test_a_call_goes_back_under_the_id_that_it_came_with(
    model: str, foreign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kimi K2 reads the ids of earlier calls, and stops calling where they are not what it writes: `functions.NAME:N`.

    It counts the calls that it is shown, so a number may come again.
    """
    given = "functions.read_file:0"
    asked: list[bytes] = []

    async def answer(request: Request, exchange: Exchange) -> None:
        asked.append(request.body)
        call = {"id": given, "function": {"name": "read_file", "arguments": "{}"}}
        message = {"tool_calls": [call]} if len(asked) < 3 else {"content": "Done."}
        await exchange.respond(200, {"choices": [{"message": message}], "usage": {"prompt_tokens": 1}})

    async with answered_by(answer, f"openrouter:{model}", monkeypatch.setenv) as asks:
        talk = Talk(asks)
        before = ToolCall("toolu_1", "grep", "{}")
        talk.messages += [user("go"), assistant(before), user(ToolResult(before.id, "found")), assistant("Found.")]
        await talk.say("go on")
    sent = [each for each in msgspec.json.decode(asked[-1])["messages"] if each["role"] in ("assistant", "tool")]
    called = [call["id"] for each in sent for call in each.get("tool_calls", ())]
    assert called == [each["tool_call_id"] for each in sent if each["role"] == "tool"]
    assert re.fullmatch(foreign, called[0])
    assert called[1:] == [given, "functions.read_file:1"]
