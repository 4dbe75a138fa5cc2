"""One model for several conversations: its connections are made once and outlive each of them."""

import asyncio
from collections.abc import AsyncIterator

from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Model, ModelProfile, StreamEvent


class SharedModel:
    """A model whose `close` leaves it open; whoever made it ends it with `close_for_good`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._described: asyncio.Future[ModelProfile] | None = None

    @property
    def profile(self) -> ModelProfile:
        return self._model.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Ask. Several calls may run at once."""
        return self._model.stream(request)

    async def describe(self) -> ModelProfile:
        """Ask the provider, once for all conversations."""
        if self._described is None:
            self._described = asyncio.ensure_future(self._model.describe())
        return await asyncio.shield(self._described)

    async def close(self) -> None:
        """A conversation is done with it: nothing happens."""

    async def close_for_good(self) -> None:
        """Release connections."""
        if self._described is not None:
            self._described.cancel()
        await self._model.close()
