"""The rules an Anthropic Messages request must obey beyond its shape, in the order the API is known to check them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

from tests.servers import signing
from tests.servers.anthropic_compaction import COMPACT_BETA, Seal, check_block, check_request
from tests.servers.anthropic_schema import (
    BETAS,
    BINDING_BETA,
    COUNT_TOP_LEVEL,
    TOP_LEVEL,
    VERSIONS,
    check_known,
    check_message,
    check_system,
    check_tools,
    check_top_level,
)
from tests.servers.cache import Segment, prefix_digests, recorded_digests
from tests.servers.catalogue import ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.pictures import check_pictures, picture_size
from tests.servers.server import compact, parse_body, tokens_in

IMAGE_TOKENS = 1600
"""A large picture's; a smaller one has a token per 750 pixels."""
BODY_LIMIT = 32 * 1024 * 1024


@dataclass(frozen=True)
class Checked:
    """A request that obeys the rules.

    ``segments`` is the prompt in wire order; ``prefix`` its digest, under which new thinking is signed; ``dropped`` the
    thinking blocks removed from the prompt, as ``input_transformations`` reports them; ``tokens`` the prompt's size.
    ``compacting``: it asks for a summary. ``head``: the digest of tools and system prompt; ``ends``: every digest under
    which thinking up to its end is valid, the newest first; ``passed``: those of its parts, if it carries no summary.
    """

    body: dict[str, Any]
    spec: ModelSpec
    betas: frozenset[str]
    segments: list[Segment]
    prefix: str
    dropped: list[dict[str, str]]
    tokens: int
    compacting: bool
    head: str
    ends: tuple[str, ...]
    passed: frozenset[str]


def check(
    headers: dict[str, str],
    raw: bytes,
    models: dict[str, ModelSpec],
    *,
    counting: bool = False,
    compacts: bool = False,
    swapped_late: frozenset[str] = frozenset(),
    summarised_again: frozenset[str] = frozenset(),
) -> Checked:
    """Check a request for ``/v1/messages`` (or ``count_tokens``). Raises RuleBroken with the API's own error.

    ``compacts``: on-demand compaction is offered. ``swapped_late``: the digests of conversations whose summary was
    answered; thinking after one of them that does not carry the summary is not valid behind it. ``summarised_again``:
    those whose summary was asked for more than once, as after a fork to before the first: all thinking stays valid.
    """
    version, betas = _check_headers(headers, raw)
    body = _parse(raw)
    check_top_level(body, COUNT_TOP_LEVEL if counting else TOP_LEVEL, version)
    spec = models.get(body["model"])
    if spec is None:
        raise RuleBroken(f"model: {body['model']}", status=404, kind="not_found_error")
    if not counting:
        _check_max_tokens(body, spec)
    check_system(body.get("system", ""))
    check_tools(body.get("tools", []))
    for i, message in enumerate(body["messages"]):
        check_message(message, f"messages.{i}", signed=COMPACT_BETA in betas and compacts)
    compacting = not counting and check_request(body, spec, betas, offered=compacts)
    found = check_block(body, spec)
    check_pictures(body, spec.window)
    _check_cache_marks(body)
    _check_roles(body["messages"], spec, signed=found is not None, compacting=compacting)
    _check_pairing(body["messages"])
    _check_references(body)
    _check_thinking(body, spec, betas)
    _check_open_loop(body)
    _check_tool_choice(body, spec)
    prompt = render(body)
    head = prefix_digests(prompt.head)[-1]
    chains = [prompt.digests_before()]
    if found is not None:
        chains += [prompt.digests_from(end) for end in _kept_from(body, found[1], head)]
    others = swapped_late.difference(found[1].ends if found is not None else ()) | summarised_again
    digests = [{*at, *(f"{swap}:{digest}" for swap in others for digest in at)} for at in zip(*chains, strict=True)]
    for at, recorded in zip(digests, prompt.recorded_digests_before(), strict=True):
        at.add(recorded)
    dropped = _check_signatures(body, spec, digests)
    automatic = (body.get("cache_control") or {}).get("ttl", "5m") if body.get("cache_control") else None
    segments = prompt.cached({entry["path"] for entry in dropped}, automatic)
    tokens = sum(segment.tokens for segment in segments)
    if tokens > spec.window and not counting:
        raise RuleBroken(overflow_message(tokens, spec.window))
    ends = tuple(chain[-1] for chain in chains)
    passed_by = swapped_late - summarised_again if found is None else frozenset()
    swap = next((digest for digest in reversed(chains[0]) if digest in passed_by), "")
    prefix = f"{swap}:{ends[0]}" if swap and not compacting else ends[0]
    passed = frozenset(chains[0]) if found is None and not compacting else frozenset()
    return Checked(body, spec, betas, segments, prefix, dropped, tokens, compacting, head, ends, passed)


