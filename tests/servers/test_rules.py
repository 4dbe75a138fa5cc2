"""Every rule of the servers bites, in the API's own words."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers import anthropic_rules, gemini_rules, ollama_rules
from tests.servers.anthropic_client import DROP, MARK, TOOL, TOOLS, assistant, body, result, text, use, user
from tests.servers.catalogue import ANTHROPIC, GEMINI, OLLAMA
from tests.servers.faults import RuleBroken
from tests.servers.gemini_rules import SENTINEL
from tests.servers.pictures import PNG

Body = dict[str, Any]
SPECS = {spec.id: spec for spec in (*ANTHROPIC, *GEMINI, *OLLAMA)}
HEADERS = {"anthropic-version": "2026-10-21", "content-type": "application/json"}


def check_anthropic(request: Body) -> None:
    anthropic_rules.check(HEADERS, json.dumps(request).encode(), SPECS)


def check_gemini(request: Body) -> None:
    gemini_rules.check(json.dumps(request).encode(), SPECS["gemini-3.8-flash"])


def check_ollama(request: Body) -> None:
    ollama_rules.check(json.dumps(request).encode(), SPECS)


def thinking(**more: object) -> Body:
    return {"type": "thinking", "thinking": "", "signature": "AAAA", **more}


def picture(kind: str) -> Body:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": PNG}}


X, CALLED, ANSWERED = user("x"), assistant([use()]), user([result()])
LATER = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
BUDGET = {"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}

CLAUDE: list[tuple[Body, str]] = [
    (body(max_steps=3), "max_steps: Extra inputs"),
    (body(temperature=0.5), "sampling parameters are not supported"),
    ({"model": "claude-opus-5-5", "messages": [X]}, "max_tokens: Field required"),
    (body(max_tokens=128_001), "128001 > 128000"),
    (body([assistant("x"), X]), "first message must use"),
    (body([{"role": "system", "content": "x"}]), "role must be"),
    ({"model": "claude-opus-5-5", "max_tokens": 1, "messages": []}, "at least one message"),
    (body([user([])]), "non-empty content"),
    (body([user("")]), "non-empty content"),
    (body([user([text("")])]), "must be non-empty"),
    (body([user([text(" \n")])]), "non-whitespace"),
    (body([user([text("x", extra=1)])]), "text.extra: Extra inputs"),
    (body([user([use()])]), "not permitted in user messages"),
    (body([X, CALLED, X]), "without `tool_result` blocks"),
    (body([X, CALLED, X, ANSWERED]), "messages.1: `tool_use` ids were found without"),
    (body([X, CALLED, user([text("y"), result()])]), "without `tool_result` blocks"),
    (body([X, assistant([use("a"), use("b")]), user([result("a")])]), "blocks immediately after: b"),
    (body([user([result("zzz")])]), "unexpected `tool_use_id`"),
    (body([X, CALLED, user([result(), result()])]), "single result"),
    (body([X, CALLED, ANSWERED, CALLED, ANSWERED]), "ids must be unique"),
    (body([X, assistant([use("a.b")]), user([result("a.b")])]), "should match pattern"),
    (body([X, assistant([use(input="{")]), ANSWERED]), "valid dictionary"),
    (body([X, assistant("The answer is")]), "does not support assistant message prefill"),
    (body([X, CALLED, ANSWERED], **BUDGET), "a final `assistant` message must start with a thinking block"),
    (body([X, assistant([thinking()]), X]), "final block in an assistant message cannot be `thinking`"),
    (body([X, assistant([thinking(), text("y")]), X]), "messages.1.content.0: Invalid `signature`"),
    (body([X, assistant([{"type": "redacted_thinking", "data": "A"}, text("y")]), X]), "Invalid `data`"),
    (body([user([text(str(i), **MARK) for i in range(5)])]), "maximum of 4 blocks"),
    (
        body([user([text(t, **MARK) for t in "xy"])], tools=[TOOL | MARK], system=[text("s", **MARK)], **MARK),
        "Found 5",
    ),
    (body([X, assistant([thinking(**MARK), text("y")])]), "cache_control: Extra inputs"),
    (body([user([text("", **MARK)])]), "cannot be set for empty text"),
    (body([user([text("x", **MARK), text("y", **LATER)])]), "must not come after"),
    (body(tools=[{**TOOL, "name": "read file"}]), "tools.0.custom.name"),
    (body(tools=[{**TOOL, "input_schema": {"type": "string"}}]), "should be 'object'"),
    (body(tools=[TOOL, TOOL]), "must be unique"),
    (body([user([picture("image/bmp")])]), "media_type: Input should be"),
    (body([user([picture("image/jpeg")])]), "does not appear to be"),
    (body(tool_choice={"type": "any"}), "not supported for this model"),
    (body(thinking={"type": "disabled"}), "not supported for this model"),
    (body(thinking=DROP), "block_binding: Extra inputs"),
    (body(model="claude-opus-9"), "model: claude-opus-9"),
]


def said(role: str, *parts: object) -> Body:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def call(name: str = "grep", *, signature: str | None = SENTINEL.decode(), **more: object) -> Body:
    part: Body = {"functionCall": {"name": name, "args": {}, **more}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def response(name: str = "grep", **more: object) -> Body:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **more}}


def contents(*contents: object, **more: object) -> Body:
    return {"contents": list(contents), **more}


def after_call(part: Body, *answers: object) -> Body:
    return contents(ASKS, said("model", part), said("user", *(answers or [response()])))


def declare(**more: object) -> Body:
    return contents(ASKS, tools=[{"functionDeclarations": [{"name": "f", **more}]}])


ASKS, SAYS = said("user", "x"), said("model", "y")
BOTH = {"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}

GOOGLE: list[tuple[Body, str]] = [
    ({"contents": []}, "contents is not specified"),
    (contents(ASKS, prompt="x"), 'Unknown name "prompt": Cannot find field'),
    (contents(said("user", {"text": "x", "type": "text"})), "Unknown name \"type\" at 'contents[0].parts[0]'"),
    (contents(ASKS, generationConfig={"maxTokens": 1}), 'Unknown name "maxTokens"'),
    (contents(SAYS, ASKS), "first turn has the role user"),
    (contents(said("system", "x")), "Please use a valid role: user, model."),
    (contents(ASKS, SAYS), "multiturn requests end with a user turn"),
    (contents(said("user")), "contents[0].parts: contents.parts must not be empty"),
    (contents(said("user", "")), "required oneof field 'data'"),
    (contents(said("user", {})), "required oneof field 'data'"),
    (after_call(call(), "y"), "number of function response parts is equal"),
    (contents(ASKS, said("model", call(), call("ls")), said("user", response())), "response parts is equal"),
    (contents(ASKS, SAYS, said("user", response())), "after a function call turn"),
    (after_call(call(), response("list_dir")), "names of the function response parts match"),
    (after_call(call(id="a"), response(id="b")), "Function response id b does not match"),
    (contents(ASKS, SAYS, said("model", call()), said("user", response())), "comes immediately after a user turn"),
    (after_call(call(signature=None)), "missing a thought_signature"),
    (after_call(call(signature="AAAA")), "Corrupted thought signature"),
    (after_call(call(signature="?")), "Base64 decoding failed"),
    (declare(name="1 f"), "Invalid function name"),
    (declare(parameters={"type": "OBJECT", "$schema": "x"}), 'Unknown name "$schema"'),
    (declare(parameters={"type": "dict"}), "type.googleapis.com/Type"),
    (declare(parameters={"type": "OBJECT", "required": ["a"]}), "property is not defined: a"),
    (contents(ASKS, generationConfig={"maxOutputTokens": 65_537}), "in the range"),
    (contents(ASKS, generationConfig=BOTH), "only set only one"),
    (contents(said("user", {"inlineData": {"mimeType": "image/bmp", "data": "AAAA"}})), "Unsupported MIME type"),
]

DEFINED = {"type": "function", "function": {"name": "grep", "parameters": {"type": "object"}}}
MADE = {"id": "c1", "function": {"index": 0, "name": "grep", "arguments": {"a": 1}}}
GO, CALLS = {"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [MADE]}
GIVES = {"role": "tool", "content": "r", "tool_name": "grep", "tool_call_id": "c1"}


def chat(*messages: object, **fields: object) -> Body:
    return {"model": "qwen3:8b", "messages": list(messages), **fields}


LOCAL: list[tuple[Body, str]] = [
    (chat(), "messages"),
    (chat({"role": "model", "content": "x"}), "invalid role"),
    (chat({"role": "user", "content": [{"text": "x"}]}), "of type string"),
    (chat({**GO, "images": ["!"]}), "base64"),
    (chat({**GO, "name": "y"}), "unknown fields"),
    (chat({"role": "user", "content": ""}), "is empty"),
    (chat(GO, {"role": "system", "content": "x"}), "not the first"),
    (chat(GO, CALLS), "last message"),
    (chat(GO, CALLS, GO), "have no answer"),
    (chat(GO, GIVES), "answers no call"),
    (chat(GO, CALLS, {**GIVES, "tool_name": "x"}), "answers no call"),
    (chat(GO, {"role": "assistant", "content": "x"}), "last message"),
    (chat(GO, options={"num_ctx": "8192"}), "integer"),
    (chat(GO, options={"n_ctx": 8192}), "unknown fields"),
    (chat(GO, max_tokens=5), "unknown fields"),
    (chat(GO, truncate="no"), "type bool"),
    (chat(GO, tools=[{"name": "x"}]), "invalid tool"),
    (chat(GO, model="tinyllama", tools=[DEFINED]), "does not support tools"),
    (chat(GO, model="gemma4:12b", think=True), "does not support thinking"),
    (chat({**GO, "images": ["aGk="]}), "image input is not supported"),
    (chat(GO, model="nobody"), "not found"),
]
RULES = [
    *((check_anthropic, request, message) for request, message in CLAUDE),
    *((check_gemini, request, message) for request, message in GOOGLE),
    *((check_ollama, request, message) for request, message in LOCAL),
]


@pytest.mark.parametrize(("check", "request_", "message"), RULES, ids=[message for *_, message in RULES])
def test_a_rule_that_is_broken_is_named(check: Callable[[Body], None], request_: Body, message: str) -> None:
    with pytest.raises(RuleBroken) as broken:
        check(request_)
    assert message in broken.value.message
    assert broken.value.status == (404 if message in ("not found", "model: claude-opus-9") else 400)


def test_what_the_rules_allow() -> None:
    image = picture("image/png")
    marked = result("a", is_error=True, **MARK)
    messages = [
        user([text("look", **MARK), image]),
        assistant([text("a"), use("a"), use("b")]),
        user([result("b", content=[text("x"), image]), marked, text("and now?")]),
    ]
    check_anthropic(body(messages, system=[text("s", **MARK)], tools=[*TOOLS[:-1], {**TOOLS[-1], **MARK}]))
    seen = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    called = said("model", "y", call(signature=base64.b64encode(SENTINEL).decode()), call("ls", signature=None))
    answers = said("user", response("ls"), response())
    check_gemini(contents(said("user", "x", seen), called, answers, said("user", "one thing more")))
    unsigned = json.dumps(after_call(call(signature=None))).encode()
    gemini_rules.check(unsigned, SPECS["gemini-2.5-pro"])


@pytest.mark.parametrize("content", [b'"\\ud800"', b'"\xff"', b'"\\udc00x"'])
def test_text_that_is_no_unicode_is_no_json(content: bytes) -> None:
    raw = b'{"model":"claude-opus-5-5","max_tokens":9,"messages":[{"role":"user","content":%b}]}'
    anthropic_rules.check(HEADERS, raw % b'"\\ud83d\\ude00"', SPECS)
    with pytest.raises(RuleBroken, match="not valid JSON"):
        anthropic_rules.check(HEADERS, raw % content, SPECS)


@pytest.mark.parametrize(
    ("header", "said_so"),
    [
        ({"anthropic-version": "2020-01-01"}, '"2020-01-01" is not a valid version'),
        ({"anthropic-beta": "no-such-beta"}, "`no-such-beta`"),
        ({"content-type": "text/plain"}, "should be application/json"),
    ],
)
def test_headers_are_needed(header: dict[str, str], said_so: str) -> None:
    with pytest.raises(RuleBroken, match=said_so):
        anthropic_rules.check({**HEADERS, **header}, json.dumps(body()).encode(), SPECS)


def test_a_prompt_of_ollama_s_that_is_too_long_is_cut_unless_that_is_refused() -> None:
    long = {"role": "user", "content": "word " * 3_000}
    told = [{"role": "system", "content": "You help."}, long, {"role": "assistant", "content": "ok"}, GO]
    found = ollama_rules.check(json.dumps(chat(*told)).encode(), SPECS)
    assert (found.context, found.cut > 4_000, found.tokens < 100) == (4_096, True, True)
    kept = json.dumps(chat(long, truncate=False, shift=False)).encode()
    assert ollama_rules.check(kept, SPECS, legacy=True).cut > 0
    with pytest.raises(RuleBroken, match=r"exceeds the available context size \(4096 tokens\)"):
        ollama_rules.check(kept, SPECS)
