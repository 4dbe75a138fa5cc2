"""The rules of OpenAI's Responses API without storage: items, the pairing of calls and outputs, reasoning as it came.

Source: OpenAI's API reference (responses/create, November 2026), its guides on reasoning and on conversation state, and
its error messages.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.servers.catalogue import ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.openai_chat_rules import DATA, IMAGE_TOKENS, NAME, Checked, broken, check_schema, is_object, known
from tests.servers.server import compact, parse_body, tokens_in

LONGEST_ID = 64
_TOP_LEVEL = (
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "store", "include",
    "max_output_tokens", "reasoning", "prompt_cache_key", "previous_response_id", "temperature", "top_p", "text",
)  # fmt: skip

_COMPACT = ("model", "input", "instructions", "previous_response_id", "prompt_cache_key")

Item = dict[str, Any]


def check(raw: bytes, models: dict[str, ModelSpec], issued: Collection[str], *, answers: bool = True) -> Checked:
    """Check a request for ``/responses``, or for ``/responses/compact`` if nothing `answers` it; ``issued`` has the
    reasoning and compaction items that the server gave out, these after their model.

    Raises RuleBroken with the API's own error.
    """
    try:
        body = parse_body(raw)
    except ValueError as error:
        raise broken(f"We could not parse the JSON body of your request: {error}") from None
    if unknown := set(body) - set(_TOP_LEVEL if answers else _COMPACT):
        raise broken(f"Unknown parameter: '{sorted(unknown)[0]}'.")
    spec = models.get(str(body.get("model")))
    if spec is None:
        message = f"The requested model '{body.get('model')}' does not exist."
        raise RuleBroken(message, kind="model_not_found")
    if answers:
        _check_options(body, spec)
    items = body.get("input")
    if not isinstance(items, list) or not items:
        raise broken("One of 'input' or 'previous_response_id' must be provided.")
    for i, item in enumerate(items):
        _check_item(item, f"input[{i}]", spec, issued)
    _check_order(items, answers=answers)
    tokens = prompt_tokens(body)
    if tokens >= spec.window:
        raise RuleBroken(OVERFLOW, kind="context_length_exceeded")
    return Checked(body, spec, tokens, min(body.get("max_output_tokens", spec.max_output), spec.window - tokens))


OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."


NOT_KEPT = (
    "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to "
    "true, or remove this item from your input."
)
"""Of reasoning that comes without its encrypted content (github.com/anomalyco/opencode, issues 7724 and 8987)."""


def unverified(item: Item) -> str:
    """As users of the API saw it, shortened by the API (github.com/openai/codex, issue 8145)."""
    sealed = item["encrypted_content"]
    return f"The encrypted content {sealed[:4]}...{sealed[-4:]} could not be verified."


def prompt_tokens(body: dict[str, Any]) -> int:
    """The size the server gives a prompt: a token per three characters, 765 for a picture."""
    head = tokens_in(compact(body.get("tools") or "") + body.get("instructions", ""))
    return head + sum(item_tokens(item) for item in body["input"])


def item_tokens(item: Item) -> int:
    """The size of one item; encrypted reasoning counts as what it holds."""
    content = item.get("content") or item.get("output") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = "".join(part.get("text", "") for part in parts) + item.get("arguments", "") + item.get("name", "")
    text += "".join(part["text"] for part in item.get("summary", ()))
    return 4 + tokens_in(str(text)) + IMAGE_TOKENS * len([1 for part in parts if part["type"] == "input_image"])


def _check_options(body: dict[str, Any], spec: ModelSpec) -> None:
    limit: object = body.get("max_output_tokens", 16)
    if not isinstance(limit, int) or limit < 16:
        raise broken(f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, got {limit}.")
    reasons = "reasoning" in spec.thinking
    if not reasons and "reasoning" in body:
        raise broken("Unsupported parameter: 'reasoning.summary' is not supported with this model.")
    if not reasons and "reasoning.encrypted_content" in body.get("include", ()):
        raise broken("Encrypted content is not supported with this model.")
    if body.get("store") is not False:
        raise broken("Store must be set to false: this organization keeps no data.")
    for i, tool in enumerate(body.get("tools") or ()):
        if tool == {"type": "web_search"}:
            continue
        known(tool, ("type", "name", "description", "parameters", "strict"), f"tools[{i}]")
        if tool.get("type") != "function" or not NAME.fullmatch(str(tool.get("name"))):
            raise broken(f"Invalid 'tools[{i}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'.")
        if not isinstance(tool.get("parameters"), dict) or tool["parameters"].get("type") != "object":
            raise broken(f"Invalid schema for function '{tool['name']}': schema must be a JSON Schema of 'object'.")
        check_schema(tool["parameters"], tool["name"])


def _check_item(item: Any, where: str, spec: ModelSpec, issued: Collection[str]) -> None:
    if not isinstance(item, dict):
        raise broken(f"Invalid type for '{where}': expected an object.")
    match item.get("type"):
        case "message":
            answer = item.get("role") == "assistant"
            known(item, ("type", "role", "content", *(("phase", "status") if answer else ())), where)
            kinds = {"user": ("input_text", "input_image"), "assistant": ("output_text",)}.get(
                str(item.get("role")), ()
            )
            _check_parts(item.get("content"), kinds, where)
            # The reference wants a status, too, which OpenAI itself does without.
            if answer and any("annotations" not in it for it in item["content"]):
                raise broken(f"Missing required parameter: '{where}.content[0].annotations'.")
        case "reasoning":
            known(item, ("type", "id", "summary", "encrypted_content"), where)
            if "reasoning" not in spec.thinking:
                raise broken("Encrypted content is not supported with this model.")
            if not item.get("encrypted_content"):
                raise RuleBroken(NOT_KEPT.format(item.get("id")), status=404, kind="invalid_request_error")
            if compact(item) not in issued:
                raise broken(unverified(item), kind="invalid_encrypted_content")
        case "compaction":
            known(item, ("type", "id", "encrypted_content"), where)
            if spec.id + compact(item) not in issued:
                raise broken(unverified(item), kind="invalid_encrypted_content")
        case "function_call":
            known(item, ("type", "call_id", "name", "arguments", "id"), where)
            _check_id(item, where)
            if not NAME.fullmatch(str(item.get("name"))):
                raise broken(f"Invalid '{where}.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.")
            if not is_object(item.get("arguments")):
                raise broken(f"Invalid '{where}.arguments': a string of a JSON object is expected.")
        case "function_call_output":
            known(item, ("type", "call_id", "output"), where)
            _check_id(item, where)
            if not isinstance(item.get("output"), str):
                _check_parts(item.get("output"), ("input_text", "input_image"), where)
        case kind:
            raise broken(f"Invalid value: '{kind}' of '{where}.type'.")


def _check_id(item: Item, where: str) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not 0 < len(call_id) <= LONGEST_ID:
        raise broken(f"Invalid '{where}.call_id': expected a string of 1 to {LONGEST_ID} characters.")


def _check_parts(content: Any, kinds: Collection[str], where: str) -> None:
    if not isinstance(content, list) or not content:
        raise broken(f"Invalid '{where}.content': it must not be empty.")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        good = kind in kinds and (
            bool(DATA.fullmatch(str(part.get("image_url")))) if kind == "input_image" else bool(part.get("text"))
        )
        if not good:
            raise broken(f"Invalid value: '{kind}' in '{where}.content'. Supported values are: {sorted(kinds)}.")


def _check_order(items: list[Item], *, answers: bool) -> None:
    """Reasoning is followed by what it led to; every call is answered before the user speaks again."""
    open_calls: list[str] = []
    for i, item in enumerate(items):
        follows = items[i + 1] if i + 1 < len(items) else {}
        if item["type"] == "reasoning":
            led_to = follows.get("type") in ("reasoning", "function_call") or follows.get("role") == "assistant"
            if not led_to:
                raise broken(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                )
        elif item["type"] == "function_call":
            if item["call_id"] in open_calls:
                raise broken(f"Duplicate call_id {item['call_id']}.")
            open_calls.append(item["call_id"])
        elif item["type"] == "function_call_output":
            if item["call_id"] not in open_calls:
                raise broken(f"No tool call found for function call output with call_id {item['call_id']}.")
            open_calls.remove(item["call_id"])
        elif item.get("role") == "user" and open_calls:
            raise broken(f"No tool output found for function call {open_calls[0]}.")
    if open_calls:
        raise broken(f"No tool output found for function call {open_calls[0]}.")
    if answers and items[-1].get("role") == "assistant":
        raise broken("The last item must not be the assistant's.")
