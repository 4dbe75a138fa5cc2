"""What comes next: what the next call costs, the context step that is taken before it, and the one after that.

This is the only source of what is shown before a step is taken: in the context panel, `/context`, `/cost`, the status
bar and the line about an expired cache. It takes the decisions of the layers, the very ones that are carried out
before the call, and asks nothing of a model.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.context.budget import keep_tokens
from tui_agent.context.cache_life import CacheState
from tui_agent.context.changes import clearing_price, undone_by_user
from tui_agent.context.compaction.plan import Plan, rewritten_by, smallest_gain
from tui_agent.context.compaction.writing import Writers
from tui_agent.context.economics import (
    Situation,
    StepPrice,
    clearing_size,
    compaction_worth,
    cost_of_call,
    pays_from,
    step_price,
)
from tui_agent.context.layers.clearing import PLACEHOLDER_TOKENS, protected_tokens, smallest_batch, threshold_decides
from tui_agent.context.layers.compaction import begins_at
from tui_agent.context.layers.due import Due
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.profile import MILLION
from tui_agent.conversation.view import View
from tui_agent.text import compact_count, counted, money_text, price_or_time

ForecastStep: TypeAlias = Literal["clear", "compact", "checkpoint", "digest", "fold"]

FARTHEST = 1_000
"""Calls that are looked ahead."""


class StepAhead(msgspec.Struct, frozen=True, kw_only=True):
    """A context step that comes by itself.

    due: it is taken before the next call; else in about `calls` calls (None: unknown), when the request has grown by
    `distance` tokens or earlier. frees, price: exact for a clearing that is due, else estimated for the moment at which
    it is taken; price None: unknown. in_background: its text is written while calls go on; begun: it is being written.
    """

    step: ForecastStep
    frees: int
    price: StepPrice | None = None
    due: bool = False
    calls: int | None = None
    distance: int = 0
    items: int = 0
    in_background: bool = False
    begun: bool = False
    reason: str = ""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The next call and the context step before it, for one moment.

    tokens: the size of the next request as it stands. cost: what reading it costs, in USD or `in_seconds` (None:
    unknown; 0: nothing). later: what it would cost from a warm cache. uncached: without one. due: what is done before
    it. ahead: the next step; `due` itself if there is one.
    """

    tokens: int
    cache: CacheState
    cost: float | None
    later: float | None
    uncached: float | None = None
    in_seconds: bool = False
    due: StepAhead | None = None
    ahead: StepAhead | None = None

    @property
    def cost_then(self) -> float | None:
        """What reading the next request costs after the step that is due."""
        due = self.due
        return due.price.call if due is not None and due.price is not None and not due.in_background else self.cost

    def cost_if_cold(self, at_least_usd: float) -> float | None:
        """What the next call costs in USD, if the cache is cold and it is at least so much."""
        notable = self.cache.cold and not self.in_seconds and self.cost and self.cost >= at_least_usd
        return self.cost if notable else None

    def price(self, cost: float | None) -> str:
        return price_or_time(None if self.in_seconds else cost, cost or 0.0 if self.in_seconds else 0.0)


def forecast(view: View, here: Situation, cache: CacheState, due: StepAhead | None) -> Forecast:
    """The forecast at this moment; `due`: the step that the layers have decided on, if any."""
    rates = here.rates
    free = here.model.prices is not None and not here.model.prices.input
    local = rates is not None and not rates.input_usd
    cost, later = (0.0, 0.0) if free and not local else (None, None)
    uncached = None
    if rates is not None:
        uncached = cost_of_call(rates, here.tokens, 0)
        cost = cost_of_call(rates, here.tokens, here.kept)
        later = cost_of_call(rates, here.tokens, here.tokens)
    return Forecast(
        tokens=here.tokens,
        cache=cache,
        cost=cost,
        later=later,
        uncached=uncached,
        in_seconds=local,
        due=due,
        ahead=due or _ahead(view, here),
    )


def step_due(due: Due, view: View, writers: Writers) -> StepAhead | None:
    here, plan, cleared = due.here, due.summary, due.cleared
    if isinstance(plan, Plan):
        price, writing = None, writers.usd(plan, view, here)
        if writing is not None:
            tail, renews = rewritten_by(plan, view, here), not plan.through
            # One that is written meanwhile is entered after a call, which fills the cache again.
            filled = here.in_background and here.cold and here.model.cache != "none"
            then = msgspec.structs.replace(here, kept=here.tokens) if filled else here
            price = step_price(then, after=plan.likely_after, tail=tail, writing=writing, renews=renews)
        return StepAhead(
            step="checkpoint" if plan.step == "checkpoint" else "compact",
            frees=plan.before - plan.likely_after,
            price=price,
            due=True,
            in_background=here.in_background,
            reason=plan.reason,
        )
    if due.digest is not None:
        return StepAhead(step="digest", frees=0, due=True, reason=due.digest.reason)
    entry = cleared if isinstance(cleared, Cleared) else due.folded
    if entry is None:
        return None
    return StepAhead(
        step="clear" if isinstance(entry, Cleared) else "fold",
        frees=entry.before - entry.after,
        price=clearing_price(view, here, entry),
        due=True,
        items=len(entry.results if isinstance(entry, Cleared) else entry.episodes),
        reason=entry.reason,
    )


