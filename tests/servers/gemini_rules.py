"""The rules a Gemini generateContent request must obey beyond its shape: turns, function calls, signatures, size."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.servers import signing
from tests.servers.cache import Segment
from tests.servers.catalogue import ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.gemini_schema import check_content, check_settings, signature_bytes
from tests.servers.pictures import picture_size
from tests.servers.server import compact, parse_body, tokens_in

SENTINEL = b"skip_thought_signature_validator"
IMAGE_TOKENS = 1120
BODY_LIMIT = 100 * 1024 * 1024
INLINE_LIMIT = 20 * 1024 * 1024
_OWN_DATA = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema", "partMetadata", "default"})


@dataclass(frozen=True)
class Checked:
    """A request that obeys the rules. ``segments`` is the prompt in wire order, ``tokens`` its size."""

    body: dict[str, Any]
    spec: ModelSpec
    segments: list[Segment]
    tokens: int


def check(raw: bytes, spec: ModelSpec, *, counting: bool = False) -> Checked:
    """Check a request for ``:generateContent`` (or ``:countTokens``). Raises RuleBroken with the API's own error."""
    body = _parse(raw)
    if counting:
        body = body.get("generateContentRequest", body)
    check_settings(body, spec.max_output)
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise RuleBroken("* GenerateContentRequest.contents: contents is not specified\n")
    if "systemInstruction" in body:
        check_content(body["systemInstruction"], "system_instruction", system=True)
    for i, content in enumerate(contents):
        check_content(content, f"contents[{i}]")
    if not counting:
        _check_pictures(raw, contents)
        _check_turns(contents, spec)
        _check_signatures(contents, spec)
    segments = prompt_segments(body)
    tokens = sum(segment.tokens for segment in segments)
    if tokens > spec.window and not counting:
        raise RuleBroken(overflow_message(tokens, spec.window))
    return Checked(body, spec, segments, tokens)


def _check_pictures(raw: bytes, contents: list[Any]) -> None:
    """Inline data: 20 MB with everything around it (Gemini API, image understanding), and every picture readable."""
    data = [part["inlineData"].get("data", "") for each in contents for part in each["parts"] if "inlineData" in part]
    if data and len(raw) > INLINE_LIMIT:
        raise RuleBroken(f"Request payload size exceeds the limit: {INLINE_LIMIT} bytes.")
    if any(picture_size(each) is None for each in data):
        raise RuleBroken("Unable to process input image. Please retry or report in https://developers.google.com")


def overflow_message(tokens: int, window: int) -> str:
    return f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."


def estimate_tokens(body: dict[str, Any]) -> int:
    """The size the server gives a request: a token per three characters of its JSON, 1,120 for an image."""
    return sum(segment.tokens for segment in prompt_segments(body))


def prompt_segments(body: dict[str, Any]) -> list[Segment]:
    """The prompt in the order system instruction, tools, contents. Signatures are not counted."""
    head = [body[name] for name in ("systemInstruction", "tools") if body.get(name)]
    return [_segment(piece) for piece in (*head, *body["contents"])]


def function_content(call: dict[str, Any]) -> str:
    """What the signature of a functionCall part is made over."""
    return compact([call.get("name"), call.get("args") or {}])


def camel_case(value: Any) -> Any:
    """The same request in camelCase: the API's JSON parser takes ``include_thoughts`` for ``includeThoughts``, and the
    SDK sends both. The caller's own data (arguments, responses, properties) keeps its names."""
    if isinstance(value, list):
        return [camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"(?<=[a-z])_([a-z])", lambda m: m[1].upper(), key): item for key, item in value.items()}
    return {key: item if key in _OWN_DATA else _properties(key, item) for key, item in named.items()}


def _properties(key: str, value: Any) -> Any:
    if key == "properties" and isinstance(value, dict):
        return {name: camel_case(item) for name, item in value.items()}
    return camel_case(value)


def _segment(piece: Any) -> Segment:
    text = compact(piece)
    parts = piece.get("parts", []) if isinstance(piece, dict) else []
    opaque = images = 0
    for part in parts:
        opaque += len(part.get("thoughtSignature", ""))
        if "inlineData" in part:
            opaque += len(part["inlineData"].get("data", ""))
            images += 1
    return Segment(text.encode(), tokens_in(text) - opaque // 3 + IMAGE_TOKENS * images)


def _parse(raw: bytes) -> dict[str, Any]:
    if len(raw) > BODY_LIMIT:
        raise RuleBroken("Request payload size exceeds the limit: 104857600 bytes.")
    try:
        body: dict[str, Any] = camel_case(parse_body(raw))
        return body
    except ValueError as error:
        raise RuleBroken(f"Invalid JSON payload received. {error}") from None


def _check_turns(contents: list[dict[str, Any]], spec: ModelSpec) -> None:
    if contents[0].get("role", "user") != "user":
        raise RuleBroken("Please ensure that the first turn has the role user.")
    if contents[-1].get("role", "user") != "user":
        raise RuleBroken("Please ensure that multiturn requests end with a user turn or a function response turn.")
    calls: list[dict[str, Any]] = []
    for i, content in enumerate(contents):
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        _check_answered(calls, responses)
        if spec.signature_required and 0 < len(responses) < len(content["parts"]):
            # MoonshotAI/kimi-code, issue 3274; agno-agi/agno, 9630: from 3.6 on
            raise RuleBroken("Requests ending with a model turn are not supported.")
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if calls and contents[i - 1].get("role", "user") != "user":
            raise RuleBroken(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )


def _check_answered(calls: list[dict[str, Any]], responses: list[dict[str, Any]]) -> None:
    if responses and not calls:
        raise RuleBroken("Please ensure that function response turn comes immediately after a function call turn.")
    if len(calls) != len(responses):
        raise RuleBroken(
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn."
        )
    if Counter(call["name"] for call in calls) != Counter(response["name"] for response in responses):
        raise RuleBroken(
            "Please ensure that the names of the function response parts match the names of the function call parts."
        )
    by_id = {call["id"]: call["name"] for call in calls if call.get("id")}
    for response in responses:
        if response.get("id") and by_id.get(response["id"]) != response["name"]:
            raise RuleBroken(
                f"Function response id {response['id']} does not match a function call of the turn before."
            )


def _check_signatures(contents: list[dict[str, Any]], spec: ModelSpec) -> None:
    for i, content in enumerate(contents):
        first = True
        for j, part in enumerate(content["parts"]):
            where = f"contents[{i}].parts[{j}]"
            signature = signature_bytes(part, where)
            call = part.get("functionCall")
            if call is not None and first and signature is None and spec.signature_required:
                raise RuleBroken(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{call['name']}`, position {i + 1}. Please refer to "
                    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
                )
            first = first and call is None
            if signature is None or signature == SENTINEL or part["thoughtSignature"] == SENTINEL.decode():
                continue
            seal = signing.verify(part["thoughtSignature"], function_content(call) if call is not None else "text")
            if seal is None or seal.model != spec.id:
                raise RuleBroken("Corrupted thought signature.")
