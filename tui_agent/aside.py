"""Running long work in threads, so that it never delays a key press on the event loop."""

import asyncio
import gc
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from tui_agent.durable import to_completion

Result = TypeVar("Result")

SWITCH_INTERVAL_S = 0.001
"""Python's thread switch interval, in seconds; the default is five times that."""


async def aside(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and return its result. Even if cancelled, waits for its end: what it reads must not change
    before.
    """
    return await to_completion(asyncio.to_thread(uncollected, work))


async def load(module: str) -> None:
    """Import a module in a thread, so that importing it later takes no time."""
    await asyncio.to_thread(uncollected, lambda: import_module(module))


def shorten_switch_interval() -> None:
    """Set the thread switch interval, so that a working thread delays the event loop by only about 1 ms."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def uncollected(work: Callable[[], Result]) -> Result:
    """Run `work` with Python's garbage collector off, and return its result.

    A full collection stops all threads: 0.3 s at 5,000 turns (`python -m tests.bench prepare`), 0.1 s with a provider's
    SDK. The objects that remain are exempt from later collections; reference counting still frees them.
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
    """Return memory that long work has freed to the system. Takes some milliseconds, best in a thread.

    glibc keeps freed memory for each thread: 4 to 25 MB after a session of 5,000 turns was read. Does nothing with a C
    library that has no ``malloc_trim``.
    """
    import ctypes

    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