def overflow_message(tokens: int, window: int) -> str:
    return f"prompt is too long: {tokens} tokens > {window} maximum"


def estimate_tokens(body: dict[str, Any]) -> int:
    """The size the server gives a request: a token per three characters of its JSON, 1,600 for a large picture."""
    return sum(segment.tokens for segment in render(body).cached(set(), None))


@dataclass(frozen=True)
class Prompt:
    """A request in the order the API renders it (tools, system, messages), without cache marks. A string and a block
    are different bytes, as they are on the wire. ``options`` are settings that change what the messages' cache holds.
    """

    head: list[Segment]
    options: Segment
    messages: list[list[Segment]]

    def cached(self, dropped: set[str], automatic: str | None) -> list[Segment]:
        """What the prompt cache sees, without the blocks at the paths ``dropped``; ``automatic`` marks the last one."""
        segments = [*self.head, self.options]
        for i, blocks in enumerate(self.messages):
            segments += [block for j, block in enumerate(blocks) if f"messages.{i}.content.{j}" not in dropped]
        if automatic:
            segments.append(Segment(segments[-1].data, segments.pop().tokens, automatic))
        return segments

    def digests_before(self) -> list[str]:
        """For each message, and last for the message to come, the digest of the conversation before it."""
        return _digests(self.messages, prefix_digests(self.head)[-1])

    def recorded_digests_before(self) -> list[str]:
        """The same as recorded sessions have them."""
        starts = list(accumulate(map(len, self.messages), initial=len(self.head)))
        digests = recorded_digests([*self.head, *chain.from_iterable(self.messages)])
        return [digests[start] for start in starts]

    def digests_from(self, end: str) -> list[str]:
        """The same for a conversation that begins with a summary, as if what that summarises, which ends with the
        digest ``end``, stood in its place."""
        return _digests([self.messages[0][1:], *self.messages[1:]], end)


def _digests(messages: list[list[Segment]], seed: str) -> list[str]:
    found = [seed]
    for blocks in messages:
        found.append(prefix_digests(blocks, found[-1])[-1])
    return found


def _kept_from(body: dict[str, Any], seal: Seal, head: str) -> tuple[str, ...]:
    """The digests from which the kept turns go on; none if a condition for keeping their thinking does not hold."""
    first, *others = body["messages"]
    role = first["role"] if len(_blocks(first)) > 1 else others[0]["role"] if others else ""
    return seal.ends if seal.head == head and role != seal.role else ()


def render(body: dict[str, Any]) -> Prompt:
    tools = body.get("tools", [])
    head = [_segment(tool, "tool") for tool in tools if not tool.get("defer_loading")]
    held_back = {tool["name"]: tokens_in(compact(tool)) for tool in tools if tool.get("defer_loading")}
    system = body.get("system", "")
    head += [_segment(block, "system") for block in ([system] if isinstance(system, str) else system) if block]
    thinking = {k: v for k, v in (body.get("thinking") or {}).items() if k not in ("display", "block_binding")}
    options = compact([body.get("tool_choice"), body.get("output_config"), thinking]).encode()
    messages = [[_segment(block, message["role"]) for block in _blocks(message)] for message in body["messages"]]
    for segments, message in zip(messages, body["messages"], strict=True):
        for j, name in _references(message):  # the definition is shown where it was found
            more = held_back.get(name, 0)
            segments[j] = Segment(segments[j].data, segments[j].tokens + more, segments[j].breakpoint)
    return Prompt(head, Segment(options, 0), messages)


