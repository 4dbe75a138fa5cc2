"""Models run by Ollama, and the download of one.

Every request sets the context size, because Ollama's default is small; that size is the model's window.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, Sequence

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, Adapter
from tui_agent.models.base import (
    THIS_MACHINE,
    AuthFailed,
    Completed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    LocalModels,
    ModelError,
    Overloaded,
    PullProgress,
    RateLimited,
    RequestTooLarge,
    ToolsRefused,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import (
    NO_REASON,
    ErrorReply,
    ServerRefusedError,
    WrongServerError,
    bad_address,
    it_said,
    plain,
    refused_picture,
)
from tui_agent.models.http import HttpClient
from tui_agent.models.ollama.reply import OllamaReply, parsed_line
from tui_agent.models.ollama.request import OllamaEncoder, OllamaOptions, Piece
from tui_agent.models.ollama.server import OllamaFacts, address_of, loaded_context, names_in, read_facts
from tui_agent.models.provider import Provider
from tui_agent.models.refusals import overflow_in
from tui_agent.models.tokens import LastMeasured
from tui_agent.text import first_of

INFO_TIMEOUT_S = 2.0
IDLE_TIMEOUT_S = 1800.0
"""Loading a model, reading a long prompt or writing a call sends no bytes, and takes minutes without a GPU."""

MIN_TOKENS_PER_BYTE = 0.2
"""The fewest tokens per byte in prose and code."""
IMPLAUSIBLE_TOKENS_PER_BYTE = 1 / 12
"""A count with fewer tokens per byte must exclude cached tokens, as that of servers from 2024 does."""
_NO_THINKING = "does not support thinking"
"""What Ollama's refusal of ``think`` says, in an answer of its own or as the first line of a stream."""
PULL_IDLE_TIMEOUT_S = 120.0
"""Seconds without a line from Ollama, which verifies what it has downloaded without reporting progress."""


