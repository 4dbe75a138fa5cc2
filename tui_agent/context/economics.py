"""The cost of context work, and when it pays off.

Rates are multiples of the model's input price. An edit in the middle of a prompt invalidates the provider's cache of
everything after it, which is then written again rather than read. In return, every later call is cheaper.

Clearing: a cycle of `n` calls pays ``(w - r) * tail`` once and carries ``g * n / 2`` clearable tokens on average at
``r`` each, so the cheapest batch frees ``sqrt(2 (w - r) tail g / r)``. Compaction: a cycle costs the writing of the
summary, by whichever model does it cheaper, and the writing of the new view into the cache; against that stands
carrying what it would free through every later call (docs/context.md, "Cost").
"""

from collections.abc import Callable
from math import ceil, sqrt
from typing import Literal, NamedTuple

import msgspec

from tui_agent.context.budget import Budget, Thresholds
from tui_agent.context.counting import estimate
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.profile import MILLION, ModelProfile, Rates
from tui_agent.conversation.sizes import TextSize
from tui_agent.conversation.view import View
from tui_agent.settings import Settings
from tui_agent.text import money_text, price_or_time

LONGEST_SUMMARY = 3_000
SHORT_SUMMARY = 1_000
"""The shortest limit that a high price of output leads to; facts and the user's words stand beside a summary anyway."""
USUAL_OUTPUT = 5.0
"""What providers usually charge for output, as a multiple of the input price. Where it costs more, as the time of a
local model does, shorter summaries are asked for, in proportion.
"""
COLD_SHARE = 0.03
"""The share of calls that find the cache expired and pay the write price for everything they carry."""
TRANSCRIPT_SHARE = 0.4
"""The share of the view that a separate model is shown, since results are cut for it."""
FACTS_SHARE = 5
"""The facts appended to a summary take at most a fifth of what it replaces."""
SUMMARIES_SHARE = 8
SUMMARIES_HISTORY_SHARE = 4
"""All summaries together take at most 1/`SUMMARIES_SHARE` of the window, and this share of the history budget."""
ONE_SUMMARY_SHARE = 4
"""One summary takes at most a quarter of that, so that several stand before a merge is due."""


class TaskDone(NamedTuple):
    """The model's declaration that a task is done: the first entry of its step, and the model's description."""

    step: int
    detail: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which context work may be done: everything that the layers base their decisions on.

    tokens: the size of the next request. growth, growth_of_all: the clearable tokens (tool results), and all tokens,
    that a call adds on average. cold: the provider's cache of the prefix has expired, so an edit costs nothing extra.
    new_prefix: another system prompt or other tools wait to be adopted with a summary. kept: tokens at the start of the
    next request that the cache has. between_turns: the user is about to speak; else a tool loop is running. model: the
    active one, with the window in force. rates: None if prices are unknown. small_rates: of the cheaper model that
    could write a summary. staying: tokens that no compaction frees: earlier summaries, and the user's own words.
    tokens_of, mixed_tokens_of: convert a raw size of tool results, or of a mixture like the whole conversation, to
    tokens of the active model; small_tokens_of: to tokens of the cheaper one. whole_tokens_of: the estimate of a whole
    view, each class of content by its own ratio.

    cleared: the clearing that is due, as another layer has planned it. least_results: results below this many tokens
    were examined, and no clearing pays. task_done: the newest task without a record. resting: automatic compaction
    pauses after a failure. in_background: a summary would be written while the conversation goes on. kept_from: the
    first entry that the summary entered just now keeps (0: it keeps none); None: none was entered.
    """

    settings: Settings = msgspec.field(default_factory=Settings)
    budget: Budget
    limits: Thresholds
    tokens: int
    growth: float
    growth_of_all: float
    cold: bool
    between_turns: bool
    new_prefix: bool = False
    kept: int = 0
    model: ModelProfile = ModelProfile("", "")
    rates: Rates | None
    small_rates: Rates | None
    staying: int = 0
    tokens_of: Callable[[TextSize], int]
    mixed_tokens_of: Callable[[TextSize], int]
    whole_tokens_of: Callable[[View], int]
    small_tokens_of: Callable[[TextSize], int] = estimate
    cleared: Cleared | None = None
    least_results: float = 0.0
    task_done: TaskDone | None = None
    resting: bool = False
    in_background: bool = False
    kept_from: int | None = None

    @property
    def summary_is_cold(self) -> bool:
        """Whether a summary begun now counts as entered on a cold cache: inside a turn, one that is written meanwhile
        comes after a call. After a new message it does so, too, but beginning it then is cheaper all the same: at the
        prices of a warm cache, recorded sessions cost 1% (Gemini) to 3% (Claude) more (``tests.bench.cells``).
        """
        return self.cold and (self.between_turns or not self.in_background)


def clearing_size(rates: Rates | None, tail: float, growth: float, *, writing: float = 0.0) -> float | None:
    """How many tokens a clearing must free to pay for itself while the cache is warm.

    `tail`: tokens that stay after the first cleared item, and so are written again. `growth`: clearable tokens that a
    call adds. `writing`: the cost of a text in their place, in tokens of input. None if prices or growth are unknown:
    then only the thresholds decide.
    """
    if rates is None or rates.read <= 0 or growth <= 0:
        return None
    return sqrt(2 * (max(0.0, rates.write - rates.read) * max(0.0, tail) + writing) * growth / rates.read)


class StepPrice(msgspec.Struct, frozen=True):
    """What a context step costs and saves, in USD, or `in_seconds` with a model of the user's own.

    before: what reading the next request costs without the step; call: what it costs after it. writing: the text that
    replaces what leaves. saving: what every later call saves.
    """

    before: float
    call: float
    saving: float
    writing: float = 0.0
    in_seconds: bool = False

    @property
    def cost(self) -> float:
        """What the step costs once, with the next call; 0 if that call saves as much."""
        return max(0.0, self.writing + self.call - self.before)

    @property
    def gained(self) -> float:
        """What the step has saved once the next call is made; 0 if it has cost something until then."""
        return max(0.0, self.before - self.call - self.writing)

    @property
    def calls(self) -> int | None:
        """After how many later calls it has paid for itself; None: never."""
        if not self.cost:
            return 0
        return ceil(self.cost / self.saving) if self.saving > 0 else None

    def text(self, amount: float) -> str:
        return price_or_time(0.0 if self.in_seconds else amount, amount if self.in_seconds else 0.0)


def cost_of_call(rates: Rates, tokens: int, kept: int) -> float:
    """What reading a request costs of which `kept` tokens are cached, in USD, or in seconds if it costs only time."""
    kept = max(0, min(kept, tokens))
    return (kept * rates.read + (tokens - kept) * max(1.0, rates.write)) * (rates.input_usd or rates.input_s) / MILLION


def step_price(
    here: Situation, *, after: int, tail: int, writing: float = 0.0, renews: bool = False
) -> StepPrice | None:
    """What a step costs that leaves a request of `after` tokens; None if prices are unknown.

    `tail`: tokens of the new request from the first change on. `writing`: what the text costs that replaces what left.
    `renews`: a new prefix is adopted with it, if one waits.
    """
    rates = here.rates
    if rates is None:
        return None
    then = here.model.rates(after) or rates
    unchanged = 0 if renews and here.new_prefix else max(0, after - tail)
    if here.model.cache == "marked":
        # The provider has an entry at the end of the system prompt and tools; those after it end behind the change.
        unchanged = min(unchanged, here.budget.fixed)
    kept = min(here.kept, unchanged) if unchanged >= here.model.cache_minimum else 0
    return StepPrice(
        before=cost_of_call(rates, here.tokens, here.kept),
        call=cost_of_call(then, after, kept),
        saving=max(0.0, _carrying(rates, here.tokens) - _carrying(then, after)),
        writing=writing,
        in_seconds=not rates.input_usd,
    )


def _carrying(rates: Rates, tokens: int) -> float:
    """What a call costs for the tokens that it has from the calls before it, in USD or seconds."""
    return tokens * (rates.read or 1.0) * (rates.input_usd or rates.input_s) / MILLION


class Summariser(msgspec.Struct, frozen=True):
    """A way to get a summary written: the model, the tokens it reads and writes, and its rates.

    cached: it reads the conversation's cached prefix, so only `instruction` is new to it. limit: the largest request it
    accepts, in tokens.
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
        """Its cost in USD; None if prices are unknown, or it costs only time."""
        rates = self.rates
        if rates is None or not rates.input_usd:
            return None
        reading = self.reads * ((rates.read or 1.0) if self.cached else 1.0)
        return (reading + self.instruction * rates.write + self.writes * rates.output) * rates.input_usd / MILLION


