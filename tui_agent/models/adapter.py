"""What every provider's model has in common: a connection, one loop that reads an answer, and errors of one taxonomy.

A provider's adapter says how a client is made (`_connect`), how a request is sent (`_events`), how an answer is read
(a `Reply`) and what its failures mean (`_failure`). The rest is here, so that it holds of all of them: an answer whose
last event was seen is an answer, whatever becomes of its connection; what the transport raises is an error of the
taxonomy, and what our own code raises stays what it is.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import msgspec

from tui_agent.aside import uncollected
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.models.base import Completed, ConnectionLost, ModelError, ModelProfile, StreamEvent, ToolsRefused
from tui_agent.models.encoding import Pieces, without_calls
from tui_agent.models.errors import Refusal, SomethingElseError, broke_off, something_else, unreadable
from tui_agent.models.overflow import longest_answer_in
from tui_agent.models.prices import look_up
from tui_agent.models.provider import Provider

Client = TypeVar("Client")
AnyReply = TypeVar("AnyReply", bound="Reply")

IDLE_TIMEOUT_S = 180.0
"""Seconds without a byte after which a call counts as lost; a minute may pass before a large model's first token."""
LINGER_S = 2.0
"""Seconds to wait for the end of an answer whose last event was seen: an ended one leaves its connection usable."""
DESCRIBE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0


class Reply(Protocol):
    """An answer as it comes in. `started`: something of it came; `complete`: its last event was seen."""

    @property
    def started(self) -> bool: ...

    @property
    def complete(self) -> bool: ...

    def read(self, data: object) -> Iterable[StreamEvent]:
        """Take in one event of the provider's. Raises `msgspec.DecodeError` where it is not understood."""
        ...

    def completed(self) -> Completed:
        """The whole answer. Raises `ModelError` where what came is none."""
        ...


class Adapter(ABC, Generic[Client, AnyReply]):
    """A `Model` that a provider's server answers for. After `idle_timeout_s` seconds without a byte a call is lost."""

    def __init__(self, provider: Provider, profile: ModelProfile, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._provider = provider
        self._profile = profile
        self._idle_timeout_s = idle_timeout_s
        self._connection: Connection[Client] = Connection(self._connect, self._release)
        self._as_text: Pieces[RequestMessage] = Pieces()

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask. Ends with one `Completed`. Raises `ModelError`. Closing the iterator ends the connection."""
        if not self._profile.tools:
            plain = self._as_text.of(
                request.messages, lambda message, _: without_calls(message), keep=not request.one_off
            )
            request = msgspec.structs.replace(request, messages=tuple(plain))
        reply = self._reply(request)
        events = self._events(request, reply)
        try:
            while True:
                try:
                    async with asyncio.timeout(LINGER_S if reply.complete else None):
                        data = await anext(events)
                except StopAsyncIteration:
                    break
                except Exception as error:
                    if reply.complete:
                        break
                    known = await self._known(error, request)
                    if isinstance(known, ToolsRefused):
                        self._profile = msgspec.structs.replace(self._profile, tools=False)
                    raise known from error
                try:
                    told = reply.read(data)
                except msgspec.DecodeError as error:
                    if reply.complete:
                        break
                    raise unreadable(self._provider) from error
                for event in told:
                    yield event
        finally:
            # What goes wrong with a connection that is given up does not matter.
            with contextlib.suppress(Exception):
                await events.aclose()
        if not reply.complete:
            raise broke_off(self._provider.title, started=reply.started)
        yield self._completed(request, reply)

    async def describe(self) -> ModelProfile:
        """Ask the catalogue and the provider. Never raises: what cannot be learned stays as it was."""
        self._profile = await asyncio.to_thread(look_up, self._profile)
        try:
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                await self._learn()
        except Exception as error:
            if not isinstance(error, msgspec.DecodeError | SomethingElseError) and await self._failure(error) is None:
                raise
        return self._profile

    async def close(self) -> None:
        """Release connections."""
        await self._connection.close()

    @abstractmethod
    def _connect(self) -> Client:
        """A client, made in a thread: its SDK may be imported here."""

    @abstractmethod
    async def _release(self, client: Client) -> None:
        """Close a client's connections."""

    @abstractmethod
    def _reply(self, request: ModelRequest) -> AnyReply:
        """What reads the answer to a request."""

    @abstractmethod
    def _events(self, request: ModelRequest, reply: AnyReply) -> AsyncGenerator[object, None]:
        """The events of an answer as the provider sends them. Closing it ends the connection."""

    @abstractmethod
    async def _failure(self, error: Exception) -> ModelError | None:
        """The error of the taxonomy for what the transport raised; None for what is none of its failures."""

    def _completed(self, _request: ModelRequest, reply: AnyReply) -> Completed:
        """The whole answer. Raises `ModelError` where what came is none."""
        return reply.completed()

    async def _learn(self) -> None:
        """Take into the profile what the provider tells of the model."""

    def _takes_shorter(self, refusal: Refusal) -> bool:
        """Whether a request was refused for the length of the answer it asks for, which from here on is bounded."""
        most = longest_answer_in(refusal.text)
        if not most or 0 < self._profile.max_output <= most:
            return False
        self._profile = msgspec.structs.replace(self._profile, max_output=most)
        return True

    def _bounded(self, request: ModelRequest) -> ModelRequest:
        """The request, for no longer an answer than there can be."""
        most = self._profile.max_output
        return request if not 0 < most < request.max_tokens else msgspec.structs.replace(request, max_tokens=most)

    async def _known(self, error: Exception, _request: ModelRequest) -> Exception:
        """The error to raise for one of the transport: itself where it is a mistake of ours."""
        if isinstance(error, SomethingElseError):
            return something_else(self._provider, error.address)
        return await self._failure(error) or error

    def _silence(self) -> ConnectionLost:
        return ConnectionLost(f"{self._provider.title} sent nothing for {self._idle_timeout_s:g} seconds: try again.")


class Connection(Generic[Client]):
    """A client, made in a thread when it is first asked for, and anew after it was closed.

    Whoever gives up waiting leaves the making to whoever asks next, or to `close`: no client is lost with its
    connections open.
    """

    def __init__(self, connect: Callable[[], Client], release: Callable[[Client], Awaitable[None]]) -> None:
        self._connect = connect
        self._release = release
        self._made: asyncio.Future[Client] | None = None

    async def client(self) -> Client:
        """The client. Raises what `connect` raises."""
        made = self._made
        if made is None or (made.done() and (made.cancelled() or made.exception() is not None)):
            made = self._made = asyncio.ensure_future(asyncio.to_thread(uncollected, self._connect))
        return await asyncio.shield(made)

    async def close(self) -> None:
        """Release its connections, if there are any."""
        made, self._made = self._made, None
        if made is None:
            return
        try:
            client = await asyncio.shield(made)
        except Exception:  # noqa: S110 (there is none to release; whoever asked was told why)
            pass
        else:
            await self._release(client)


def raised_in(error: BaseException, package: str) -> bool:
    """Whether an error comes out of a package's code: of it and this program's, the innermost frame is the package's.

    Tells what an SDK raises for an answer it cannot read from a mistake in the code around it.
    """
    innermost = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.startswith((f"{package}.", f"{__package__.partition('.')[0]}.")):
            innermost = module
        trace = trace.tb_next
    return innermost.startswith(f"{package}.")