def begun_summary(plan: Plan) -> StepAhead:
    step: ForecastStep = "checkpoint" if plan.step == "checkpoint" else "compact"
    frees = plan.before - plan.likely_after
    return StepAhead(step=step, frees=frees, due=True, in_background=True, begun=True, reason=plan.reason)


def _ahead(view: View, here: Situation) -> StepAhead | None:
    """The step that comes first if the next calls are like the last ones; None if none comes."""
    found = [step for step in (_next_clearing(view, here), _next_compaction(view, here)) if step is not None]
    return min(found, key=lambda step: (FARTHEST if step.calls is None else step.calls, step.distance), default=None)


def _next_clearing(view: View, here: Situation) -> StepAhead | None:
    settings, rates, threshold = here.settings.clearing, here.rates, here.limits.clear
    if here.settings.context.preset not in ("layered", "digest") or threshold.rests or not threshold.tokens:
        return None
    protected = protected_tokens(settings, here.budget.window)
    before = view.before_tail(lambda size: here.tokens_of(size) <= protected)
    now = max(0, here.tokens_of(before.results) - before.result_count * PLACEHOLDER_TOKENS)
    least = smallest_batch(settings, here)
    tail = here.mixed_tokens_of(before.tail)
    needed = clearing_size(rates, tail, here.growth) if settings.by_price else None
    distance = max(0, threshold.tokens - here.tokens)
    for calls in _calls_ahead(here):
        frees, tokens = round(now + calls * here.growth), round(here.tokens + calls * here.growth_of_all)
        passed = threshold.reached(tokens) and threshold_decides(here)
        enough = passed or (needed is not None and frees >= needed)
        if frees >= least and enough:
            then = msgspec.structs.replace(here, tokens=tokens, kept=round(tokens - here.growth_of_all), cold=False)
            price = step_price(then, after=tokens - frees, tail=tail)
            return StepAhead(step="clear", frees=frees, price=price, calls=calls, distance=distance)
    # While it is unknown what a call adds, only what could be cleared as it is can be announced.
    return None if here.growth_of_all > 0 or now < least else StepAhead(step="clear", frees=now, distance=distance)


def _next_compaction(view: View, here: Situation) -> StepAhead | None:
    settings, trigger = here.settings.compaction, here.limits.compact
    if here.settings.context.preset == "off" or not settings.auto or trigger.rests or not trigger.tokens:
        return None
    keep, distance = keep_tokens(settings, here.budget, trigger.tokens), max(0, trigger.tokens - here.tokens)
    start = begins_at(here, in_background=settings.background)
    least, by_price = smallest_gain(here), not undone_by_user(view)
    rates = here.rates
    for calls in _calls_ahead(here):
        tokens = round(here.tokens + calls * here.growth_of_all)
        then = msgspec.structs.replace(here, tokens=tokens, cold=False, kept=round(tokens - here.growth_of_all))
        worth = compaction_worth(then, keep=keep)
        needed = pays_from(then, worth) if by_price else None
        pays = needed is not None and worth.freed >= max(least, needed)
        if (tokens >= start or pays) and worth.freed > 0:
            after, price = tokens - worth.freed, None
            if rates is not None:
                writing = worth.writing * (rates.input_usd or rates.input_s) / MILLION
                tail = after - here.budget.fixed
                price = step_price(then, after=after, tail=tail, writing=writing, renews=True)
            return StepAhead(step="compact", frees=worth.freed, price=price, calls=calls, distance=distance)
    return None if here.growth_of_all > 0 else StepAhead(step="compact", frees=0, distance=distance)


