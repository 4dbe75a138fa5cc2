"""What people see of the context: one frozen snapshot."""

import msgspec


class ContextStats(msgspec.Struct, frozen=True, kw_only=True):
    """How full the window is and what that costs.

    `tokens` is the size of the next request (`measured`: counted by the provider, else estimated), `window` the model's
    input capacity, `reserve` the room for an answer; `categories` splits the request, in estimated tokens. Costs are in
    USD, None where the model's prices are not known.
    """

    model: str
    tokens: int
    window: int
    reserve: int
    measured: bool
    categories: dict[str, int]
    cost_usd: float | None = 0.0
    turn_cost_usd: float | None = 0.0
    messages: int = 0
    evicted: int = 0
    cleared: int = 0
    digested: int = 0
    compactions: int = 0
    checkpoints: int = 0

    @property
    def percent(self) -> float:
        """The share of the window in use, in percent."""
        return 100 * self.tokens / self.window if self.window else 0.0
