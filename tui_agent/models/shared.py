"""A model shared by several conversations, which keeps its connections open between them."""

import asyncio
from collections.abc import AsyncIterator

from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Model, StreamEvent


class SharedModel:
    """A model whose `close` does nothing; its owner closes it with `close_for_good`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._described: asyncio.Future[ModelProfile] | None = None

    @property
    def profile(self) -> ModelProfile:
        return self._model.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """As `Model.stream`. Several calls may run concurrently."""
        return self._model.stream(request)

    async def describe(self) -> ModelProfile:
        """Ask the provider, once for all conversations."""
        if self._described is None:
            self._described = asyncio.ensure_future(self._model.describe())
        return await asyncio.shield(self._described)

    async def close(self) -> None:
        """Do nothing: other conversations may still use the model."""

    async def close_for_good(self) -> None:
        """Release connections."""
        if self._described is not None:
            self._described.cancel()
        await self._model.close()
