"""What to do next, for each kind of error a turn can end in; everything up to it is kept."""

from typing import Final

HINTS: Final = {
    "auth": "Set the key and send the message again; everything so far is kept.",
    "context_overflow": "Choose a model with a larger window with /model, or start a new session; nothing is lost.",
    "rate_limited": "Wait a little and send the message again; everything so far is kept.",
    "overloaded": "Wait a little and send the message again; everything so far is kept.",
    "unavailable": "Wait a little and send the message again; everything so far is kept.",
    "connection": "Check the network and send the message again; everything so far is kept.",
    "cost_ceiling": "Look at what it was spent on. /resume-after-cost-ceiling lets it go on; --max-turn-cost-usd and "
    "--max-session-cost-usd set the ceilings. Everything so far is kept.",
    "watchdog": "Say what to do instead; everything so far is kept.",
    "invalid_request": "Everything so far is kept; another model (/model) may take it.",
}
