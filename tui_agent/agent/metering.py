"""Counting what model calls use, whatever becomes of their answers."""

from typing import Literal

from tui_agent.agent.record import Record
from tui_agent.conversation.entries import UnattributedCall, Usage
from tui_agent.models.base import ModelProfile
from tui_agent.models.usage import UsageTracker, cost_usd


class Meter:
    """Counts the calls that are no message of the conversation: in its totals, and in its log for the next start.

    A call that breaks off is billed as far as it went, so what it told of its use is remembered until it ends.
    """

    def __init__(self, record: Record, tracker: UsageTracker) -> None:
        self._record = record
        self._tracker = tracker
        self._running: tuple[ModelProfile, Usage] | None = None

    def told(self, profile: ModelProfile, usage: Usage) -> None:
        """What the running call has used so far."""
        self._running = profile, usage

    def ended(self) -> None:
        """The running call is answered, and counted as its message."""
        self._running = None

    async def broke_off(self) -> None:
        """The running call, if there is one, brings no answer. Raises `StorageError`."""
        if self._running is not None:
            (profile, usage), self._running = self._running, None
            await self._enter(profile, usage, "unfinished")

    async def spent(self, profile: ModelProfile, usage: Usage, purpose: Literal["summary", "digest"]) -> float | None:
        """A call for the conversation's upkeep is answered; its cost in USD, None where the price is not known.

        Raises `StorageError`.
        """
        self._running = None
        return await self._enter(profile, usage, purpose)

    async def _enter(
        self, profile: ModelProfile, usage: Usage, purpose: Literal["summary", "digest", "unfinished"]
    ) -> float | None:
        cost = cost_usd(usage, profile.prices)
        self._tracker.record(profile.name, usage, cost)
        await self._record.append(UnattributedCall(model=profile.name, usage=usage, purpose=purpose, cost_usd=cost))
        return cost
