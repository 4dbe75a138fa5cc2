"""Counts a request's tokens with its server's own tokenizer, before the request is sent.

Three servers can do so, and which one it is gets detected once: llama.cpp's ``llama-server`` (``/apply-template``, then
``/tokenize``), vLLM (``/tokenize`` with messages), llama-cpp-python's (``/extras/tokenize/count``, for plain text).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from tui_agent.models.errors import ServerRefusedError, WrongServerError
from tui_agent.models.http import HttpClient
from tui_agent.models.tokens import PICTURE_TOKENS

TIMEOUT_S = 20.0
"""Seconds to wait for a count; a busy server would answer too late to be useful."""

_UNANSWERED = (ServerRefusedError, WrongServerError, msgspec.DecodeError)

Body: TypeAlias = dict[str, object]
Way: TypeAlias = Callable[[HttpClient, str, Body], Awaitable[int]]


class _Prompt(msgspec.Struct):
    prompt: str


class _Tokens(msgspec.Struct):
    tokens: list[msgspec.Raw]


class _Count(msgspec.Struct):
    count: int


class _Listed(msgspec.Struct):
    owned_by: str | None = None
    permissions: list[msgspec.Raw] | None = None


class _Listing(msgspec.Struct):
    data: list[_Listed]


class TokenCounts:
    """Counts requests with the server at the URL `root`, and knows which kind of server that is.

    `known`: the kind is known. `one_at_a_time`: the server aborts an answer when another request of any kind arrives,
    as llama-cpp-python does by default.
    """

    def __init__(self, root: str) -> None:
        self.known = self.one_at_a_time = False
        self._root = root
        self._way: Way | None = None
        self._tried = False
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def lock(self) -> asyncio.Lock:
        """The lock for requests to this server, of the running event loop."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def see_listing(self, listing: bytes) -> None:
        """Learn the kind of server from its list of models: llama-cpp-python's belong to "me" and name permissions."""
        with suppress(msgspec.DecodeError):
            owned = msgspec.json.decode(listing, type=_Listing).data
            self.one_at_a_time = any(each.owned_by == "me" and each.permissions is not None for each in owned)
            self.known = bool(owned)

    async def of(self, client: HttpClient, body: bytes) -> int:
        """The tokens of a Chat Completions request; 0 if the server cannot count. Never raises."""
        import httpx2

        try:
            way = await self._found(client, body)
            if way is None:
                return 0
            fields, pictures = _without_pictures(msgspec.json.decode(body, type=Body))
            return await way(client, self._root, fields) + pictures * PICTURE_TOKENS
        except (*_UNANSWERED, httpx2.HTTPError):
            return 0  # a template may refuse what the API takes; what is wrong with a connection, the request will tell

    async def of_text(self, client: HttpClient, model: str, text: str) -> int:
        """The tokens of a model's text; 0 if the server cannot count. Never raises."""
        said = {"model": model, "messages": [{"role": "user", "content": text}]}
        nothing = {"model": model, "messages": [{"role": "user", "content": ""}]}
        whole = await self.of(client, msgspec.json.encode(said))
        return max(0, whole - await self.of(client, msgspec.json.encode(nothing))) if whole else 0

    async def _found(self, client: HttpClient, body: bytes) -> Way | None:
        """Detect how this server counts, with a message of one word; None if it cannot."""
        if self._tried:
            return self._way
        model = msgspec.json.decode(body, type=Body).get("model")
        word: Body = {"model": model, "messages": [{"role": "user", "content": "word"}]}
        for way in (_by_llama_server, _by_vllm, _by_llama_cpp_python):
            try:
                if await way(client, self._root, word) > 0:
                    self._way = way
                    break
            except _UNANSWERED:
                continue
        self._tried = self.known = True
        self.one_at_a_time = self.one_at_a_time or self._way is _by_llama_cpp_python
        return self._way


_known_servers: WeakValueDictionary[str, TokenCounts] = WeakValueDictionary()


def counts_of(root: str) -> TokenCounts:
    """The counts of the server at a URL, one object for all models that are asked there."""
    counts = _known_servers.get(root)
    if counts is None:
        counts = _known_servers[root] = TokenCounts(root)
    return counts


async def _by_llama_server(client: HttpClient, root: str, body: Body) -> int:
    asked = _of(body, "messages", "tools")
    made = msgspec.json.decode(await _post(client, f"{root}/apply-template", asked), type=_Prompt)
    text = {"content": made.prompt, "add_special": True, "parse_special": True}
    return len(msgspec.json.decode(await _post(client, f"{root}/tokenize", text), type=_Tokens).tokens)


async def _by_vllm(client: HttpClient, root: str, body: Body) -> int:
    asked = _of(body, "model", "messages", "tools")
    return msgspec.json.decode(await _post(client, f"{root}/tokenize", asked), type=_Count).count


async def _by_llama_cpp_python(client: HttpClient, root: str, body: Body) -> int:
    """Count a rendering of our own, since the model's template is unknown; the result is slightly too high."""
    asked = {"model": body["model"], "input": _as_text(body)}
    return msgspec.json.decode(await _post(client, f"{root}/extras/tokenize/count", asked), type=_Count).count


def _of(body: Body, *names: str) -> Body:
    return {name: body[name] for name in names if name in body}


async def _post(client: HttpClient, url: str, fields: Body) -> bytes:
    return await client.fetch(url, TIMEOUT_S, msgspec.json.encode(fields))


def _as_text(body: Body) -> str:
    """Render a request the way templates do: each message between markers, calls and definitions as JSON."""
    messages, tools = body.get("messages"), body.get("tools")
    parts = [msgspec.json.encode(tools).decode()] if tools else []
    for message in messages if isinstance(messages, list) else ():
        content, calls = message.get("content") or "", message.get("tool_calls")
        if not isinstance(content, str):
            content = "".join(part.get("text", "") for part in content)
        called = msgspec.json.encode(calls).decode() if calls else ""
        thought = message.get("reasoning_content") or ""
        parts.append(f"<|im_start|>{message['role']}\n{thought}{content}{called}<|im_end|>\n")
    return "".join([*parts, "<|im_start|>assistant\n"])


def _without_pictures(body: Body) -> tuple[Body, int]:
    """The request without its pictures, and how many there were."""
    messages, left_out, kept = body.get("messages"), 0, []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content")
        if isinstance(content, list):
            texts = [part for part in content if part.get("type") != "image_url"]
            left_out += len(content) - len(texts)
            message = {**message, "content": "".join(part.get("text", "") for part in texts)}
        kept.append(message)
    return {**body, "messages": kept}, left_out
