"""A provider's failure as one of the taxonomy: one plain sentence that says what to do, and never a key in it."""

import os
import re
from email.utils import parsedate_to_datetime
from html import unescape
from math import ceil
from time import time
from typing import NamedTuple

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
    RequestTooLarge,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.overflow import is_too_many_bytes, overflow_in
from tui_agent.models.provider import Provider
from tui_agent.text import clean

TEXT_LIMIT = 300
A_WHILE_S = 60.0
"""Seconds up to which a wait is not worth a number."""
NO_REASON = "it gives no reason"
MOST_UNREADABLE = 1 / 3
"""Share of characters that are none up to which something is taken for a text."""
SHORTEST_KEY = 8
"""Characters from which on the value of a variable with a key's name is taken for one."""

_SECRETS = re.compile(
    r"sk-ant-[\w-]+|AIza[\w-]{10,}|(?i:bearer)\s+[\w.~+/=-]+|(?<=[?&]key=)[^&\s]+|(?<=://)[^/?#@\s]+(?=@)"
)
_PAGE = re.compile(r"<(?:!doctype|html|head|body|title|h1|center)\b", re.IGNORECASE)
_MARKUP = re.compile(r"</\w|/>|<\?xml\b")
_TAG = re.compile(r"<[/!?]?\w[^<>]*>")
_TITLE = re.compile(r"<(?:title|h1)\b[^<>]*>([^<>]+)<", re.IGNORECASE)
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_BAD_KEY = re.compile(r"api key not valid|(?:incorrect|invalid) api key", re.IGNORECASE)
"""How a wrong key is refused with 400: Gemini, xAI."""
_PICTURE = re.compile(r"\bimages?\b|image_url|multimodal|inline_?data|mime.?type", re.IGNORECASE)
_PLACE = re.compile(r"messages\.\d{1,6}\.content\.\d{1,6}(?:\.(?:tool_result\.)?content\.\d{1,6})?")
_SAID_AS = ("error", "message", "detail", "msg", "title")
"""The members of a JSON object that hold the words of an error, the first that is there."""
_STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "service_unavailable": 503,
    "overloaded": 529,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class Refusal(NamedTuple):
    """What a provider answered instead of a message: HTTP status, its own name of the error, text, seconds to wait.

    `written` is what the model wrote, where the server holds it back: a call that does not fit the tool (Groq).
    """

    status: int
    kind: str
    text: str
    retry_after: float | None = None
    written: str = ""


def redact(text: str) -> str:
    """`text` without anything that is, or looks like, a key."""
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_KEY and _SECRET_NAME.search(name):
            text = text.replace(value, "[key]")
    return _SECRETS.sub("[key]", text)


def plain(text: str) -> str:
    """A provider's text made safe to show: one line, no control characters, no keys, at most 300 characters.

    Of a page, which a proxy or a gateway sends in the provider's place, its title; of other markup its words; of what
    is no text, that it is none.
    """
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


def said_in(body: object) -> str:
    """The words in the body of an error, in whatever shape a server or a proxy has it; empty where it has none."""
    match body:
        case str():
            return body
        case [first, *_]:
            return said_in(first)
        case dict():
            return next(filter(None, (said_in(body[name]) for name in _SAID_AS if name in body)), "")
        case _:
            return ""


