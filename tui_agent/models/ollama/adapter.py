"""Local models through Ollama, over its own client.

The context a model is loaded with is part of every request, since Ollama otherwise chooses a small one; it is what the
conversation is measured against. As with the other SDKs, the package is imported at first use, in a thread, and is
handed the request's bytes.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from json import JSONDecodeError
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, Adapter
from tui_agent.models.base import THIS_MACHINE, Completed, ConnectionLost, LocalModels, ModelError, ModelProfile
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import bad_address, plain, something_else, unreadable
from tui_agent.models.measured import LastMeasured
from tui_agent.models.ollama.address import address_of, names_in
from tui_agent.models.ollama.errors import no_tools, not_pulled, not_running, overflow, refusal
from tui_agent.models.ollama.facts import OllamaFacts, loaded_context, read_facts
from tui_agent.models.ollama.reply import OllamaReply
from tui_agent.models.ollama.request import Encoded, Options, RequestEncoder
from tui_agent.models.provider import Provider

if TYPE_CHECKING:
    from tui_agent.models.ollama.client import StreamingClient

ASIDE_TIMEOUT_S = 2.0
IDLE_TIMEOUT_S = 1800.0
"""Nothing comes while a model is loaded and reads a long prompt, nor while it writes a call: minutes without a GPU."""

SPARSE = 0.2
"""Tokens per byte that prose and code have at least."""
IMPLAUSIBLE = 1 / 12
"""Tokens per byte below which a count leaves out what was cached, as servers of 2024 did."""


class OllamaModel(Adapter["StreamingClient", OllamaReply]):
    """A `Model` that Ollama runs."""

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
        # Only now: importing Ollama's package reads the variable too, and fails where it is no address.
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
        reply.told = self._measured(request, reply.size, reply.told)
        return reply.completed()

    @override
    async def _learn(self) -> None:
        """Take in, once, what Ollama tells of the model."""
        if self._facts is not None:
            return
        client = await self._connection.client()
        from ollama import ResponseError

        try:
            shown = await client.told("/api/show", DESCRIBE_TIMEOUT_S, {"model": self._profile.id})
        except ResponseError as refused:
            if refused.status_code != 404 or "model" in str(refused.error):
                raise
            shown = {}  # another server in Ollama's place, which has its chat alone; if not, that will tell
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
        """After the first answer: where the model got a smaller context than it was asked for, that is its window."""
        if self._seen_loaded or not self._context:
            return
        self._seen_loaded = True
        loaded = loaded_context(await client.told("/api/ps", ASIDE_TIMEOUT_S), self._profile.id)
        if 0 < loaded < self._profile.window:
            self._profile = msgspec.structs.replace(self._profile, window=loaded, source="provider")

    def _measured(self, request: ModelRequest, size: int, told: int) -> int:
        """The prompt's tokens by what the server told of it, 0 where that cannot be.

        Servers before 0.12.6 do not refuse a prompt that is too long but leave out its beginning: then it had more
        tokens than there was room for. Raises `ContextOverflow`.
        """
        least, window = self._least(request, size), self._profile.window
        if self._context and told <= window < least:
            raise overflow(self._profile.id, least, window)
        if told < IMPLAUSIBLE * size:
            return 0
        self._last.take(request, size, told)
        return told

    def _least(self, request: ModelRequest, size: int) -> int:
        """The tokens a request has at least: those of the one it continues, and what came since."""
        known = self._last.known(request, size)
        return known.tokens + int(SPARSE * known.rest)

    async def _names(self, capability: str) -> list[str]:
        """The models Ollama has with a capability; none where it does not tell."""
        import httpx
        from ollama import ResponseError

        try:
            return names_in(await (await self._connection.client()).told("/api/tags", ASIDE_TIMEOUT_S), capability)
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
                return something_else(self._provider, self._url)
            case msgspec.ValidationError() | JSONDecodeError() | UnicodeDecodeError():
                return unreadable(self._provider)
            case _:
                return None
