"""What to do next, for each kind of error that ends a turn. Everything before the error is kept."""

from typing import Final

from tui_agent.agent.events import TurnFailed
from tui_agent.text import call_summary
from tui_agent.tools.gate.permissions import NobodyToAsk

WATCHDOG: Final = "watchdog"
"""The name under which the watchdog asks its question, in place of a tool's."""

HINTS: Final = {
    "auth": "Enter a valid key with /key, or set the variable and start again with -c; everything so far is kept.",
    "context_overflow": "Choose a model with a larger window with /model, or start a new session; nothing is lost.",
    "rate_limited": "Send the message again later; everything so far is kept. --wait-for-reset waits, and "
    "model.fallbacks names models that go on.",
    "overloaded": "Send the message again later; everything so far is kept. --wait-for-reset waits longer, and "
    "model.fallbacks names models that go on.",
    "unavailable": "Wait a little; everything so far is kept.",
    "connection": "Check the connection; everything so far is kept.",
    "cost_ceiling": "Look at what it was spent on. /continue-spending lets it go on; --max-turn-cost-usd and "
    "--max-session-cost-usd set the ceilings. Everything so far is kept.",
    "goal_cost": "What was done is kept; /goal begins anew, --max-usd allows more.",
    "watchdog": "Say what to do instead; everything so far is kept.",
    "model_error": "Everything so far is kept; send the message again, or go on with another model (/model).",
    "unknown_model": "Everything so far is kept; /model without a name lists what there is.",
    "invalid_request": "Everything so far is kept; another model (/model) may take it.",
}

IN_TEXT: Final = {
    "auth": "Set another key and run it again, with -c; everything so far is kept.",
    "context_overflow": "Run it with --model and a model with a larger window, or without -c; nothing is lost.",
    "rate_limited": "Run it again later, with -c; everything so far is kept. --wait-for-reset waits, and "
    "model.fallbacks names models that go on.",
    "overloaded": "Run it again later, with -c; everything so far is kept. --wait-for-reset waits longer, and "
    "model.fallbacks names models that go on.",
    "model_error": "Everything so far is kept; run it again, with -c, or go on with another model (--model).",
    "unknown_model": "Everything so far is kept; go on with another model (--model), with -c.",
    "invalid_request": "Everything so far is kept; another model (--model) may take it, with -c.",
    "unavailable": "Wait a little and run it again, with -c; everything so far is kept.",
    "connection": "Check the connection and run it again, with -c; everything so far is kept.",
}
"""Hints without a screen, for the kinds whose hint in `HINTS` is about the screen."""

_UNASKED: Final = "Allow it with --ask allow or a rule in permissions.allow, or run it in the full-screen app."
_QUESTION: Final = 'Answer it with tui-agent -c -p "your answer", or in the full-screen app with -c.'
_PLAN: Final = (
    'Approve it with tui-agent -c -p "approve" (or "approve ask": changes are asked about), send it back with other '
    "words, or look at it in the full-screen app with -c."
)
_WATCHDOG: Final = (
    "Everything so far is kept. --watchdog warn only warns, --watchdog auto continues with a larger model; with "
    "--watchdog prompt somebody must be there: go on in the full-screen app with -c."
)


def unanswered(refusal: NobodyToAsk) -> TurnFailed:
    """The event for calls that nobody could approve; it is about a plan first, else questions, else the calls."""
    questions, kind = refusal.questions, "needs_answer"
    kinds = [question.kind for question in questions]
    if "plan" in kinds:
        hint, message = _PLAN, "A plan waits for your approval, and there is nobody to ask."
    elif asked := kinds.count("question"):
        waiting = "A question waits" if asked == 1 else f"{asked} questions wait"
        hint, message = _QUESTION, f"{waiting} for your answer, and there is nobody to ask."
    else:
        kind, hint = "needs_approval", _WATCHDOG if refusal.question.tool == WATCHDOG else _UNASKED
        calls = (f"{each.tool} {call_summary(each.arguments)}".rstrip() for each in questions)
        named = ", ".join(dict.fromkeys(calls))
        message = f"{named}: this needs an approval, and there is nobody to ask. {refusal.question.reason}"
    return TurnFailed(kind=kind, message=message, retryable=False, hint=hint, questions=questions)