class OllamaModel(Adapter[HttpClient, OllamaReply]):
    def __init__(self, provider: Provider, profile: ModelProfile, local: LocalModels = THIS_MACHINE) -> None:
        sized = msgspec.structs.replace(profile, window=local.window, fixed_window=True)
        super().__init__(provider, sized, idle_timeout_s=IDLE_TIMEOUT_S)
        self._local = local
        self._encoder = OllamaEncoder()
        self._facts: OllamaFacts | None = None
        self._context = 0
        self._thinks = False
        self._seen_loaded = False
        self._last = LastMeasured()
        self._url = ""

    @override
    def _connect(self) -> HttpClient:
        client = _client(self._provider, self._local.host, self._idle_timeout_s)
        self._url = client.url
        return client

    @override
    def _reply(self, request: ModelRequest) -> OllamaReply:
        return OllamaReply(self._profile.id, call_ids(request.messages), request.max_tokens)

    @override
    def _completed(self, request: ModelRequest, reply: OllamaReply) -> Completed:
        reply.prompt_tokens = self._measured(request, reply.size, reply.prompt_tokens)
        return reply.completed()

    @override
    async def _learn(self) -> None:
        """Update the profile with Ollama's information on the model, once."""
        if self._facts is not None:
            return
        client = await self._connection.client()
        asked = msgspec.json.encode({"model": self._profile.id})
        shown: object
        try:
            shown = msgspec.json.decode(await client.fetch(f"{client.url}/api/show", DESCRIBE_TIMEOUT_S, asked))
        except ServerRefusedError as error:
            if error.refusal.status != 404 or "model" in error.refusal.text:
                raise
            shown = {}  # may be another server with only Ollama's chat API; if not, the chat will fail
        facts = read_facts(shown, self._profile.id)
        longest, budget = facts.longest, self._local.window
        window = (longest or budget) if facts.remote else min(longest or budget, budget)
        self._profile = msgspec.structs.replace(
            self._profile,
            window=window,
            images=facts.can("vision"),
            tools=facts.can("tools"),
            prices=None if facts.remote else self._profile.prices,
            source="provider",
        )
        self._context = 0 if facts.remote else window
        self._thinks = facts.can("thinking", unknown=False)
        self._facts = facts

    async def _encoded(self, request: ModelRequest) -> Piece:
        if not self._thinks:
            self._limit_effort(())
        options = OllamaOptions(
            self._profile.id, self._context, self._thinks, self._profile.images, self._profile.effort
        )
        return await asyncio.to_thread(self._encoder.encode, request, options)

    @override
    async def _events(self, request: ModelRequest, reply: OllamaReply) -> AsyncGenerator[bytes, None]:
        client = await self._connection.client()
        await self._learn()
        if request.tools and self._facts is not None and not self._facts.can("tools"):
            raise no_tools(self._profile.id, await self._names("tools"))
        while True:
            encoded = await self._encoded(request)
            reply.size = encoded.size
            try:
                async with contextlib.aclosing(client.lines("/api/chat", encoded.data)) as lines:
                    async for line in lines:
                        if self._thinks and _NO_THINKING.encode() in line:
                            parsed_line(line)  # to try again below, if it is an error
                        yield line
                break
            except ServerRefusedError as error:
                if not self._thinks or _NO_THINKING not in error.refusal.text:
                    raise
                self._thinks = False
        if reply.complete:
            await self._see_loaded(client)

    async def _see_loaded(self, client: HttpClient) -> None:
        """After the first answer, reduce the window if Ollama loaded the model with less context than requested."""
        if self._seen_loaded or not self._context:
            return
        self._seen_loaded = True
        loaded = loaded_context(
            msgspec.json.decode(await client.fetch(f"{client.url}/api/ps", INFO_TIMEOUT_S)), self._profile.id
        )
        if 0 < loaded < self._profile.window:
            self._profile = msgspec.structs.replace(self._profile, window=loaded, source="provider")

    def _measured(self, request: ModelRequest, size: int, counted: int) -> int:
        """The prompt's tokens as the server reported them, or 0 if its count is implausible.

        Servers before 0.12.6 silently drop the beginning of a prompt that is too long. Raises `ContextOverflow` if
        this one must have done so.
        """
        known, window = self._last.known(request, size), self._profile.window
        least = known.tokens + int(MIN_TOKENS_PER_BYTE * known.rest)
        if self._context and counted <= window < least:
            raise overflow(self._profile.id, least, window)
        if counted < IMPLAUSIBLE_TOKENS_PER_BYTE * size:
            return 0
        self._last.take(request, size, counted)
        return counted

    async def _names(self, capability: str) -> list[str]:
        """Ollama's models with a capability; none if it does not answer."""
        import httpx2

        client = await self._connection.client()
        try:
            listing = await client.fetch(f"{client.url}/api/tags", INFO_TIMEOUT_S)
            return names_in(msgspec.json.decode(listing), capability)
        except (ServerRefusedError, WrongServerError, httpx2.HTTPError, OSError, ValueError):
            return []

    @override
    async def _refused(self, refusal: ErrorReply) -> ModelError:
        if refusal.status == 404 and "model" in refusal.text:
            return not_pulled(self._profile.id, await self._names("completion"))
        return refused(self._profile.id, refusal, self._profile.window)

    @override
    def _unreachable(self, text: str) -> ModelError:
        return ConnectionLost(not_running(self._url))


def _client(provider: Provider, configured: str, idle_timeout_s: float) -> HttpClient:
    """A client of Ollama's server. Raises `InvalidRequest` if its address is none."""
    try:
        address = address_of(configured)
    except ValueError as error:
        raise bad_address(provider, str(error)) from error
    return HttpClient(address, os.environ.get("OLLAMA_API_KEY", ""), idle_timeout_s)


class _Pulled(msgspec.Struct):
    status: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0


async def pulling(provider: Provider, model: str, configured: str = "") -> AsyncGenerator[PullProgress, None]:
    """Download a model, and yield the progress of all its parts after each line from Ollama.

    If stopped, the downloaded parts are kept. Raises `ModelError`.
    """
    import httpx2

    client = _client(provider, configured, PULL_IDLE_TIMEOUT_S)
    parts: dict[str, _Pulled] = {}
    broke = ModelError(f"The download of {plain(model)} broke off. Try again: it resumes where it was.")
    finished = False
    try:
        async with contextlib.aclosing(
            client.lines("/api/pull", msgspec.json.encode({"model": model, "stream": True}))
        ) as lines:
            async for raw in lines:
                line = msgspec.convert(parsed_line(raw), _Pulled)
                if line.digest and line.total:
                    parts[line.digest] = line
                finished = line.status == "success"
                done = sum(each.completed for each in parts.values())
                yield PullProgress(plain(line.status), done, sum(each.total for each in parts.values()))
    except ServerRefusedError as error:
        raise UnknownModel(f"Ollama cannot get {plain(model)}: {plain(error.refusal.text)}") from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout, ConnectionError) as error:
        raise ConnectionLost(not_running(client.url)) from error
    except (httpx2.HTTPError, WrongServerError, ValueError) as error:
        raise broke from error
    finally:
        await client.close()
    if not finished:
        raise broke