def it_said(text: str) -> str:
    """A sentence with what a provider said; empty where it said nothing."""
    return f" It said: {shown}" if (shown := plain(text)) else ""


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a ``retry-after`` value: a number, a duration (``3.5s``) or a date. None where it is neither."""
    if not value:
        return None
    try:
        seconds = float(value.strip().removesuffix("s"))
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


def failure(provider: Provider, model: str, refusal: Refusal) -> ModelError:
    """The error of the taxonomy for what the provider answered."""
    name, text = provider.title, plain(refusal.text) or NO_REASON
    if (found := overflow_in(refusal.text, refusal.kind)) is not None:
        return too_long(model, found.tokens, found.limit)
    if is_too_many_bytes(refusal.text):
        return _too_large(name)
    status = refusal.status if refusal.status >= 400 else status_of(refusal.kind) or 500
    if refusal.kind in ("insufficient_quota", "model_not_found"):
        status = _STATUS_OF_KIND[refusal.kind]  # said with 429 and 400, which would mean something else
    if status == 401 or (status == 400 and _BAD_KEY.search(refusal.text)):
        check = provider.key or "the credentials"
        return AuthFailed(f"{name} does not accept the key: check {check}.")
    match status:
        case 402:
            return AuthFailed(f"{name} cannot bill this call: check the account's plan and credit.")
        case 403:
            return AuthFailed(
                f"{f'The key in {provider.key}' if provider.key else 'This account'} may not use {model}: {text}"
            )
        case 404:
            return UnknownModel(
                f"{name} knows no model {model}: choose another one, or check {provider.where} if it is set."
            )
        case 413:
            return _too_large(name)
        case 429:
            return RateLimited(
                f"{name}'s rate limit is reached: wait {_long(refusal.retry_after)}, or use another model.",
                retry_after=refusal.retry_after,
            )
        case 498 | 529:
            return Overloaded(
                f"{name} is overloaded: try again later, or use another model.", retry_after=refusal.retry_after
            )
        case 503 if refusal.kind == "UNAVAILABLE":
            return Overloaded(
                f"{model} is overloaded: try again later, or use another model.", retry_after=refusal.retry_after
            )
        case _ if status >= 500 or status == 408:
            return Unavailable(
                f"{name} failed on its side ({status}): try again later.{it_said(refusal.text)}",
                retry_after=refusal.retry_after,
            )
        case _:
            return refused_picture(name, refusal.text) or InvalidRequest(f"{name} refuses the request: {text}")


def too_long(model: str, tokens: int = 0, limit: int = 0) -> ContextOverflow:
    """A request has more tokens than the model takes; 0: not told."""
    sizes = ""
    if limit:
        told = f"{tokens:,} tokens of at most {limit:,}"
        sizes = f"{told}; " if tokens > limit else f"it takes {limit:,} tokens with the answer; "
    return ContextOverflow(
        f"The conversation is too long for {model}: {sizes}compact it or choose a model with a larger window.",
        tokens=tokens,
        limit=limit,
    )


def status_of(kind: str) -> int:
    """The HTTP status an error of this name comes with where it comes before a stream; 0: not known."""
    return _STATUS_OF_KIND.get(kind) or (int(kind) if re.fullmatch(r"[45]\d\d", kind) else 0)


def _long(seconds: float | None) -> str:
    """How long to wait, where that is told and long."""
    return "a while" if seconds is None or seconds <= A_WHILE_S else f"{ceil(seconds / 60)} minutes"


def refused_picture(name: str, text: str) -> PictureRefused | None:
    """The error for a text that names a picture of the request; None where it names none."""
    if not _PICTURE.search(text):
        return None
    place = _PLACE.search(text)
    return PictureRefused(f"{name} refuses a picture: {plain(text)}", place=place[0] if place else "")


def _too_large(name: str) -> RequestTooLarge:
    return RequestTooLarge(f"The request is larger than {name} accepts: compact the conversation.")


def broke_off(title: str, *, started: bool) -> ConnectionLost:
    """A provider's answer ended before its end; `started`: something of it came."""
    if started:
        return ConnectionLost(f"{title}'s answer broke off before its end: try again.")
    return ConnectionLost(f"{title} sent an empty answer: try again.")


def bad_address(provider: Provider, text: str) -> InvalidRequest:
    """The provider's address is none."""
    return InvalidRequest(f"{provider.title} has no valid address: check {provider.where}. ({plain(text)})")


def unreachable(provider: Provider, text: str) -> ConnectionLost:
    """Nobody answers at the provider's address, which is named where a variable says it."""
    said = next((f" at {plain(os.environ[name])} ({name})" for name in provider.addresses if os.environ.get(name)), "")
    return ConnectionLost(f"{provider.title} cannot be reached{said}: {plain(text)}")


def no_key(provider: Provider, text: str = "") -> AuthFailed:
    """There is no key at all; `text` says what the SDK looked for besides."""
    more = f" ({plain(text)})" if text else ""
    return AuthFailed(f"There is no key for {provider.title}: set {provider.key}.{more}")


def unreadable(provider: Provider) -> ConnectionLost:
    """What came is no event of an answer."""
    return ConnectionLost(f"{provider.title}'s answer could not be read: try again.")


class SomethingElseError(Exception):
    """What answers at an address is another kind of server: it sent a page, not an answer."""

    def __init__(self, address: str) -> None:
        super().__init__(f"a page came from {address}")
        self.address = address


def something_else(provider: Provider, address: str) -> InvalidRequest:
    """Another kind of server answers at the provider's address."""
    return InvalidRequest(f"What answers at {plain(address)} is not {provider.title}: check {provider.where}.")
