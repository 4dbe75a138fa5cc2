"""The Gemini API on 127.0.0.1: generateContent, streamGenerateContent, countTokens and models.

Chunk, response and error shapes are those of the ``google-genai`` SDK 3.4's types and converters.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, ClassVar, Literal

from typing_extensions import override

from tests.servers import signing
from tests.servers.cache import CacheUse
from tests.servers.catalogue import GEMINI, ModelSpec
from tests.servers.faults import STATUS, RuleBroken
from tests.servers.gemini_rules import Checked, check, function_content, overflow_message
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ParsedRequest, Said, Step, parsed
from tests.servers.server import Event, ProtocolServer, Reply, compact, pieces, tokens_in, within
from tests.servers.wire import Exchange, Request

STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
}  # fmt: skip
MESSAGES = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials.",
    403: "The caller does not have permission",
    404: "models/x is not found for API version v1beta, or is not supported for generateContent.",
    413: "Request payload size exceeds the limit: 20971520 bytes.",
    429: "You exceeded your current quota, please check your plan and billing details.",
    500: "An internal error has occurred. Please retry or report.",
    503: "The model is overloaded. Please try again later.",
}
FINISH = {
    "end_turn": "STOP", "tool_use": "STOP", "stop_sequence": "STOP", "pause_turn": "STOP",
    "max_tokens": "MAX_TOKENS", "model_context_window_exceeded": "MAX_TOKENS", "refusal": "SAFETY",
}  # fmt: skip
EMPTY_FINISHES = ("SAFETY", "MALFORMED_FUNCTION_CALL", "PROHIBITED_CONTENT", "RECITATION")
_PATH = re.compile(r"^/(v1|v1beta)/models(?:/([^:/]+))?(?::(\w+))?$")
_INFO = "type.googleapis.com/google.rpc."


class GeminiServer(ProtocolServer):
    """``async with GeminiServer(script) as server:`` with ``http_options.base_url=server.url``."""

    name = "gemini"
    catalogue: ClassVar[tuple[ModelSpec, ...]] = GEMINI

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {"GEMINI_API_KEY": self.api_key, "GOOGLE_GEMINI_BASE_URL": self.url}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return path.endswith((":generateContent", ":streamGenerateContent"))

    @override
    def fields(self) -> dict[str, str]:
        return {"server": "scaffolding on HTTPServer2"}

    @override
    def error(self, status: int, kind: str, message: str, retry_after: float | None = None) -> dict[str, Any]:
        error: dict[str, Any] = {"code": status, "message": message, "status": kind or STATUSES[status]}
        if retry_after is not None:
            error["details"] = [{"@type": f"{_INFO}RetryInfo", "retryDelay": f"{retry_after:g}s"}]
        if message.startswith("API key not valid"):
            error["details"] = [{"@type": f"{_INFO}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        return {"error": error}

    @override
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        status = 503 if fault.kind == "overloaded" else STATUS[fault.kind]
        default = MESSAGES[status]
        if fault.kind == "context_overflow":
            default = overflow_message(max(tokens, spec.window + 1), spec.window)
        return RuleBroken(fault.message or default, status=status)

    @override
    def broken_event(self, fault: Fault) -> bytes:
        error = {"code": 503, "message": fault.message or MESSAGES[503], "status": "UNAVAILABLE"}
        return json.dumps({"error": error}, indent=2).encode() + b"\n"

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        self._check_key(request)
        found = _PATH.match(request.path)
        if found is None:
            raise RuleBroken("Requested entity was not found.", status=404)
        version, model, action = found.groups()
        match request.method, model, action:
            case "GET", None, None:
                await exchange.respond(200, self._list(request.query), self.fields())
            case "GET", str(), None:
                await exchange.respond(200, model_info(self._spec(model, version)), self.fields())
            case "POST", str(), "countTokens":
                checked = check(request.body, self._spec(model, version), counting=True)
                await exchange.respond(200, {"totalTokens": checked.tokens}, self.fields())
            case "POST", str(), "generateContent" | "streamGenerateContent":
                checked = check(request.body, self._spec(model, version))
                streamed = action == "streamGenerateContent"
                if streamed and request.query.get("alt") != "sse":
                    raise RuleBroken("streamGenerateContent is served with alt=sse only")
                await self._generate(checked, recorded, exchange, streamed=streamed)
            case _:
                raise RuleBroken("Requested entity was not found.", status=404)

    def _check_key(self, request: Request) -> None:
        key = request.headers.get("x-goog-api-key") or request.query.get("key")
        if not key:
            raise RuleBroken(
                "Method doesn't allow unregistered callers (callers without established identity). Please use API Key "
                "or other form of API consumer identity to call this API.",
                status=403,
            )
        if key != self.api_key:
            raise RuleBroken("API key not valid. Please pass a valid API key.")

    def _spec(self, model: str, version: str) -> ModelSpec:
        if model not in self.models:
            raise RuleBroken(
                f"models/{model} is not found for API version {version}, or is not supported for generateContent. Call "
                "ListModels to see the list of available models and their supported methods.",
                status=404,
            )
        return self.models[model]

    async def _generate(
        self, checked: Checked, recorded: RecordedRequest, exchange: Exchange, *, streamed: bool
    ) -> None:
        def reply(step: Step, _fault: Fault | None, attempt: int) -> Reply:
            use = self.cache.use_implicit(checked.spec.id, checked.segments, checked.spec.minimum_cached)
            return Answering(checked, step, use, attempt).reply()

        asked = parse(checked.body, checked.spec.id)
        await self.answer(recorded.number, asked, checked, exchange, reply, streamed=streamed)

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        infos = [model_info(spec) for spec in self.models.values()]
        start = int(query.get("pageToken") or "0")
        end = start + int(query.get("pageSize", "50"))
        page: dict[str, Any] = {"models": infos[start:end]}
        return page if end >= len(infos) else {**page, "nextPageToken": str(end)}


class Answering:
    """Turns one step into a response and its chunks."""

    def __init__(self, checked: Checked, step: Step, use: CacheUse, attempt: int) -> None:
        self._checked = checked
        limit = checked.body.get("generationConfig", {}).get("maxOutputTokens", checked.spec.max_output)
        self._step = within(step, limit)
        self._use = use
        seed = f"{checked.segments[-1].data!r}|{len(checked.segments)}|{attempt}"
        self._nonce = hashlib.sha256(seed.encode()).hexdigest()

    def reply(self) -> Reply:
        reason = self._step.stop_reason or "end_turn"
        if reason == "blocked":
            return self._blocked()
        finish = FINISH.get(reason, reason)
        groups = [] if finish in EMPTY_FINISHES else self._parts()
        usage = self._usage()
        chunks = [self._chunk([part], usage={"promptTokenCount": usage["promptTokenCount"]}) for part in groups]
        chunks.append(self._chunk(self._closing(groups, finish), finish=finish, usage=usage))
        whole = self._chunk(_joined([*groups, *self._closing(groups, finish)]), finish=finish, usage=usage)
        return Reply(whole, [_event(chunk, paced=True) for chunk in chunks], usage)

    def _blocked(self) -> Reply:
        usage = {"promptTokenCount": self._use.total, "totalTokenCount": self._use.total}
        chunk = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage, **self._names()}
        return Reply(chunk, [_event(chunk)], usage)

    def _parts(self) -> list[dict[str, Any]]:
        """The parts in the order the API streams them: thoughts, text, function calls."""
        step, parts = self._step, list[dict[str, Any]]()
        config = self._checked.body.get("generationConfig", {}).get("thinkingConfig", {})
        if config.get("includeThoughts"):
            parts += [{"text": piece, "thought": True} for piece in pieces(step.reasoning, step.piece)]
        parts += [{"text": piece} for piece in pieces(step.text, step.piece)]
        for i, call in enumerate(step.calls):
            function: dict[str, Any] = {"name": call.name, "args": call.args}
            if self._checked.spec.call_ids:
                function["id"] = hashlib.sha256(f"{self._nonce}|{i}".encode()).hexdigest()[:8]
            part: dict[str, Any] = {"functionCall": function}
            if i == 0:
                part["thoughtSignature"] = self._sign(function_content(function))
            parts.append(part)
        return parts

    def _closing(self, parts: list[dict[str, Any]], finish: str) -> list[dict[str, Any]]:
        """The last chunk's parts: without function calls the signature comes on an empty text part."""
        if finish in EMPTY_FINISHES:
            return []
        signed = self._checked.spec.signature_required and not self._step.calls and bool(parts)
        return [{"text": "", **({"thoughtSignature": self._sign("text")} if signed else {})}]

    def _sign(self, content: str) -> str:
        return signing.sign(self._checked.spec.id, self._nonce[:16], content)

    def _usage(self) -> dict[str, int]:
        step = self._step
        thoughts = tokens_in(step.reasoning)
        answered = tokens_in(step.text + "".join(call.name + compact(call.args) for call in step.calls))
        read = self._step.input_tokens or self._use.total
        usage = {"promptTokenCount": read, "candidatesTokenCount": answered}
        usage["totalTokenCount"] = read + answered + thoughts
        # Counts of zero are left out, as the API's JSON leaves out default values.
        optional = {"thoughtsTokenCount": thoughts, "cachedContentTokenCount": self._use.read}
        return usage | {name: count for name, count in optional.items() if count}

    def _chunk(
        self, parts: list[dict[str, Any]], *, usage: dict[str, int], finish: str | None = None
    ) -> dict[str, Any]:
        candidate: dict[str, Any] = {"index": 0}
        if parts:
            candidate["content"] = {"parts": parts, "role": "model"}
        if finish is not None:
            candidate["finishReason"] = finish
        if finish and self._step.pages and {"googleSearch": {}} in self._checked.body.get("tools", []):
            found = [{"web": {"uri": url, "title": title}} for title, url in self._step.pages]
            candidate["groundingMetadata"] = {"webSearchQueries": ["x", "y"], "groundingChunks": found}
        if finish == "MALFORMED_FUNCTION_CALL":
            candidate["finishMessage"] = "Malformed function call: print(default_api."
        return {"candidates": [candidate], "usageMetadata": usage, **self._names()}

    def _names(self) -> dict[str, str]:
        return {"modelVersion": self._checked.spec.id, "responseId": self._nonce[:22]}


