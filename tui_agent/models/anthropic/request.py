"""Encodes requests for Anthropic's Messages API."""

from collections.abc import Iterable, Mapping

import msgspec

from tui_agent.conversation.blocks import (
    Block,
    Image,
    Reasoning,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    valid_text,
)
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.conversation.wire import read_opaque, safe_id, safe_name
from tui_agent.models.anthropic.claude import Feature, Thinking
from tui_agent.models.encoding import Fields, MessageCache, arguments_of, encode, schema_of, unseen
from tui_agent.models.originals import original

CACHE_MARKS = 4
"""The most cache breakpoints in a request (Anthropic, prompt caching)."""

WEB_SEARCH = "web_search_20250305"
"""The tool's first version (Anthropic, web search tool): every model takes it, and it needs no other tool."""
MOST_SEARCHES = 5
COMPACT_BETA = "compact-2026-09-04"
BINDING_BETA = "thinking-binding-controls-2026-08-01"
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
MOST_INSTRUCTIONS = 16_384
"""Characters of the instructions for a summary (Anthropic, compaction on demand)."""
THINKING_BUDGET = 4096
"""Tokens of thinking for models that need a budget. Fixed, because a change invalidates the cached messages."""

_MARK: Fields = {"type": "ephemeral"}
_HOUR_MARK: Fields = {"type": "ephemeral", "ttl": "1h"}
_NOTHING: frozenset[str] = frozenset()


class AnthropicOptions(msgspec.Struct, frozen=True):
    """The parts of a request that depend on the model and its server.

    `bound`: its thinking is bound to the prefix. `diagnoses`: ask why a cache was missed. `version`: the API version of
    a cloud, which has the model in the URL instead of the body; `betas_inside`: betas go into the body.
    """

    model: str
    thinking: Thinking
    bound: bool
    diagnoses: bool = False
    without: frozenset[Feature] = frozenset()
    """The features that the server lacks."""
    version: str = ""
    betas_inside: bool = False
    effort: str = ""


def betas(options: AnthropicOptions, request: ModelRequest) -> str:
    """The ``anthropic-beta`` header's value for a request; may be empty."""
    if "betas" in options.without:
        return ""
    wanted = []
    if thinking_field(options, request.max_tokens) is not None:
        if _binds(options):
            wanted.append(BINDING_BETA)
        if options.thinking == "enabled":
            wanted.append(INTERLEAVED_BETA)
    if "compaction" not in options.without and (request.summarize is not None or has_signed_summary(request)):
        wanted.append(COMPACT_BETA)
    return ",".join(wanted)


def has_signed_summary(request: ModelRequest) -> bool:
    """Whether the conversation begins with a summary that the provider signed."""
    return bool(request.messages) and _signed_summary(request.messages[0]) is not None


def _signed_summary(message: RequestMessage) -> Fields | None:
    """The compaction block that a message begins with; None if it begins with something else."""
    first = message.blocks[0] if message.blocks else None
    block = read_opaque(first.opaque).get("compaction") if isinstance(first, Text) else None
    return msgspec.json.decode(block, type=Fields) if block else None