MOST_NAMES = 8

# From the sources of Ollama's server and its runner (server/routes.go, llm/llama_server.go).
_MEMORY = re.compile(r"more system memory|out of memory|cudamalloc failed|insufficient memory", re.IGNORECASE)
_UNREADABLE_CALL = re.compile(r"error parsing tool call|unexpected end of JSON|tool call.*invalid", re.IGNORECASE)


def not_running(url: str) -> str:
    """The message for a server that does not answer."""
    return f"Ollama does not answer at {plain(url)}: start it with `ollama serve`, or check OLLAMA_HOST."


def no_tools(model: str, others: Sequence[str] = ()) -> ToolsRefused:
    """The error for a model that cannot call tools; `others` can."""
    has = f" Of those Ollama has, these can: {first_of([*map(plain, others)], MOST_NAMES)}." if others else ""
    return ToolsRefused(f"{plain(model)} cannot call tools, which a session works by: choose another model.{has}")


def not_pulled(model: str, others: Sequence[str] = ()) -> UnknownModel:
    """The error for a model that Ollama has not pulled; it has `others`."""
    has = f", or choose one it has: {first_of([*map(plain, others)], MOST_NAMES)}" if others else ""
    return UnknownModel(f"Ollama has no model {plain(model)}: get it with `ollama pull {plain(model)}`{has}.")


def overflow(model: str, tokens: int, window: int) -> ContextOverflow:
    """The error for a request that exceeds the context the model is loaded with, in tokens."""
    size = f" of about {tokens:,} tokens" if tokens else ""
    return ContextOverflow(
        f"The conversation{size} does not fit into the {window:,} tokens {plain(model)} is loaded with: compact it, or "
        "raise context.memory_budget_tokens where there is memory for more.",
        tokens=tokens,
        limit=window,
    )


def refused(model: str, refusal: ErrorReply, window: int) -> ModelError:
    """The error for a refusal by Ollama, whose status is -1 in the middle of a stream."""
    status, text = refusal.status, refusal.text
    said = plain(text) or NO_REASON
    if (found := overflow_in(text)) is not None:
        return overflow(model, found.tokens, found.limit or window)
    if _MEMORY.search(text):
        return InvalidRequest(
            f"There is not enough memory to run {plain(model)}: choose a smaller model, or lower "
            f"context.memory_budget_tokens. Ollama said: {said}"
        )
    if "does not support tools" in text:
        return no_tools(model)
    if _UNREADABLE_CALL.search(text):
        return Unavailable(f"{plain(model)} wrote a tool call that cannot be read", advice="try again")
    if (about_picture := refused_picture("Ollama", text)) is not None:
        return about_picture
    match status:
        case 401 | 403:
            return AuthFailed(
                f"Ollama may not use {plain(model)}: sign in with `ollama signin`, or set OLLAMA_API_KEY. ({said})"
            )
        case 404:
            return InvalidRequest(f"What answers in Ollama's place is something else: check OLLAMA_HOST. ({said})")
        case 413:
            return RequestTooLarge(overflow(model, 0, window).message, limit=window)
        case 429:
            return RateLimited("Ollama's rate limit is reached", advice="wait a while, or use another model")
        case 503:
            return Overloaded("Ollama is busy with other requests", advice="try again later")
        case _ if status < 0 or status >= 500 or status in (408, 499):
            return Unavailable(
                f"Ollama failed on its side{f' ({status})' * (status > 0)}", advice="try again", said=it_said(text)
            )
        case _:
            return InvalidRequest(f"Ollama refuses the request: {said}")
