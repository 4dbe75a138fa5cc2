"""Retries of failed calls, for all providers."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from tui_agent.conversation.blocks import Block
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import (
    AdapterFailed,
    Completed,
    ConnectionLost,
    Model,
    ModelError,
    ModelRetrying,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
)
from tui_agent.system.durable import being_cancelled
from tui_agent.text import error_text

ATTEMPTS = 5
"""Calls in total. With delays of about 1, 2, 4 and 8 seconds, they survive 15 seconds of overload."""

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0


async def stream_with_retries(
    model: Model,
    request: ModelRequest,
    *,
    attempts: int = ATTEMPTS,
    longest_delay_s: float = LONGEST_DELAY_S,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> AsyncGenerator[StreamEvent, None]:
    """Send a request, and send it again while it fails with a retryable error.

    Before each retry it yields `ModelRetrying`: discard what was streamed before. The delay is the provider's
    `retry_after`; without one, it doubles from `FIRST_DELAY_S` (times 0.5 to 1, by `jitter`) up to
    `longest_delay_s` seconds. If a provider asks for a longer wait, there is no retry. Ends with `Completed`,
    whatever the model does after it. Raises the last `ModelError`; any other exception of a model becomes an
    `AdapterFailed`, which is never retried.
    """
    for attempt in range(1, attempts + 1):
        try:
            async with aclosing(_checked(model, request)) as stream:
                async for event in stream:
                    yield event
                    if isinstance(event, Completed):
                        return
            raise ConnectionLost("The model's answer ended before its last event", advice="try again")
        except ModelError as error:
            asked = error.retry_after or 0.0
            if not error.retryable or attempt == attempts or asked > longest_delay_s:
                raise
            failed = error
        if failed.retry_after is not None:
            delay = failed.retry_after
        else:
            delay = FIRST_DELAY_S * 2 ** (attempt - 1) * (0.5 + jitter() / 2)
        delay = min(delay, longest_delay_s)
        yield ModelRetrying(attempt, attempts - 1, delay, failed)
        await sleep(delay)


async def _checked(model: Model, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """The model's stream, checked to yield only events and to raise only `ModelError`.

    Closes the stream at once when it is abandoned, not when it is garbage-collected: an open connection costs money.
    """
    stream = None
    try:
        stream = model.stream(request)
        async for event in stream:
            if not _is_event(event):
                raise TypeError(f"it told {event!r:.200}, which is no event of a stream")  # noqa: TRY301
            yield event
    except (ModelError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        # Even a SystemExit or CancelledError of the model's own must end neither the program nor the turn.
        if isinstance(error, asyncio.CancelledError) and being_cancelled():
            raise
        raise AdapterFailed(f"{model.profile.name} failed: {error_text(error)}") from error
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def _is_event(event: object) -> bool:
    """Whether this is a stream event with valid fields."""
    match event:
        case TextDelta() | ReasoningDelta():
            text: object = event.text
            return isinstance(text, str)
        case Completed():
            usage: object = event.usage
            return isinstance(usage, Usage) and all(isinstance(block, Block) for block in event.blocks)
        case _:
            return isinstance(event, StreamEvent)
