"""Models on servers with one of OpenAI's APIs: OpenAI itself, other hosts, and local servers.

If a server refuses a feature, such as usage reports or summaries of reasoning, it is left out from then on. Local
servers often have small windows, and some report no usage: a request that may not fit is counted before it is sent,
and an answer without reported usage is counted afterwards.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import TypeAlias

import msgspec
from msgspec import structs
from typing_extensions import override

from tui_agent.conversation.blocks import Image, ToolResult
from tui_agent.conversation.profile import FREE, ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.wire import read_opaque
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, IDLE_TIMEOUT_S, Adapter
from tui_agent.models.base import Completed, ConnectionLost, ContextOverflow, ModelError, ReasoningRefused, ToolsRefused
from tui_agent.models.encoding import call_ids, encode
from tui_agent.models.errors import (
    ErrorReply,
    ServerRefusedError,
    WrongServerError,
    broke_off,
    failure,
    interrupted_for_another,
    is_about_signature,
    no_key,
    plain,
    too_long,
)
from tui_agent.models.http import HttpClient
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.openai.chat_request import ChatEncoder, ChatOptions
from tui_agent.models.openai.facts import ServerFacts, facts_in, facts_of_gateway, facts_of_props, merged
from tui_agent.models.openai.responses_reply import ResponsesReply
from tui_agent.models.openai.responses_request import ResponsesEncoder, ResponsesOptions
from tui_agent.models.openai.service import CACHE_S, OPENAI, OpenAiServer, addressed, may_be_gateway, root
from tui_agent.models.openai.tokens import counts_of
from tui_agent.models.prices import prices_by_name
from tui_agent.models.provider import Provider
from tui_agent.models.refusals import overflow_in
from tui_agent.models.tokens import PICTURE_TOKENS, LastMeasured

LOCAL_IDLE_TIMEOUT_S = 1800.0
"""Loading a local model and reading a long prompt sends no bytes, and takes minutes without a GPU."""
TEMPLATE_TOKENS = 256
"""Tokens that a model's template may add to a request, such as instructions on the format of calls."""
LEAST_ROOM = 8
"""The part of the window that is left for the answer if a request's tokens are only known by their bound."""
CHAT, RESPONSES, COMPACT, MODELS = "/chat/completions", "/responses", "/responses/compact", "/models"

_NO_PICTURES = re.compile(
    r"not a multimodal model|(?:does not|doesn't|no endpoints found that) support (?:image|vision)|image input is not"
    r"|unknown variant .image_url"
)
"""How vLLM, LM Studio, OpenRouter, llama.cpp and DeepSeek say that a model does not accept pictures."""

_NO_TOOLS = re.compile(
    r"(?:does not|doesn't|do not|no endpoints found that) support (?:tool|function)"
    r"|tools? (?:param(?:eter)?s? )?(?:is|are) not supported|requires --(?:enable-auto-tool-choice|jinja)"
    r"|tools param requires|tool (?:use|calling)`? is not supported"
)
"""How Groq, OpenRouter, vLLM, llama.cpp and LM Studio say that a model does not accept tools."""

_STRICT = re.compile(r"0-9, with a length of 9|unexpected role '(?:user|system)' after role 'tool'")
"""How Mistral's models refuse call ids in another format than theirs, and user messages right after a result."""

_NOT_NULL = re.compile(r"'content' (?:field must|to) be a string")
"""How LM Studio and llama.cpp refuse calls whose text is null."""

_WANTS_REASONING = re.compile(r"reasoning_content\W.{0,60}?(?:must be passed back|is missing)")
"""How DeepSeek and Moonshot refuse calls without the reasoning that led to them, through whatever gateway."""

OpenAiReply: TypeAlias = ChatReply | ResponsesReply


