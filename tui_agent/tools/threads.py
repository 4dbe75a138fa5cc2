"""Work in a thread, with an end that a cancelled call can rely on."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds a cancelled call waits for its thread: enough for a read or a rename, few for a file system that hangs."""


class Stopped(Exception):
    """Raised in the thread of a call that was cancelled, before the thread changes anything else."""


class Stop:
    """Tells the thread of a call that the call was cancelled."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped once the call was cancelled. To be called in every long loop and before every change."""
        if self._event.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], Result]) -> Result:
    """Run `work` in a thread. When this is cancelled, tell `work` to stop and wait until it has, for `GRACE` seconds.

    So what `work` changes has changed before the cancellation is reported, or does not change at all, unless it hangs.
    Raises what `work` raises.
    """
    stop = Stop()
    thread = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop.set()
        await _ended(thread)
        raise


async def _ended(thread: "asyncio.Future[Result]") -> None:
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
