"""Servers that speak Chat Completions, on 127.0.0.1: OpenAI's own form, and those of others.

``make`` says whose server it is: ``deepseek`` and ``llamacpp`` stream ``reasoning_content``, ``openrouter`` gives
``reasoning_details`` and keep-alive comments, ``groq`` tells usage in ``x_groq``, ``vllm`` its ``max_model_len``,
``llamacpp`` its loaded window in ``/props``, ``lmstudio`` its own in ``/api/v0/models`` and calls without a piece more.
``tokenizer`` says whose way to count a request before it is sent there is, if any.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Literal

from typing_extensions import override

from tests.servers.cache import CacheUse, Segment
from tests.servers.catalogue import COMPATIBLE, OPENAI, ModelSpec
from tests.servers.faults import STATUS, RuleBroken
from tests.servers.openai_chat_rules import Checked, check, message_tokens, overflow_message, prompt_tokens
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ScriptSource, Step, parsed_chat
from tests.servers.server import Event, ProtocolServer, Reply, compact, parse_body, pieces, tokens_in, within
from tests.servers.wire import Exchange, Request

Make = Literal["openai", "deepseek", "llamacpp", "openrouter", "groq", "vllm", "lmstudio"]
KINDS = {
    400: "invalid_request_error", 401: "invalid_api_key", 403: "insufficient_permissions",
    404: "model_not_found", 413: "request_too_large", 429: "rate_limit_exceeded", 500: "server_error",
    503: "service_unavailable", 529: "overloaded",
}  # fmt: skip
MESSAGES = {
    400: "Invalid request.",
    401: "Incorrect API key provided: test-***.",
    403: "You are not allowed to use this model.",
    404: "The model `x` does not exist or you do not have access to it.",
    413: "Request body too large.",
    429: "Rate limit reached for x in organization y on requests per min (RPM): Limit 3, Used 3, Requested 1.",
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The engine is currently overloaded, please try again later.",
    529: "Overloaded.",
}
FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
VARIABLES = {
    "openai": "OPENAI", "deepseek": "DEEPSEEK", "llamacpp": "LLAMACPP", "openrouter": "OPENROUTER",
    "groq": "GROQ", "vllm": "VLLM", "lmstudio": "LMSTUDIO",
}  # fmt: skip


class ChatServer(ProtocolServer):
    """``async with ChatServer(script) as server:`` with ``environment`` set."""

    name = "openai"
    catalogue: ClassVar[tuple[ModelSpec, ...]] = (*OPENAI, *COMPATIBLE)
    make: Make = "openai"
    charged_usd = 0.0
    """What each call costs, as OpenRouter tells it in the usage; 0: it does not."""
    counts = True
    """Whether what was used is told where the request asks for it."""
    tokenizer: Literal["", "llama-server", "vllm", "llama-cpp-python"] = ""

    def __init__(self, script: ScriptSource, *, make: Make = "openai", **options: Any) -> None:
        super().__init__(script, **options)
        self.make = make
        self.issued: set[str] = set()

    @property
    @override
    def environment(self) -> dict[str, str]:
        name = VARIABLES[self.make]
        key = "LLAMA_API_KEY" if self.make == "llamacpp" else f"{name}_API_KEY"
        return {key: self.api_key, f"{name}_BASE_URL": f"{self.url}/v1"}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return path.endswith(("/chat/completions", "/responses"))

    @override
    def fields(self) -> dict[str, str]:
        return {"x-request-id": "req_1"}

    @override
    def error(self, status: int, kind: str, message: str, retry_after: float | None = None) -> dict[str, Any]:
        return {
            "error": {"message": message, "type": kind or KINDS[status], "param": None, "code": kind or KINDS[status]}
        }

    @override
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        status = STATUS[fault.kind]
        if fault.kind == "context_overflow":
            message = overflow_message(self.make, max(tokens, spec.window + 1), 1, spec.window)
            return RuleBroken(fault.message or message, kind="context_length_exceeded")
        return RuleBroken(fault.message or MESSAGES[status], status=status, kind=KINDS[status])

    @override
    def broken_event(self, fault: Fault) -> bytes:
        return _data(self.error(529, "overloaded", fault.message or MESSAGES[529]))

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        self.check_key(request)
        match request.method, request.path:
            case "GET", "/v1/models":
                await exchange.respond(200, {"object": "list", "data": [self._listed(s) for s in self.models.values()]})
            case "GET", "/props" if self.make == "llamacpp":
                window = self.models["deepseek-v4-pro"].window
                await exchange.respond(200, {"default_generation_settings": {"n_ctx": window}, "total_slots": 1})
            case "GET", "/api/v0/models" if self.make == "lmstudio":
                loaded = [{**self._listed(s), "loaded_context_length": s.window} for s in self.models.values()]
                await exchange.respond(200, {"object": "list", "data": loaded})
            case "POST", "/apply-template" if self.tokenizer == "llama-server":
                await exchange.respond(200, {"prompt": "abc" * prompt_tokens(parse_body(request.body))})
            case "POST", "/tokenize" if self.tokenizer == "llama-server":
                text = parse_body(request.body).get("content", "")
                await exchange.respond(200, {"tokens": [0] * tokens_in(text)})
            case "POST", "/tokenize" if self.tokenizer == "vllm":
                count = prompt_tokens(parse_body(request.body))
                await exchange.respond(200, {"count": count, "max_model_len": 4_096, "tokens": [0] * count})
            case "POST", "/extras/tokenize/count" if self.tokenizer == "llama-cpp-python":
                await exchange.respond(200, {"count": tokens_in(parse_body(request.body)["input"])})
            case "POST", "/apply-template" | "/tokenize" | "/extras/tokenize/count":
                # To ask whether there is a tokenizer breaks no rule.
                await exchange.respond(404, {"error": {"message": "Not Found"}})
            case "POST", "/v1/chat/completions":
                checked = check(request.body, self.models, make=self.make, issued=self.issued)
                await self._answer(checked, recorded, exchange)
            case _:
                raise RuleBroken(f"Invalid URL ({request.method} {request.path})", status=404, kind="not_found")

    def check_key(self, request: Request) -> None:
        """Raises RuleBroken where a request has no key, or a wrong one."""
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise RuleBroken(MESSAGES[401], status=401, kind="invalid_api_key")

    def _listed(self, spec: ModelSpec) -> dict[str, Any]:
        told: dict[str, Any] = {"id": spec.id, "object": "model", "created": 1, "owned_by": self.make}
        match self.make:
            case "openrouter":
                prices = {"prompt": "0.000001", "completion": "0.000004", "input_cache_read": "0.0000001"}
                told |= {
                    "context_length": spec.window,
                    "top_provider": {"context_length": spec.window, "max_completion_tokens": spec.max_output},
                    "pricing": prices,
                    "architecture": {"input_modalities": ["text", *(["image"] if _sees(spec) else [])]},
                    "supported_parameters": ["tools", "max_tokens"],
                }
            case "vllm":
                told["max_model_len"] = spec.window
            case "groq":
                told |= {"context_window": spec.window, "max_completion_tokens": spec.max_output}
            case "lmstudio":
                told["type"] = "vlm" if _sees(spec) else "llm"
        return told

    async def _answer(self, checked: Checked, recorded: RecordedRequest, exchange: Exchange) -> None:
        segments = [Segment(compact(checked.body.get("tools") or "").encode(), 0)]
        segments += [Segment(compact(each).encode(), message_tokens(each)) for each in checked.body["messages"]]

        def reply(step: Step, _fault: Fault | None, attempt: int) -> Reply:
            use = self.cache.use_implicit(checked.spec.id, segments, checked.spec.minimum_cached)
            return _Answering(self, checked, step, use, attempt).reply()

        asked = parsed_chat("openai", checked.body, checked.spec.id)
        streamed = bool(checked.body.get("stream"))
        await self.answer(recorded.number, asked, checked, exchange, reply, streamed=streamed)


class _Answering:
    """Turns one step into the chunks of an answer."""

    def __init__(self, server: ChatServer, checked: Checked, step: Step, use: CacheUse, attempt: int) -> None:
        self._server = server
        self._checked = checked
        self._step = within(step, checked.room)
        self._use = use
        seed = f"{checked.tokens}|{len(checked.body['messages'])}|{attempt}|{checked.body['messages'][-1]}"
        self._nonce = hashlib.sha256(seed.encode()).hexdigest()

    def reply(self) -> Reply:
        step, server = self._step, self._server
        events = [self._chunk({"role": "assistant", "content": ""})]
        if server.make == "openrouter":
            events.insert(0, Event(b": OPENROUTER PROCESSING\n\n"))
        events += [self._chunk(self._thought(piece), paced=True) for piece in self._thoughts()]
        if server.make == "openrouter" and self._thoughts():
            events.append(self._chunk({"reasoning_details": [self._sealed()]}))
        events += [self._chunk({"content": piece}, paced=True) for piece in pieces(step.text, step.piece)]
        events += [self._chunk({})]
        calls = [self._call(i) for i in range(len(step.calls))]
        events += [self._chunk({"tool_calls": [piece]}, paced=True) for call in calls for piece in self._pieces(call)]
        finish = FINISH.get(step.stop_reason or ("tool_use" if calls else "end_turn"), "stop")
        usage = self._usage()
        last = self._chunk(
            {}, finish=finish, extra={"x_groq": {"id": "req", "usage": usage}} if server.make == "groq" else {}
        )
        events.append(last)
        if (
            server.counts
            and self._checked.body.get("stream_options", {}).get("include_usage")
            and server.make != "groq"
        ):
            events.append(_event({**self._names(), "choices": [], "usage": usage}))
        # The end of the list is what makes an answer complete: the choice's reason, or what follows it.
        events[-1] = Event(events[-1].data + b"data: [DONE]\n\n")
        message = {"role": "assistant", "content": step.text or None, **({"tool_calls": calls} if calls else {})}
        whole = {
            **self._names(),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }
        counted = {"prompt_tokens": usage["prompt_tokens"], "completion_tokens": usage["completion_tokens"]}
        return Reply(whole, events, {**counted, "cached_tokens": self._use.read})

    def _thoughts(self) -> list[str]:
        return pieces(self._step.reasoning, self._step.piece) if self._server.make != "openai" else []

    def _thought(self, piece: str) -> dict[str, Any]:
        if self._server.make != "openrouter":
            return {"reasoning_content": piece}
        return {"reasoning": piece, "reasoning_details": [{"type": "reasoning.text", "text": piece, "index": 0}]}

    def _sealed(self) -> dict[str, Any]:
        """The last fragment of the reasoning, whose signature is of all of it; only the whole is taken back."""
        kind, seal = {"type": "reasoning.text"}, {"index": 0, "signature": self._nonce[:16]}
        self._server.issued.add(compact({**kind, "text": "".join(self._thoughts()), **seal}))
        return kind | seal

    def _call(self, index: int) -> dict[str, Any]:
        call = self._step.calls[index]
        function = {"name": call.name, "arguments": compact(call.args)}
        return {"id": call.id or f"call_{self._nonce[index * 2 :][:24]}", "type": "function", "function": function}

    def _pieces(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        """A call as it is streamed: the name first, then its arguments; LM Studio and Groq send it whole."""
        function, make = call["function"], self._server.make
        index = next(i for i in range(len(self._step.calls)) if self._call(i)["id"] == call["id"])
        if make in ("groq", "lmstudio"):
            return [{"index": index, **call}]
        begin = {"index": index, **call, "function": {"name": function["name"], "arguments": ""}}
        rest = pieces(function["arguments"], self._step.piece)
        if make == "vllm":  # the name with every piece
            return [
                begin,
                *({"index": index, "function": {"name": function["name"], "arguments": each}} for each in rest),
            ]
        return [begin, *({"index": index, "function": {"arguments": each}} for each in rest)]

    def _usage(self) -> dict[str, Any]:
        step = self._step
        thoughts = tokens_in("".join(self._thoughts()))
        answered = tokens_in(step.text + "".join(call.name + compact(call.args) for call in step.calls))
        read = step.input_tokens or self._checked.tokens
        cached = (
            {"prompt_cache_hit_tokens": self._use.read, "prompt_cache_miss_tokens": read - self._use.read}
            if self._server.make == "deepseek"
            else {"prompt_tokens_details": {"cached_tokens": self._use.read}}
        )
        charged = {"cost": self._server.charged_usd} if self._server.charged_usd else {}
        return {
            **charged,
            "prompt_tokens": read,
            "completion_tokens": answered + thoughts,
            "total_tokens": read + answered + thoughts,
            "completion_tokens_details": {"reasoning_tokens": thoughts},
            **cached,
        }

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        paced: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**self._names(), "choices": [choice], **(extra or {})}, paced=paced)

    def _names(self) -> dict[str, Any]:
        chunk = "chat.completion.chunk"
        return {"id": f"chatcmpl-{self._nonce[:24]}", "object": chunk, "created": 1, "model": self._checked.spec.id}


def _sees(spec: ModelSpec) -> bool:
    return not spec.capabilities or "vision" in spec.capabilities


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + compact(value).encode() + b"\n\n"


def _event(value: dict[str, Any], *, paced: bool = False) -> Event:
    return Event(_data(value), paced)
