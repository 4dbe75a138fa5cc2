"""Turns providers' failures into `ModelError`s, each with one sentence that says what to do and never shows a key."""

import os
import re
from math import ceil

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import valid_text
from tui_agent.models.base import (
    AuthFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    Overloaded,
    PictureRefused,
    RateLimited,
    ReasoningRefused,
    RequestTooLarge,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.provider import Provider
from tui_agent.models.refusals import is_too_many_bytes, overflow_in, seconds_to_reset
from tui_agent.regex import regex
from tui_agent.text import clean

TEXT_LIMIT = 300
A_WHILE_S = 60.0
"""Waits up to this many seconds are called "a while"."""
YEAR_S = 365 * 86_400.0
NO_REASON = "it gives no reason"
MOST_UNREADABLE = 1 / 3
"""The largest share of unprintable characters in something that still counts as text."""
SHORTEST_KEY = 8
"""Values of at least this many characters are redacted if their variable's name looks like that of a key."""

_SECRETS = regex(r"sk-ant-[\w-]+|AIza[\w-]{10,}|(?i:bearer)\s+[\w.~+/=-]+|(?<=[?&]key=)[^&\s]+|(?<=://)[^/?#@\s]+(?=@)")
_PAGE = regex(r"<(?:!doctype|html|head|body|title|h1|center)\b", re.IGNORECASE)
_MARKUP = regex(r"</\w|/>|<\?xml\b")
_TAG = regex(r"<[/!?]?\w[^<>]*>")
_TITLE = regex(r"<(?:title|h1)\b[^<>]*>([^<>]+)<", re.IGNORECASE)
_SECRET_NAME = regex(r"(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_BAD_KEY = regex(r"api key not valid|(?:incorrect|invalid) api key", re.IGNORECASE)
"""How Gemini and xAI refuse a wrong key, with status 400."""
_SPENT = regex(r"reached your (?:\w+ )?API usage limits", re.IGNORECASE)
"""How Anthropic says, with status 400, that what the account may spend in a month is spent."""
_CONTENT = regex(r"violates? .{0,40}(?:guidelines|polic)|requires moderation|was flagged", re.IGNORECASE)
"""How xAI and OpenRouter refuse what a request says, with status 403."""
_REASONING = r"(?:signature|encrypted content|thinking`? blocks?)"
_BAD = r"(?:invalid|corrupt|not valid|could not be (?:verified|decrypted)|cannot be modified)"
_SIGNATURE = regex(rf"{_BAD}.{{0,60}}?{_REASONING}|{_REASONING}.{{0,90}}?{_BAD}", re.IGNORECASE | re.DOTALL)
"""How Anthropic, Gemini and OpenAI refuse a signature of reasoning that is not theirs, or was changed."""
_REASONING_ITEM = regex(
    r"item with id '?(rs_\w+)'? not found|item '?(rs_\w+)'? of type 'reasoning' was provided without"
    r"|encrypted content (?:for item '?(rs_\w+)'?|(\S+\.\.\.\S+)) could not",
    re.IGNORECASE,
)
"""How OpenAI names the item of reasoning that it refuses: one it does not keep (404), one that nothing follows, one
that is not its own.
"""
_PICTURE = regex(r"\bimages?\b|image_url|multimodal|inline_?data|mime.?type", re.IGNORECASE)
_PLACE = regex(r"messages\.\d{1,6}\.content\.\d{1,6}(?:\.(?:tool_result\.)?content\.\d{1,6})?")
_ERROR_TEXT_FIELDS = ("error", "message", "detail", "msg", "title")
"""The fields of a JSON object that may contain the error's text, in order of preference."""
_KINDS = {
    400: ("invalid_request_error", "content_filter", "INVALID_ARGUMENT", "validationException"),
    401: ("invalid_api_key", "authentication_error", "UNAUTHENTICATED"),
    402: ("insufficient_quota", "billing_error"),
    403: ("permission_error", "PERMISSION_DENIED"),
    404: ("model_not_found", "not_found_error", "NOT_FOUND"),
    413: ("request_too_large",),
    429: ("rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "throttlingException"),
    500: ("server_error", "api_error", "INTERNAL"),
    503: ("service_unavailable", "UNAVAILABLE", "serviceUnavailableException"),
    504: ("timeout_error", "DEADLINE_EXCEEDED"),
    529: ("overloaded", "overloaded_error"),
}
_STATUS_OF_KIND = {kind: status for status, kinds in _KINDS.items() for kind in kinds}


class ErrorReply(msgspec.Struct, frozen=True):
    """A provider's error response: HTTP status, the provider's name of the error, its text, seconds to wait.

    `written` is the model's output if the server rejected it, such as a call that does not match the tool (Groq).
    """

    status: int
    kind: str
    text: str
    retry_after: float | None = None
    written: str = ""


_LATER = "try again later, or use another model"


def redact(text: str) -> str:
    """`text` with everything that is, or looks like, a key replaced by ``[key]``."""
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_KEY and _SECRET_NAME.search(name):
            text = text.replace(value, "[key]")
    return _SECRETS.sub("[key]", text)


def plain(text: str) -> str:
    """A provider's text, safe to show: one line without control characters or keys, at most `TEXT_LIMIT` characters.

    For a web page, which a proxy or gateway may send, this is its title; for other markup, its text.
    """
    from html import unescape

    text = valid_text(text[: 20 * TEXT_LIMIT])
    if _PAGE.search(text):
        title = _TITLE.search(text)
        text = unescape(title[1]) if title else "a web page instead of an answer"
    elif _MARKUP.search(text):
        text = unescape(_TAG.sub(" ", text))
    if sum(c == "\ufffd" or not (c.isprintable() or c.isspace()) for c in text) > MOST_UNREADABLE * len(text):
        text = "something that is no text"
    text = clean(text) if "\x1b" in text else text
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = redact(line)
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1] + "…"


def error_text_in(body: object) -> str:
    """The error text in a response's body, whatever format the server or proxy uses; empty if there is none."""
    match body:
        case str():
            return body
        case [first, *_]:
            return error_text_in(first)
        case dict():
            return next(filter(None, (error_text_in(body[name]) for name in _ERROR_TEXT_FIELDS if name in body)), "")
        case _:
            return ""


def it_said(text: str) -> str:
    """A sentence that quotes the provider; empty if it said nothing."""
    return f" It said: {shown}" if (shown := plain(text)) else ""


def failure(provider: Provider, model: str, refusal: ErrorReply) -> ModelError:
    """The `ModelError` for a provider's error response."""
    name, text = provider.title, plain(refusal.text) or NO_REASON
    if refusal.retry_after is None:  # an error inside of a stream has no headers
        refusal = structs.replace(refusal, retry_after=seconds_to_reset({}, text=refusal.text))
    if (found := overflow_in(refusal.text, refusal.kind)) is not None:
        return too_long(model, found.tokens, found.limit)
    if is_too_many_bytes(refusal.text):
        return _too_large(name)
    if is_about_signature(refusal):
        return ReasoningRefused(
            f"{name} does not accept earlier reasoning of {model}: {text}", named=_named_in(refusal)
        )
    status = refusal.status if refusal.status >= 400 else status_of(refusal.kind) or 500
    if refusal.kind in ("insufficient_quota", "model_not_found"):
        status = _STATUS_OF_KIND[refusal.kind]  # they come with 429 and 400, which would be misleading
    if _SPENT.search(refusal.text):
        status = 429
    if status == 401 or (status == 400 and _BAD_KEY.search(refusal.text)):
        return AuthFailed(f"{name} does not accept the key: check {_key(provider) or 'the credentials'}.")
    match status:
        case 402:
            return AuthFailed(f"{name} cannot bill this call: check the account's plan and credit.")
        case 403 if _CONTENT.search(refusal.text):
            return InvalidRequest(f"{name} refuses the request: {text}")
        case 403:
            holder = f"The key in {key}" if (key := _key(provider)) else "This account"
            return AuthFailed(f"{holder} may not use {model}: {text}")
        case 404:
            return UnknownModel(
                f"{name} knows no model {model}",
                advice=f"choose another one, or check {provider.where} if it is set",
                said=it_said(refusal.text),
            )
        case 413:
            return _too_large(name)
        case 429:
            return RateLimited(
                f"{name}'s rate limit is reached",
                advice=f"wait {_long(refusal.retry_after)}, or use another model",
                retry_after=refusal.retry_after,
            )
        case 498 | 529:
            return Overloaded(f"{name} is overloaded", advice=_LATER, retry_after=refusal.retry_after)
        case 503 if refusal.kind == "UNAVAILABLE":
            return Overloaded(f"{model} is overloaded", advice=_LATER, retry_after=refusal.retry_after)
        case _ if status >= 500 or status == 408:
            return Unavailable(
                f"{name} failed on its side ({status})",
                advice="try again later",
                said=it_said(refusal.text),
                retry_after=refusal.retry_after,
            )
        case _:
            return refused_picture(name, refusal.text) or InvalidRequest(f"{name} refuses the request: {text}")


def is_about_signature(refusal: ErrorReply) -> bool:
    """Whether a request was refused for a signature of reasoning in it, or for an item of reasoning."""
    return (
        refusal.kind == "invalid_encrypted_content"
        or _SIGNATURE.search(refusal.text) is not None
        or _REASONING_ITEM.search(refusal.text) is not None
    )


def _named_in(refusal: ErrorReply) -> str:
    """The reasoning that a refusal names, as `ReasoningRefused.named`."""
    if (item := _REASONING_ITEM.search(refusal.text)) is not None:
        return next(filter(None, item.groups()), "")
    place = _PLACE.search(refusal.text)
    return place[0] if place else ""


def too_long(model: str, tokens: int = 0, limit: int = 0, *, bound: bool = False) -> ContextOverflow:
    """The error for a request with more tokens than the model accepts; 0: unknown. `bound`: it has at most `tokens`."""
    sizes = ""
    if limit:
        size = f"{tokens:,} tokens of at most {limit:,}"
        sizes = f"{size}; " if tokens > limit else f"it takes {limit:,} tokens with the answer; "
    return ContextOverflow(
        f"The conversation is too long for {model}: {sizes}compact it or choose a model with a larger window.",
        tokens=tokens,
        limit=limit,
        bound=bound,
    )


def status_of(kind: str) -> int:
    """The HTTP status that the provider uses for this error outside of a stream; 0 if unknown."""
    return _STATUS_OF_KIND.get(kind) or (int(kind) if re.fullmatch(r"[45]\d\d", kind) else 0)


def _long(seconds: float | None) -> str:
    """How long to wait, in words."""
    if seconds is None or seconds <= A_WHILE_S:
        return "a while"
    for unit, length, until in (("minutes", 60, 2 * 3_600), ("hours", 3_600, 2 * 86_400), ("days", 86_400, YEAR_S)):
        if seconds <= until:
            return f"{ceil(seconds / length)} {unit}"
    return "more than a year"


def refused_picture(name: str, text: str) -> PictureRefused | None:
    """The error if a refusal is about a picture of the request, else None."""
    if not _PICTURE.search(text):
        return None
    place = _PLACE.search(text)
    return PictureRefused(f"{name} refuses a picture: {plain(text)}", place=place[0] if place else "")


def _key(provider: Provider) -> str:
    """The variable whose key was refused; empty: it needs none."""
    return next(filter(os.environ.get, provider.keys), provider.key)


def _too_large(name: str) -> RequestTooLarge:
    return RequestTooLarge(f"The request is larger than {name} accepts: compact the conversation.")


def broke_off(title: str, *, started: bool) -> ConnectionLost:
    """The error for an answer that broke off; `started`: some of it had arrived."""
    happened = f"{title}'s answer broke off before its end" if started else f"{title} sent an empty answer"
    return ConnectionLost(happened, advice="try again")


def interrupted_for_another(title: str) -> ConnectionLost:
    """The error for an answer that a server broke off for another program's request (llama-cpp-python)."""
    return ConnectionLost(
        f"{title} broke off its answer for another request",
        advice="ask it from one program at a time, or start it with --interrupt_requests False",
    )


def bad_address(provider: Provider, text: str) -> InvalidRequest:
    """The error for an invalid address of the provider."""
    return InvalidRequest(f"{provider.title} has no valid address: check {provider.where}. ({plain(text)})")


def unreachable(provider: Provider, text: str) -> ConnectionLost:
    """The error for a provider that does not answer; names the address if a variable sets it."""
    said = next((f" at {plain(os.environ[name])} ({name})" for name in provider.addresses if os.environ.get(name)), "")
    return ConnectionLost(f"{provider.title} cannot be reached{said}: {plain(text)}")


def no_key(provider: Provider, text: str = "") -> AuthFailed:
    """The error for a missing key; `text`: the SDK's message on where else it looked."""
    more = f" ({plain(text)})" if text else ""
    return AuthFailed(f"There is no key for {provider.title}: set {provider.key}.{more}")


def unreadable(provider: Provider) -> ConnectionLost:
    """The error for a malformed event in an answer."""
    return ConnectionLost(f"{provider.title}'s answer could not be read", advice="try again")


class WrongServerError(Exception):
    """An address belongs to another kind of server: it sent a web page instead of an answer."""

    def __init__(self, address: str) -> None:
        super().__init__(f"a page came from {address}")
        self.address = address


def wrong_server(provider: Provider, address: str) -> InvalidRequest:
    """The error for an address of the provider that belongs to another kind of server."""
    return InvalidRequest(f"What answers at {plain(address)} is not {provider.title}: check {provider.where}.")


class ServerRefusedError(Exception):
    """The server answered with an error response."""

    def __init__(self, refusal: ErrorReply) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal
