import asyncio
import threading

import pytest

from tui_agent.tools.threads import Cancellation, ThreadCancelled, in_thread


async def test_a_cancelled_call_returns_only_when_its_thread_has_stopped() -> None:
    loop = asyncio.get_running_loop()
    started, told = asyncio.Event(), threading.Event()

    def work(stop: Cancellation) -> None:
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                stop.check()
        except ThreadCancelled:
            told.set()
            raise

    task = asyncio.ensure_future(in_thread(work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told.is_set()


async def test_a_second_cancellation_does_not_end_the_wait() -> None:
    loop = asyncio.get_running_loop()
    started, go_on, done = asyncio.Event(), threading.Event(), threading.Event()

    def work(_: Cancellation) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)
        done.set()

    task = asyncio.ensure_future(in_thread(work))
    await started.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.wait({task}, timeout=0)
    loop.call_later(0.01, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()
