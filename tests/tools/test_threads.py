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


async def test_results_and_errors_pass_through() -> None:
    assert await in_thread(lambda _: 5) == 5

    def fail(_: Cancellation) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)
