"""The Anthropic Messages API on 127.0.0.1: messages, count_tokens and models.

Event, message and error shapes are those of the ``anthropic`` SDK 2.12's types.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Any, ClassVar

from typing_extensions import override

from tests.servers import signing
from tests.servers.anthropic_compaction import COMPACT_BETA, summary_of, write_block
from tests.servers.anthropic_rules import Checked, check, overflow_message, thinks
from tests.servers.anthropic_schema import BINDING_BETA
from tests.servers.cache import CacheUse
from tests.servers.catalogue import ANTHROPIC, ModelSpec
from tests.servers.faults import STATUS, RuleBroken
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ParsedRequest, Said, Step, parsed
from tests.servers.server import Event, ProtocolServer, Reply, compact, pieces, tokens_in, within
from tests.servers.wire import Exchange, Request

KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "api_error",
    529: "overloaded_error",
}  # fmt: skip
MESSAGES = {
    401: "invalid x-api-key",
    403: "Your API key does not have permission to use the specified resource.",
    404: "model: x",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your organization's rate limit of 50 requests per minute.",
    500: "Internal server error",
    503: "Service temporarily unavailable",
    529: "Overloaded",
}
_MODEL_PATH = re.compile(r"^/v1/models/([^/]+)$")


class AnthropicServer(ProtocolServer):
    """``async with AnthropicServer(script) as server: AsyncAnthropic(base_url=server.url, api_key=server.api_key)``."""

    name = "anthropic"
    catalogue: ClassVar[tuple[ModelSpec, ...]] = ANTHROPIC

    summarises = False
    """Whether the script writes the summaries."""

    compacts = False
    """Whether on-demand compaction is offered."""

    @cached_property
    def _summarised(self) -> dict[str, int]:
        """The digests of conversations whose summary was answered, and how many requests went past it since."""
        return {}

    @cached_property
    def _summarised_again(self) -> set[str]:
        """Those whose summary was asked for once more after it had been answered."""
        return set()

    @cached_property
    def _fingerprints(self) -> dict[str, dict[str, Any]]:
        """The requests that asked for diagnostics, by the ids of their answers."""
        return {}

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_BASE_URL": self.url}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return path == "/v1/messages"

    @override
    def fields(self) -> dict[str, str]:
        return {"request-id": f"req_{len(self.requests):06d}"}

    @override
    def error(self, status: int, kind: str, message: str, retry_after: float | None = None) -> dict[str, Any]:
        error: dict[str, Any] = {"type": kind or KINDS[status], "message": message}
        return {"type": "error", "error": error, "request_id": self.fields()["request-id"]}

    @override
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        status = STATUS[fault.kind]
        default = MESSAGES.get(status, "messages: the request is invalid")
        if fault.kind == "context_overflow":
            default = overflow_message(max(tokens, spec.window + 1), spec.window)
        return RuleBroken(fault.message or default, status=status, kind=KINDS[status])

    @override
    def broken_event(self, fault: Fault) -> bytes:
        error = {"type": "overloaded_error", "message": fault.message or "Overloaded"}
        return _event("error", {"error": error}).data

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        self._check_key(request.headers)
        match request.method, request.path:
            case "POST", "/v1/messages":
                await self._messages(request, recorded, exchange)
            case "POST", "/v1/messages/count_tokens":
                checked = check(request.headers, request.body, self.models, counting=True, compacts=self.compacts)
                await exchange.respond(200, {"input_tokens": checked.tokens}, self.fields())
            case "GET", "/v1/models":
                await exchange.respond(200, self._list(request), self.fields())
            case "GET", path if found := _MODEL_PATH.match(path):
                if found[1] not in self.models:
                    raise RuleBroken(f"model: {found[1]}", status=404)
                await exchange.respond(200, self._info(self.models[found[1]], request), self.fields())
            case _:
                raise RuleBroken("Not Found", status=404)

    def _check_key(self, headers: dict[str, str]) -> None:
        # The SDK 2.x sends an API key as a bearer token; the header of older versions is still accepted.
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not key:
            raise RuleBroken("x-api-key header is required", status=401)
        if key != self.api_key:
            raise RuleBroken("invalid x-api-key", status=401)

    async def _messages(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        # One request may have been on its way while the summary was.
        late = frozenset(digest for digest, since in self._summarised.items() if since)
        again = frozenset(self._summarised_again)
        checked = check(
            request.headers,
            request.body,
            self.models,
            compacts=self.compacts,
            swapped_late=late,
            summarised_again=again,
        )
        if checked.compacting:
            self._summarised_again |= self._summarised.keys() & {checked.ends[0]}
        for digest in self._summarised.keys() & checked.passed:
            self._summarised[digest] += 1
        for entry in checked.dropped:
            self._record.dropped(f"request {recorded.number}: {entry['path']} {entry['reason']}")
        made: list[Reply] = []

        def answered(step: Step, fault: Fault | None, attempt: int) -> Reply:
            use = self.cache.use_marked(checked.spec.id, checked.segments, checked.spec.minimum_cached)
            cut = fault is not None and fault.kind == "malformed_args"
            step = within(self._summary(checked, step) if checked.compacting else step, checked.body["max_tokens"])
            nonce, missed = f"{checked.prefix}|{attempt}", self._diagnostics(checked)
            reply = Answering(checked, step, use, nonce, cut_args=cut, diagnostics=missed).reply()
            if checked.body.get("diagnostics") is not None:
                self._fingerprints[str(reply.message["id"])] = checked.body
            made.append(reply)
            return reply

        asked, streamed = parse(checked.body), bool(checked.body.get("stream"))
        await self.answer(recorded.number, asked, checked, exchange, answered, streamed=streamed)
        if made and checked.compacting and made[0].message["content"]:
            self._summarised[checked.ends[0]] = 0

    def _summary(self, checked: Checked, step: Step) -> Step:
        """The step that answers a request for a summary: the script's if that says how it ends, else one by rule."""
        if step.stop_reason is not None or self.summarises:
            return step
        return Step(text=summary_of(checked.body), delay=step.delay, held=step.held)

    def _info(self, spec: ModelSpec, request: Request) -> dict[str, Any]:
        told = model_info(spec)
        if self.compacts and COMPACT_BETA in request.headers.get("anthropic-beta", ""):
            summarize = {"supported": spec.compacts}
            told["capabilities"]["compaction"] = {"supported": spec.compacts, "summarize": summarize}
        return told

    def _diagnostics(self, checked: Checked) -> dict[str, Any] | None:
        """Where the prompt departs from that of the request named as the one before (cache diagnostics)."""
        asked = checked.body.get("diagnostics")
        if asked is None or asked.get("previous_message_id") is None:
            return None
        before, now = self._fingerprints.get(asked["previous_message_id"]), checked.body
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        changed = [name for name in ("model", "system", "tools") if not _alike(before.get(name), now.get(name))]
        changed += [] if _alike(before["messages"], now["messages"][: len(before["messages"])]) else ["messages"]
        if not changed:
            return None
        return {"cache_miss_reason": {"type": f"{changed[0]}_changed", "cache_missed_input_tokens": 1}}

    def _list(self, request: Request) -> dict[str, Any]:
        query, infos = request.query, [self._info(spec, request) for spec in self.models.values()]
        ids = [info["id"] for info in infos]
        start = ids.index(query["after_id"]) + 1 if query.get("after_id") in ids else 0
        page = infos[start : start + int(query.get("limit", "20"))]
        more = bool(page) and page[-1]["id"] != ids[-1]
        first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
        return {"data": page, "has_more": more, "first_id": first, "last_id": last}


