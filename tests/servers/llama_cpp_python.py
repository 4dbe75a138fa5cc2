"""llama-cpp-python's server on 127.0.0.1, as started without options: one model, asked by one request at a time.

From its source (github.com/abetlen/llama-cpp-python, `llama_cpp/server/app.py`): requests to chat, the list of models
and the tokenizer take turns by two locks, and a streamed answer that sees another request wait ends, after the
piece it has just sent, with ``[DONE]`` and without a reason (`interrupt_requests`, on by default). Usage is told for
unstreamed answers alone. A streamed request that is too long gets a stream without an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from tests.servers.faults import RuleBroken
from tests.servers.openai_chat import ChatServer
from tests.servers.recording import Answer, RecordedRequest
from tests.servers.script import Fault, ScriptSource, Step
from tests.servers.server import Event, Reply, parse_body
from tests.servers.wire import Exchange, Request

_TAKE_TURNS = ("/v1/chat/completions", "/v1/models", "/extras/tokenize/count")


class _Interrupted(Exception):
    """Another request waits."""


class LlamaCppPythonServer(ChatServer):
    """``async with LlamaCppPythonServer(script) as server:`` with ``environment`` set for ``llamacpp:NAME``."""

    counts = False
    tokenizer = "llama-cpp-python"

    def __init__(self, script: ScriptSource, **options: Any) -> None:
        super().__init__(script, make="llamacpp", **options)
        self._turns = asyncio.Lock()
        self._waiting = 0
        self.interrupted = 0

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if request.path not in _TAKE_TURNS:
            # FastAPI's answer for all it does not have; that a client looks breaks no rule.
            await exchange.respond(404, {"detail": "Not Found"})
            return
        self._waiting += 1
        async with self._turns:
            self._waiting -= 1
            if request.path == "/v1/models":
                listed = [{"id": name, "object": "model", "owned_by": "me", "permissions": []} for name in self.models]
                await exchange.respond(200, {"object": "list", "data": listed})
                return
            try:
                await super().route(request, recorded, exchange)
            except RuleBroken as rule:
                if rule.kind != "context_length_exceeded" or not parse_body(request.body).get("stream"):
                    raise
                await exchange.start(self.stream_fields())
                await exchange.finish()

    @override
    async def stream(self, number: int, reply: Reply, step: Step, fault: Fault | None, exchange: Exchange) -> None:
        try:
            await super().stream(number, reply, step, fault, exchange)
        except _Interrupted:
            self.interrupted += 1
            self._record.answer(Answer(number, 200, "fault", "interrupted"))
            await exchange.send(b"data: [DONE]\n\n")
            await exchange.finish()

    @override
    async def _send(self, events: Sequence[Event], step: Step, exchange: Exchange) -> None:
        for event in events:
            await super()._send([event], step, exchange)
            if self._waiting and b"[DONE]" not in event.data:
                raise _Interrupted
