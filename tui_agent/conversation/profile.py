"""What is known about a model: the one record that models fill in and the context layers decide by."""

from typing import Literal, TypeAlias

import msgspec

Tier: TypeAlias = Literal["frontier", "mid", "small", "unknown"]
Cache: TypeAlias = Literal["marked", "implicit", "none"]

MILLION = 1_000_000
CARRYING_SHARE = 0.05
"""For a local model, the cost of carrying a token through a call, as a share of reading it: all later tokens attend to
it. An 8B model that writes some hundred tokens after 16,000 reads 2 GB of attention beside 5 GB of weights for each of
them. A model of 135M parameters, whose attention is heavy for its size, was measured at 0.16: reading 256 and writing
128 tokens took 3.6 s of CPU after 500 tokens and 7.1 s after 4,000, at 6.3 ms for reading one
(``python -m tests.local.carrying``).
"""


class Rates(msgspec.Struct, frozen=True):
    """A model's prices as multiples of its input price, and that price per million tokens: in USD, or for a local
    model, which costs only time, in seconds.
    """

    read: float
    write: float
    output: float
    input_usd: float
    input_s: float = 0.0


class Prices(msgspec.Struct, frozen=True, omit_defaults=True):
    """Prices in USD per million tokens; a cache price of None: the same as `input`. A cache entry that is kept for an
    hour costs twice as much as input to write.

    `above` are the prices of larger requests, ascending: pairs of a number of input tokens and the prices that hold for
    the whole of a request with more.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    above: tuple[tuple[int, "Prices"], ...] = ()

    def of(self, input_tokens: float) -> "Prices":
        """The prices of a request with so many tokens of input."""
        holding = self
        for start, prices in self.above:
            if input_tokens > start:
                holding = prices
        return holding

    def of_input(self, tokens: int, cached: int = 0) -> float:
        """The cost in USD of `tokens` tokens of input, `cached` of them read from the provider's cache."""
        rates, held = self.of(tokens), min(cached, tokens)
        read = rates.input if rates.cache_read is None else rates.cache_read
        return ((tokens - held) * rates.input + held * read) / 1_000_000

    def for_an_hour(self) -> "Prices":
        """These prices if all that is written to the cache is kept for an hour."""
        above = tuple((start, more.for_an_hour()) for start, more in self.above)
        return msgspec.structs.replace(self, cache_write=HOUR_WRITE * self.input, above=above)

    @property
    def rates(self) -> Rates | None:
        """These prices as multiples of the input price; None if nothing costs anything.

        An unknown read price becomes 0, which leaves every decision to the thresholds; without a separate price, writes
        cost as much as input.
        """
        usd = self.input
        if usd <= 0:
            return None
        return Rates((self.cache_read or 0.0) / usd, (self.cache_write or usd) / usd, self.output / usd, usd)


HOUR_S = 3_600
HOUR_WRITE = 2.0
"""The price of writing to the cache for an hour, as a multiple of the input price (Anthropic, "Prompt caching")."""

FREE = Prices(0.0, 0.0, 0.0, 0.0)


class ModelProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about a model. `window`: its input capacity, `max_output`: its longest answer (tokens; 0: unknown).

    `bound_reasoning`: the provider accepts its reasoning back only after the prefix it was generated with.
    `cache`: ``marked``: the provider caches the prefixes that a request marks, and bills the writes; ``implicit``: it
    caches any prefix and does not bill writes; ``none``. `cache_ttl_s`: seconds a cached prefix lives.
    `cache_minimum`: tokens of the smallest prefix that is cached. `keeps_hours`: requests can have it live an hour.
    `fixed_window`: the model was loaded with this window, so settings can narrow but not widen it.
    `picture_bytes` (in base64) and `most_pictures` limit all pictures of a request together; 0: no known limit.
    `signs_summaries`: its provider writes summaries that it accepts for the messages they summarise. `compacts`: its
    provider makes of a conversation an item that only this model can read.
    `images`: it accepts pictures. `tools`: it accepts tools. `defers_tools`: it accepts deferred tool definitions.
    `loose_calls`: its server does not enforce a format for calls, so they may appear in the text.
    `local`: it runs on the user's own machines, where requests cost time instead of money: `reading` and `writing` are
    its speeds in tokens per second (0: not measured). `size`: bytes on disk (0: unknown); `loaded`: it is in memory.
    `catalogue`: its provider's id in the price catalogue (empty: not listed).
    `source`: where window and prices come from: ``provider``, ``settings``, ``catalogue``, or ``default``.
    `effort`: how much it is asked to think and write; empty: as its provider has it, also where it takes no such word.
    `small`: the cheaper model that could write summaries, if any. `search_usd`: what one of its provider's own web
    searches costs; None: it has none.
    """

    provider: str
    id: str
    window: int = 0
    max_output: int = 0
    tier: Tier = "unknown"
    prices: Prices | None = None
    bound_reasoning: bool = False
    signs_summaries: bool = False
    compacts: bool = False
    fixed_window: bool = False
    images: bool = True
    cache: Cache = "none"
    cache_ttl_s: float = 300
    cache_minimum: int = 1024
    keeps_hours: bool = False
    picture_bytes: int = 0
    most_pictures: int = 0
    defers_tools: bool = False
    catalogue: str = ""
    local: bool = False
    reading: float = 0.0
    writing: float = 0.0
    tools: bool = True
    loose_calls: bool = False
    size: int = 0
    loaded: bool = False
    source: str = "default"
    effort: str = ""
    small: "ModelProfile | None" = None
    search_usd: float | None = None

    @property
    def name(self) -> str:
        """``provider:id``, the name in entries and settings."""
        return f"{self.provider}:{self.id}" if self.provider else self.id

    def for_an_hour(self) -> "ModelProfile":
        """This profile if all that is written to the cache is kept for an hour."""
        prices = self.prices.for_an_hour() if self.prices is not None else None
        return msgspec.structs.replace(self, cache_ttl_s=HOUR_S, prices=prices, keeps_hours=False)

    def rates(self, tokens: float) -> Rates | None:
        """The rates of a request of `tokens` tokens: of time for a local model; None if unknown, or free.

        A local server caches the last prefix: after an edit it reads the tail again, everything else is carried.
        """
        if self.local and self.reading > 0 and self.writing > 0:
            return Rates(CARRYING_SHARE, 1.0, self.reading / self.writing, 0.0, MILLION / self.reading)
        return self.prices.of(tokens).rates if self.prices is not None else None

    @property
    def cliffs(self) -> tuple[int, ...]:
        """The request sizes in tokens above which the model costs more per token."""
        return tuple(start for start, _ in self.prices.above) if self.prices is not None else ()
