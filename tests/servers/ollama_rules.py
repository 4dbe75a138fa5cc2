"""The rules of Ollama's ``/api/chat``: the shape of a request, and what becomes of one that is too long.

Source: Ollama's server (api/types.go, server/routes.go, server/prompt.go, llm/llama_server.go, August 2026). Ollama
itself ignores fields it does not know and answers that belong to no call; here both break a rule.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.servers.catalogue import ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.server import compact, parse_body, tokens_in

IMAGE_TOKENS = 768
DEFAULT_CONTEXT = 4_096
SMALLEST_CONTEXT = 4
_TOP_LEVEL = ("model", "messages", "stream", "format", "keep_alive", "tools", "options", "think", "truncate", "shift")
_MESSAGE = ("role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id")
_ROLES = ("system", "user", "assistant", "tool")
_OPTIONS = ("num_ctx", "num_predict", "temperature", "top_k", "top_p", "seed", "stop", "num_keep")

Message = dict[str, Any]


@dataclass(frozen=True)
class Checked:
    """A request that obeys the rules. ``context`` is what the model is loaded with; ``tokens`` the size of the prompt
    that is left, ``cut`` how many tokens of it were left out."""

    body: dict[str, Any]
    spec: ModelSpec
    context: int
    tokens: int
    cut: int = 0


def check(raw: bytes, models: dict[str, ModelSpec], *, legacy: bool = False) -> Checked:
    """Check a request for ``/api/chat``. ``legacy``: a server before 0.12.6, which knows neither ``truncate`` nor
    ``shift``. Raises RuleBroken with the API's own error."""
    body = _parse(raw)
    spec = find(models, body.get("model"))
    _check_options(body)
    for i, message in enumerate(body["messages"]):
        _check_message(message, f"messages[{i}]")
    _check_turns(body["messages"])
    _check_abilities(body, spec)
    context = min(max(body.get("options", {}).get("num_ctx", DEFAULT_CONTEXT), SMALLEST_CONTEXT), spec.window)
    tokens = prompt_tokens(body, body["messages"])
    if tokens < context:
        return Checked(body, spec, context, tokens)
    if not legacy and body.get("truncate") is False:
        raise RuleBroken(overflow_message(tokens, context))
    left = _truncated(body, context)
    return Checked(body, spec, context, left, tokens - left)


def find(models: dict[str, ModelSpec], name: object) -> ModelSpec:
    """The model of this name; ``:latest`` may be left out."""
    if not isinstance(name, str) or not name:
        raise RuleBroken("model is required")
    spec = models.get(name) or models.get(f"{name}:latest")
    if spec is None:
        raise RuleBroken(f"model '{name}' not found", status=404)
    return spec


def overflow_message(tokens: int, context: int) -> str:
    """The runner's own error body, which Ollama hands on as text."""
    message = f"request ({tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return compact({"error": {**error, "n_prompt_tokens": tokens, "n_ctx": context}})


def prompt_tokens(body: dict[str, Any], messages: list[Message]) -> int:
    """The size the server gives a prompt: a token per three characters, 768 for an image. As the templates do, thinking
    counts only after the user's last word."""
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)
    return tokens_in(compact(body.get("tools") or "")) + sum(
        _message_tokens(message, thinking=i > last) for i, message in enumerate(messages)
    )


def _message_tokens(message: Message, *, thinking: bool) -> int:
    text = message.get("content") or ""
    text += message.get("thinking") or "" if thinking else ""
    text += "".join(compact(call["function"]) for call in message.get("tool_calls", ()))
    return 4 + tokens_in(text) + IMAGE_TOKENS * len(message.get("images", ()))


def _truncated(body: dict[str, Any], context: int) -> int:
    """What is left of the prompt: the system messages and the newest ones that fit, else half of the last one."""
    messages = body["messages"]
    for start in range(1, len(messages)):
        system = [message for message in messages[:start] if message["role"] == "system"]
        left = prompt_tokens(body, [*system, *messages[start:]])
        if left < context:
            return left
    return context - context // 2


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        body = parse_body(raw)
    except ValueError as error:
        raise RuleBroken(str(error)) from None
    _known(body, _TOP_LEVEL, "chat request")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RuleBroken("messages must be a list that is not empty")
    return body


