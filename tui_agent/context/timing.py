"""When a compaction pays, and when it is the cheaper way to the room that a clearing would make.

A cycle from one compaction to the next costs the writing of the summary, by whichever model does it cheaper, and the
writing of the new view into the provider's cache; against that stands carrying what it would free through every later
call. Costs are in tokens at the input price of the model that answers (README, reference: cost).
"""

from math import sqrt
from typing import NamedTuple

from tui_agent.context.compaction import expected_summary
from tui_agent.context.pricing import thrift_factor
from tui_agent.context.situation import Rates, Situation
from tui_agent.settings import Compaction

COLD_SHARE = 0.03
"""The share of calls that find the cache gone and pay the write price for what they carry."""
TRANSCRIPT_SHARE = 0.4
"""What a separate model is shown of the view, results being cut for it."""
FACTS_SHARE = 5
"""The facts appended to a summary take at most a fifth of what it replaces."""


class Worth(NamedTuple):
    """What a compaction costs, and how many tokens it frees."""

    cost: float
    freed: int

    @property
    def per_token(self) -> float:
        """The cost of each token freed; infinite where none is."""
        return self.cost / self.freed if self.freed > 0 else float("inf")


def compaction_worth(here: Situation, settings: Compaction, rates: Rates, *, keep: int, small: Rates | None) -> Worth:
    """A compaction now that keeps `keep` tokens; `small` are the rates of a cheaper model that could write it."""
    replaced = max(0, here.tokens - here.budget.fixed - keep)
    written = expected_summary(replaced)
    whole = written + min(settings.facts_tokens, replaced // FACTS_SHARE)
    same_prefix = (0.0 if here.cold else rates.read * here.tokens) + written * rates.output
    writing = same_prefix
    if small is not None:
        alone = (TRANSCRIPT_SHARE * here.tokens + written * small.output) * small.input_usd / rates.input_usd
        writing = min(same_prefix, alone)
    rewriting = 0.0 if here.cold else max(0.0, rates.write - rates.read) * (keep + whole)
    return Worth(writing + rewriting, here.tokens - (here.budget.fixed + keep + whole))


def pays_from(here: Situation, settings: Compaction, rates: Rates, worth: Worth, *, growth: float) -> float | None:
    """How many tokens a compaction must free to pay at this moment; None where nothing tells."""
    factor = thrift_factor(settings, between_turns=here.between_turns, cold=here.cold)
    if not factor or growth <= 0 or rates.read <= 0:
        return None
    carrying = rates.read + COLD_SHARE * max(0.0, rates.write - rates.read)
    return factor * sqrt(2 * worth.cost * growth / carrying)


def reason_it_pays(here: Situation, settings: Compaction, rates: Rates, worth: Worth, *, growth: float) -> str:
    """Why a compaction pays at this moment; empty when it does not. `growth`: tokens a call adds to the view."""
    needed = pays_from(here, settings, rates, worth, growth=growth)
    if needed is None or worth.freed <= 0 or worth.freed < needed:
        return ""
    when = "the cache is cold" if here.cold else "between turns" if here.between_turns else "inside a tool loop"
    return f"it pays: {worth.freed:,} freed tokens outweigh a summary ({when}, from {needed:,.0f} on)"


def clearing_cost_per_token(rates: Rates, *, freed: int, tail: float) -> float:
    """What each token costs that a clearing on a warm cache frees, its tail being written anew."""
    return max(0.0, rates.write - rates.read) * tail / freed if freed > 0 else float("inf")