class OpenAiModel(Adapter[HttpClient, OpenAiReply]):
    """A model on a server with one of OpenAI's APIs."""

    def __init__(self, provider: Provider, profile: ModelProfile, service: OpenAiServer) -> None:
        self._service = addressed(service)
        timeout_s = LOCAL_IDLE_TIMEOUT_S if self._service.local else IDLE_TIMEOUT_S
        super().__init__(provider, profile, idle_timeout_s=timeout_s)
        self._chat = ChatEncoder()
        self._responses = ResponsesEncoder()
        self._counts = True
        self._reasons = reasons(profile.id)
        self._summaries = True
        self._strict = self._empty = False
        self._facts: ServerFacts | None = None
        self._given = profile
        self._tokens = counts_of(root(self._service))
        self._last = LastMeasured()
        self._bounded_once = False

    @override
    def _connect(self) -> HttpClient:
        key = os.environ.get(self._service.key, "").strip() if self._service.key else ""
        if not key and not self._provider.has_key():
            raise no_key(self._provider)
        return HttpClient(self._service.url, key, self._idle_timeout_s)

    @override
    def _reply(self, request: ModelRequest) -> OpenAiReply:
        taken = call_ids(request.messages)
        if self._service.api == "responses":
            return ResponsesReply(self._profile.id, taken, self._profile.name)
        # Local servers report "length" also if the window is full; the reply tells the two apart by `max_tokens`.
        return ChatReply(self._profile.id, taken, request.max_tokens if self._service.local else 0)

    @override
    async def _events(self, request: ModelRequest, reply: OpenAiReply) -> AsyncGenerator[bytes, None]:
        client = await self._connection.client()
        path = CHAT if self._service.api != "responses" else RESPONSES if request.summarize is None else COMPACT
        async with self._exclusive():
            while True:
                body = await asyncio.to_thread(self._encoded, request)
                counted = await self._counted(client, request, body)
                try:
                    async with aclosing(client.events(path, body)) as events:
                        async for data in events:
                            yield data
                except ServerRefusedError as error:
                    if isinstance(reply, ChatReply) and error.refusal.written:
                        reply.take_in(error.refusal.written)
                        break
                    if request.summarize is not None and error.refusal.status in (400, 404, 405):
                        self._profile = structs.replace(self._profile, compacts=False)
                        raise
                    if reply.started or not (
                        self._drops_refused(error.refusal) or self._shortens_answer(error.refusal)
                    ):
                        raise
                else:
                    break
            if isinstance(reply, ChatReply) and self._service.local:
                if not reply.started:
                    async for data in self._unstreamed(client, body):
                        yield data
                await self._take_in(client, request, reply, body, counted)
                if reply.complete and reply.empty:
                    loaded = await self._loaded(client)
                    self._take_window(loaded.window if loaded is not None else 0)

    @override
    def _completed(self, request: ModelRequest, reply: OpenAiReply) -> Completed:
        """As the base class, but an empty answer to a request longer than the window is an overflow (LM Studio).

        Any other answer without blocks and without usage of the server's own is an error, and so is one that
        llama-cpp-python has broken off for another request: it ends without a reason.
        """
        if not self._service.local or not isinstance(reply, ChatReply):
            return super()._completed(request, reply)
        if reply.empty:
            tokens, window = reply.usage.input_tokens, self._profile.window
            if tokens >= window > 0:
                raise too_long(self._profile.id, tokens, window)
        if self._tokens.one_at_a_time and not reply.reason:
            raise interrupted_for_another(self._provider.title)
        completed = super()._completed(request, reply)
        if reply.empty and not reply.metered and completed.stop_reason == "end_turn":
            raise broke_off(self._provider.title, started=False)
        return completed

    def _exclusive(self) -> AbstractAsyncContextManager[object]:
        """A lock, for servers that abort an answer when another request arrives, or may do so; else nothing."""
        unknown = self._service.local and self._service.api == "chat" and not self._tokens.known
        return self._tokens.lock if unknown or self._tokens.one_at_a_time else nullcontext()

    async def _counted(self, client: HttpClient, request: ModelRequest, body: bytes) -> int:
        """Count a request's tokens if it may not fit; 0: not counted, since it fits even with a token for each byte.

        Raises `ContextOverflow` if the window has no room for it and its answer: the server would refuse it or cut the
        answer short.
        """
        window = self._profile.window
        if not self._service.local or self._service.api != "chat" or not window:
            return 0
        room = window - min(request.max_tokens, window // 2)
        known = self._last.known(request, self._size(request, body))
        if known.tokens + known.rest + TEMPLATE_TOKENS <= room:
            return 0
        counted = await self._tokens.of(client, body)
        if counted > room:
            raise too_long(self._profile.id, counted, window)
        if not counted:
            size = self._size(request, body)
            # A bound is a third too high for most texts: of the room for the answer, only a part has to be left by it.
            spare = max(0, min(request.max_tokens, window // 2) - window // LEAST_ROOM)
            bound = await asyncio.to_thread(self._last.at_most, request, size, body) - spare
            # Refused once: what could not be made smaller than its bound is sent all the same, as it probably fits.
            refused = bound > room and (request.one_off or not self._bounded_once)
            self._bounded_once = refused if not request.one_off else self._bounded_once
            if refused:
                raise too_long(self._profile.id, bound, window, bound=True)
        return counted

    async def _take_in(
        self, client: HttpClient, request: ModelRequest, reply: ChatReply, body: bytes, counted: int
    ) -> None:
        """Remember the request's tokens; count what the server did not report."""
        if not reply.complete:
            return
        if not reply.usage.input_tokens:
            reply.count(
                counted or await self._tokens.of(client, body),
                await self._tokens.of_text(client, self._profile.id, reply.said),
            )
        if reply.usage.input_tokens:
            self._last.take(request, self._size(request, body), reply.usage.input_tokens, body)

    def _size(self, request: ModelRequest, body: bytes) -> int:
        """A request's size in bytes, with `PICTURE_TOKENS` for each picture."""
        if not self._profile.images:
            return len(body)
        blocks = [block for message in request.messages for block in message.blocks]
        shown = [block for block in blocks if isinstance(block, Image)]
        shown += [image for block in blocks if isinstance(block, ToolResult) for image in block.images]
        return len(body) - sum(len(image.data) for image in shown) + PICTURE_TOKENS * len(shown)

    async def _unstreamed(self, client: HttpClient, body: bytes) -> AsyncGenerator[bytes, None]:
        """Repeat a request without streaming, to get its error: llama-cpp-python, for one, ends the stream of a request
        that is too long without any event.
        """
        import httpx2

        fields = msgspec.json.decode(body, type=dict[str, object])
        fields.pop("stream_options", None)
        unstreamed = encode({**fields, "stream": False})
        for last in (False, True):
            try:
                async with aclosing(client.events(CHAT, unstreamed)) as events:
                    async for data in events:
                        yield data
            except (httpx2.RemoteProtocolError, httpx2.ReadError):
                # The pooled connection of the stream may be one that the server has closed: try once more.
                if last:
                    raise
            else:
                return

    @override
    async def _learn(self) -> None:
        """Update the profile with the server's information on the model; settings take precedence."""
        if self._facts is None:
            async with self._exclusive():
                await self._ask_for_facts()

    async def _ask_for_facts(self) -> None:
        client = await self._connection.client()
        facts = ServerFacts()
        if self._service.api == "chat":
            listing = await client.fetch(client.url + MODELS, DESCRIBE_TIMEOUT_S)
            self._tokens.see_listing(listing)
            facts = facts_in(listing, self._profile.id)
        if may_be_gateway(self._service) and self._given.prices in (None, FREE):
            facts = await self._offered(client, facts)
        if facts.prices is not None and self._service.local:
            # What costs money is served elsewhere: this server passes it on.
            self._service = structs.replace(self._service, local=False)
            self._profile = structs.replace(
                self._profile, local=False, fixed_window=False, cache="implicit", cache_ttl_s=CACHE_S
            )
        if self._service.local and self._service.api == "chat" and not facts.loaded:
            facts = await self._loaded(client) or facts
        self._facts = facts
        given = self._given
        changes: dict[str, object] = {}
        if facts.window and not given.window:
            changes |= {"window": facts.window, "source": "provider", "fixed_window": facts.loaded}
        if facts.max_output and not given.max_output:
            changes["max_output"] = facts.max_output
        if facts.prices is not None and given.prices in (None, FREE):
            changes["prices"] = facts.prices
        if facts.tools is not None and given.source != "settings":
            changes["tools"] = facts.tools
        if facts.images is not None and given.source != "settings":
            changes["images"] = facts.images
        self._profile = structs.replace(self._profile, **changes)
        if facts.loaded:
            self._take_window(facts.window)

    async def _offered(self, client: HttpClient, facts: ServerFacts) -> ServerFacts:
        """`facts`, with the prices of a model that only its maker serves, else what a gateway knows of the model."""
        prices, offer = facts.prices or await asyncio.to_thread(prices_by_name, self._profile.id), ServerFacts()
        if prices is None:
            with suppress(ServerRefusedError, WrongServerError, msgspec.DecodeError):
                info = await client.fetch(f"{root(self._service)}/model/info", DESCRIBE_TIMEOUT_S)
                offer = facts_of_gateway(info, self._profile.id)
                prices = offer.prices
        return structs.replace(merged(facts, offer), prices=prices, loaded=facts.loaded and prices is None)

    async def _loaded(self, client: HttpClient) -> ServerFacts | None:
        """A local server's information on the model it has loaded; None if it is of a kind that has none."""
        base = root(self._service)
        for path in ("/props", "/api/v0/models"):
            try:
                said = await client.fetch(base + path, DESCRIBE_TIMEOUT_S)
                facts = facts_of_props(said) if path == "/props" else facts_in(said, self._profile.id)
            except (ServerRefusedError, WrongServerError, msgspec.DecodeError):
                continue
            if facts.window:
                return facts
        return None

    def _encoded(self, asked: ModelRequest) -> bytes:
        request = self._bounded(asked)
        model, sees = self._profile.id, self._profile.images
        if self._service.api == "responses":
            if not self._reasons:
                self._limit_effort(())
            status = self._service.id != OPENAI.id
            responses = ResponsesOptions(model, self._reasons, self._summaries, sees, self._profile.effort, status)
            return self._responses.encode(request, responses)
        service = self._service
        counted = "kimi-k2" in model.lower()
        options = ChatOptions(
            model,
            service.limit,
            service.thoughts,
            sees,
            self._counts,
            self._strict,
            self._profile.effort,
            counted,
            self._empty,
        )
        return self._chat.encode(request, options)

    @override
    def _named(self, refused: ReasoningRefused, request: ModelRequest) -> frozenset[str]:
        begin, _, end = refused.named.partition("...")
        found: set[str] = set()
        for block in (block for message in request.messages for block in message.blocks if block.opaque):
            opaque = read_opaque(block.opaque)
            encrypted = opaque.get("encrypted", "")
            if opaque.get("id") == refused.named or (end and encrypted.startswith(begin) and encrypted.endswith(end)):
                found.add(block.opaque)
        return frozenset(found)

    def _drops_refused(self, refusal: ErrorReply) -> bool:
        """If the server refused what can be left out or misses what can be added, do so from now on and return True."""
        # llama.cpp refuses pictures with 500.
        if refusal.status not in (400, 404, 422, 500) or overflow_in(refusal.text, refusal.kind) is not None:
            return False
        if is_about_signature(refusal):
            return False
        if self._drops_effort(refusal.text):
            return True
        said = refusal.text.lower()
        if self._counts and "stream_options" in said:
            self._counts = False
        elif (
            self._summaries
            and ("summaries" in said or "reasoning.summary" in said)
            and self._service.api == "responses"
        ):
            self._summaries = False
        elif self._reasons and ("encrypted" in said or "reasoning." in said) and self._service.api == "responses":
            self._reasons = False
        elif self._service.limit == "max_tokens" and "'max_tokens'" in said and "support" in said:
            self._service = structs.replace(self._service, limit="max_completion_tokens")
        elif not self._strict and _STRICT.search(said):
            self._strict = True
        elif not self._empty and _NOT_NULL.search(said):
            self._empty = True
        elif self._service.thoughts == "dropped" and _WANTS_REASONING.search(said):
            self._service = structs.replace(self._service, thoughts="content")
        elif self._profile.images and _NO_PICTURES.search(said):
            self._profile = structs.replace(self._profile, images=False)
        else:
            return False
        return True

    @override
    async def _refused(self, refusal: ErrorReply) -> ModelError:
        if refusal.status == 401 and self._provider.key and not os.environ.get(self._provider.key):
            return no_key(self._provider)
        if refusal.status in (400, 404, 422, 500, 501) and _NO_TOOLS.search(refusal.text.lower()):
            return ToolsRefused(
                f"{self._profile.id} takes no tools as {self._provider.title} runs it: choose another model."
            )
        error = failure(self._provider, self._profile.id, refusal)
        if isinstance(error, ContextOverflow) and self._service.local:
            self._take_window(error.limit)
        return error

    def _take_window(self, loaded: int) -> None:
        """Reduce the window to the one a local server has loaded, in tokens (0: unknown)."""
        window = self._profile.window
        if loaded and (not window or loaded < window):
            self._profile = structs.replace(self._profile, window=loaded, source="provider", fixed_window=True)

    @override
    def _unreachable(self, text: str) -> ModelError:
        if not self._service.local:
            return super()._unreachable(text)
        where = f"{plain(self._service.url)}: start it, or check {self._provider.where}"
        return ConnectionLost(f"{self._provider.title} does not answer at {where}.")


def reasons(model: str) -> bool:
    """Whether a model of OpenAI's reasons, by its id: the o series, and GPT from 5 on."""
    name = model.rpartition("/")[2]
    if "chat" in name:
        return False
    family, _, rest = name.partition("-")
    if family == "gpt":
        version = rest.split("-")[0].split(".")[0]
        return rest.startswith("oss") or (version.isdigit() and int(version) >= 5)
    return len(family) > 1 and family[0] == "o" and family[1:].isdigit()
