"""The rules of Chat Completions: the shape of a request, the pairing of calls and answers, and the window.

Source: OpenAI's API reference (chat/create, November 2026) and its error messages; vLLM's and llama.cpp's servers for
what they word differently. Servers that are more forgiving exist; a request that passes here passes there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.servers.catalogue import ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.server import compact, parse_body, tokens_in

IMAGE_TOKENS = 765
LONGEST_ID = 40
_TOP_LEVEL = (
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
    "parallel_tool_calls", "temperature", "top_p", "stop", "seed", "user", "reasoning_effort",
)  # fmt: skip
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DATA = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")

LONGEST = {
    "openai": "max_tokens is too large: {asked}. This model supports at most {most} completion tokens, whereas you "
    "provided {asked}.",
    "groq": "`max_tokens` must be less than or equal to `{most}`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "deepseek": "Invalid max_tokens value, the valid range of max_tokens is [1, {most}]",
}
"""How those that do not shorten an answer by themselves refuse to be asked for a longer one than there can be."""

Message = dict[str, Any]


@dataclass(frozen=True)
class Checked:
    """A request that obeys the rules. ``tokens`` is the size of its prompt, ``room`` how many its answer may have."""

    body: dict[str, Any]
    spec: ModelSpec
    tokens: int
    room: int


def check(raw: bytes, models: dict[str, ModelSpec], *, make: str, issued: Collection[str] = ()) -> Checked:
    """Check a request for ``/chat/completions``. ``make``: whose server this is; ``issued``: the reasoning it gave out.

    Raises RuleBroken with the API's own error.
    """
    try:
        body = parse_body(raw)
    except ValueError as error:
        raise broken(f"We could not parse the JSON body of your request: {error}") from None
    if unknown := set(body) - set(_TOP_LEVEL):
        raise broken(f"Unrecognized request argument supplied: {sorted(unknown)[0]}")
    spec = models.get(str(body.get("model")))
    if spec is None:
        message = f"The model `{body.get('model')}` does not exist or you do not have access to it."
        raise RuleBroken(message, status=404, kind="model_not_found")
    limit = _limit(body, make)
    _check_tools(body.get("tools"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise broken("Invalid 'messages': empty array. Expected an array with minimum length 1.")
    for i, message in enumerate(messages):
        _check_message(message, i, spec, make, issued)
    _check_turns(messages)
    if limit > spec.max_output and make in LONGEST:
        raise broken(LONGEST[make].format(asked=limit, most=spec.max_output))
    tokens = prompt_tokens(body)
    if make == "llamacpp":
        if tokens >= spec.window:
            raise RuleBroken(overflow_message(make, tokens, 0, spec.window), kind="exceed_context_size_error")
    elif tokens + limit > spec.window:
        raise RuleBroken(overflow_message(make, tokens, limit, spec.window), kind="context_length_exceeded")
    return Checked(body, spec, tokens, min(limit, spec.window - tokens))


def overflow_message(make: str, tokens: int, limit: int, window: int) -> str:
    """A server's own words for a request that is too long."""
    if make == "llamacpp":
        return f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
    if make == "vllm":
        return (
            f"You passed {tokens} input tokens and requested {limit} output tokens. However, the model's context "
            f"length is only {window} tokens, resulting in a maximum input length of {max(0, window - limit)} tokens."
        )
    return (
        f"This model's maximum context length is {window} tokens. However, you requested {tokens + limit} tokens "
        f"({tokens} in the messages, {limit} in the completion). Please reduce the length of the messages or "
        "completion."
    )


def prompt_tokens(body: dict[str, Any]) -> int:
    """The size the server gives a prompt: a token per three characters, 765 for a picture."""
    tools = tokens_in(compact(body.get("tools") or ""))
    return tools + sum(message_tokens(each) for each in body["messages"])


def message_tokens(message: Message) -> int:
    """The size of one message."""
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    text = "".join(part.get("text", "") for part in parts) + str(message.get("reasoning_content", ""))
    text += "".join(compact(call["function"]) for call in message.get("tool_calls", ()))
    return 4 + tokens_in(str(text)) + IMAGE_TOKENS * len([1 for part in parts if part["type"] == "image_url"])