def cache_marks(body: dict[str, Any]) -> Iterator[Any]:
    """Every cache_control in prompt order, the automatic one last."""
    system = body.get("system", "")
    blocks: list[Any] = [*body.get("tools", []), *(system if isinstance(system, list) else [])]
    for message in body["messages"]:
        for block in _blocks(message):
            inner = block.get("content") if isinstance(block, dict) else None
            blocks += [*inner, block] if isinstance(inner, list) else [block]
    for block in (*blocks, body):
        mark = block.get("cache_control") if isinstance(block, dict) else None
        if mark is not None:
            yield mark


def _segment(block: Any, role: str) -> Segment:
    if not isinstance(block, dict):
        text = compact([role, block])
        return Segment(text.encode(), tokens_in(text))
    mark = block.get("cache_control")
    block = {key: value for key, value in block.items() if key != "cache_control"}
    inner = block.get("content")
    if isinstance(inner, list):
        mark = mark or next((part["cache_control"] for part in reversed(inner) if part.get("cache_control")), None)
        inner = block["content"] = [{k: v for k, v in part.items() if k != "cache_control"} for part in inner]
    parts = inner if isinstance(inner, list) else [block]
    images = [part["source"]["data"] for part in parts if part.get("type") == "image"]
    text = compact([role, block])
    size = -(-(len(text) - sum(map(len, images))) // 3) + sum(map(_image_tokens, images))
    return Segment(text.encode(), size, mark.get("ttl", "5m") if mark else None)


def _image_tokens(data: str) -> int:
    size = picture_size(data)
    return min(IMAGE_TOKENS, -(-size[0] * size[1] // 750)) if size is not None else IMAGE_TOKENS


def _check_headers(headers: dict[str, str], raw: bytes) -> tuple[str, frozenset[str]]:
    version = headers.get("anthropic-version", "")
    if not version:
        raise RuleBroken("anthropic-version: header is required")
    if version not in VERSIONS:
        raise RuleBroken(f'anthropic-version: "{version}" is not a valid version.')
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RuleBroken("content-type: should be application/json")
    if len(raw) > BODY_LIMIT:
        raise RuleBroken("Request exceeds the maximum size", status=413, kind="request_too_large")
    betas = frozenset(beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip())
    for beta in sorted(betas - BETAS):
        raise RuleBroken(f"Unexpected value(s) `{beta}` for the `anthropic-beta` header.")
    return version, betas


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        return parse_body(raw)
    except UnicodeError as error:
        raise RuleBroken(f"The request body is not valid JSON: str is not valid UTF-8: {error}") from None
    except ValueError as error:
        raise RuleBroken(f"The request body is not valid JSON: {error}") from None


def _check_max_tokens(body: dict[str, Any], spec: ModelSpec) -> None:
    limit = body.get("max_tokens")
    if limit is None:
        raise RuleBroken("max_tokens: Field required")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise RuleBroken("max_tokens: Input should be greater than or equal to 0")
    if limit > spec.max_output:
        raise RuleBroken(
            f"max_tokens: {limit} > {spec.max_output}, which is the maximum allowed number of output tokens for "
            f"{spec.id}"
        )


def _check_cache_marks(body: dict[str, Any]) -> None:
    marks = list(cache_marks(body))
    for mark in marks:
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            raise RuleBroken("cache_control: Input should be {'type': 'ephemeral', 'ttl': '5m' or '1h'}")
    if len(marks) > 4:
        raise RuleBroken(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    lives = [mark.get("ttl", "5m") for mark in marks]
    if "1h" in lives[lives.index("5m") :] if "5m" in lives else False:
        raise RuleBroken("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _check_roles(messages: list[dict[str, Any]], spec: ModelSpec, *, signed: bool, compacting: bool) -> None:
    if messages[0]["role"] != "user" and not signed:
        raise RuleBroken('messages: first message must use the "user" role')
    for i, message in enumerate(messages):
        last = _blocks(message)[-1]
        if message["role"] == "assistant" and isinstance(last, dict) and "thinking" in last["type"]:
            raise RuleBroken(f"messages.{i}: The final block in an assistant message cannot be `{last['type']}`.")
    if messages[-1]["role"] != "assistant" or compacting:
        return
    types = [block["type"] for block in _blocks(messages[-1]) if isinstance(block, dict)]
    if "server_tool_use" in types:
        return  # a paused answer, to go on from
    if not spec.prefill:
        raise RuleBroken(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    last = _blocks(messages[-1])[-1]
    text = last if isinstance(last, str) else last.get("text", "")
    if text != text.rstrip():
        raise RuleBroken("messages: final assistant content cannot end with trailing whitespace")


def _check_pairing(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    open_ids: list[str] = []
    for i, message in enumerate(messages):
        blocks = [block for block in _blocks(message) if isinstance(block, dict)]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        leading = 0
        while leading < len(blocks) and blocks[leading]["type"] == "tool_result":
            leading += 1
        missing = [call for call in open_ids if call not in results[:leading]]
        if missing:
            raise _unanswered(i - 1, missing)
        for j, block in enumerate(blocks):
            if block["type"] == "tool_result" and block["tool_use_id"] not in open_ids:
                raise RuleBroken(
                    f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in "
                    "the previous message."
                )
        for result in results:
            if results.count(result) > 1:
                raise RuleBroken(
                    f"messages.{i}.content: each tool_use must have a single result. Found multiple `tool_result` "
                    f"blocks with id: {result}"
                )
        open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call in open_ids:
            if call in seen:
                raise RuleBroken(f"messages.{i}.content: `tool_use` ids must be unique")
            seen.add(call)
    if open_ids:
        raise _unanswered(len(messages) - 1, open_ids)


def _check_references(body: dict[str, Any]) -> None:
    """What a search found must be among the definitions that are held back (tool search tool)."""
    deferred = {tool["name"] for tool in body.get("tools", []) if tool.get("defer_loading")}
    for i, message in enumerate(body["messages"]):
        for j, name in _references(message):
            if name not in deferred:
                raise RuleBroken(f"messages.{i}.content.{j}: Tool reference '{name}' not found in available tools")


def _references(message: dict[str, Any]) -> Iterator[tuple[int, str]]:
    for j, block in enumerate(_blocks(message)):
        inner = block.get("content") if isinstance(block, dict) else None
        for part in inner if isinstance(inner, list) else []:
            if part.get("type") == "tool_reference":
                yield j, part["tool_name"]


def _unanswered(message: int, calls: list[str]) -> RuleBroken:
    return RuleBroken(
        f"messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _check_thinking(body: dict[str, Any], spec: ModelSpec, betas: frozenset[str]) -> None:
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and (not spec.effort or effort not in ("low", "medium", "high", "xhigh", "max")):
        raise RuleBroken("output_config.effort: This model does not support the effort parameter.")
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("adaptive", "enabled", "disabled", "between_tools"):
        raise RuleBroken("thinking: Input tag should be one of 'adaptive', 'enabled', 'disabled', 'between_tools'")
    if kind not in spec.thinking:
        raise RuleBroken(f'"thinking.type.{kind}" is not supported for this model.')
    known = {"type"} | ({"display"} if kind in ("adaptive", "enabled") else set())
    known |= {"budget_tokens"} if kind == "enabled" else set()
    known |= {"block_binding"} if BINDING_BETA in betas and kind in ("adaptive", "enabled") else set()
    check_known(thinking, known, f"thinking.{kind}.")
    if thinking.get("display") not in (None, "summarized", "omitted"):
        raise RuleBroken(f"thinking.{kind}.display: Input should be 'summarized' or 'omitted'")
    binding = thinking.get("block_binding") or {}
    check_known(binding, {"prefix_mismatch_behavior"}, f"thinking.{kind}.block_binding.")
    if binding.get("prefix_mismatch_behavior") not in (None, "error", "drop_block"):
        raise RuleBroken(
            f"thinking.{kind}.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'"
        )
    if kind == "enabled" and not 1024 <= int(thinking.get("budget_tokens", 0)) < body.get("max_tokens", 1 << 30):
        raise RuleBroken(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024 and less than max_tokens"
        )


def _check_open_loop(body: dict[str, Any]) -> None:
    """With thinking on a budget, a tool loop that is still open must begin with thinking."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    first = -1
    for i, message in reversed(list(enumerate(body["messages"]))):
        if message["role"] == "assistant":
            first = i
        elif any(not isinstance(block, dict) or block["type"] != "tool_result" for block in _blocks(message)):
            break
    if first >= 0 and "thinking" not in (kind := _blocks(body["messages"][first])[0]["type"]):
        raise RuleBroken(
            f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


def _check_tool_choice(body: dict[str, Any], spec: ModelSpec) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise RuleBroken("tool_choice: Input tag should be one of 'auto', 'any', 'tool', 'none'")
    if not body.get("tools"):
        raise RuleBroken("tool_choice: tool_choice may only be specified while providing tools")
    if kind in ("any", "tool") and not spec.forced_tool_choice:
        raise RuleBroken(f'tool_choice.type "{kind}" is not supported for this model.')
    if kind in ("any", "tool") and thinks(body, spec):
        raise RuleBroken("Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "tool" and choice.get("name") not in {tool["name"] for tool in body["tools"]}:
        raise RuleBroken(f"tool_choice.name: Tool '{choice.get('name')}' not found in provided tools")


def thinks(body: dict[str, Any], spec: ModelSpec) -> bool:
    """Does the model reason for this request?"""
    thinking = body.get("thinking")
    return thinking["type"] in ("adaptive", "enabled") if thinking else spec.thinks_by_default


def _check_signatures(body: dict[str, Any], spec: ModelSpec, digests: list[set[str]]) -> list[dict[str, str]]:
    """Every thinking block must be one a server issued, and on bound models must follow the conversation it was made
    in: one of the ``digests`` before its message. Returns the ``input_transformations`` entries of the blocks left out,
    with the first of which all later ones go."""
    binding = ((body.get("thinking") or {}).get("block_binding") or {}).get("prefix_mismatch_behavior")
    dropped: list[dict[str, str]] = []
    for i, message in enumerate(body["messages"]):
        for j, block in enumerate(_blocks(message)):
            if not isinstance(block, dict) or "thinking" not in block["type"]:
                continue
            path = f"messages.{i}.content.{j}"
            redacted = block["type"] == "redacted_thinking"
            seal = signing.verify(block["data" if redacted else "signature"], "" if redacted else block["thinking"])
            if seal is None:
                name = "data" if redacted else "signature"
                raise RuleBroken(f"{path}: Invalid `{name}` in `{block['type']}` block")
            if seal.model != spec.id:
                dropped.append({"type": "thinking_dropped", "path": path, "reason": "model_binding_mismatch"})
            elif spec.bound and (seal.prefix not in digests[i] or _mismatched(dropped)):
                if binding != "drop_block":
                    # As users of the API saw it (github.com/anomalyco/opencode, issue 48637).
                    raise RuleBroken(
                        f"{path}: Invalid `signature` in `{block['type']}` block. The block is bound to a different "
                        "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
                        '"drop_block". That setting requires the `thinking-binding-controls-2026-08-01` value in the '
                        "`anthropic-beta` header. The messages before it differ from those it was created with."
                    )
                dropped.append({"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"})
    return dropped


def _mismatched(dropped: list[dict[str, str]]) -> bool:
    return any(each["reason"] == "prefix_binding_mismatch" for each in dropped)


def _blocks(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return [content] if isinstance(content, str) else list(content)