def thinking_field(options: AnthropicOptions, max_tokens: int) -> Fields | None:
    """The ``thinking`` parameter, None if thinking is off. Requests summaries: some models otherwise return only
    signatures.
    """
    if options.thinking == "off" or (options.thinking == "enabled" and max_tokens <= THINKING_BUDGET):
        return None
    field: Fields = {"type": options.thinking}
    if options.thinking == "enabled":
        field["budget_tokens"] = THINKING_BUDGET
    if "display" not in options.without:
        field["display"] = "summarized"
    if _binds(options):
        field["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return field


def _binds(options: AnthropicOptions) -> bool:
    """Whether to have the API drop thinking whose prefix changed, which needs a beta."""
    return options.bound and not {"binding", "betas"} & options.without


def _may_think(messages: tuple[RequestMessage, ...]) -> bool:
    """Whether the API accepts thinking with a budget here: not in a tool loop that began without thinking.

    A loop begins without it if another model made the first calls (Anthropic, extended thinking with tool use).
    """
    first: RequestMessage | None = None
    for message in reversed(messages):
        if message.role == "assistant":
            first = message
        elif not all(isinstance(block, ToolResult) for block in message.blocks):
            break
    if first is None:
        return True
    begins = next((field for block in first.blocks for field in parts_for(block, "assistant")), {})
    return begins.get("type") in ("thinking", "redacted_thinking")


class AnthropicEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: MessageCache[bytes] = MessageCache()

    def encode(self, request: ModelRequest, options: AnthropicOptions) -> bytes:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's."""
        marks = not request.one_off and "caching" not in options.without
        head: Fields = {"model": options.model, "max_tokens": request.max_tokens, "stream": True}
        if options.version:
            head = {"anthropic_version": options.version, "max_tokens": request.max_tokens}
            if options.betas_inside and (wanted := betas(options, request)):
                head["anthropic_beta"] = wanted.split(",")
        hours = request.cache_hours if "hour" not in options.without else ""
        first, rest = (_HOUR_MARK if hours else _MARK), (_HOUR_MARK if hours == "all" else _MARK)
        thinking = thinking_field(options, request.max_tokens)
        if thinking is not None and (options.thinking != "enabled" or _may_think(request.messages)):
            head["thinking"] = thinking
        if options.effort:
            head["output_config"] = {"effort": options.effort}
        if request.tools:
            head["tools"] = _tools(request.tools, first if marks and not request.system.strip() else None)
        if request.system.strip():
            mark: Fields = {"cache_control": first} if marks else {}
            head["system"] = [{"type": "text", "text": valid_text(request.system), **mark}]
        signed = "compaction" not in options.without
        messages = b",".join(self._messages(request, mark=rest if marks else None, signed=signed))
        tail = b"]}"
        if request.summarize is not None:
            asked: Fields = {"type": "summarize"}
            if request.summarize:
                asked["instructions"] = valid_text(request.summarize)[:MOST_INSTRUCTIONS]
            tail = b'],"compaction":%b}' % encode(asked)
        elif options.diagnoses and request.follows is not None:
            tail = b'],"diagnostics":%b}' % encode({"previous_message_id": request.follows or None})
        return encode(head)[:-1] + b',"messages":[' + messages + tail

    def _messages(self, request: ModelRequest, *, mark: Fields | None, signed: bool) -> Iterable[bytes]:
        deferred = frozenset(tool.name for tool in request.tools if tool.deferred)
        pieces = self._pieces.of(
            request.messages,
            lambda message, _: encode_message(message, deferred=deferred),
            variant=deferred,
            keep=not request.one_off and request.summarize is None,
        )
        marked = _marked(request) if mark is not None else frozenset()
        for index in marked:
            pieces[index] = encode_message(request.messages[index], mark=mark, deferred=deferred)
        if signed and has_signed_summary(request):
            pieces[0] = encode_signed(request.messages[0], mark=mark if 0 in marked else None, deferred=deferred)
        return filter(None, pieces)


def block_at(request: ModelRequest, place: str) -> Block | None:
    """The block at a path of the request's JSON (``messages.2.content.0``); None if there is none."""
    numbers = _numbers(place)
    messages = request.messages
    if has_signed_summary(request):
        first = messages[0]
        messages = (RequestMessage("user", first.blocks[:1]), RequestMessage("user", first.blocks[1:]), *messages[1:])
    sent = [parts for message in messages if (parts := _parts_of(message, _NOTHING))]
    if len(numbers) < 2 or numbers[0] >= len(sent):
        return None
    parts = sent[numbers[0]]
    return parts[numbers[1]][0] if numbers[1] < len(parts) else None


def encode_signed(message: RequestMessage, *, mark: Fields | None, deferred: frozenset[str]) -> bytes:
    """Encode a first message that begins with a signed summary: as a message of its own, byte for byte, before the rest
    (Anthropic, compaction on demand).
    """
    block = _signed_summary(message) or {}
    rest = encode_message(RequestMessage(message.role, message.blocks[1:]), mark=mark, deferred=deferred)
    own = encode({**block, "cache_control": mark} if mark and not rest else block)
    return b",".join(filter(None, (b'{"role":"assistant","content":[%b]}' % own, rest)))


def picture_at(request: ModelRequest, place: str) -> tuple[Image, ...]:
    """The picture at a path of the request's JSON, which has a further ``.content.1`` inside a result.

    Empty if there is none. A path to a result without a part means all its pictures.
    """
    numbers = _numbers(place)
    match block := block_at(request, place):
        case Image():
            return (block,)
        case ToolResult():
            part = numbers[2] - bool(block.text.strip()) if len(numbers) > 2 else -1
            return (block.images[part],) if 0 <= part < len(block.images) else block.images
        case _:
            return ()


def _numbers(place: str) -> list[int]:
    return [int(part) for part in place.split(".") if part.isdecimal()]


def encode_message(
    message: RequestMessage, *, mark: Fields | None = None, deferred: frozenset[str] = _NOTHING
) -> bytes:
    """Encode one message; empty if nothing of it is sent.

    `mark`: the cache breakpoint to put on its last block that can have one. `deferred` are the names of the request's
    deferred tools: results that found only such tools become references to them.
    """
    parts = _parts_of(message, deferred)
    if not parts:
        return b""
    encoded = [encode(field) for _, field in parts]
    if mark is not None:
        last = max((i for i, (block, _) in enumerate(parts) if not isinstance(block, Reasoning)), default=None)
        if last is not None:
            encoded[last] = encoded[last][:-1] + b',"cache_control":%b}' % encode(mark)
    return b'{"role":"%b","content":[%b]}' % (message.role.encode(), b",".join(encoded))


def _parts_of(message: RequestMessage, deferred: frozenset[str]) -> list[tuple[Block, Fields]]:
    """The parts of a message to send, each with its block."""
    parts: list[tuple[Block, Fields]] = []
    for block in message.blocks:
        given = original("anthropic", block)
        for each in parts_for(block, message.role, deferred) if given is None else map(_unmarked, given):
            if isinstance(block, ToolCall | ToolResult):
                named = {"id": block.id} if isinstance(block, ToolCall) else {"tool_use_id": block.call_id}
                each |= {key: safe_id(call_id) for key, call_id in named.items() if key in each}
            if each.get("type") != "text" or str(each.get("text")).strip():
                parts.append((block, each))
    # The API refuses a message that ends in thinking, as one does that was interrupted while the model was thinking, or
    # whose text is nothing but white space.
    while message.role == "assistant" and parts and isinstance(parts[-1][0], Reasoning):
        parts.pop()
    return parts


def _unmarked(fields: Fields) -> Fields:
    """A part as it was read, without the cache marks of another request."""
    content = fields.get("content")
    if isinstance(content, list):
        fields = {**fields, "content": [_unmarked(each) if isinstance(each, dict) else each for each in content]}
    return {key: value for key, value in fields.items() if key != "cache_control"}


def _marked(request: ModelRequest) -> frozenset[int]:
    """The messages to put breakpoints on: the newest one, and as many of the last edges as the limit allows."""
    if not request.messages:
        return frozenset()
    newest = len(request.messages) - 1
    room = CACHE_MARKS - 1 - bool(request.system.strip() or request.tools)
    edges = sorted({edge for edge in request.cache_edges if 0 <= edge < newest})
    return frozenset({newest, *edges[-room:]})


def _tools(tools: tuple[ToolDefinition, ...], mark: Fields | None) -> list[Fields]:
    """The tool definitions, deferred ones last, which cannot have a breakpoint (Anthropic, tool search tool)."""
    ordered = sorted(tools, key=lambda tool: tool.deferred)
    fields: list[Fields] = [
        {"type": WEB_SEARCH, "name": tool.name, "max_uses": MOST_SEARCHES}
        if tool.hosted
        else {
            "name": tool.name,
            "description": valid_text(tool.description),
            "input_schema": schema_of(tool.schema),
            **({"defer_loading": True} if tool.deferred else {}),
        }
        for tool in ordered
    ]
    loaded = sum(not tool.deferred for tool in ordered)
    if mark is not None and loaded:
        fields[loaded - 1]["cache_control"] = mark
    return fields


def parts_for(
    block: Block, role: str, deferred: frozenset[str] = _NOTHING, calls: Mapping[str, str] | None = None
) -> list[Fields]:
    """A block's parts of a message's content, at most one; `calls`: the ids under which its calls were written."""
    match block:
        case Text():
            return [{"type": "text", "text": valid_text(block.text)}] if block.text.strip() else []
        case Image():
            return [_image(block)] if role == "user" else []
        case Reasoning():
            return _reasoning(block) if role == "assistant" else []
        case ToolCall():
            name, arguments = safe_name(block.name), arguments_of(block)
            return [{"type": "tool_use", "id": safe_id(block.id), "name": name, "input": arguments}]
        case ToolResult():
            return [_result(block, (calls or {}).get(block.call_id) or safe_id(block.call_id), deferred)]


def _reasoning(block: Reasoning) -> list[Fields]:
    opaque = read_opaque(block.opaque)
    if "redacted" in opaque:
        return [{"type": "redacted_thinking", "data": opaque["redacted"]}]
    if "signature" not in opaque:
        return []
    return [{"type": "thinking", "thinking": valid_text(block.text), "signature": opaque["signature"]}]


def _result(block: ToolResult, call_id: str, deferred: frozenset[str]) -> Fields:
    if block.tools and deferred.issuperset(tool.name for tool in block.tools):
        found: list[Fields] = [{"type": "tool_reference", "tool_name": tool.name} for tool in block.tools]
        return {"type": "tool_result", "tool_use_id": call_id, "content": found}
    text = valid_text(block.text) if block.text.strip() else ""
    content: str | list[Fields] = text or NO_OUTPUT
    if block.images and not block.is_error:  # an error's content must be text alone
        content = [{"type": "text", "text": text}] if text else []
        content += [_image(image) for image in block.images]
    fields: Fields = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if block.is_error:
        fields["is_error"] = True
    return fields


def _image(image: Image) -> Fields:
    if instead := unseen(image):
        return {"type": "text", "text": instead}
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}
