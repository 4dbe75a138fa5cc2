"""Running work in a thread that stops when the call is cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

GRACE = 2.0
"""Seconds a cancelled call waits for its thread: enough for a read or a rename, short if the file system hangs."""


class ThreadCancelled(Exception):
    """Raised in the thread of a cancelled call, before it changes anything else."""


class Cancellation:
    """Tells the thread of a call that the call was cancelled."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped if the call was cancelled. Call it in every long loop and before every change."""
        if self._event.is_set():
            raise ThreadCancelled


async def in_thread(work: Callable[[Cancellation], Result]) -> Result:
    """Run `work` in a thread. If this is cancelled, tell `work` to stop, and wait for that at most `GRACE` seconds.

    So unless it hangs, `work` changes nothing any more once the cancellation is reported. Raises what `work` raises.
    """
    stop = Cancellation()
    thread = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop.set()
        await _ended(thread)
        raise


async def _ended(thread: "asyncio.Future[Result]") -> None:
    """Wait until `thread` has ended, despite further cancellations; retrieve its exception, or asyncio would log it."""
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
