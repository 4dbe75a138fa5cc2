"""Long work beside the event loop, so that a key press never waits for it."""

import asyncio
import gc
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from tui_agent.durable import to_completion

Result = TypeVar("Result")

HANDOVER_S = 0.001
"""After how long a thread that works lets another one go on, in seconds; Python's own default is five times that."""


async def aside(work: Callable[[], Result]) -> Result:
    """What `work` gives, done in a thread, to its end also when cancelled: what it reads may be changed only then."""
    return await to_completion(asyncio.to_thread(uncollected, work))


async def load(module: str) -> None:
    """Import a module in a thread: who then imports it waits for nothing."""
    await asyncio.to_thread(uncollected, lambda: import_module(module))


def share_often() -> None:
    """Let the event loop go on after a millisecond of a thread's work: for a program whose keys wait for nothing."""
    sys.setswitchinterval(HANDOVER_S)


def uncollected(work: Callable[[], Result]) -> Result:
    """What `work` gives, without a run of Python's garbage collector meanwhile.

    A full run stops every thread: 0.3 s at 5,000 turns (`python -m tests.bench prepare`), 0.1 s with a provider's SDK.
    What lasts is then kept out of later runs; it is freed by counting references all the same.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


def give_back_freed() -> None:
    """Give the system back the memory that long work has freed; some milliseconds, best in a thread.

    The C library of Linux keeps what was freed, for each thread that worked: 4 to 25 MB after a session of 5,000 turns
    was read. There is nothing to be done where it does not know how (malloc_trim, glibc).
    """
    import ctypes

    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