def _limit(body: dict[str, Any], make: str) -> int:
    if body.get("stream_options") is not None and not body.get("stream"):
        raise broken("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    if make == "openai" and "max_tokens" in body:
        raise broken("Unsupported parameter: 'max_tokens' is not supported with this model.")
    limit = body.get("max_completion_tokens", body.get("max_tokens", 1))
    if type(limit) is not int or limit < 1:
        raise broken("Invalid 'max_tokens': integer below minimum value. Expected a value >= 1.")
    return limit


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not tools:
        raise broken("Invalid 'tools': empty array. Expected an array with minimum length 1.")
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or set(function) - {"name", "description", "parameters", "strict"}:
            raise broken(f"Invalid type for 'tools[{i}].function'.")
        if not NAME.fullmatch(str(function.get("name"))):
            raise broken(f"Invalid 'tools[{i}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.")
        if not isinstance(function.get("parameters"), dict) or function["parameters"].get("type") != "object":
            raise broken(f"Invalid schema for function '{function['name']}': schema must be a JSON Schema of 'object'.")
        check_schema(function["parameters"], function["name"])
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        raise broken("Invalid 'tools': the names of functions must be unique.")


def check_schema(schema: Any, name: str) -> None:
    """What OpenAI refuses in a function's parameters: choices at the top, and lists without items anywhere."""
    for key in ("anyOf", "oneOf", "allOf", "enum", "not"):
        if key in schema:
            raise broken(f"Invalid schema for function '{name}': schema must not have '{key}' at the top level.")
    if place := _list_without_items(schema, ()):
        raise broken(f"Invalid schema for function '{name}': In context={place}, array schema missing items.")


def _list_without_items(value: Any, place: tuple[str, ...]) -> tuple[str, ...]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found = () if key in ("default", "enum", "const") else _list_without_items(each, (*place, str(key)))
        if found:
            return found
    return place if isinstance(value, dict) and value.get("type") == "array" and "items" not in value else ()


def _check_message(message: Any, i: int, spec: ModelSpec, make: str, issued: Collection[str]) -> None:
    where = f"messages[{i}]"
    if not isinstance(message, dict):
        raise broken(f"Invalid type for '{where}': expected an object.")
    match message.get("role"):
        case "system":
            known(message, ("role", "content"), where)
            _check_text(message, where)
            if i:
                raise broken(f"'{where}': the system message must be the first.")
        case "user":
            known(message, ("role", "content"), where)
            _check_parts(message, where, spec)
        case "assistant":
            _check_assistant(message, where, make, issued)
        case "tool":
            known(message, ("role", "content", "tool_call_id"), where)
            _check_text(message, where)
        case role:
            raise broken(f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user' and 'tool'.")


def _check_assistant(message: Message, where: str, make: str, issued: Collection[str]) -> None:
    extra = {
        "deepseek": ("reasoning_content",),
        "llamacpp": ("reasoning_content",),
        "openrouter": ("reasoning_details",),
    }
    known(message, ("role", "content", "tool_calls", *extra.get(make, ())), where)
    calls = message.get("tool_calls")
    if calls is None or message.get("content") is not None:
        _check_text(message, where)
    if calls is not None and (not isinstance(calls, list) or not calls):
        raise broken(f"Invalid '{where}.tool_calls': empty array.")
    for each in message.get("reasoning_details", ()):
        if compact(each) not in issued:
            raise broken(f"Invalid '{where}.reasoning_details': it was not given like this.")
    if make == "deepseek" and calls and "reasoning_content" not in message:
        raise broken("The `reasoning_content` in the thinking mode must be passed back to the API.")
    if not isinstance(message.get("reasoning_content", ""), str):
        raise broken(f"Invalid type for '{where}.reasoning_content'.")
    for call in calls or ():
        known(call, ("id", "type", "function"), f"{where}.tool_calls")
        known(call.get("function"), ("name", "arguments"), f"{where}.tool_calls.function")
        if call.get("type") != "function" or not isinstance(call.get("id"), str) or not call["id"]:
            raise broken(f"Missing required parameter: '{where}.tool_calls[0].id'.")
        if len(call["id"]) > LONGEST_ID:
            raise broken(f"Invalid '{where}.tool_calls[0].id': string too long. Expected at most {LONGEST_ID}.")
        if not NAME.fullmatch(str(call["function"].get("name"))):
            raise broken(f"Invalid '{where}.tool_calls[0].function.name'.")
        if not is_object(call["function"].get("arguments")):
            raise broken(f"Invalid '{where}.tool_calls[0].function.arguments': a string of a JSON object is expected.")


def _check_text(message: Message, where: str) -> None:
    if not isinstance(message.get("content"), str):
        raise broken(f"Invalid value for 'content' in '{where}': expected a string, got null.")


def _check_parts(message: Message, where: str, spec: ModelSpec) -> None:
    content = message.get("content")
    if isinstance(content, str) and content:
        return
    if not isinstance(content, list) or not content:
        raise broken(f"Invalid '{where}.content': it must not be empty.")
    for part in content:
        match part.get("type") if isinstance(part, dict) else None:
            case "text" if isinstance(part.get("text"), str) and part["text"]:
                continue
            case "image_url" if DATA.fullmatch(str(part.get("image_url", {}).get("url"))):
                if spec.capabilities and "vision" not in spec.capabilities:
                    raise broken(f"{spec.id} is not a multimodal model", kind="BadRequestError")
            case _:
                raise broken(f"Invalid '{where}.content': no such part.")


def _check_turns(messages: list[Message]) -> None:
    """Every call has its answer right after it, in any order, and every answer its call."""
    open_calls: set[str] = set()
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise broken("messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.")
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            raise broken(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {sorted(open_calls)}"
            )
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(ids)) < len(ids):
            raise broken(f"Duplicate tool call ids in messages[{i}].")
        open_calls = set(ids)
    if messages[-1]["role"] not in ("user", "tool") or open_calls:
        raise broken("The last message must be the user's or the answer to a call.")


def known(value: Any, names: Collection[str], where: str) -> None:
    """Raises RuleBroken where a value is no object, or has a field of another name."""
    if not isinstance(value, dict):
        raise broken(f"Invalid type for '{where}': expected an object.")
    if unknown := set(value) - set(names):
        raise broken(f"Unknown parameter: '{where}.{sorted(unknown)[0]}'.")


def broken(message: str, kind: str = "invalid_request_error") -> RuleBroken:
    """A refusal as OpenAI words it."""
    return RuleBroken(message, kind=kind)


def is_object(text: Any) -> bool:
    """Whether this is a text of a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False
