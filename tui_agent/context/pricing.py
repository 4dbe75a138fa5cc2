"""What context work costs, and when it pays.

Rates are multiples of the model's input price. An edit in the middle of a prompt makes the provider's cache of all that
follows worthless: it is written anew instead of read. Against that stands what every later call saves.

The clearing size is where the cost of clearing in batches is least: a cycle of `n` calls pays ``(w - r) * tail`` once
and carries ``g * n / 2`` clearable tokens on average at ``r`` each, so the best batch frees
``sqrt(2 (w - r) tail g / r)``. A compaction pays `cycle_cost` instead.
"""

from math import ceil, sqrt
from typing import Literal, NamedTuple

from tui_agent.context.situation import Rates
from tui_agent.settings import Compaction
from tui_agent.text import money_text

MILLION = 1_000_000


def rates(
    input_usd: float, output_usd: float, cache_read_usd: float | None = None, cache_write_usd: float | None = None
) -> Rates | None:
    """Prices in USD per million tokens as multiples of the input price; None for a model that costs nothing.

    A read price that is not known becomes 0, which leaves every decision to the thresholds; where writes have no price
    of their own they cost what input costs.
    """
    if input_usd <= 0:
        return None
    write = cache_write_usd if cache_write_usd else input_usd
    return Rates((cache_read_usd or 0.0) / input_usd, write / input_usd, output_usd / input_usd, input_usd)


def clearing_size(rates: Rates | None, tail: float, growth: float) -> float | None:
    """How many tokens a clearing must free to pay for itself while the cache is warm.

    `tail`: tokens after the first cleared item that stay and are therefore written anew; `growth`: clearable tokens a
    call adds. None where no price or no growth is known: then only the thresholds decide.
    """
    if rates is None or rates.read <= 0 or growth <= 0:
        return None
    return sqrt(2 * max(0.0, rates.write - rates.read) * max(0.0, tail) * growth / rates.read)


def cycle_cost(rates: Rates, *, tokens: float, keep: float, summary: float, cold: bool) -> float:
    """What one compaction of a view of `tokens` costs, in tokens at the input price.

    The summariser reads the view (from the cache; where that is cold, the view would have been written anyway), writes
    `summary` tokens, and the new view writes the summary and the `keep` newest tokens anew.
    """
    reading = 0.0 if cold else rates.read * tokens
    return reading + summary * rates.output + max(0.0, rates.write - rates.read) * (keep + summary)


def compaction_size(
    rates: Rates | None, *, tokens: float, keep: float, summary: float, growth: float, cold: bool
) -> float | None:
    """How many tokens a compaction must free to be the cheapest moment for it; None where nothing is known.

    `growth` is what a call adds to the view. The caller multiplies it by `thrift_factor`.
    """
    if rates is None or rates.read <= 0 or growth <= 0:
        return None
    cost = cycle_cost(rates, tokens=tokens, keep=keep, summary=summary, cold=cold)
    return sqrt(2 * cost * growth / rates.read)


def thrift_factor(settings: Compaction, *, between_turns: bool, cold: bool) -> float:
    """What `compaction_size` is multiplied by at this moment; 0: compaction by price is off."""
    if cold:
        return settings.thrift * settings.thrift_cold
    return settings.thrift * (settings.thrift_between_turns if between_turns else settings.thrift_in_loop)


class CacheState(NamedTuple):
    """Whether the provider still has the prefix, and why."""

    cold: bool
    reason: str


def cache_state(
    *, now: float, last_call: float | None, ttl_s: float, same_model: bool, same_prefix: bool = True
) -> CacheState:
    """Whether the prefix of the next request is still cached; times in seconds since the epoch.

    `last_call` is when the newest answer ended (None: there was none). A session that is resumed within the time the
    cache lives is still warm, since its first request has the same bytes.
    """
    if last_call is None:
        return CacheState(True, "nothing was sent yet")
    if not same_model:
        return CacheState(True, "another model answers, whose cache is empty")
    if not same_prefix:
        return CacheState(True, "the system prompt or the tools have changed")
    idle = now - last_call
    if idle >= ttl_s:
        return CacheState(True, f"the last call was {spoken_time(idle)} ago, the cache lives {spoken_time(ttl_s)}")
    return CacheState(False, "the cache is warm")