class WriterChoice(msgspec.Struct, frozen=True):
    """The choice of who writes the summary, its cost in USD (None: unknown), and why."""

    way: Literal["same_prefix", "whole"]
    usd: float | None
    reason: str


def choose_summariser(same: Summariser, separate: Summariser) -> WriterChoice:
    """Choose the cheaper of the conversation's own model, which re-uses its cached prefix, and one that reads only what
    is summarised.

    If prices are unknown, the conversation's own model writes, since it knows everything. A way that does not fit its
    window is only chosen if neither does: then the separate model, whose input can be split.
    """
    if not same.fits:
        return WriterChoice("whole", separate.usd, f"the conversation leaves {same.model} no room to write a summary")
    if not separate.fits:
        return WriterChoice("same_prefix", same.usd, f"what is summarised does not fit {separate.model}")
    if same.usd is None or separate.usd is None:
        return WriterChoice("same_prefix", same.usd, "the conversation's own model writes it")
    how = f"{same.model} reads the {'cached prefix' if same.cached else 'prefix uncached'}: {money_text(same.usd)}"
    if same.usd <= separate.usd:
        return WriterChoice("same_prefix", same.usd, f"{how}, {separate.model} on its own {money_text(separate.usd)}")
    reason = f"{separate.model} on its own costs {money_text(separate.usd)}, {how}"
    return WriterChoice("whole", separate.usd, reason)


