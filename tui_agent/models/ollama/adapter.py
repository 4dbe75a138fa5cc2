"""Models run by Ollama, with its own client.

Every request sets the context size, because Ollama's default is small; that size is the model's window. As with the
other SDKs, the package is imported on first use, in a thread, and gets requests as bytes.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from json import JSONDecodeError
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, Adapter
from tui_agent.models.base import THIS_MACHINE, Completed, ConnectionLost, LocalModels, ModelError
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import bad_address, plain, unreadable, wrong_server
from tui_agent.models.measured import LastMeasured
from tui_agent.models.ollama.address import address_of, names_in
from tui_agent.models.ollama.errors import no_tools, not_pulled, not_running, overflow, refusal
from tui_agent.models.ollama.facts import OllamaFacts, loaded_context, read_facts
from tui_agent.models.ollama.reply import OllamaReply
from tui_agent.models.ollama.request import Encoded, Options, RequestEncoder
from tui_agent.models.provider import Provider

if TYPE_CHECKING:
    from tui_agent.models.ollama.client import StreamingClient

INFO_TIMEOUT_S = 2.0
IDLE_TIMEOUT_S = 1800.0
"""Loading a model, reading a long prompt or writing a call sends no bytes, and takes minutes without a GPU."""

MIN_TOKENS_PER_BYTE = 0.2
"""The fewest tokens per byte in prose and code."""
IMPLAUSIBLE_TOKENS_PER_BYTE = 1 / 12
"""A count with fewer tokens per byte must exclude cached tokens, as that of servers from 2024 does."""


class OllamaModel(Adapter["StreamingClient", OllamaReply]):
    """A model run by Ollama."""

    def __init__(
        self,
        provider: Provider,
        profile: ModelProfile,
        local: LocalModels = THIS_MACHINE,
        *,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        sized = msgspec.structs.replace(profile, window=local.window, fixed_window=True)
        super().__init__(provider, sized, idle_timeout_s=idle_timeout_s)
        self._local = local
        self._encoder = RequestEncoder()
        self._facts: OllamaFacts | None = None
        self._context = 0
        self._thinks = False
        self._seen_loaded = False
        self._last = LastMeasured()
        self._url = ""

    @override
    def _connect(self) -> "StreamingClient":
        try:
            address = address_of(self._local.host)
        except ValueError as error:
            raise bad_address(self._provider, str(error)) from error
        self._url = address.url
        # Not before the address is checked: importing Ollama's package fails if OLLAMA_HOST is invalid.
        from tui_agent.models.ollama.client import StreamingClient

        return StreamingClient(address, self._idle_timeout_s)

    @override
    async def _release(self, client: "StreamingClient") -> None:
        await client.aclose()

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
        from ollama import ResponseError

        try:
            shown = await client.told("/api/show", DESCRIBE_TIMEOUT_S, {"model": self._profile.id})
        except ResponseError as refused:
            if refused.status_code != 404 or "model" in str(refused.error):
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

    async def _encoded(self, request: ModelRequest) -> Encoded:
        options = Options(self._profile.id, self._context, self._thinks, self._profile.images)
        return await asyncio.to_thread(self._encoder.encode, request, options)

    @override
    async def _events(self, request: ModelRequest, reply: OllamaReply) -> AsyncGenerator[object, None]:
        client = await self._connection.client()
        from ollama import ResponseError

        await self._learn()
        if request.tools and self._facts is not None and not self._facts.can("tools"):
            raise no_tools(self._profile.id, await self._names("tools"))
        encoded = await self._encoded(request)
        reply.size = encoded.size
        try:
            async with contextlib.aclosing(client.lines(encoded.body)) as lines:
                async for line in lines:
                    yield line
        except ResponseError as refused:
            if not self._thinks or "does not support thinking" not in str(refused.error):
                raise
            self._thinks = False
            again = await self._encoded(request)
            async with contextlib.aclosing(client.lines(again.body)) as lines:
                async for line in lines:
                    yield line
        if reply.complete:
            await self._see_loaded(client)

    async def _see_loaded(self, client: "StreamingClient") -> None:
        """After the first answer, reduce the window if Ollama loaded the model with less context than requested."""
        if self._seen_loaded or not self._context:
            return
        self._seen_loaded = True
        loaded = loaded_context(await client.told("/api/ps", INFO_TIMEOUT_S), self._profile.id)
        if 0 < loaded < self._profile.window:
            self._profile = msgspec.structs.replace(self._profile, window=loaded, source="provider")

    def _measured(self, request: ModelRequest, size: int, told: int) -> int:
        """The prompt's tokens as the server reported them, or 0 if its count is implausible.

        Servers before 0.12.6 silently drop the beginning of a prompt that is too long. Raises `ContextOverflow` if
        this one must have done so.
        """
        least, window = self._least(request, size), self._profile.window
        if self._context and told <= window < least:
            raise overflow(self._profile.id, least, window)
        if told < IMPLAUSIBLE_TOKENS_PER_BYTE * size:
            return 0
        self._last.take(request, size, told)
        return told

    def _least(self, request: ModelRequest, size: int) -> int:
        """A lower bound of a request's tokens, from those of the request it continues."""
        known = self._last.known(request, size)
        return known.tokens + int(MIN_TOKENS_PER_BYTE * known.rest)

    async def _names(self, capability: str) -> list[str]:
        """Ollama's models with a capability; none if it does not answer."""
        import httpx
        from ollama import ResponseError

        try:
            return names_in(await (await self._connection.client()).told("/api/tags", INFO_TIMEOUT_S), capability)
        except (ResponseError, httpx.HTTPError, OSError, ValueError):
            return []

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        if isinstance(error, ModelError):
            return error
        import httpx
        from ollama import ResponseError

        model = self._profile.id
        match error:
            case ResponseError(status_code=404) if "model" in str(error.error):
                return not_pulled(model, await self._names("completion"))
            case ResponseError():
                return refusal(model, error.status_code, str(error.error), self._profile.window)
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return ConnectionLost(not_running(self._url))
            case httpx.TimeoutException() | TimeoutError():
                return ConnectionLost("Ollama sent nothing for too long: try again; `ollama ps` shows what runs.")
            case httpx.HTTPError() | httpx.StreamError():
                return ConnectionLost("The connection to Ollama broke in the middle of its answer: try again.")
            case httpx.InvalidURL():
                return bad_address(self._provider, str(error))
            case OSError():
                return ConnectionLost(f"Ollama cannot be reached: {plain(str(error))}")
            case JSONDecodeError() if error.doc.lstrip().startswith("<"):
                return wrong_server(self._provider, self._url)
            case msgspec.ValidationError() | JSONDecodeError() | UnicodeDecodeError():
                return unreadable(self._provider)
            case _:
                return None
