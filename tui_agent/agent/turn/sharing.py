"""Ceilings and a provider's limits that several processes share: those of a batch, or all of one day."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import ModelError
from tui_agent.models.usage import MTOK, UsageTracker
from tui_agent.storage.ledger import Ledger
from tui_agent.system.durable import make_private_folder, to_completion
from tui_agent.text import money_text

LOOK_AGAIN_S: Final = 0.5
"""How often it is asked whether another process's call has ended."""
USUAL_OUTPUT: Final = 32_000
"""Tokens of an answer that are paid at most, where the model's own limit is not known."""

TASKS: Final = "All tasks together have cost {spent}; they may cost {ceiling}."
TODAY: Final = "All sessions together have cost {spent} today; they may cost {ceiling} (limits.day_usd)."
WAITS: Final = "It can cost up to {most}, and with calls under way elsewhere more than is left of {ceiling}."
DAYS: Final = "days"
"""The folder of the ledgers, one for each day."""


def ledger_of_today(home: Path, usd: float) -> Ledger:
    """The ledger of all sessions of this day, in which they may cost so much; older ones are removed."""
    today = home / DAYS / f"{date.today()}.db"
    kept = f"{date.today() - timedelta(days=2)}"  # a call of yesterday may still be under way
    if not today.exists():
        make_private_folder(today.parent)
        for past in today.parent.iterdir():
            if past.name < kept:
                past.unlink(missing_ok=True)
    ledger = Ledger(today)
    ledger.set_ceiling(usd)
    return ledger


class SharedCeilingReached(ModelError):
    """All processes together have spent what they may."""

    kind = "shared_ceiling"


class LogShare:
    """This process's part.

    `ledger`: returns the one that counts now. `tracker`: what its calls have cost. `refusal`: said at the ceiling.
    """

    def __init__(self, ledger: Callable[[], Ledger], tracker: UsageTracker, refusal: str = TASKS) -> None:
        self._ledger, self._tracker, self._refusal = ledger, tracker, refusal

    @asynccontextmanager
    async def calling(
        self, profile: ModelProfile, tokens: int, cached: int = 0, waits: Callable[[str], None] = lambda why: None
    ) -> AsyncIterator[None]:
        """A context for one call, which waits for its turn first; then `waits` is told why.

        Raises `SharedCeilingReached`.
        """
        ledger = await asyncio.to_thread(self._ledger)
        least = most = 0.0
        if profile.prices is not None:
            rates = profile.prices.of(tokens)
            least = profile.prices.of_input(tokens, cached)
            # The dearest it can be: all of it written to the cache for an hour.
            most = (2 * tokens * rates.input + (profile.max_output or USUAL_OUTPUT) * rates.output) / MTOK
        call = await self._reserved(ledger, profile.provider, least, most, waits)
        before = self._tracker.session.cost_usd
        try:
            yield
        finally:
            cost = self._tracker.session.cost_usd - before
            await to_completion(asyncio.to_thread(ledger.settle, call, cost))

    async def _reserved(
        self, ledger: Ledger, provider: str, least: float, most: float, waits: Callable[[str], None]
    ) -> int:
        has_waited = False
        while True:
            if (wait := await asyncio.to_thread(ledger.limited_s, provider)) > 0:
                await asyncio.sleep(wait)
                continue
            found = await asyncio.to_thread(ledger.reserve, least, most)
            if found == "never":
                money = await asyncio.to_thread(ledger.money)
                spent, ceiling = money_text(money.spent), money_text(money.ceiling or 0.0)
                raise SharedCeilingReached(self._refusal.format(spent=spent, ceiling=ceiling))
            if isinstance(found, int):
                return found
            if not has_waited:
                has_waited = True
                ceiling = money_text((await asyncio.to_thread(ledger.money)).ceiling or 0.0)
                waits(WAITS.format(most=money_text(most), ceiling=ceiling))
            await asyncio.sleep(LOOK_AGAIN_S)

    async def limited(self, profile: ModelProfile, until: float) -> None:
        """The provider takes no calls until then: the other processes wait, too."""
        await asyncio.to_thread((await asyncio.to_thread(self._ledger)).limit, profile.provider, until)