def _calls_ahead(here: Situation) -> Iterator[int]:
    """Numbers of calls to look ahead, ever farther apart; none while it is unknown what a call adds."""
    calls = 1
    while here.growth_of_all > 0 and calls <= FARTHEST:
        yield calls
        calls += max(1, calls // 16)


NAMES: Final[Mapping[ForecastStep, tuple[str, str]]] = {
    "clear": ("clearing old tool results", "clearing"),
    "compact": ("a summary", "summary"),
    "checkpoint": ("a record of the finished task", "record"),
    "digest": ("a digest of old results", "digest"),
    "fold": ("folding a finished episode", "folding"),
}
"""Each step in words, and in one."""
SOON: Final = 5
"""From this many calls before a step on, the status bar names it."""


def sentence(seen: Forecast) -> str:
    """What comes next, in calls and money, for people."""
    step = seen.ahead
    if step is None:
        return "Nothing has to leave the context in the calls ahead."
    what, _ = NAMES[step.step]
    if step.begun:
        when = "is being written"
    elif step.due:
        when = "starts with your next message" if step.in_background else "comes before the next call"
    elif step.calls is not None:
        when = f"in about {counted(step.calls, 'call')}"
    else:
        when = f"once the request has grown by {step.distance:,} tokens"
    # Before the threshold that the panel names it comes since it pays, which has to be said.
    early = step.reason.partition(":")[0] if step.due and step.reason.startswith("it ") else ""
    # How long the text of a summary will be is an estimate, and so is all that lies ahead.
    about = "" if step.due and step.step in ("clear", "fold") else "about "
    frees = f" It frees {compact_count(step.frees)} tokens{_priced(step, about)}." if step.frees else ""
    return f"Next: {what} {when}{f', since {early}' if early else ''}.{frees}"


def soon(seen: Forecast) -> str:
    """What comes next in two or three words, if it comes within `SOON` calls and has not begun."""
    step = seen.ahead
    if step is None or step.begun or (not step.due and (step.calls is None or step.calls > SOON)):
        return ""
    when = "next" if step.due else f"in {counted(step.calls or 1, 'call')}"
    return f"{NAMES[step.step][1]} {when}"


def _priced(step: StepAhead, about: str) -> str:
    price = step.price
    if price is None:
        return ""
    if price.cost <= 0:
        paid = "is paid back at once" if price.writing else "costs nothing"
        return f", {paid} and saves {about}{price.text(price.gained or price.saving)}"
    paid = f" and is paid back after {counted(price.calls, 'call')}" if price.calls else ""
    return f", costs {about}{price.text(price.cost)}{paid}"


def price_lines(price: StepPrice, *, exact: bool) -> list[tuple[str, str]]:
    """What a step costs and saves, as labels and values; `exact`: its text is written."""
    writing = f"{'' if exact else 'about '}{price.text(price.writing)}"
    lines = [("Writing it", writing)] if price.writing else []
    lines.append(("Next call", f"{price.text(price.call)} instead of {price.text(price.before)}"))
    lines.append(("Each call after it", f"saves {price.text(price.saving)}"))
    if price.calls is None:
        paid = "never, as it looks now"
    else:
        paid = f"after {counted(price.calls, 'more call')}" if price.calls else "at once"
    return [*lines, ("Paid back", paid)]


def expired(seen: Forecast, *, at_least_usd: float) -> str:
    """One line on an expired cache, for before anything is sent; empty if it is warm or the call costs little."""
    cost = seen.cost_if_cold(at_least_usd)
    if cost is None:
        return ""
    step, then = seen.due, seen.cost_then
    lead = f"The cache expired: your next message costs {money_text(cost)}"
    if step is None or then is None or step.in_background or then >= cost:
        return f"{lead}. /compact shows what a summary first would cost."
    return (
        f"{lead} as it is, {money_text(then)} after clearing {compact_count(step.frees)} of old results"
        " (by itself; /keep keeps them)"
        if step.step == "clear"
        else f"{lead} as it is, {money_text(then)} after {NAMES[step.step][0]} (by itself)"
    )


def next_call(seen: Forecast) -> str:
    """What the next call sends and costs, for people."""
    if not seen.tokens:
        return "Nothing was sent yet."
    tokens, lead = seen.tokens, "The next call sends about"
    if seen.cost is None:
        return f"{lead} {tokens:,} tokens; the prices of this model are not known."
    if not seen.cost:
        return f"{lead} {tokens:,} tokens and costs nothing."
    then, due = seen.cost_then, seen.due
    if due is not None and not due.in_background and then is not None and then != seen.cost:
        tokens -= due.frees
        first = f"{seen.price(then)} plus the answer, after {NAMES[due.step][0]} ({seen.price(seen.cost)} without that)"
    else:
        first = f"{seen.price(seen.cost)} plus the answer"
    share = tokens / seen.tokens
    if seen.cache.cold:
        warm = seen.price((seen.later or 0.0) * share)
        first = f"{first}; {seen.cache.reason}. From a warm cache it would read them for {warm}"
        return f"{lead} {tokens:,} tokens for {first}."
    cold = (seen.uncached or 0.0) * share
    without = f" Without the provider's cache it would read them for {seen.price(cold)}." if cold > seen.cost else ""
    return f"{lead} {tokens:,} tokens for {first}.{without}"
