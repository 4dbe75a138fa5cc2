"""What the "model" answers: plain data that both servers read, from Python or from a JSON file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

FaultKind = Literal[
    "rate_limited",  # 429; retry_after seconds
    "overloaded",  # Anthropic 529 overloaded_error, Gemini 503 UNAVAILABLE
    "unavailable",  # 503
    "server_error",  # 500
    "unauthorized",  # 401
    "forbidden",  # 403
    "not_found",  # 404
    "too_large",  # 413
    "bad_request",  # 400 with `message`
    "context_overflow",  # 400, the provider's own overflow message
    "disconnect",  # connection closed before any byte of the answer
    "reset",  # connection reset after `after` events
    "truncate",  # the stream ends in good order after `after` events, without its last event
    "stream_error",  # error event (Anthropic) or bare JSON without data: (Gemini) after `after` events
    "empty_stream",  # 200 and a stream with no event
    "gateway",  # 502 with `message` as its body, whatever that is, as what stands in front of a provider answers
    "html",  # 200 and a page, as a proxy or another server sends it
    "half_json",  # the stream ends in the middle of an event, after `after` events
    "lost_after_end",  # the connection breaks once the last event was sent
    "stall",  # nothing for `seconds` after `after` events, then the stream goes on
    "malformed_args",  # Anthropic: the tool's JSON is cut
]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that goes wrong the first ``times`` attempts at one position of a conversation.

    ``after`` counts stream events (Anthropic: ``message_start`` is the first; Gemini: chunks). ``retry_after`` are
    seconds as the provider writes them, or the text of the header. ``headers`` are those of an error; with any, it has
    no ``retry-after``.
    """

    kind: FaultKind
    times: int = 1
    after: int = 3
    retry_after: float | str = 1.0
    seconds: float = 30.0
    message: str = ""
    headers: dict[str, str] = {}


class Call(msgspec.Struct, frozen=True):
    """One tool call. Several in a step are parallel calls. ``id`` is what Anthropic's server calls it (empty: an id of
    its own).
    """

    name: str
    args: dict[str, Any] = {}
    id: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    ``delay`` is in seconds before each delta of ``chunk`` characters (0: 64, or 16 with a delay); none is sent until
    ``held`` is set.
    ``stop_reason`` None means ``tool_use`` with calls and ``end_turn`` without; Anthropic's names are translated for
    Gemini (max_tokens -> MAX_TOKENS, refusal -> SAFETY), upper-case names are sent by Gemini as they are; ``blocked``
    is Gemini's ``promptFeedback.blockReason``. ``redacted`` sends the reasoning as an Anthropic ``redacted_thinking``
    block. ``boundless``: the server does not keep to the most tokens that were asked for. ``input_tokens`` is what it
    says it has read, whatever that was (0: as it is). ``pages``, titles and addresses, are found by two searches of the
    provider's own, if the request has that tool.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    stop_reason: str | None = None
    delay: float = 0.0
    held: threading.Event | None = None
    chunk: int = 0
    redacted: bool = False
    boundless: bool = False
    input_tokens: int = 0
    pages: tuple[tuple[str, str], ...] = ()
    fault: Fault | None = None

    @property
    def piece(self) -> int:
        """Characters of a delta."""
        return self.chunk or (16 if self.delay else 64)


class Turn(msgspec.Struct, frozen=True):
    """The steps that answer a prompt containing ``when`` (any prompt when empty)."""

    steps: tuple[Step, ...]
    when: str = ""


class Script(msgspec.Struct, frozen=True):
    """Turns, tried in order. The step is chosen by what the request itself shows, so a retry, a killed and restarted
    client, or a restarted server gets the same step again: the first turn whose ``when`` is part of the last plain
    user prompt, then the step numbered by the assistant messages after that prompt. Past the end: ``after``.
    """

    turns: tuple[Turn, ...] = ()
    after: Step = Step(text="Done.")

    @staticmethod
    def of(*steps: Step) -> Script:
        """One turn that answers every prompt."""
        return Script((Turn(steps),))

    def step(self, request: ParsedRequest) -> Step:
        for turn in self.turns:
            if turn.when in request.prompt:
                return turn.steps[request.position] if request.position < len(turn.steps) else self.after
        return self.after

    def save(self, path: Path) -> Path:
        path.write_bytes(msgspec.json.encode(self))
        return path

    @staticmethod
    def load(path: Path) -> Script:
        """Raises msgspec.ValidationError when the file is not a script."""
        return msgspec.json.decode(path.read_bytes(), type=Script)


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What both providers' requests have in common.

    ``prompt`` is the text of the last user message that holds no tool result; ``position`` the number of assistant
    messages after it (adjacent messages of one role count as one); ``results`` the text of the tool results in the last
    message; ``body`` the request's JSON.
    """

    provider: Literal["anthropic", "gemini", "ollama", "openai"]
    model: str
    system: str
    tools: tuple[str, ...]
    prompt: str
    position: int
    results: tuple[str, ...]
    body: dict[str, Any]


ScriptSource = Script | Callable[[ParsedRequest], Step]


def choose(source: ScriptSource, request: ParsedRequest) -> Step:
    return source.step(request) if isinstance(source, Script) else source(request)


class Said(msgspec.Struct, frozen=True):
    """One message reduced to what choosing a step needs."""

    role: Literal["user", "assistant"]
    text: str
    results: tuple[str, ...] = ()


def parsed(
    provider: Literal["anthropic", "gemini", "ollama", "openai"],
    body: dict[str, Any],
    said: list[Said],
    *,
    model: str,
    system: str,
    tools: Iterable[str],
) -> ParsedRequest:
    """The provider-neutral view of a checked request, in which this was `said`."""
    prompt, position, results = locate(said)
    return ParsedRequest(
        provider=provider, model=model, system=system, tools=tuple(tools), prompt=prompt, position=position,
        results=results, body=body,
    )  # fmt: skip


def parsed_chat(provider: Literal["ollama", "openai"], body: dict[str, Any], model: str) -> ParsedRequest:
    """The same of a request in the form that Chat Completions and Ollama share."""
    said: list[Said] = []
    system = ""
    for message in body["messages"]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        match message["role"]:
            case "system":
                system = text
            case "tool":
                said.append(Said("user", "", (text,)))
            case role:
                said.append(Said(role, text))
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    return parsed(provider, body, said, model=model, system=system, tools=tools)


def locate(messages: list[Said]) -> tuple[str, int, tuple[str, ...]]:
    """The last plain prompt, the assistant messages after it, and the results in the last message."""
    merged: list[Said] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            before = merged.pop()
            message = Said(message.role, f"{before.text}\n{message.text}".strip(), before.results + message.results)
        merged.append(message)
    position = 0
    results = merged[-1].results if merged else ()
    for message in reversed(merged):
        if message.role == "assistant":
            position += 1
        elif not message.results:
            return message.text, position, results
    return "", position, results
