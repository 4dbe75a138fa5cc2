"""What `--output-format json` prints."""

import msgspec

from tui_agent.agent import events
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.entries import Usage
from tui_agent.headless.report import RunReport
from tui_agent.models.usage import UsageTracker

FINISHED = events.TurnFinished(
    stop_reason="end_turn", text="done", steps=1, usage=Usage(), cost_usd=0.0010402999999999999, duration_ms=1
)
STATS = ContextStats(model="m", tokens=0, window=0, reserve=0, measured=True, categories={})


def test_a_sum_shows_no_error_of_adding() -> None:
    tracker = UsageTracker()
    tracker.record("earlier", Usage(input_tokens=7), 1.0)
    outcome = RunReport(tracker)
    tracker.record("m", Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=30, output_tokens=5), 0.1)
    outcome.add(FINISHED)
    printed = outcome.as_json("s", STATS, 1)
    assert b'"cost_usd":0.0010403,' in printed
    assert b'"total_cost_usd":0.0010403,' in printed
    told = msgspec.json.decode(printed)
    assert told["models"] == ["m"]
    assert told["model_usage"]["m"]["cache_read_tokens"] == 60
    assert told["modelUsage"]["m"] == {
        "inputTokens": 10,
        "outputTokens": 5,
        "cacheReadInputTokens": 60,
        "cacheCreationInputTokens": 30,
        "costUSD": 0.1,
    }


def test_turns_add_up_and_an_unknown_price_stays_unknown() -> None:
    outcome = RunReport(UsageTracker())
    for turn in (FINISHED, msgspec.structs.replace(FINISHED, text="again", cost_usd=None, steps=2)):
        outcome.add(turn)
    told = msgspec.json.decode(outcome.as_json("s", STATS, 1))
    assert (told["turns"], told["cost_usd"], told["result"]) == (3, None, "again")
