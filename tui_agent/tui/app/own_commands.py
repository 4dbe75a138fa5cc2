"""The shell commands a user runs from the prompt with ``!``: begun, stopped and ended with the app."""

import asyncio
from collections.abc import Coroutine
from typing import Final

SIGN: Final = "!"


def shell_command(written: str) -> str:
    """The command line of a text that begins with ``!``; empty where it asks for none."""
    text = written.strip()
    return text[1:].strip() if text.startswith(SIGN) else ""


class OwnCommands:
    """The commands that run now."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let this run. It must not raise anything but a cancellation."""
        task = asyncio.create_task(work, name="own command")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Stop all, and wait until what they printed is kept."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
