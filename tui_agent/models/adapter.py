"""The base class of all provider adapters: the connection, the loop that reads an answer, and the error handling.

A provider's adapter defines how to make a client (`_connect`), send a request (`_events`), read an answer (a `Reply`)
and classify failures (`_failure`). Two rules hold for all of them: an answer whose last event has arrived is complete,
whatever happens to the connection afterwards; and exceptions of the transport become `ModelError`s, while those of our
own code are raised unchanged.
"""

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import read_arguments
from tui_agent.models.base import (
    Completed,
    ConnectionLost,
    InvalidRequest,
    Metered,
    ModelError,
    ReasoningDelta,
    ReasoningRefused,
    StreamEvent,
    TextDelta,
    ToolsRefused,
)
from tui_agent.models.encoding import (
    MessageCache,
    signature_digest,
    signed_texts,
    unused_id,
    without_calls,
    without_signed,
)
from tui_agent.models.errors import (
    ErrorReply,
    ServerRefusedError,
    WrongServerError,
    bad_address,
    broke_off,
    failure,
    unreachable,
    unreadable,
    wrong_server,
)
from tui_agent.models.prices import look_up
from tui_agent.models.provider import Provider, load_refused, save_refused
from tui_agent.models.refusals import longest_answer_in

Client = TypeVar("Client", bound="Closable")
AnyReply = TypeVar("AnyReply", bound="Reply")
OpenCall = TypeVar("OpenCall")

IDLE_TIMEOUT_S = 180.0
"""Seconds without a byte after which a call has failed. A large model may take a minute until its first token."""
END_TIMEOUT_S = 2.0
"""Seconds to wait for the end of the stream after its last event: only a stream read to its end frees its connection
for the next call."""
DESCRIBE_TIMEOUT_S = 10.0
EFFORTS = ("low", "medium", "high", "xhigh", "max")
CONNECT_TIMEOUT_S = 15.0


@dataclass(slots=True)
class OpenText:
    """Text or thoughts that are still streaming. `opaque`: a signature, which ends them. `details`: OpenRouter's, to be
    sent back.
    """

    thought: bool
    pieces: list[str] = field(default_factory=list)
    opaque: str = ""
    details: list[str] = field(default_factory=list)

    def add(self, text: str) -> StreamEvent:
        text = valid_text(text)
        self.pieces.append(text)
        return ReasoningDelta(text) if self.thought else TextDelta(text)


