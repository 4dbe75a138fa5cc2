"""Long work beside the event loop, so that a key press never waits for it."""

import asyncio
import gc
from collections.abc import Callable
from typing import TypeVar

from tui_agent.durable import to_completion

Result = TypeVar("Result")


async def aside(work: Callable[[], Result]) -> Result:
    """What `work` gives, done in a thread, to its end also when cancelled: what it reads may be changed only then.

    A full run of Python's collector stops every thread: 0.3 s at 5,000 turns (`python -m tests.bench prepare`). So none
    runs meanwhile, and what lasts is then kept out of later runs; it is freed by counting references all the same.
    """
    return await to_completion(asyncio.to_thread(_uncollected, work))


def _uncollected(work: Callable[[], Result]) -> Result:
    enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if enabled:
            gc.freeze()
            gc.enable()
