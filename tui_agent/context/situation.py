"""What every layer decides from, besides the view: how full the window is, what tokens cost, and the moment."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tui_agent.context.budget import Budget
from tui_agent.conversation.sizes import Size


class Rates(NamedTuple):
    """A model's prices as multiples of its input price, and that price in USD per million tokens."""

    read: float
    write: float
    output: float
    input_usd: float


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which something may be done about the context.

    `tokens` is the size of the next request; `growth` the clearable tokens (tool results) that a call has added on
    average; `cold`: the provider's cache of the prefix has run out, so an edit re-bills nothing; `between_turns`: the
    user is about to speak, else a tool loop is running; `rates` None: prices are unknown; `tokens_of` turns a raw size
    into tokens of the model that answers, calibrated.
    """

    budget: Budget
    tokens: int
    growth: float
    cold: bool
    between_turns: bool
    rates: Rates | None
    tokens_of: Callable[[Size], int]
