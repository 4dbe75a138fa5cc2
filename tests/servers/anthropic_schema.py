"""The shape of an Anthropic Messages request: known parameters, blocks and their fields.

Source: the request types of the ``anthropic`` SDK 2.12 and the Messages API reference. Only what a client-side agent
can send is accepted; server tools, documents and files are refused here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from tests.servers.faults import RuleBroken

COUNT_TOP_LEVEL = frozenset({
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control",
    "compaction", "speed",
})  # fmt: skip
TOP_LEVEL = COUNT_TOP_LEVEL | {
    "max_tokens", "stream", "stop_sequences", "metadata", "diagnostics", "service_tier", "inference_geo",
}  # fmt: skip
SAMPLING = ("temperature", "top_p", "top_k")
VERSIONS = ("2023-01-01", "2023-06-01", "2026-10-21")
NO_SAMPLING_VERSION = "2026-10-21"
BINDING_BETA = "thinking-binding-controls-2026-08-01"
BETAS = frozenset({
    BINDING_BETA,
    "interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "context-management-2025-06-27",
    "model-context-window-exceeded-2025-08-26", "compact-2026-01-12", "compact-2026-09-04",
    "prompt-caching-2024-07-31", "token-counting-2024-11-01", "extended-cache-ttl-2025-04-11",
    "structured-outputs-2025-11-13", "cache-diagnosis-2026-04-07", "token-efficient-tools-2025-02-19",
    "output-128k-2025-02-19", "thinking-token-count-2026-05-13",
})  # fmt: skip
IMAGE_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
_PROPERTY = re.compile(r"^[a-zA-Z0-9_.-]{1,64}$")
_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_SEARCH = {"server_tool_use", "web_search_tool_result"}
_CACHEABLE = frozenset({"text", "image", "tool_use", "tool_result", "compaction", *_SEARCH})
_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "text": ({"text"}, {"citations"}),
    "image": ({"source"}, {"transformations"}),
    "thinking": ({"thinking", "signature"}, set()),
    "redacted_thinking": ({"data"}, set()),
    "tool_use": ({"id", "name", "input"}, {"caller", "toolset_name"}),
    "tool_result": ({"tool_use_id"}, {"content", "is_error", "toolset_name"}),
    "server_tool_use": ({"id", "name", "input"}, {"caller"}),
    "web_search_tool_result": ({"tool_use_id", "content"}, {"caller"}),
}
_ROLE_BLOCKS = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use", *_SEARCH},
}


def check_known(keys: Iterable[str], known: frozenset[str] | set[str], where: str = "") -> None:
    for key in keys:
        if key not in known:
            raise RuleBroken(f"{where}{key}: Extra inputs are not permitted")


def check_top_level(body: dict[str, Any], known: frozenset[str], version: str) -> None:
    for name in SAMPLING:
        if name in body and version == NO_SAMPLING_VERSION:
            raise RuleBroken(f"{name}: sampling parameters are not supported in API version {version}")
    check_known(body, known | set(SAMPLING))
    if not isinstance(body.get("model"), str):
        raise RuleBroken("model: Field required")
    if "stream" in body and not isinstance(body["stream"], bool):
        raise RuleBroken("stream: Input should be a valid boolean")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise RuleBroken("messages: Field required")
    if not messages:
        raise RuleBroken("messages: at least one message is required")
    if len(messages) > 100_000:
        raise RuleBroken("messages: at most 100000 messages are allowed")


def check_tools(tools: object) -> None:
    if not isinstance(tools, list):
        raise RuleBroken("tools: Input should be a valid list")
    names: set[str] = set()
    known = {"name", "description", "input_schema", "type", "strict", "input_examples", "eager_input_streaming"}
    for i, tool in enumerate(tools):
        where = f"tools.{i}.custom."
        if isinstance(tool, dict) and tool.get("type") == "web_search_20250305":
            check_known(tool, {"type", "name", "max_uses", "allowed_domains", "user_location"}, where)
            if tool.get("name") != "web_search":
                raise RuleBroken(f"tools.{i}.web_search_20250305.name: Input should be 'web_search'")
            continue
        if not isinstance(tool, dict) or tool.get("type", "custom") not in ("custom", None):
            raise RuleBroken(f"tools.{i}: Input should be a custom tool")
        check_known(tool, known | {"cache_control", "allowed_callers", "defer_loading"}, where)
        name, schema = tool.get("name"), tool.get("input_schema")
        if not isinstance(name, str) or not _NAME.match(name):
            raise RuleBroken(f"{where}name: String should match pattern '{_NAME.pattern}'")
        if name in names:
            raise RuleBroken("tools: Tool names must be unique.")
        names.add(name)
        if not isinstance(schema, dict):
            raise RuleBroken(f"{where}input_schema: Field required")
        if schema.get("type") != "object":
            raise RuleBroken(f"{where}input_schema.type: Input should be 'object'")
        for key in ("oneOf", "allOf", "anyOf"):
            if key in schema:
                raise RuleBroken(f"{where}input_schema: oneOf, allOf, or anyOf are not supported at the top level")
        for key in schema.get("properties", {}):
            if not _PROPERTY.match(key):
                raise RuleBroken(f"{where}input_schema.properties: Property keys should match '{_PROPERTY.pattern}'")
        if not isinstance(tool.get("description", ""), str):
            raise RuleBroken(f"{where}description: Input should be a valid string")
        if tool.get("defer_loading") and tool.get("cache_control"):
            raise RuleBroken(f"{where}cache_control: cannot be set on a tool with defer_loading")
    if tools and all(tool.get("defer_loading") for tool in tools):
        raise RuleBroken("tools: At least one tool must have defer_loading=false.")


def check_system(system: object) -> None:
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        raise RuleBroken("system: Input should be a valid string or list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise RuleBroken(f"system.{i}: Input should be a text block")
        check_block(block, f"system.{i}", "system")


def check_message(message: object, where: str, *, signed: bool = False) -> None:
    """Role, content and the fields of every block; `signed`: blocks of type `compaction` are known."""
    if not isinstance(message, dict):
        raise RuleBroken(f"{where}: Input should be an object")
    check_known(message, {"role", "content"}, f"{where}.")
    role, content = message.get("role"), message.get("content")
    if role not in _ROLE_BLOCKS:
        raise RuleBroken(f'{where}: role must be "user" or "assistant", got {role!r}')
    if isinstance(content, str):
        if not content.strip():
            raise RuleBroken(f"{where}: user messages must have non-empty content")
        return
    if not isinstance(content, list):
        raise RuleBroken(f"{where}.content: Field required")
    if not content:
        raise RuleBroken(
            f"{where}: all messages must have non-empty content except for the optional final assistant message"
        )
    for j, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "compaction" and signed:
            continue
        if kind not in _ROLE_BLOCKS[role]:
            raise RuleBroken(f"{where}.content.{j}: blocks of type {kind!r} are not permitted in {role} messages")
        check_block(block, f"{where}.content.{j}", "messages")


def check_block(block: dict[str, Any], where: str, section: str) -> None:
    kind = block["type"]
    required, optional = _FIELDS[kind]
    check_known(
        block, required | optional | {"type"} | ({"cache_control"} if kind in _CACHEABLE else set()), f"{where}.{kind}."
    )
    for name in sorted(required):
        if name not in block:
            raise RuleBroken(f"{where}.{kind}.{name}: Field required")
    match kind:
        case "text":
            _check_text(block, where, section)
        case "image":
            _check_image(block["source"], where)
        case "thinking" | "redacted_thinking":
            if not all(isinstance(block[name], str) for name in required):
                raise RuleBroken(f"{where}.{kind}: Input should be a valid string")
        case "tool_use":
            _check_tool_use(block, where)
        case "tool_result":
            _check_tool_result(block, where)


def _check_text(block: dict[str, Any], where: str, section: str) -> None:
    text = block["text"]
    if not isinstance(text, str):
        raise RuleBroken(f"{where}.text.text: Input should be a valid string")
    if not text and "cache_control" in block:
        raise RuleBroken(f"{where}.text: cache_control cannot be set for empty text blocks")
    if not text:
        raise RuleBroken(f"{section}: text content blocks must be non-empty")
    if not text.strip():
        raise RuleBroken(f"{section}: text content blocks must contain non-whitespace text")


def _check_image(source: object, where: str) -> None:
    if not isinstance(source, dict) or source.get("type") != "base64":
        raise RuleBroken(f"{where}.image.source: Input should be a base64 source")
    check_known(source, {"type", "media_type", "data"}, f"{where}.image.source.base64.")
    media = source.get("media_type")
    if media not in IMAGE_MAGIC:
        known = ", ".join(f"'{name}'" for name in sorted(IMAGE_MAGIC))
        raise RuleBroken(f"{where}.image.source.base64.media_type: Input should be {known}")
    try:
        data = base64.b64decode(source.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RuleBroken(f"{where}.image.source.base64: invalid base64 data") from None
    if not data:
        raise RuleBroken(f"{where}.image.source.base64: image cannot be empty")
    if not data.startswith(IMAGE_MAGIC[media]):
        raise RuleBroken(f"{where}.image.source.base64.data: The image does not appear to be a {media} image")


def _check_tool_use(block: dict[str, Any], where: str) -> None:
    if not isinstance(block["id"], str) or not _ID.match(block["id"]):
        raise RuleBroken(f"{where}.tool_use.id: String should match pattern '{_ID.pattern}'")
    if not isinstance(block["name"], str) or not _NAME.match(block["name"]):
        raise RuleBroken(f"{where}.tool_use.name: String should match pattern '{_NAME.pattern}'")
    if not isinstance(block["input"], dict):
        raise RuleBroken(f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_tool_result(block: dict[str, Any], where: str) -> None:
    content = block.get("content", "")
    if not isinstance(block["tool_use_id"], str) or not _ID.match(block["tool_use_id"]):
        raise RuleBroken(f"{where}.tool_result.tool_use_id: String should match pattern '{_ID.pattern}'")
    if not isinstance(block.get("is_error", False), bool):
        raise RuleBroken(f"{where}.tool_result.is_error: Input should be a valid boolean")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RuleBroken(f"{where}.tool_result.content: Input should be a valid string or list")
    for k, inner in enumerate(content):
        kind = inner.get("type") if isinstance(inner, dict) else None
        if kind == "tool_reference":
            check_known(inner, {"type", "tool_name", "cache_control"}, f"{where}.tool_result.content.{k}.")
            if any(other.get("type") != kind for other in content):
                raise RuleBroken(f"{where}.tool_result.content.{k}: tool_reference blocks stand alone")
            continue
        if kind not in ("text", "image"):
            raise RuleBroken(f"{where}.tool_result.content.{k}: blocks of type {kind!r} are not permitted here")
        if kind == "image" and block.get("is_error"):
            raise RuleBroken(f"{where}.tool_result: all content must be type `text` if `is_error` is true")
        check_block(inner, f"{where}.tool_result.content.{k}", "messages")
