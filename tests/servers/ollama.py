"""Ollama on 127.0.0.1: chat, show, tags, ps, pull and version.

Line, answer and error shapes are those of Ollama's api/types.go and server/routes.go (August 2026). As the real one, it
loads a model with the context a request asks for (4,096 where it asks for none), and silently leaves out the beginning
of a prompt that is too long unless it is told not to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import threading
from typing import Any, ClassVar

from typing_extensions import override

from tests.servers.catalogue import OLLAMA, ModelSpec
from tests.servers.faults import STATUS, RuleBroken
from tests.servers.ollama_rules import Checked, check, find, overflow_message
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ScriptSource, Step, parsed_chat
from tests.servers.server import Event, ProtocolServer, Reply, compact, pieces, tokens_in, within
from tests.servers.wire import ClientGone, Exchange, Request

MESSAGES = {
    400: "invalid request",
    401: "unauthorized",
    403: "this model requires a subscription, upgrade for access",
    404: "model 'x' not found",
    413: "http: request body too large",
    429: "you have reached your hourly usage limit, please upgrade to continue",
    500: "an error was encountered while running the model: unexpected EOF",
    502: "upstream is not available",
    503: "server busy, please try again.  maximum pending requests exceeded",
}
CREATED = "2026-11-01T12:00:00.000000Z"


class OllamaServer(ProtocolServer):
    """``async with OllamaServer(script) as server:`` with ``OLLAMA_HOST`` set to ``server.url``.

    ``legacy``: a server before 0.12.6, which knows neither ``truncate`` nor ``shift`` nor ids of calls, and tells no
    capabilities. ``counts``: False leaves ``prompt_eval_count`` out, as early servers did for a cached prompt.
    ``most``: the largest context there is memory for. ``loads`` has each loading of a model: its id and its context.
    """

    name = "ollama"
    catalogue: ClassVar[tuple[ModelSpec, ...]] = OLLAMA
    legacy = False
    counts = True
    most = sys.maxsize

    def __init__(self, script: ScriptSource, **options: Any) -> None:
        super().__init__(script, **options)
        self.loads: list[tuple[str, int]] = []
        self.slow_pull = False
        self.pull_left = threading.Event()

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {"OLLAMA_HOST": self.url}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return path == "/api/chat"

    @override
    def fields(self) -> dict[str, str]:
        return {}

    @override
    def stream_fields(self) -> dict[str, str]:
        return {"content-type": "application/x-ndjson"}

    @override
    def error(self, status: int, kind: str, message: str, retry_after: float | None = None) -> dict[str, Any]:
        return {"error": message}

    @override
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        status = {"overloaded": 503, "unavailable": 502}.get(fault.kind) or STATUS[fault.kind]
        default = MESSAGES[status]
        if fault.kind == "context_overflow":
            default = overflow_message(max(tokens, spec.window + 1), spec.window)
        return RuleBroken(fault.message or default, status=status)

    @override
    def broken_event(self, fault: Fault) -> bytes:
        return compact({"error": fault.message or MESSAGES[500]}).encode() + b"\n"

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        match request.method, request.path:
            case "GET", "/api/version":
                await exchange.respond(200, {"version": "0.12.5" if self.legacy else "0.20.1"})
            case "GET", "/api/tags":
                await exchange.respond(200, {"models": [self._listed(spec) for spec in self.models.values()]})
            case "GET", "/api/ps":
                running = dict(self.loads)
                models = [{"name": name, "model": name, "context_length": size} for name, size in running.items()]
                await exchange.respond(200, {"models": models})
            case "POST", "/api/show":
                spec = find(self.models, (recorded.json or {}).get("model"))
                await exchange.respond(200, self._shown(spec))
            case "POST", "/api/pull":
                await self._pull((recorded.json or {})["model"], exchange)
            case "POST", "/api/chat":
                await self._chat(check(request.body, self._loadable(), legacy=self.legacy), recorded, exchange)
            case _:
                raise RuleBroken("404 page not found", status=404)

    async def _pull(self, name: str, exchange: Exchange) -> None:
        """As Ollama tells it: layer after layer, each in its own bytes; what was pulled is there from then on."""
        if name == "no-such-model":
            await exchange.respond(200, {"error": "pull model manifest: file does not exist"})
            return
        total = 2_000_000_000
        lines: list[dict[str, Any]] = [{"status": "pulling manifest"}]
        lines += [
            {"status": "pulling aabb", "digest": "sha256:aabb", "total": total, "completed": total * part // 4}
            for part in range(5)
        ]
        lines += [{"status": "verifying sha256 digest"}, {"status": "success"}]
        if self.slow_pull:
            await exchange.start({"content-type": "application/x-ndjson"})
            for line in lines[:3]:
                await exchange.send(compact(line).encode() + b"\n")
            try:
                await exchange.wait(60)
            except ClientGone:
                self.pull_left.set()
                raise
            return
        self.models[name] = dataclasses.replace(next(iter(self.models.values())), id=name)
        await exchange.page("".join(f"{compact(line)}\n" for line in lines), "application/x-ndjson")

    def _loadable(self) -> dict[str, ModelSpec]:
        return {
            name: dataclasses.replace(spec, window=min(spec.window, self.most)) for name, spec in self.models.items()
        }

    async def _chat(self, checked: Checked, recorded: RecordedRequest, exchange: Exchange) -> None:
        loaded = dict(self.loads).get(checked.spec.id)
        if loaded != checked.context:
            self.loads.append((checked.spec.id, checked.context))
        if checked.cut:
            self._record.violation(f"request {recorded.number}: {checked.cut} tokens of the prompt were left out")

        def reply(step: Step, _fault: Fault | None, attempt: int) -> Reply:
            return _Answering(checked, step, attempt, self.legacy, self.counts).reply()

        asked = parsed_chat("ollama", checked.body, checked.spec.id)
        streamed = bool(checked.body.get("stream", True))
        await self.answer(recorded.number, asked, checked, exchange, reply, streamed=streamed)

    def _listed(self, spec: ModelSpec) -> dict[str, Any]:
        capabilities = {} if self.legacy else {"capabilities": sorted(spec.capabilities)}
        return {
            "name": spec.id,
            "model": spec.id,
            "modified_at": CREATED,
            "size": 4_700_000_000,
            "digest": "0" * 64,
            **capabilities,
        }

    def _shown(self, spec: ModelSpec) -> dict[str, Any]:
        family = spec.id.partition(":")[0].replace("-", "")
        shown: dict[str, Any] = {
            "license": "",
            "template": "{{ .Prompt }}",
            "details": {"family": family, "parameter_size": "8B"},
            "model_info": {"general.architecture": family, f"{family}.context_length": spec.window},
            "modified_at": CREATED,
        }
        if not self.legacy:
            shown["capabilities"] = sorted(spec.capabilities)
        if spec.id.endswith("-cloud"):
            shown |= {"remote_model": spec.id.removesuffix("-cloud"), "remote_host": "https://ollama.com:443"}
        return shown


class _Answering:
    """Turns one step into the lines of an answer."""

    def __init__(self, checked: Checked, step: Step, attempt: int, legacy: bool, counts: bool) -> None:
        self._checked = checked
        self._legacy = legacy
        self._counts = counts
        limit = checked.body.get("options", {}).get("num_predict", -1)
        room = checked.context - checked.tokens
        self._step = within(step, room if limit < 0 else min(limit, room))
        seed = f"{checked.tokens}|{len(checked.body['messages'])}|{attempt}|{checked.body['messages'][-1]}"
        self._nonce = hashlib.sha256(seed.encode()).hexdigest()

    def reply(self) -> Reply:
        step = self._step
        thinks = "thinking" in self._checked.spec.capabilities and self._checked.body.get("think") is not False
        told: list[dict[str, Any]] = [
            {"content": "", "thinking": piece} for piece in pieces(step.reasoning, step.piece) if thinks
        ]
        told += [{"content": piece} for piece in pieces(step.text, step.piece)]
        calls = [self._call(i) for i in range(len(step.calls))]
        told += [{"content": "", "tool_calls": [call]} for call in calls]
        answered = step.reasoning * thinks + step.text + "".join(call.name + compact(call.args) for call in step.calls)
        usage = {"prompt_eval_count": self._checked.tokens, "eval_count": tokens_in(answered)}
        ending = {
            "done": True,
            "done_reason": "length" if step.stop_reason == "max_tokens" else "stop",
            "total_duration": 5_000_000,
            "load_duration": 1_000_000,
            "prompt_eval_duration": 400_000_000,
            "eval_duration": 900_000_000,
            **({} if self._counts else {"prompt_eval_count": 0}),
        }
        figures = {**usage, **ending}
        figures = {name: value for name, value in figures.items() if value or name == "done"}
        events = [_event(self._line(message), paced=True) for message in told]
        events.append(_event({**self._line({"content": ""}), **figures}))
        whole = {"content": step.text, "thinking": step.reasoning * thinks, "tool_calls": calls}
        return Reply({**self._line(whole), **figures}, events, usage)

    def _call(self, index: int) -> dict[str, Any]:
        call = self._step.calls[index]
        function: dict[str, Any] = {"name": call.name, "arguments": call.args}
        if self._legacy:
            return {"function": function}
        return {"id": f"call_{self._nonce[index * 2 :][:8]}", "function": {"index": index, **function}}

    def _line(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": self._checked.spec.id,
            "created_at": CREATED,
            "message": {"role": "assistant", **message},
            "done": False,
        }


def _event(line: dict[str, Any], *, paced: bool = False) -> Event:
    return Event(compact(line).encode() + b"\n", paced)
