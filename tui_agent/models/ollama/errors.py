"""Turns Ollama's failures into `ModelError`s, with sentences on what happened and what to do."""

import re
from collections.abc import Sequence

from tui_agent.models.base import (
    AuthFailed,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    Overloaded,
    RateLimited,
    RequestTooLarge,
    ToolsRefused,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.errors import NO_REASON, ErrorReply, it_said, plain, refused_picture
from tui_agent.models.overflow import overflow_in

MOST_NAMES = 8

# From the sources of Ollama's server and its runner (server/routes.go, llm/llama_server.go).
_MEMORY = re.compile(r"more system memory|out of memory|cudamalloc failed|insufficient memory", re.IGNORECASE)
_UNREADABLE_CALL = re.compile(r"error parsing tool call|unexpected end of JSON|tool call.*invalid", re.IGNORECASE)


def not_running(url: str) -> str:
    """The message for a server that does not answer."""
    return f"Ollama does not answer at {plain(url)}: start it with `ollama serve`, or check OLLAMA_HOST."


def no_tools(model: str, others: Sequence[str] = ()) -> ToolsRefused:
    """The error for a model that cannot call tools; `others` can."""
    has = f" Of those Ollama has, these can: {_listed(others)}." if others else ""
    return ToolsRefused(f"{plain(model)} cannot call tools, which a session works by: choose another model.{has}")


def not_pulled(model: str, others: Sequence[str] = ()) -> UnknownModel:
    """The error for a model that Ollama has not pulled; it has `others`."""
    has = f", or choose one it has: {_listed(others)}" if others else ""
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


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(plain, names[:MOST_NAMES]))
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown
