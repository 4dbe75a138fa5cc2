"""What the protocol servers share: life cycle, record, script, faults, and the streaming of an answer."""

from __future__ import annotations

import dataclasses
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import msgspec

from tests.servers.cache import PromptCache
from tests.servers.catalogue import ModelSpec
from tests.servers.faults import STATUS, FaultPlan, RuleBroken
from tests.servers.recording import Answer, Record, RecordedRequest
from tests.servers.script import Fault, ParsedRequest, ScriptSource, Step, choose
from tests.servers.wire import ClientGone, Exchange, HttpServer, Request

API_KEY = "test-key"


@dataclass(frozen=True)
class Event:
    """One event of a stream; ``paced`` events wait for the step's ``delay`` first."""

    data: bytes
    paced: bool = False


class Checked(Protocol):
    """A request that obeys the rules: the model, and the tokens of its prompt."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def tokens(self) -> int: ...


@dataclass(frozen=True)
class Reply:
    """A good answer, ready to be sent: the whole message and the same as events. ``usage`` counts tokens."""

    message: dict[str, Any]
    events: list[Event]
    usage: dict[str, int]


class ProtocolServer(ABC):
    """One provider's API on 127.0.0.1. ``async with Server(script) as server``, or see ``running`` for threads and
    processes.

    ``windows`` overrides the input window in tokens per model id. ``api_key`` is the only accepted key. ``record`` is
    a file that gets a JSON line for every request, answer and violation. Everything else is read from the attributes:
    ``requests``, ``answers``, ``violations`` (every rule a request broke), ``dropped_thinking``, ``usage_total``,
    ``cache``.
    """

    name: ClassVar[str]
    catalogue: ClassVar[tuple[ModelSpec, ...]]

    def __init__(
        self,
        script: ScriptSource,
        *,
        windows: dict[str, int] | None = None,
        api_key: str = API_KEY,
        port: int = 0,
        record: Path | None = None,
    ) -> None:
        self.script = script
        self.api_key = api_key
        self.cache = PromptCache()
        self.faults = FaultPlan()
        self.usage_total: dict[str, int] = {}
        self.port = port
        self._record = Record(record)
        self._http = HttpServer(self._handle)
        sizes = windows or {}
        unknown = set(sizes) - {spec.id for spec in self.catalogue}
        if unknown:
            raise ValueError(f"windows for unknown models: {sorted(unknown)}")
        self.models = {s.id: dataclasses.replace(s, window=sizes.get(s.id, s.window)) for s in self.catalogue}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The variables that point the provider's SDK at this server."""

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request, also those that were refused."""
        return self._record.requests

    @property
    def model_requests(self) -> list[RecordedRequest]:
        """The requests that ask a model to answer (no listing, no counting)."""
        return [request for request in self.requests if self.is_generation(request.path)]

    @property
    def answers(self) -> list[Answer]:
        return self._record.answers

    @property
    def violations(self) -> list[str]:
        return self._record.violations

    @property
    def dropped_thinking(self) -> list[str]:
        """Every thinking block left out of a prompt because its binding failed. A request that asks for this breaks no
        rule, so a client whose prefix changed by mistake shows only here."""
        return self._record.dropped_thinking

    def inject(self, fault: Fault) -> None:
        """Make the next ``fault.times`` model requests fail."""
        self.faults.inject(fault)

    async def start(self) -> None:
        self.port = await self._http.listen(self.port)

    async def stop(self) -> None:
        await self._http.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @staticmethod
    @abstractmethod
    def is_generation(path: str) -> bool:
        """Does this path ask a model to answer?"""

    @abstractmethod
    def fields(self) -> dict[str, str]:
        """Headers every answer carries."""

    def stream_fields(self) -> dict[str, str]:
        """Headers of a streamed answer."""
        return self.fields()

    @abstractmethod
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        """Answer one request. Raises RuleBroken."""

    @abstractmethod
    def error(self, status: int, kind: str, message: str, retry_after: float | None = None) -> dict[str, Any]:
        """The provider's error body."""

    @abstractmethod
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        """The error a status fault answers with."""

    @abstractmethod
    def broken_event(self, fault: Fault) -> bytes:
        """What a stream that fails midway sends last."""

    async def _handle(self, request: Request, exchange: Exchange) -> None:
        recorded = self._record.request(request.method, request.path, request.headers, request.body)
        try:
            await self.route(request, recorded, exchange)
        except RuleBroken as rule:
            self._record.violation(f"request {recorded.number}: {rule.status} {rule.message}")
            self._record.answer(Answer(recorded.number, rule.status, "refused", rule.message))
            told = self.error(rule.status, rule.kind, rule.message)
            if rule.code:
                told["error"]["details"] = {"error_code": rule.code}
            await exchange.respond(rule.status, told, self.fields())
        except ClientGone:
            self._record.answer(Answer(recorded.number, 200, "client_gone"))
            raise
        except Exception as error:
            # A test looks at the violations first: a server or a callable script that fails must show there.
            self._record.violation(f"request {recorded.number}: the server failed: {error!r}")
            await exchange.close()
            raise

    def choose(self, asked: ParsedRequest) -> tuple[Step, Fault | None, int]:
        """The step for this request, the fault that applies to this attempt, and the attempt's number."""
        step, attempt = choose(self.script, asked), self.faults.attempt(asked)
        return step, self.faults.fault(step, attempt), attempt

    async def answer(
        self,
        number: int,
        asked: ParsedRequest,
        checked: Checked,
        exchange: Exchange,
        make: Callable[[Step, Fault | None, int], Reply],
        *,
        streamed: bool,
    ) -> None:
        """Answer request `number` with what `make` makes of what is chosen, unless a fault is an answer of its own."""
        step, fault, attempt = self.choose(asked)
        if fault is not None and await self.refuse(number, fault, checked.spec, checked.tokens, exchange):
            return
        reply = make(step, fault, attempt)
        if streamed:
            await self.stream(number, reply, step, fault, exchange)
        else:
            await self.whole(number, reply, fault, exchange)

    async def refuse(self, number: int, fault: Fault, spec: ModelSpec, tokens: int, exchange: Exchange) -> bool:
        """Apply a fault that comes before any answer; False when the fault is of another kind."""
        if fault.kind == "disconnect":
            self._record.answer(Answer(number, 0, "fault", fault.kind))
            await exchange.close()
            return True
        if fault.kind == "html":
            self._record.answer(Answer(number, 200, "fault", fault.kind))
            await exchange.page("<html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>")
            return True
        if fault.kind == "gateway":
            self._record.answer(Answer(number, 502, "fault", fault.kind))
            await exchange.page(fault.message, status=502)
            return True
        if fault.kind not in STATUS:
            return False
        error = self.fault_error(fault, spec, tokens)
        asked = fault.retry_after if fault.kind == "rate_limited" else None
        retry_after = None if isinstance(asked, str) else asked
        headers = self.fields()
        if fault.headers:
            headers |= fault.headers
        elif isinstance(asked, str):
            headers["retry-after"] = asked
        elif retry_after is not None and self.name in ("anthropic", "openai"):
            headers["retry-after"] = f"{retry_after:g}"
        self._record.answer(Answer(number, error.status, "fault", fault.kind))
        await exchange.respond(error.status, self.error(error.status, error.kind, error.message, retry_after), headers)
        return True

    async def whole(self, number: int, reply: Reply, fault: Fault | None, exchange: Exchange) -> None:
        """Send the answer in one piece; a fault that would break a stream breaks the connection instead."""
        if fault is not None and await self._strike(number, unstreamed(fault), exchange):
            return
        self._completed(number, reply)
        await exchange.respond(200, reply.message, self.fields())

    async def stream(self, number: int, reply: Reply, step: Step, fault: Fault | None, exchange: Exchange) -> None:
        """Send the events, paced by the step, up to where the fault strikes."""
        await exchange.start(self.stream_fields())
        if fault is not None and fault.kind == "empty_stream":
            self._record.answer(Answer(number, 200, "fault", fault.kind))
            await exchange.finish()
            return
        # The last event is what makes an answer complete, so no fault lets it through.
        strike = min(fault.after if fault is not None else 0, len(reply.events) - 1)
        if fault is not None and fault.kind == "half_json":
            await self._send(reply.events[:strike], step, exchange)
            await exchange.send(reply.events[strike].data[: len(reply.events[strike].data) // 2])
            self._record.answer(Answer(number, 200, "fault", fault.kind))
            await exchange.finish()
            return
        await self._send(reply.events[:strike], step, exchange)
        if fault is not None and await self._strike(number, fault, exchange):
            return
        await self._send(reply.events[strike:-1], step, exchange)
        # Recorded first: whoever has seen the last event finds it in the record.
        self._completed(number, reply)
        await self._send(reply.events[-1:], step, exchange)
        if fault is not None and fault.kind == "lost_after_end":
            await exchange.close()
            return
        await exchange.finish()

    async def _send(self, events: Sequence[Event], step: Step, exchange: Exchange) -> None:
        # By the clock, so that what sending takes does not slow the stream down.
        due = time.monotonic()
        for event in events:
            while event.paced and step.held is not None and not step.held.is_set():
                await exchange.wait(0.01)
            if event.paced and step.delay:
                due += step.delay
                await exchange.wait(max(0.0, due - time.monotonic()))
            await exchange.send(event.data)

    async def _strike(self, number: int, fault: Fault, exchange: Exchange) -> bool:
        """Break the stream as the fault says; False when it goes on afterwards."""
        if fault.kind == "stall":
            await exchange.wait(fault.seconds)
        if fault.kind not in ("reset", "truncate", "stream_error"):
            return False
        self._record.answer(Answer(number, 200, "fault", fault.kind))
        match fault.kind:
            case "reset":
                await exchange.reset()
            case "truncate":
                await exchange.finish()
            case "stream_error":
                await exchange.send(self.broken_event(fault))
                await exchange.finish()
        return True

    def _completed(self, number: int, reply: Reply) -> None:
        for name, tokens in reply.usage.items():
            self.usage_total[name] = self.usage_total.get(name, 0) + tokens
        self._record.answer(Answer(number, 200, "completed", usage=reply.usage))


def unstreamed(fault: Fault) -> Fault:
    """The fault as an unstreamed answer can show it."""
    broken = fault.kind in ("truncate", "stream_error", "empty_stream")
    return msgspec.structs.replace(fault, kind="reset") if broken else fault


def pieces(text: str, size: int) -> list[str]:
    """``text`` in pieces of ``size`` characters."""
    return [text[i : i + size] for i in range(0, len(text), max(1, size))]


def within(step: Step, limit: int) -> Step:
    """The step cut to ``limit`` output tokens, as the APIs cut an answer: what does not fit is not sent."""
    if step.boundless:
        return step
    room = max(0, limit * 3 - len(step.reasoning))
    calls = sum(len(call.name + compact(call.args)) for call in step.calls)
    if len(step.text) + calls <= room:
        return step
    kept = {"reasoning": step.reasoning[: limit * 3], "text": step.text[:room], "calls": ()}
    return msgspec.structs.replace(step, stop_reason="max_tokens", **kept)


def tokens_in(text: str) -> int:
    """The servers' tokenizer: one token per three characters, rounded up."""
    return -(-len(text) // 3)


def parse_body(body: bytes) -> dict[str, Any]:
    """The request's JSON object. Raises ValueError for anything else: invalid UTF-8, lone surrogates, NaN."""
    value = json.loads(body.decode(), parse_constant=_no_constant)
    if not isinstance(value, dict):
        raise ValueError("the request body must be an object")  # noqa: TRY004 (a bad value, from the caller's side)
    if b"\\ud" in body or b"\\uD" in body:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
