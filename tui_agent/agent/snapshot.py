"""What `/context` shows, put together from the view, the manager and the usage."""

import time

from tui_agent.context.forecast import Forecaster
from tui_agent.context.manager import ContextManager, ModelFacts
from tui_agent.context.stats import ContextStats, ModelUse, Subtasks, counts, marks, upcoming
from tui_agent.conversation.view import View
from tui_agent.models.usage import Totals, UsageTracker


def snapshot(view: View, manager: ContextManager, model: ModelFacts, tracker: UsageTracker) -> ContextStats:
    """One frozen picture of the context."""
    tokens, budget = manager.tokens(view), manager.budget(view, model)
    limits, done = manager.thresholds(view, model), counts(view)
    return ContextStats(
        model=model.name,
        tokens=tokens,
        window=budget.window,
        reserve=budget.reserve,
        measured=manager.meter.measured,
        categories=manager.meter.categories(view),
        cost_usd=tracker.session.known_cost_usd,
        turn_cost_usd=tracker.turn.known_cost_usd,
        cache_share=tracker.session.cache_share,
        messages=done.messages,
        evicted=done.evicted,
        cleared=done.cleared,
        digested=done.digested,
        compactions=done.compactions.count,
        checkpoints=done.checkpoints.count,
        summarised_chars=done.summarised_chars,
        reasoning_dropped=view.reasoning_dropped(),
        last_compaction=done.compactions,
        last_checkpoint=done.checkpoints,
        marks=marks(limits, budget.window),
        upcoming=upcoming(tokens, limits, Forecaster(manager, view, model, time.time())),
        subtasks=Subtasks(
            count=tracker.subtask_count,
            input_tokens=tracker.subtasks.usage.input_tokens,
            output_tokens=tracker.subtasks.usage.output_tokens,
            cost_usd=tracker.subtasks.known_cost_usd,
        ),
        models=tuple(_use(name, totals) for name, totals in tracker.by_model().items()),
    )


def _use(name: str, totals: Totals) -> ModelUse:
    return ModelUse(
        model=name,
        calls=totals.calls,
        input_tokens=totals.usage.input_tokens,
        output_tokens=totals.usage.output_tokens,
        cost_usd=totals.known_cost_usd,
    )
