"""The commands /stats and /cost: what a session has used and spent so far."""

from typing import TYPE_CHECKING

from tui_agent.agent.commands.command import Reply
from tui_agent.text import counted, money_text

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.models.usage import Totals


async def stats(agent: "Agent", _: str) -> Reply:
    """``/stats``: tokens, cost and cache hits of session, turn and models, and the time spent waiting for summaries."""
    total, turn = agent.tracker.session, agent.tracker.turn
    lines = [_totals("Session", total), _totals("Turn", turn)]
    if count := agent.tracker.subtask_count:
        lines.append(_totals(f"Of the session, {counted(count, 'subtask')}", agent.tracker.subtasks))
    models = agent.tracker.by_model()
    if len(models) > 1:
        lines += ["", *(_totals(name, totals) for name, totals in models.items())]
    context = agent.context_stats()
    if context.compactions or context.checkpoints:
        lines.append(_waits(context.waits, context.waited_s))
    if missed := agent.context.missed_caches():
        lines += ["", *missed]
    return Reply("Usage", "\n".join(lines))


async def cost(agent: "Agent", _: str) -> Reply:
    """``/cost``: spending by model and purpose, what the cache has saved, and the cost of the next call."""
    tracker = agent.tracker
    rows = [("Session", tracker.session), ("This turn", tracker.turn)]
    rows += [(f"Subtasks ({tracker.subtask_count:,})", tracker.subtasks)] if tracker.subtask_count else []
    rows += [(f"  {name}", totals) for name, totals in tracker.by_model().items()]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{_price(totals):>9}  {_calls(totals)}{_cached(totals)}" for name, totals in rows]
    return Reply("Cost", "\n".join([*lines, "", _next_call(agent)]))


def _next_call(agent: "Agent") -> str:
    from tui_agent.conversation.profile import MILLION

    engine = agent.engine
    tokens, cache = engine.tokens, engine.cache
    rates = engine.model.rates(tokens)
    if not tokens:
        return "Nothing was sent yet."
    prices = agent.profile.prices
    if prices is not None and not prices.input:
        return f"The next call sends about {tokens:,} tokens and costs nothing."
    if rates is None:
        return f"The next call sends about {tokens:,} tokens; the prices of {engine.model.name} are not known."
    cold = tokens * max(1.0, rates.write) * rates.input_usd / MILLION
    warm = tokens * rates.read * rates.input_usd / MILLION
    if edited := not cache.cold and engine.view.edits_since_call > 0:
        # The part before the first edit is read from the cache: at least the system prompt and the tools.
        kept = min(tokens, engine.meter.fixed(engine.view))
        warm = (kept * rates.read + (tokens - kept) * max(1.0, rates.write)) * rates.input_usd / MILLION
    if edited:
        told = f"at most {money_text(warm)} plus the answer, since a context step has changed what the cache holds"
    elif cache.cold:
        told = f"{money_text(cold)} plus the answer: {cache.reason}; from the cache it would be {money_text(warm)}"
    else:
        told = f"{money_text(warm)} plus the answer, from the cache; without it {money_text(cold)}"
    return f"The next call sends about {tokens:,} tokens for {told}."


def _price(totals: "Totals") -> str:
    cost = totals.known_cost_usd
    return "unknown" if cost is None else money_text(cost)


def _calls(totals: "Totals") -> str:
    return counted(totals.calls, "call")


def _cached(totals: "Totals") -> str:
    share = totals.cache_share
    return "" if not share else f", {100 * share:.0f}% from the cache"


def _waits(waits: int, seconds: float) -> str:
    if not waits:
        return "No turn had to wait for a summary"
    return f"Turns that had to wait for a summary: {waits:,}, {seconds:.0f} s in all"


def _totals(name: str, totals: "Totals") -> str:
    usage = totals.usage
    hits = 100 * (totals.cache_share or 0.0)
    money = "price unknown" if totals.known_cost_usd is None else _price(totals)
    return (
        f"{name}: {_calls(totals)}, {usage.input_tokens:,} in ({hits:.0f}% from the cache), "
        f"{usage.output_tokens:,} out ({usage.reasoning_tokens:,} reasoning), {money}"
    )
