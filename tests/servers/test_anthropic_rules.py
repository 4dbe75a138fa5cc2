"""Every rule of the Anthropic server bites: the API's own error, and a violation recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_client import DROP, MARK, TOOL, TOOLS, Talk, assistant, body, result, text, use, user
from tests.servers.anthropic_rules import estimate_tokens
from tests.servers.pictures import PNG
from tests.servers.script import Script, Step


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with AnthropicServer(Script.of(Step(text="Hello there.", reasoning="Greet."))) as server:
        yield Talk(server)


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown parameter": (body(max_steps=3), "max_steps: Extra inputs"),
    "sampling": (body(temperature=0.5), "sampling parameters are not supported"),
    "no max_tokens": ({"model": "claude-opus-5-5", "messages": [user("hi")]}, "max_tokens: Field required"),
    "large max_tokens": (body(max_tokens=128_001), "128001 > 128000"),
    "first role": (body([assistant("x"), user("hi")]), "first message must use"),
    "unknown role": (body([{"role": "system", "content": "x"}]), "role must be"),
    "no messages": ({"model": "claude-opus-5-5", "max_tokens": 1, "messages": []}, "at least one message"),
    "empty content": (body([user([])]), "non-empty content"),
    "empty string": (body([user("")]), "non-empty content"),
    "empty text": (body([user([text("")])]), "must be non-empty"),
    "blank text": (body([user([text(" \n")])]), "non-whitespace"),
    "unknown block field": (body([user([text("x", extra=1)])]), "text.extra: Extra inputs"),
    "block of the wrong role": (body([user([use()])]), "not permitted in user messages"),
    "unanswered call": (body([user("x"), assistant([use()]), user("y")]), "without `tool_result` blocks"),
    "answered late": (
        body([user("x"), assistant([use()]), user("y"), user([result()])]),
        "messages.1: `tool_use` ids were found without",
    ),
    "results not first": (
        body([user("x"), assistant([use()]), user([text("y"), result()])]),
        "without `tool_result` blocks",
    ),
    "one of two unanswered": (
        body([user("x"), assistant([use("a"), use("b")]), user([result("a")])]),
        "blocks immediately after: b",
    ),
    "unknown result": (body([user([result("zzz")])]), "unexpected `tool_use_id`"),
    "answered twice": (body([user("x"), assistant([use()]), user([result(), result()])]), "single result"),
    "repeated id": (
        body([user("x"), assistant([use()]), user([result()]), assistant([use()]), user([result()])]),
        "ids must be unique",
    ),
    "bad id": (body([user("x"), assistant([use("a.b")]), user([result("a.b")])]), "should match pattern"),
    "input not an object": (body([user("x"), assistant([use(input="{")]), user([result()])]), "valid dictionary"),
    "prefill": (body([user("x"), assistant("The answer is")]), "does not support assistant message prefill"),
    "open loop without thinking": (
        body(
            [user("x"), assistant([use()]), user([result()])],
            model="claude-haiku-4-5",
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=2000,
        ),
        "a final `assistant` message must start with a thinking block",
    ),
    "thinking last": (
        body([user("x"), assistant([{"type": "thinking", "thinking": "", "signature": "x"}]), user("y")]),
        "final block in an assistant message cannot be `thinking`",
    ),
    "forged signature": (
        body([user("x"), assistant([{"type": "thinking", "thinking": "", "signature": "AAAA"}, text("y")]), user("z")]),
        "messages.1.content.0: Invalid `signature`",
    ),
    "five breakpoints": (body([user([text(str(i), **MARK) for i in range(5)])]), "maximum of 4 blocks"),
    "breakpoints everywhere": (
        body(
            [user([text("x", **MARK), text("y", **MARK)])],
            tools=[{**TOOL, **MARK}],
            system=[text("s", **MARK)],
            **MARK,
        ),
        "Found 5",
    ),
    "breakpoint on thinking": (
        body([user("x"), assistant([{"type": "thinking", "thinking": "", "signature": "", **MARK}, text("y")])]),
        "cache_control: Extra inputs",
    ),
    "breakpoint on empty text": (body([user([text("", **MARK)])]), "cannot be set for empty text"),
    "longer life after shorter": (
        body([user([text("x", **MARK), text("y", cache_control={"type": "ephemeral", "ttl": "1h"})])]),
        "must not come after",
    ),
    "tool name": (body(tools=[{**TOOL, "name": "read file"}]), "tools.0.custom.name"),
    "tool schema": (body(tools=[{**TOOL, "input_schema": {"type": "string"}}]), "should be 'object'"),
    "tool twice": (body(tools=[TOOL, TOOL]), "must be unique"),
    "image type": (
        body([user([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": PNG}}])]),
        "media_type: Input should be",
    ),
    "image bytes": (
        body([user([{"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}}])]),
        "does not appear to be",
    ),
    "forced tool on opus 5.5": (body(tool_choice={"type": "any"}), "not supported for this model"),
    "thinking off on opus 5.5": (body(thinking={"type": "disabled"}), "not supported for this model"),
    "binding without the beta": (body(thinking=DROP), "block_binding: Extra inputs"),
    "unknown model": (body(model="claude-opus-9"), "model: claude-opus-9"),
}


@pytest.mark.parametrize("rule", RULES)
async def test_rule(talk: Talk, rule: str) -> None:
    request, message = RULES[rule]
    status, said = await talk.refusal(request)
    assert status == (404 if rule == "unknown model" else 400)
    assert message in said
    assert talk.server.violations == [f"request 0: {status} {said}"]


async def test_what_the_rules_allow(talk: Talk) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    messages = [
        user([text("look", **MARK), image]),
        assistant([text("a"), use("a"), use("b")]),
        user([result("b", content=[text("x"), image]), result("a", is_error=True, **MARK), text("and now?")]),
    ]
    await talk.ask(messages, system=[text("s", **MARK)], tools=[*TOOLS[:-1], {**TOOLS[-1], **MARK}])
    assert talk.server.violations == []


async def test_headers_are_needed(talk: Talk) -> None:
    assert await talk.refusal(body(), **{"anthropic-version": "2020-01-01"}) == (
        400,
        'anthropic-version: "2020-01-01" is not a valid version.',
    )
    status, said = await talk.refusal(body(), **{"anthropic-beta": "no-such-beta"})
    assert (status, "no-such-beta" in said) == (400, True)
    wrong = anthropic.AsyncAnthropic(base_url=talk.server.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
        await wrong.models.list()


@pytest.mark.parametrize(
    "content", [b'"\\ud800"', b'"\xff"', b'"\\udc00x"'], ids=["high surrogate", "not UTF-8", "low surrogate"]
)
async def test_invalid_unicode(talk: Talk, content: bytes) -> None:
    raw = b'{"model":"claude-opus-5-5","max_tokens":9,"messages":[{"role":"user","content":%b}]}' % content
    headers = {"x-api-key": talk.server.api_key, "anthropic-version": "2026-10-21", "content-type": "application/json"}
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{talk.server.url}/v1/messages", content=raw, headers=headers)
    assert answer.status_code == 400
    assert "not valid JSON" in answer.json()["error"]["message"]


async def test_escaped_pairs_of_surrogates_are_text(talk: Talk) -> None:
    raw = b'{"model":"claude-opus-5-5","max_tokens":9,"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'
    headers = {"x-api-key": talk.server.api_key, "anthropic-version": "2026-10-21", "content-type": "application/json"}
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{talk.server.url}/v1/messages", content=raw, headers=headers)
    assert answer.status_code == 200


async def test_window() -> None:
    async with AnthropicServer(Script.of(Step(text="x")), windows={"claude-opus-5-5": 500}) as server:
        talk = Talk(server)
        assert (await talk.client.models.retrieve("claude-opus-5-5")).max_input_tokens == 500
        request = body([user("a" * 3000)])
        _, said = await talk.refusal(request)
        assert said == f"prompt is too long: {estimate_tokens(request)} tokens > 500 maximum"