def parse(body: dict[str, Any], model: str) -> ParsedRequest:
    """The provider-neutral view of a checked request."""
    said: list[Said] = []
    for content in body["contents"]:
        text = "\n".join(part["text"] for part in content["parts"] if "text" in part and not part.get("thought"))
        answers = [part["functionResponse"]["response"] for part in content["parts"] if "functionResponse" in part]
        role: Literal["user", "assistant"] = "assistant" if content.get("role") == "model" else "user"
        results = tuple(_response_text(a) for a in answers)
        if said and said[-1].role == role:  # responses, and what is said after them
            before = said.pop()
            text, results = "\n".join(filter(None, (before.text, text))), before.results + results
        said.append(Said(role, text, results))
    system = body.get("systemInstruction", {}).get("parts", [])
    declared = [each for tool in body.get("tools", []) for each in tool.get("functionDeclarations", ())]
    system = "\n".join(part.get("text", "") for part in system)
    return parsed("gemini", body, said, model=model, system=system, tools=[each["name"] for each in declared])


def model_info(spec: ModelSpec) -> dict[str, Any]:
    """The models endpoint's entry."""
    return {
        "name": f"models/{spec.id}",
        "version": "001",
        "displayName": spec.id.replace("-", " ").title(),
        "description": "A loopback model.",
        "inputTokenLimit": spec.window,
        "outputTokenLimit": spec.max_output,
        "supportedGenerationMethods": ["generateContent", "countTokens", "createCachedContent", "batchGenerateContent"],
        "temperature": 1,
        "topP": 0.95,
        "topK": 64,
        "maxTemperature": 2,
        "thinking": True,
    }


def _response_text(response: dict[str, Any]) -> str:
    value = response.get("output", response.get("error", response))
    return value if isinstance(value, str) else compact(value)


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Streamed pieces of text put together, as a whole response has them."""
    joined: list[dict[str, Any]] = []
    for part in parts:
        last = joined[-1] if joined else {}
        if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
            joined[-1] = {**last, **part, "text": last["text"] + part["text"]}
        elif part != {"text": ""}:
            joined.append(part)
    return joined


def _event(chunk: dict[str, Any], *, paced: bool = False) -> Event:
    return Event(f"data: {compact(chunk)}\r\n\r\n".encode(), paced)