class Reply(ABC):
    """Reads an answer event by event. `started`: some of it has arrived; `complete`: its last event has.

    `taken` are the ids of the conversation's earlier calls; a call without an unused id gets a new one.
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset()) -> None:
        self.complete = self.started = False
        self._model = model
        self._taken = set(taken)

    @abstractmethod
    def read(self, data: bytes) -> Iterable[StreamEvent]:
        """Read one event of the provider. Raises `ServerRefusedError`; ValueError if it is malformed."""

    @abstractmethod
    def completed(self) -> Completed:
        """The whole answer. Raises `ModelError` if what arrived is not one."""

    def _made_call(self, call_id: str, name: str, arguments: str, opaque: str = "") -> ToolCall:
        """A call as the provider sent it, made valid."""
        whole, malformed = read_arguments(arguments)
        return ToolCall(unused_id(call_id, self._taken), valid_text(name), whole, opaque, malformed)


def open_text(blocks: list[OpenText | OpenCall], *, thought: bool) -> OpenText:
    """The last of the blocks if it is text, or thoughts, that can go on; else a new one."""
    last = blocks[-1] if blocks else None
    if not isinstance(last, OpenText) or last.thought is not thought or last.opaque:
        last = OpenText(thought)
        blocks.append(last)
    return last


def closed(opened: OpenText | ToolCall) -> Block:
    """A block that has arrived."""
    if isinstance(opened, ToolCall):
        return opened
    text = "".join(opened.pieces)
    return Reasoning(text) if opened.thought else Text(text, opened.opaque)


class Closable(Protocol):
    async def close(self) -> None:
        """Release them."""
        ...


class Adapter(ABC, Generic[Client, AnyReply]):
    """A `Model` behind a provider's API. A call fails after `idle_timeout_s` seconds without a byte."""

    def __init__(self, provider: Provider, profile: ModelProfile, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._provider = provider
        self._profile = profile
        self._idle_timeout_s = idle_timeout_s
        self._connection: LazyClient[Client] = LazyClient(self._connect)
        self._changed: MessageCache[RequestMessage] = MessageCache()
        self._refused_reasoning: frozenset[str] | None = None
        """Digests of the reasoning not to send; None: not read yet."""

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Send a request. The last event is a `Completed`. Raises `ModelError`. Closing the iterator ends the call."""
        if self._refused_reasoning is None:
            self._refused_reasoning = await asyncio.to_thread(load_refused, self._provider, self._profile.id)
        request = self._acceptable(request)
        reply = self._reply(request)
        events = self._events(request, reply)
        resent = streamed = False
        try:
            while True:
                try:
                    async with asyncio.timeout(END_TIMEOUT_S if reply.complete else None):
                        data = await anext(events)
                    stream_events = reply.read(data)
                except StopAsyncIteration:
                    break
                except Exception as error:
                    if reply.complete:
                        break
                    known = await self._error_to_raise(error, request)
                    if not streamed and isinstance(known, InvalidRequest) and self._drops_effort(str(error)):
                        pass  # Another try goes without it.
                    elif isinstance(known, ReasoningRefused) and await self._drops(known, request, all_of_it=resent):
                        # Another try leaves it out. What has streamed of this one has to be discarded first.
                        if streamed:
                            known.retryable = True
                            raise known from error
                        resent, request = True, self._acceptable(request)
                    else:
                        if isinstance(known, ToolsRefused):
                            self._profile = msgspec.structs.replace(self._profile, tools=False)
                        raise known from error
                    await events.aclose()
                    reply = self._reply(request)
                    events = self._events(request, reply)
                    continue
                for event in stream_events:
                    streamed = streamed or not isinstance(event, Metered)
                    yield event
        finally:
            # Errors while closing a connection that is no longer needed do not matter.
            with contextlib.suppress(Exception):
                await events.aclose()
        if not reply.complete:
            raise broke_off(self._provider.title, started=reply.started)
        completed = self._completed(request, reply)
        if not completed.blocks and completed.usage == Usage() and completed.stop_reason == "end_turn":
            raise broke_off(self._provider.title, started=False)
        yield completed

    def _acceptable(self, request: ModelRequest) -> ModelRequest:
        """The request without what the provider has refused: tools, or reasoning of earlier answers."""
        refused, tools = self._refused_reasoning or frozenset(), self._profile.tools
        if tools and not refused:
            return request

        def changed(message: RequestMessage, _before: RequestMessage | None) -> RequestMessage:
            message = without_signed(message, refused)
            return message if tools else without_calls(message)

        messages = self._changed.of(request.messages, changed, variant=(tools, refused), keep=not request.one_off)
        return msgspec.structs.replace(request, messages=tuple(messages))

    async def _drops(self, refused: ReasoningRefused, request: ModelRequest, *, all_of_it: bool) -> bool:
        """Leave out from now on the reasoning that the provider names, else all of this request's; False if none.

        `all_of_it`: also if some is named, since a request without what was named before was refused as well.
        """
        signed = signed_texts(request.messages)
        named = frozenset() if all_of_it else self._named(refused, request) & signed
        if dropped := frozenset(map(signature_digest, named or signed)):
            self._refused_reasoning = (self._refused_reasoning or frozenset()) | dropped
            await asyncio.to_thread(save_refused, self._provider, self._profile.id, dropped)
        return bool(dropped)

    def _named(self, _refused: ReasoningRefused, _request: ModelRequest) -> frozenset[str]:
        """The opaque texts of the reasoning that a refusal names; empty if it names none."""
        return frozenset()

    async def describe(self) -> ModelProfile:
        """Refine the profile from the price catalogue and the provider; failures leave it unchanged. Never raises."""
        self._profile = await asyncio.to_thread(look_up, self._profile)
        try:
            # The limit is the provider's alone: importing an SDK for the first time takes long on a busy machine.
            await self._connection.client()
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                await self._learn()
        except Exception as error:
            if not isinstance(error, msgspec.DecodeError | WrongServerError) and await self._failure(error) is None:
                raise
        return self._profile

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    def _connect(self) -> Client:
        """Make a client. Runs in a thread, so it may import the SDK."""

    @abstractmethod
    def _reply(self, request: ModelRequest) -> AnyReply:
        """A reader for the answer to a request."""

    @abstractmethod
    def _events(self, request: ModelRequest, reply: AnyReply) -> AsyncGenerator[bytes, None]:
        """Send a request and yield the provider's events. Closing the iterator ends the call."""

    async def _failure(self, error: Exception) -> ModelError | None:
        """The `ModelError` for an exception of the transport; None for other exceptions."""
        if isinstance(error, ModelError):
            return error
        import httpx2

        title = self._provider.title
        match error:
            case ServerRefusedError():
                return await self._refused(error.refusal)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return self._unreachable(str(error))
            case httpx2.TimeoutException() | TimeoutError():
                return self._timed_out()
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return bad_address(self._provider, str(error))
            case httpx2.HTTPError() | httpx2.StreamError():
                return ConnectionLost(
                    f"The connection to {title} broke in the middle of its answer", advice="try again"
                )
            case OSError():
                return self._unreachable(str(error))
            case msgspec.DecodeError():
                return unreadable(self._provider)
            case _:
                return None

    async def _refused(self, refusal: ErrorReply) -> ModelError:
        """The `ModelError` for an error response."""
        return failure(self._provider, self._profile.id, refusal)

    def _unreachable(self, text: str) -> ModelError:
        return unreachable(self._provider, text)

    def _completed(self, _request: ModelRequest, reply: AnyReply) -> Completed:
        """The whole answer. Raises `ModelError` if what arrived is not one."""
        return reply.completed()

    async def _learn(self) -> None:
        """Update the profile with the provider's information on the model."""

    def _shortens_answer(self, refusal: ErrorReply) -> bool:
        """If a request was refused because of its `max_tokens`, limit them from now on and return True."""
        most = longest_answer_in(refusal.text)
        if not most or 0 < self._profile.max_output <= most:
            return False
        self._profile = msgspec.structs.replace(self._profile, max_output=most)
        return True

    def _drops_effort(self, refusal: str) -> bool:
        """If a refusal names the effort, ask without it from now on and return True."""
        if not self._profile.effort or not re.search(r"effort|thinking_?(?:level|budget)", refusal, re.IGNORECASE):
            return False
        self._profile = msgspec.structs.replace(self._profile, effort="")
        return True

    def _limit_effort(self, levels: Collection[str]) -> None:
        """Ask for the highest of these levels that is no higher than the one that is set; for none if none is."""
        up_to = EFFORTS[: EFFORTS.index(self._profile.effort) + 1] if self._profile.effort else ()
        fitting = next((level for level in reversed(up_to) if level in levels), "")
        self._profile = msgspec.structs.replace(self._profile, effort=fitting)

    def _bounded(self, request: ModelRequest) -> ModelRequest:
        """The request with `max_tokens` limited to the model's longest answer."""
        most = self._profile.max_output
        return request if not 0 < most < request.max_tokens else msgspec.structs.replace(request, max_tokens=most)

    async def _error_to_raise(self, error: Exception, _request: ModelRequest) -> Exception:
        """The error to raise for an exception: a `ModelError`, or the exception itself if it is a bug of ours."""
        if isinstance(error, WrongServerError):
            return wrong_server(self._provider, error.address)
        return await self._failure(error) or error

    def _timed_out(self) -> ConnectionLost:
        return ConnectionLost(
            f"{self._provider.title} sent nothing for {self._idle_timeout_s:g} seconds", advice="try again"
        )


def told_sizes(window: object, longest: object) -> dict[str, object]:
    """A profile's changes by the sizes, in tokens, that its provider tells of the model's window and longest answer."""
    told = {"window": window, "max_output": longest}
    sizes: dict[str, object] = {name: size for name, size in told.items() if isinstance(size, int) and size > 0}
    return {**sizes, "source": "provider"} if sizes else {}


class LazyClient(Generic[Client]):
    """A client that is made in a thread on first use, and again on first use after `close`.

    If a caller is cancelled while the client is made, the next caller or `close` gets it, so that no client is leaked
    with open connections.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._made: asyncio.Future[Client] | None = None

    async def client(self) -> Client:
        """The client. Raises what `connect` raises."""
        made = self._made
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._made = asyncio.ensure_future(asyncio.to_thread(self._connect))
        return await asyncio.shield(made)

    async def close(self) -> None:
        """Close the client, if there is one."""
        made, self._made = self._made, None
        if made is None:
            return
        try:
            client = await asyncio.shield(made)
        except Exception:  # noqa: S110 (no client to close; the caller of `client` got the error)
            pass
        else:
            await client.close()