def _check_options(body: dict[str, Any]) -> None:
    options = body.get("options", {})
    _known(options, _OPTIONS, "options")
    for name in ("num_ctx", "num_predict"):
        if name in options and not isinstance(options[name], int):
            raise RuleBroken(f"option {name!r} must be of type integer")
    for name in ("stream", "truncate", "shift"):
        if not isinstance(body.get(name, True), bool):
            raise RuleBroken(f"json: cannot unmarshal into Go struct field ChatRequest.{name} of type bool")
    if body.get("think", True) not in (True, False, "low", "medium", "high", "max"):
        raise RuleBroken("invalid think value")
    for tool in body.get("tools", ()):
        function = tool.get("function", {}) if isinstance(tool, dict) and tool.get("type") == "function" else {}
        if not function.get("name") or function.get("parameters", {}).get("type") != "object":
            raise RuleBroken("invalid tool: a function needs a name and parameters of type object")


def _check_message(message: Any, where: str) -> None:
    _known(message, _MESSAGE, where)
    if message.get("role") not in _ROLES:
        raise RuleBroken(f"invalid role: {message.get('role')!r}, must be one of {list(_ROLES)}")
    for name in ("content", "thinking", "tool_name", "tool_call_id"):
        if not isinstance(message.get(name, ""), str):
            raise RuleBroken(f"json: cannot unmarshal into Go struct field Message.{where}.{name} of type string")
    for image in message.get("images", ()):
        try:
            base64.b64decode(image, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise RuleBroken(f"illegal base64 data in {where}.images") from None
    for i, call in enumerate(message.get("tool_calls", ())):
        _known(call, ("id", "function"), f"{where}.tool_calls[{i}]")
        _known(call.get("function"), ("index", "name", "arguments"), f"{where}.tool_calls[{i}].function")
        if not call["function"].get("name") or not isinstance(call["function"].get("arguments"), dict):
            raise RuleBroken("json: cannot unmarshal into Go struct field ToolCallFunction.arguments of type map")


def _check_turns(messages: list[Message]) -> None:
    """Every call has its answer right after it, in any order, and every answer its call."""
    open_calls: dict[str, str] = {}
    for i, message in enumerate(messages):
        if message["role"] == "system" and i > 0:
            raise RuleBroken("a system message is not the first")
        if message["role"] == "tool":
            name = open_calls.pop(message.get("tool_call_id", ""), None)
            if name is None or name != message.get("tool_name"):
                raise RuleBroken(f"messages[{i}] answers no call before it")
            continue
        if open_calls:
            raise RuleBroken(f"messages[{i}]: {len(open_calls)} calls before it have no answer")
        open_calls = {call["id"]: call["function"]["name"] for call in message.get("tool_calls", ())}
        if not (message.get("content") or message.get("images") or open_calls):
            raise RuleBroken(f"messages[{i}] is empty")
    if messages[-1]["role"] not in ("user", "tool") or open_calls:
        raise RuleBroken("the last message is neither the user's nor the last answer to the calls before it")


def _check_abilities(body: dict[str, Any], spec: ModelSpec) -> None:
    if body.get("tools") and "tools" not in spec.capabilities:
        raise RuleBroken(f"registry.ollama.ai/library/{spec.id} does not support tools")
    if body.get("think") and "thinking" not in spec.capabilities:
        raise RuleBroken(f'"{spec.id}" does not support thinking')
    if any(message.get("images") for message in body["messages"]) and "vision" not in spec.capabilities:
        raise RuleBroken(
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
        )


def _known(value: Any, names: Collection[str], where: str) -> None:
    if not isinstance(value, dict):
        raise RuleBroken(f"json: cannot unmarshal into Go value: {where} must be an object")
    if unknown := set(value) - set(names):
        raise RuleBroken(f"{where}: unknown fields {sorted(unknown)}")
