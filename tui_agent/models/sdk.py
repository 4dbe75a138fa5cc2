"""What the providers' SDKs have in common: they are large, so they are imported at first use, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tui_agent.aside import uncollected

Client = TypeVar("Client")


class Connection(Generic[Client]):
    """An SDK's client, made in a thread when it is first asked for, and anew after it was closed."""

    def __init__(self, connect: Callable[[], Client], release: Callable[[Client], Awaitable[None]]) -> None:
        self._connect = connect
        self._release = release
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def client(self) -> Client:
        """The client. Raises what `connect` raises."""
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(uncollected, self._connect)
            return self._client

    async def close(self) -> None:
        """Release its connections, if there are any."""
        client, self._client = self._client, None
        if client is not None:
            await self._release(client)