def expected_summary(replaced: int, longest: int = LONGEST_SUMMARY) -> int:
    """The length limit, in tokens, given to the writer of a summary of `replaced` tokens; facts come on top."""
    return min(longest, replaced // 4)


def likely_summary(replaced: int, longest: int = LONGEST_SUMMARY) -> float:
    """The length that a summary of `replaced` tokens probably has, in tokens."""
    return expected_summary(replaced, longest) * 2 / 3


def longest_summary(here: Situation) -> int:
    """The most tokens that a summary may take here, without its facts."""
    dear = max(1.0, here.rates.output / USUAL_OUTPUT) if here.rates is not None else 1.0
    return min(max(SHORT_SUMMARY, round(LONGEST_SUMMARY / dear)), summaries_limit(here) // ONE_SUMMARY_SHARE)


def summaries_limit(here: Situation) -> int:
    """The most tokens that all summaries together may take."""
    most, room = here.settings.compaction.summaries_tokens, here.budget
    window = room.window or room.max_context
    return min(most, window // SUMMARIES_SHARE, room.history // SUMMARIES_HISTORY_SHARE) if window else most


def facts_limit(here: Situation) -> int:
    """The most tokens of facts that are appended to a summary: the setting, scaled like all summaries together."""
    settings = here.settings.compaction
    return settings.facts_tokens * summaries_limit(here) // max(1, settings.summaries_tokens)


def signing_cost(here: Situation, rates: Rates, replaced: int) -> float:
    """What a summary of `replaced` tokens costs that the provider writes and signs, in tokens at the input price."""
    reading = 1.0 if here.cold else rates.read
    return reading * (replaced + here.budget.fixed) + likely_summary(replaced) * rates.output


def _writing_cost(here: Situation, rates: Rates, *, reads: float, alone: float, writes: float) -> float:
    """What a summary of `writes` tokens costs, in tokens at the input price, by the cheaper writer: the session's
    model, to which `reads` tokens are new or half new, or the small one, which reads `alone` tokens.
    """
    small, cost = here.small_rates, reads + writes * rates.output
    if small is None or not rates.input_usd or not small.input_usd:
        return cost
    return min(cost, (alone + writes * small.output) * small.input_usd / rates.input_usd)


def signing_extra(here: Situation, rates: Rates, *, replaced: int, replaced_by_us: int) -> float:
    """What the text of a summary that the provider signs costs more than ours, in tokens at the input price."""
    ours = _writing_cost(
        here,
        rates,
        reads=(1.0 if here.cold else rates.read) * here.tokens,
        alone=TRANSCRIPT_SHARE * replaced_by_us,
        writes=likely_summary(replaced_by_us, longest_summary(here)),
    )
    return signing_cost(here, rates, replaced) - ours


class CompactionWorth(msgspec.Struct, frozen=True):
    """What a compaction costs, in tokens at the input price, and how many tokens it frees; `writing`: the part of the
    cost that its text is.
    """

    cost: float
    freed: int
    writing: float = 0.0

    @property
    def per_token(self) -> float:
        """The cost of each token freed; infinite if none is."""
        return self.cost / self.freed if self.freed > 0 else float("inf")


def compaction_worth(here: Situation, *, keep: int) -> CompactionWorth:
    """Cost and gain of a compaction now that keeps `keep` tokens; free if prices are unknown."""
    rates, stays = here.rates or Rates(0.0, 0.0, 0.0, 0.0), here.budget.fixed + here.staying + keep
    replaced = max(0, here.tokens - stays)
    written = expected_summary(replaced, longest_summary(here))
    whole = written + min(facts_limit(here), replaced // FACTS_SHARE)
    reads = 0.0 if here.summary_is_cold else rates.read * here.tokens
    writing = _writing_cost(here, rates, reads=reads, alone=TRANSCRIPT_SHARE * here.tokens, writes=written)
    rewriting = (
        0.0
        if here.summary_is_cold
        else max(0.0, rates.write - rates.read) * (keep + whole + here.new_prefix * here.budget.fixed)
    )
    return CompactionWorth(writing + rewriting, here.tokens - (stays + whole), writing)


def pays_from(here: Situation, worth: CompactionWorth) -> float | None:
    """How many tokens a compaction must free to pay off at this moment; None if that is unknown, or it never does."""
    settings, rates, growth = here.settings.compaction, here.rates, here.growth_of_all
    now = settings.thrift_between_turns if here.between_turns else settings.thrift_in_loop
    factor = settings.thrift * (settings.thrift_cold if here.summary_is_cold else now)
    if not factor or rates is None or growth <= 0 or rates.read <= 0:
        return None
    carrying = rates.read + COLD_SHARE * max(0.0, rates.write - rates.read)
    return factor * sqrt(2 * worth.cost * growth / carrying)


def reason_it_pays(here: Situation, worth: CompactionWorth) -> str:
    """Why a compaction pays off at this moment; empty if it does not."""
    needed = pays_from(here, worth)
    if needed is None or worth.freed <= 0 or worth.freed < needed:
        return ""
    warm = "between turns" if here.between_turns else "inside a tool loop"
    when = "the cache is cold" if here.summary_is_cold else warm
    return f"it pays: {worth.freed:,} freed tokens outweigh a summary ({when}, from {needed:,.0f} on)"


def clearing_cost_per_token(rates: Rates, *, freed: int, tail: float) -> float:
    """The cost of each token that a clearing frees on a warm cache, whose tail must be written again."""
    return max(0.0, rates.write - rates.read) * tail / freed if freed > 0 else float("inf")
