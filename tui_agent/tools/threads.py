"""File work off the event loop, with an end that a cancelled call can trust."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds a cancelled call waits for its thread: long enough for any local read or rename, short for a dead mount."""


class Stopped(Exception):
    """The call was cancelled: its thread gives up before it changes anything else."""


class Stop:
    """A cancelled call's word to its own thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped once the call was cancelled. To be asked in every long loop and before every change."""
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], Result]) -> Result:
    """Run `work` in a thread. When cancelled, tell it to stop and wait (at most `GRACE` seconds) until it has.

    So a file is either changed before the cancellation is reported or not at all, unless its file system hangs.
    """
    stop = Stop()
    thread = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop.set()
        await _settled(thread)
        raise


async def _settled(thread: "asyncio.Future[Result]") -> None:
    """Wait until `thread` has ended, through further cancellations, and take its exception so that nobody logs it."""
    thread.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    deadline = asyncio.get_running_loop().time() + GRACE
    while not thread.done():
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return
        try:
            await asyncio.wait({thread}, timeout=left)
        except asyncio.CancelledError:
            continue