def _alike(before: Any, now: Any) -> bool:
    """Whether two values are the same but for their cache marks."""
    if before == now:
        return True
    if isinstance(before, dict) and isinstance(now, dict):
        names = before.keys() - {"cache_control"}
        return names == now.keys() - {"cache_control"} and all(_alike(before[name], now[name]) for name in names)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_alike, before, now))
    return False


class Answering:
    """Turns one step into a message and its events."""

    def __init__(
        self,
        checked: Checked,
        step: Step,
        use: CacheUse,
        nonce: str,
        *,
        cut_args: bool = False,
        diagnostics: dict[str, Any] | None = None,
    ) -> None:
        self._checked = checked
        self._step = step
        self._use = use
        self._nonce = nonce
        self._cut_args = cut_args
        self._diagnostics = diagnostics

    def reply(self) -> Reply:
        step = self._step
        reason = step.stop_reason or ("tool_use" if step.calls else "end_turn")
        if self._checked.compacting and reason == "end_turn" and step.text:
            reason = "compaction"
        declined = {"type": "refusal", "category": None, "explanation": "The request was declined."}
        details = declined if reason == "refusal" else None
        stop = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
        blocks = self._summary(reason) if self._checked.compacting else self._blocks()
        usage = {**self._input_usage(), "output_tokens": self._output_tokens()}
        if self._checked.compacting:
            usage = {**dict.fromkeys(usage, 0), "cache_creation": None, "service_tier": "standard"} | {
                "iterations": [{"type": "compaction", **usage}]
            }
        message: dict[str, Any] = {"id": f"msg_{self._id('message')}", "type": "message", "role": "assistant"}
        message |= {"model": self._checked.spec.id, "content": blocks, **stop, "usage": usage}
        if self._diagnostics is not None:
            message["diagnostics"] = self._diagnostics
        if BINDING_BETA in self._checked.betas:
            message["input_transformations"] = self._checked.dropped
        return Reply(message, self._events(message, blocks, stop, usage), _flat(usage))

    def _summary(self, reason: str) -> list[dict[str, Any]]:
        """The signed block alone; nothing if the call did not end with a text."""
        if reason != "compaction":
            return []
        checked = self._checked
        role = checked.body["messages"][-1]["role"]
        return [write_block(self._step.text, checked.spec, checked.ends, checked.head, role)]

    def _blocks(self) -> list[dict[str, Any]]:
        step, blocks = self._step, list[dict[str, Any]]()
        if step.reasoning and thinks(self._checked.body, self._checked.spec):
            shown = "" if step.redacted or not self._shows_thinking() else step.reasoning
            signature = signing.sign(self._checked.spec.id, self._checked.prefix, shown)
            block = {"type": "thinking", "thinking": shown, "signature": signature}
            blocks.append({"type": "redacted_thinking", "data": signature} if step.redacted else block)
        if pages := self._pages():
            search = f"srvtoolu_{self._id('search')}"
            blocks.append({"type": "server_tool_use", "id": search, "name": "web_search", "input": {"query": "x"}})
            blocks.append({"type": "web_search_tool_result", "tool_use_id": search, "content": pages})
        halves = [step.text] if not pages else [step.text[: len(step.text) // 2], step.text[len(step.text) // 2 :]]
        blocks += [{"type": "text", "text": text, "citations": None} for text in halves if text]
        for i, call in enumerate(step.calls):
            identifier = call.id or f"toolu_{self._id(f'call {i}')}"
            blocks.append({"type": "tool_use", "id": identifier, "name": call.name, "input": call.args})
        return blocks

    def _pages(self) -> list[dict[str, Any]]:
        if not any(tool.get("type", "").startswith("web_search_") for tool in self._checked.body.get("tools", [])):
            return []
        fields = {"type": "web_search_result", "encrypted_content": "Eo", "page_age": None}
        return [{**fields, "title": title, "url": url} for title, url in self._step.pages]

    def _shows_thinking(self) -> bool:
        display = (self._checked.body.get("thinking") or {}).get("display")
        return display == "summarized" if display else self._checked.spec.shows_thinking

    def _input_usage(self) -> dict[str, Any]:
        use = self._use
        return {
            "input_tokens": self._step.input_tokens or use.uncached,
            "cache_creation_input_tokens": use.written,
            "cache_read_input_tokens": use.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": use.written_5m,
                "ephemeral_1h_input_tokens": use.written_1h,
            },
            "service_tier": "standard",
            **({"server_tool_use": {"web_search_requests": 2}} if self._pages() else {}),
        }

    def _output_tokens(self) -> int:
        step = self._step
        arguments = "".join(call.name + compact(call.args) for call in step.calls)
        reasoning = step.reasoning if thinks(self._checked.body, self._checked.spec) else ""
        return max(1, tokens_in(reasoning + step.text + arguments))

    def _events(
        self, message: dict[str, Any], blocks: list[dict[str, Any]], stop: dict[str, Any], usage: dict[str, Any]
    ) -> list[Event]:
        start_usage = {**usage, "output_tokens": 1}
        opening = {**message, "content": [], "stop_reason": None, "stop_details": None, "usage": start_usage}
        events = [_event("message_start", {"message": opening}), _event("ping", {})]
        for index, block in enumerate(blocks):
            events += self._block_events(index, block)
        closing = {k: v for k, v in usage.items() if k not in ("cache_creation", "service_tier")}
        if self._checked.compacting:
            events[0] = _event("message_start", {"message": {**opening, "usage": {**start_usage, "iterations": None}}})
        events.append(_event("message_delta", {"delta": stop, "usage": closing}))
        events.append(_event("message_stop", {}))
        return events

    def _block_events(self, index: int, block: dict[str, Any]) -> list[Event]:
        deltas: list[dict[str, Any]]
        empty = dict(block)
        match block["type"]:
            case "thinking":
                empty |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in self._pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "text":
                empty |= {"text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in self._pieces(block["text"])]
            case "tool_use" | "server_tool_use":
                empty |= {"input": {}}
                arguments = compact(block["input"])
                arguments = arguments[: len(arguments) // 2] if self._cut_args else arguments
                # The API opens every tool input with an empty piece.
                deltas = [
                    {"type": "input_json_delta", "partial_json": piece} for piece in ["", *self._pieces(arguments)]
                ]
            case _:
                deltas = []
        whole = block["type"] == "compaction"
        return [
            _event("content_block_start", {"index": index, "content_block": empty}, paced=whole),
            *(_event("content_block_delta", {"index": index, "delta": delta}, paced=True) for delta in deltas),
            _event("content_block_stop", {"index": index}),
        ]

    def _pieces(self, text: str) -> list[str]:
        return pieces(text, self._step.piece)

    def _id(self, what: str) -> str:
        # Every attempt gets ids of its own, as from the API; the same attempt at the same place gets the same ones.
        return "01" + hashlib.sha256(f"{self._nonce}|{what}".encode()).hexdigest()[:22]


def parse(body: dict[str, Any]) -> ParsedRequest:
    """The provider-neutral view of a checked request."""
    said: list[Said] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        results = tuple(_result_text(block) for block in blocks if block["type"] == "tool_result")
        said.append(Said(message["role"], text, results))
    system = body.get("system", "")
    system = system if isinstance(system, str) else "\n".join(block["text"] for block in system)
    tools = [tool["name"] for tool in body.get("tools", [])]
    return parsed("anthropic", body, said, model=body["model"], system=system, tools=tools)


def model_info(spec: ModelSpec) -> dict[str, Any]:
    """The Models API's entry."""

    def supported(value: bool) -> dict[str, Any]:
        return {"supported": value}

    kinds = ("adaptive", "between_tools", "disabled", "enabled")
    thinking = {kind: supported(kind in spec.thinking) for kind in kinds}
    effort = {level: supported(spec.effort) for level in ("low", "medium", "high", "xhigh", "max")}
    edits = ("clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112")
    simple = ("batch", "citations", "code_execution", "image_input", "pdf_input", "structured_outputs")
    return {
        "type": "model",
        "id": spec.id,
        "display_name": spec.id.replace("-", " ").title(),
        "created_at": "2026-09-01T00:00:00Z",
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": spec.line,
        "max_input_tokens": spec.window,
        "max_tokens": spec.max_output,
        "capabilities": {
            **{name: supported(True) for name in simple},
            "context_management": {"supported": True, **{name: supported(True) for name in edits}},
            "effort": {"supported": spec.effort, **effort},
            "server_tools": {"supported": True, "web_search": supported(True), "code_execution": supported(True)},
            "thinking": {"supported": True, "types": thinking},
        },
    }


def _result_text(block: dict[str, Any]) -> str:
    content = block.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _event(name: str, data: dict[str, Any], *, paced: bool = False) -> Event:
    return Event(f"event: {name}\ndata: {compact({'type': name, **data})}\n\n".encode(), paced)


def _flat(usage: dict[str, Any]) -> dict[str, int]:
    counted = (usage.get("iterations") or [usage])[0]
    return {name: value for name, value in counted.items() if isinstance(value, int)}
