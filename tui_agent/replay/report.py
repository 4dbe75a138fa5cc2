"""What replays came to, as a table for people and as data."""

from collections.abc import Sequence

import msgspec

from tui_agent.replay.recording import Recording
from tui_agent.replay.script import Script
from tui_agent.replay.simulation import Outcome

SHOWN_PROBLEMS = 5
_HEADINGS = (
    "policy",
    "cost $",
    "sent",
    "read",
    "written",
    "calls",
    "rewr",
    "peak",
    "sum",
    "evidence",
    "pointed",
    "fetch $",
)
_NOTE = (
    "cost: calls, summaries and what was fetched again. sent, read, written: tokens of all prompts,\n"
    "and of them from and to the cache. rewr: edits that had it written anew. peak: the largest prompt.\n"
    "sum: summaries. evidence: of the names and numbers an answer used and a tool had told, the share\n"
    "still in view; pointed: the share something in view led to; fetch $: what fetching that costs."
)


def table(recording: Recording, script: Script, outcomes: Sequence[Outcome]) -> str:
    """The replays of one recording as text of at most 100 columns, one block for each model."""
    lines = [*_about(recording, script)]
    for model, window in dict.fromkeys((outcome.model, outcome.window) for outcome in outcomes):
        here = [outcome for outcome in outcomes if (outcome.model, outcome.window) == (model, window)]
        rows = [_HEADINGS, *(_row(outcome) for outcome in here)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines += ["", f"{model}, window {window:,}"]
        lines += ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        lines += [f"{each.policy}: {_beyond(each)}" for each in here if each.bill.overflows]
    return "\n".join([*lines, "", _NOTE])


def document(recording: Recording, script: Script, outcomes: Sequence[Outcome]) -> str:
    """The same as one JSON object; costs in USD, shares of 1, everything else in tokens or counts."""
    told = {
        "recording": recording.name,
        "format": recording.format,
        "calls": len(script.calls),
        "tokens": _tokens(script),
        "assumed": list(script.assumed),
        "malformed_lines": [{"line": problem.line, "why": problem.why} for problem in recording.problems],
        "replays": [_record(outcome) for outcome in outcomes],
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def _about(recording: Recording, script: Script) -> list[str]:
    said = f"{recording.name}: {len(script.calls):,} calls, {_tokens(script):,} tokens said ({recording.format})"
    lines = [said, *(f"assumed: {each}" for each in script.assumed)]
    if recording.problems:
        shown = ", ".join(f"{problem.line} ({problem.why})" for problem in recording.problems[:SHOWN_PROBLEMS])
        rest = len(recording.problems) - SHOWN_PROBLEMS
        more = f" and {rest:,} more" if rest > 0 else ""
        lines.append(f"{len(recording.problems):,} malformed lines left out: {shown}{more}")
    return lines


def _tokens(script: Script) -> int:
    return sum(said.tokens for call in script.calls for said in (*call.arrived, call.answer))


def _row(outcome: Outcome) -> tuple[str, ...]:
    bill, evidence = outcome.bill, outcome.evidence
    return (
        outcome.policy,
        f"{bill.total:.2f}",
        _short(bill.usage.input_tokens),
        _short(bill.usage.cache_read_tokens),
        _short(bill.usage.cache_write_tokens),
        f"{bill.calls:,}",
        f"{bill.rewrites:,}",
        _short(bill.peak),
        f"{outcome.compactions:,}",
        f"{evidence.share:.3f}",
        f"{evidence.pointer_share:.3f}",
        f"{bill.fetch_cost:.2f}",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]


def _beyond(outcome: Outcome) -> str:
    return f"{outcome.bill.overflows:,} of its calls would not have fitted the window"


def _short(tokens: int) -> str:
    if tokens >= 10_000_000:
        return f"{tokens / 1e6:.0f}M"
    if tokens >= 1_000_000:
        return f"{tokens / 1e6:.1f}M"
    return f"{tokens / 1e3:.0f}k" if tokens >= 10_000 else f"{tokens:,}"


def _record(outcome: Outcome) -> dict[str, object]:
    bill, evidence = outcome.bill, outcome.evidence
    return {
        "policy": outcome.policy,
        "model": outcome.model,
        "window": outcome.window,
        "cost_usd": bill.total,
        "call_cost_usd": bill.cost,
        "summary_cost_usd": bill.summary_cost,
        "fetch_cost_usd": bill.fetch_cost,
        "input_tokens": bill.usage.input_tokens,
        "cache_read_tokens": bill.usage.cache_read_tokens,
        "cache_write_tokens": bill.usage.cache_write_tokens,
        "output_tokens": bill.usage.output_tokens,
        "calls": bill.calls,
        "cold_calls": bill.cold_calls,
        "cache_rewrites": bill.rewrites,
        "rewritten_tokens": bill.rewritten_tokens,
        "peak_tokens": bill.peak,
        "calls_over_window": bill.overflows,
        "compactions": outcome.compactions,
        "clearings": outcome.clearings,
        "needed": evidence.needed,
        "evidence": evidence.share,
        "pointed_to": evidence.pointer_share,
        "fetches": bill.fetches,
        "fetched_tokens": bill.fetched_tokens,
    }
