"""Models of every server that speaks one of OpenAI's APIs: OpenAI itself, the hosts after it, and local servers.

What a server does not take (asking for usage, for summaries of reasoning) is found out by its refusal, once, and left
out from there on. A local server's window is often small, and not every one tells what was used: a request that might
not fit is counted before it is sent, and an answer whose usage is not told is counted after it.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TypeAlias

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Image, ToolResult
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, IDLE_TIMEOUT_S, Adapter
from tui_agent.models.base import Completed, ConnectionLost, ContextOverflow, ModelError, ModelProfile, ToolsRefused
from tui_agent.models.encoding import call_ids, encode
from tui_agent.models.errors import (
    Refusal,
    SomethingElseError,
    bad_address,
    failure,
    no_key,
    plain,
    too_long,
    unreachable,
    unreadable,
)
from tui_agent.models.measured import LastMeasured
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.openai.chat_request import ChatEncoder, ChatOptions
from tui_agent.models.openai.client import HttpClient, ServerRefusedError
from tui_agent.models.openai.facts import Facts, facts_in, facts_of_props
from tui_agent.models.openai.responses_reply import ResponsesReply
from tui_agent.models.openai.responses_request import ResponsesEncoder, ResponsesOptions
from tui_agent.models.openai.service import Service, addressed, root
from tui_agent.models.openai.tokens import PICTURE_TOKENS, TokenCounts
from tui_agent.models.overflow import overflow_in
from tui_agent.models.provider import Provider

LOCAL_IDLE_TIMEOUT_S = 1800.0
"""Nothing comes while a local model is loaded and reads a long prompt: minutes without a GPU."""
FRAME_TOKENS = 256
"""What a template may add to a request of its own accord: an opening, and how calls are to be written."""
DENSE = 0.4
"""Tokens per byte of a dense text (numbers, names, code): what is assumed where neither server nor tokenizer tells."""
CHAT, RESPONSES, MODELS = "/chat/completions", "/responses", "/models"

_BLIND = re.compile(
    r"not a multimodal model|(?:does not|doesn't|no endpoints found that) support (?:image|vision)|image input is not"
    r"|unknown variant .image_url"
)
"""How servers say that a model sees no pictures: vLLM, LM Studio, OpenRouter, llama.cpp, DeepSeek."""

_TOOLLESS = re.compile(
    r"(?:does not|doesn't|do not|no endpoints found that) support (?:tool|function)"
    r"|tools? (?:param(?:eter)?s? )?(?:is|are) not supported|requires --(?:enable-auto-tool-choice|jinja)"
    r"|tools param requires|tool use is not supported"
)
"""How servers say that a model takes no tools: Groq, OpenRouter, vLLM, llama.cpp, LM Studio."""

_STRICT = re.compile(r"0-9, with a length of 9|unexpected role '(?:user|system)' after role 'tool'")
"""How Mistral's models refuse calls' ids that are not of their own form, and who speaks right after a result."""

AnyOfThem: TypeAlias = ChatReply | ResponsesReply


class OpenAiModel(Adapter[HttpClient, AnyOfThem]):
    """A `Model` that a server of one of OpenAI's APIs answers for."""

    def __init__(
        self,
        provider: Provider,
        profile: ModelProfile,
        service: Service,
        *,
        idle_timeout_s: float | None = None,
    ) -> None:
        self._service = addressed(service)
        default = LOCAL_IDLE_TIMEOUT_S if self._service.local else IDLE_TIMEOUT_S
        super().__init__(provider, profile, idle_timeout_s=default if idle_timeout_s is None else idle_timeout_s)
        self._chat = ChatEncoder()
        self._responses = ResponsesEncoder()
        self._counts = True
        self._reasons = reasons(profile.id)
        self._summaries = True
        self._strict = False
        self._told: Facts | None = None
        self._given = profile
        self._tokens = TokenCounts(root(self._service))
        self._last = LastMeasured()
        self._alone = asyncio.Lock()

    @override
    def _connect(self) -> HttpClient:
        key = os.environ.get(self._service.key, "").strip() if self._service.key else ""
        if not key and not self._provider.has_key():
            raise no_key(self._provider)
        return HttpClient(self._service.url, key, self._idle_timeout_s)

    @override
    async def _release(self, client: HttpClient) -> None:
        await client.aclose()

    @override
    def _reply(self, request: ModelRequest) -> AnyOfThem:
        taken = call_ids(request.messages)
        if self._service.api == "responses":
            return ResponsesReply(self._profile.id, self._refused, taken)
        # What runs locally ends an answer where its window is full, and says no more than that it was cut.
        return ChatReply(self._profile.id, self._refused, taken, request.max_tokens if self._service.local else 0)

    @override
    async def _events(self, request: ModelRequest, reply: AnyOfThem) -> AsyncGenerator[object, None]:
        client = await self._connection.client()
        path = RESPONSES if self._service.api == "responses" else CHAT
        async with self._undisturbed():
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
                    if reply.started or not (self._does_without(error.refusal) or self._takes_shorter(error.refusal)):
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
    def _completed(self, request: ModelRequest, reply: AnyOfThem) -> Completed:
        """LM Studio answers nothing at all to what is longer than the window it has loaded by now."""
        if self._service.local and isinstance(reply, ChatReply) and reply.empty:
            tokens, window = reply.usage.input_tokens, self._profile.window
            if tokens >= window > 0:
                raise too_long(self._profile.id, tokens, window)
        return super()._completed(request, reply)

    def _undisturbed(self) -> AbstractAsyncContextManager[object]:
        """One call at a time, of a server that breaks off an answer when it is asked anything else."""
        return self._alone if self._tokens.one_at_a_time else nullcontext()

    async def _counted(self, client: HttpClient, request: ModelRequest, body: bytes) -> int:
        """A request's tokens where it might not fit; 0: it does, in whatever tokenizer.

        No tokenizer makes more tokens than there are bytes. Raises `ContextOverflow` where there is no room for it and
        its answer, which a server would refuse, or answer in fewer tokens than were asked for.
        """
        window = self._profile.window
        if not self._service.local or self._service.api != "chat" or not window:
            return 0
        room = window - min(request.max_tokens, window // 2)
        known = self._last.known(request, self._size(request, body))
        if known.tokens + known.rest + FRAME_TOKENS <= room:
            return 0
        counted = await self._tokens.of(client, body)
        if (tokens := counted or known.tokens + int(DENSE * known.rest)) > room:
            raise too_long(self._profile.id, tokens, window)
        return counted

    async def _take_in(
        self, client: HttpClient, request: ModelRequest, reply: ChatReply, body: bytes, counted: int
    ) -> None:
        """Keep how large the request was; what the server has not told of it is counted."""
        if not reply.complete:
            return
        if not reply.usage.input_tokens:
            reply.count(
                counted or await self._tokens.of(client, body),
                await self._tokens.of_text(client, self._profile.id, reply.said),
            )
        if reply.usage.input_tokens:
            self._last.take(request, self._size(request, body), reply.usage.input_tokens)

    def _size(self, request: ModelRequest, body: bytes) -> int:
        """The bytes of a request, a picture as many as it has tokens."""
        if not self._profile.images:
            return len(body)
        blocks = [block for message in request.messages for block in message.blocks]
        shown = [block for block in blocks if isinstance(block, Image)]
        shown += [image for block in blocks if isinstance(block, ToolResult) for image in block.images]
        return len(body) - sum(len(image.data) for image in shown) + PICTURE_TOKENS * len(shown)

    async def _unstreamed(self, client: HttpClient, body: bytes) -> AsyncGenerator[bytes, None]:
        """The same once more, in one piece: a server may end a stream before its first event where it would have
        refused the request unstreamed, as llama-cpp-python's does with one that is too long.
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
                # The stream's connection is kept for what comes next, and that server has closed it.
                if last:
                    raise
            else:
                return

    @override
    async def _learn(self) -> None:
        """Take in what the server tells of the model; what the settings say of it stays."""
        if self._service.api == "responses" or self._told is not None:
            return
        client = await self._connection.client()
        told = facts_in(await client.told(client.url + MODELS, DESCRIBE_TIMEOUT_S), self._profile.id)
        if self._service.local and not told.loaded:
            told = await self._loaded(client) or told
        self._told = told
        given = self._given
        changes: dict[str, object] = {}
        if told.window and not given.window:
            changes |= {"window": told.window, "source": "provider", "fixed_window": told.loaded}
        if told.max_output and not given.max_output:
            changes["max_output"] = told.max_output
        if told.prices is not None and given.prices is None:
            changes["prices"] = told.prices
        if told.tools is not None and given.source != "settings":
            changes["tools"] = told.tools
        if told.images is not None and given.source != "settings":
            changes["images"] = told.images
        self._profile = msgspec.structs.replace(self._profile, **changes)
        if told.loaded:
            self._take_window(told.window)

    async def _loaded(self, client: HttpClient) -> Facts | None:
        """What a local server tells of the model it has loaded; None where it is of no kind that does."""
        base = root(self._service)
        for url, read in ((f"{base}/props", facts_of_props), (f"{base}/api/v0/models", self._listed)):
            try:
                facts = read(await client.told(url, DESCRIBE_TIMEOUT_S))
            except (ServerRefusedError, SomethingElseError, msgspec.DecodeError):
                continue
            if facts.window:
                return facts
        return None

    def _listed(self, listing: bytes) -> Facts:
        return facts_in(listing, self._profile.id)

    def _encoded(self, asked: ModelRequest) -> bytes:
        request = self._bounded(asked)
        model, sees = self._profile.id, self._profile.images
        if self._service.api == "responses":
            return self._responses.encode(request, ResponsesOptions(model, self._reasons, self._summaries, sees))
        service = self._service
        options = ChatOptions(model, service.limit, service.thoughts, sees, self._counts, self._strict)
        return self._chat.encode(request, options)

    def _does_without(self, refusal: Refusal) -> bool:
        """Whether the server refused for something that can be left out, and from here on is."""
        if refusal.status not in (400, 404, 422) or overflow_in(refusal.text, refusal.kind) is not None:
            return False
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
            self._service = self._service._replace(limit="max_completion_tokens")
        elif not self._strict and _STRICT.search(said):
            self._strict = True
        elif self._profile.images and _BLIND.search(said):
            self._profile = msgspec.structs.replace(self._profile, images=False)
        else:
            return False
        return True

    def _refused(self, refusal: Refusal) -> ModelError:
        if refusal.status == 401 and self._provider.key and not os.environ.get(self._provider.key):
            return no_key(self._provider)
        if refusal.status in (400, 404, 422, 500, 501) and _TOOLLESS.search(refusal.text.lower()):
            return ToolsRefused(
                f"{self._profile.id} takes no tools as {self._provider.title} runs it: choose another model."
            )
        error = failure(self._provider, self._profile.id, refusal)
        if isinstance(error, ContextOverflow) and self._service.local:
            self._take_window(error.limit)
        return error

    def _take_window(self, loaded: int) -> None:
        """The window a local server has loaded, in tokens (0: not told), counts where it is smaller than said."""
        window = self._profile.window
        if loaded and (not window or loaded < window):
            self._profile = msgspec.structs.replace(self._profile, window=loaded, source="provider", fixed_window=True)

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        if isinstance(error, ModelError):
            return error
        import httpx2

        title = self._provider.title
        match error:
            case ServerRefusedError():
                return self._refused(error.refusal)
            case httpx2.ConnectError() | httpx2.ConnectTimeout() if self._service.local:
                return ConnectionLost(
                    f"{title} does not answer at {plain(self._service.url)}: start it, or check {self._provider.where}."
                )
            case httpx2.ConnectError():
                return unreachable(self._provider, str(error))
            case httpx2.TimeoutException() | TimeoutError():
                return self._silence()
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return bad_address(self._provider, str(error))
            case httpx2.HTTPError() | httpx2.StreamError():
                return ConnectionLost(f"The connection to {title} broke in the middle of its answer: try again.")
            case OSError():
                return unreachable(self._provider, str(error))
            case msgspec.DecodeError():
                return unreadable(self._provider)
            case _:
                return None


def reasons(model: str) -> bool:
    """Whether a model of OpenAI's reasons, by its id: those of the o series, and GPT from 5 on."""
    name = model.rpartition("/")[2]
    if "chat" in name:
        return False
    family, _, rest = name.partition("-")
    if family == "gpt":
        version = rest.split("-")[0].split(".")[0]
        return rest.startswith("oss") or (version.isdigit() and int(version) >= 5)
    return len(family) > 1 and family[0] == "o" and family[1:].isdigit()