def spoken_time(seconds: float) -> str:
    """A span of time for people: ``45s``, ``4m12s``, ``2h05m``, ``3d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


class Payback(NamedTuple):
    """What a context step costs now and saves with each later call, in USD, and after how many calls it has paid.

    `calls` is None where it never does.
    """

    cost_usd: float
    saving_usd: float
    calls: int | None


def clearing_payback(rates: Rates, *, freed: float, tail: float, cold: bool) -> Payback:
    """The figures of a clearing that frees `freed` tokens ahead of a tail of `tail` tokens that stay."""
    rewritten = 0.0 if cold else max(0.0, rates.write - rates.read) * tail
    return payback(rates, rewritten, freed)


def compaction_payback(
    rates: Rates, *, freed: float, keep: float, summary: float, summariser_usd: float, cold: bool
) -> Payback:
    """The figures of a compaction whose summariser costs `summariser_usd`."""
    rewritten = 0.0 if cold else max(0.0, rates.write - rates.read) * (keep + summary)
    return payback(rates, rewritten + summariser_usd * MILLION / rates.input_usd, freed)


def payback(rates: Rates, cost: float, freed: float) -> Payback:
    """The figures of a step that costs `cost` tokens at the input price and frees `freed`."""
    saving = (rates.read or 1.0) * freed
    dollars = rates.input_usd / MILLION
    return Payback(cost * dollars, saving * dollars, ceil(cost / saving) if saving > 0 else None)


class Summariser(NamedTuple):
    """A way to have the summary written: by which model, what it reads and writes (tokens), and its rates.

    `cached`: it reads the same prefix the conversation has in the cache; only `instruction` is new to it. `limit` is
    the largest request it takes.
    """

    model: str
    rates: Rates | None
    reads: float
    instruction: float
    writes: float
    limit: float
    cached: bool

    @property
    def fits(self) -> bool:
        return self.reads + self.instruction <= self.limit

    @property
    def usd(self) -> float | None:
        """What it costs; None where its prices are not known."""
        rates = self.rates
        if rates is None:
            return None
        reading = self.reads * ((rates.read or 1.0) if self.cached else 1.0)
        return (reading + self.instruction * rates.write + self.writes * rates.output) * rates.input_usd / MILLION


class Choice(NamedTuple):
    """Who writes the summary, what that costs (None where not known), and why."""

    way: Literal["same_prefix", "separate"]
    model: str
    usd: float | None
    reason: str


def choose_summariser(same: Summariser, separate: Summariser | None) -> Choice:
    """The cheaper of a call on the conversation's own model that re-uses its prefix, and another model on its own.

    Where prices do not tell, the conversation's own model writes, since it knows the whole. A way whose request does
    not fit its window is only taken where neither does: the separate model then, whose input can be split.
    """
    if separate is None:
        return _choice("same_prefix", same, "there is no other model to ask")
    if not same.fits:
        return _choice("separate", separate, f"the conversation leaves {same.model} no room to write a summary")
    if not separate.fits:
        return _choice("same_prefix", same, f"what is summarised does not fit {separate.model}")
    if same.usd is None or separate.usd is None:
        return _choice("same_prefix", same, "prices are not known")
    how = "reads the cached prefix" if same.cached else "reads the prefix uncached"
    if same.usd <= separate.usd:
        return _choice(
            "same_prefix",
            same,
            f"{same.model} {how}: {money_text(same.usd)}, {separate.model} {money_text(separate.usd)}",
        )
    return _choice(
        "separate",
        separate,
        f"{separate.model} costs {money_text(separate.usd)}, {same.model} {how}: {money_text(same.usd)}",
    )


def _choice(way: Literal["same_prefix", "separate"], taken: Summariser, why: str) -> Choice:
    return Choice(way, taken.model, taken.usd, why)
