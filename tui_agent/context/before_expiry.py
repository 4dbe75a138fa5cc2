"""Whether a summary written shortly before the provider's cache expires costs less than reading all of it anew."""

import msgspec
from msgspec import structs

from tui_agent.context.cache_life import Pauses
from tui_agent.context.changes import undone_by_user
from tui_agent.context.compaction.plan import Plan, plan_compaction
from tui_agent.context.compaction.writing import Writers
from tui_agent.context.economics import Situation
from tui_agent.context.layers.due import Layers
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.profile import MILLION, ModelProfile
from tui_agent.conversation.view import View


class ExpirySummary(msgspec.Struct, frozen=True):
    """A summary to write before the cache expires. In USD: what writing it costs, and what the first message after the
    expiry costs then and without it.
    """

    plan: Plan
    writing_usd: float
    then_usd: float
    without_usd: float


def worth_writing(
    view: View, here: Situation, layers: Layers, writers: Writers, pauses: Pauses
) -> ExpirySummary | None:
    """The summary that costs less now than reading what it replaces anew, once the cache has expired.

    None if the cache is too small for it to matter, the user seldom comes back so late, or it would not be cheaper.
    """
    settings = here.settings
    on = settings.compaction.before_expiry and settings.compaction.auto and settings.compaction.background
    if not on or settings.context.preset == "off" or here.resting or here.cold or here.in_background:
        return None
    if _rewriting_usd(here.model, here.tokens) < settings.context.cold_notice_usd:
        return None
    if here.limits.compact.rests or undone_by_user(view):
        return None
    reason = "the cache is about to expire, and reading all of it again would cost more"
    plan = plan_compaction(view, here, reason=reason)
    writing = writers.usd(plan, view, here) if isinstance(plan, Plan) else None
    if not isinstance(plan, Plan) or writing is None:
        return None
    # What comes by itself when the user is back, with the cache gone.
    due = layers.due(view, structs.replace(here, cold=True, kept=0))
    later, after = 0.0, here.tokens
    if isinstance(due.summary, Plan):
        later, after = writers.usd(due.summary, view, due.here) or 0.0, due.summary.likely_after
    elif isinstance(due.cleared, Cleared):
        after = due.cleared.after
    later += _rewriting_usd(here.model, after)
    then = _rewriting_usd(here.model, plan.likely_after)
    chance = pauses.returning(here.model.cache_ttl_s)
    plan = structs.replace(plan, without_usd=later)
    return ExpirySummary(plan, writing, then, later) if chance * (later - then) > writing else None


def _rewriting_usd(model: ModelProfile, tokens: int) -> float:
    """What writing so many tokens into the cache anew costs in USD; 0 if it costs no money, or prices are unknown."""
    rates = model.rates(tokens)
    return tokens * max(1.0, rates.write) * rates.input_usd / MILLION if rates is not None else 0.0
