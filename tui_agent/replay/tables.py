"""The report on one recording, as a table of at most 100 columns or as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.replay.billing import WRITING_SPEED
from tui_agent.replay.forecast import CLOSE_READ, Accuracy, Moment, error_of
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import Replay
from tui_agent.replay.simulation import ReplayOutcome
from tui_agent.text import compact_count, first_of, money_text, printable

SHOWN_PROBLEMS: Final = 5
"""The most unusable lines of the recording that the table lists."""
SHOWN_CALLS: Final = 5
"""The most calls with a wrongly predicted cache read that the table lists; JSON has all."""
_MOMENTS: Final[Mapping[Moment, str]] = {
    "prompt": "prompts and other messages",
    "step": "other calls",
    "pause": "pauses longer than its time to live",
    "edit": "edits",
}
_COMPARED: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
_HEADINGS = (
    "policy",
    "cost",
    "sent",
    "read",
    "written",
    "sum",
    "verbatim",
    "depth",
    "evidence",
    "pointed",
    "waits",
    "wait s",
)
_NOTE = (
    "cost: calls, summaries and what was fetched again. sent, read, written: tokens of all prompts,\n"
    "and of them from and to the cache. sum: compactions. evidence: of the names and numbers an answer\n"
    "used and a tool had told, the share still in view; verbatim: the share in view where it was said;\n"
    "depth: through how many summaries the rest of it had passed (1: of the turns, 2: of a summary);\n"
    "pointed: the share not in view that something in view led to. waits: calls\n"
    f"that had to wait for a summary; wait s: how long in all, at {WRITING_SPEED} written tokens a second."
)


def table(report: Replay) -> str:
    """The report as text of at most 100 columns, one block for each model."""
    recording, script = report.recording, report.script
    name = printable(recording.name)
    lines = [f"{name}: {len(script.calls):,} calls, {script.tokens:,} tokens said ({recording.format})"]
    lines += [f"assumed: {each}" for each in script.assumed]
    if report.measured is not None:
        fixed, characters = report.measured.fixed, report.measured.chars_per_token
        lines.append(f"measured: {fixed:,} tokens of system prompt and tools, {characters:.2f} characters a token")
    else:
        lines.append("no usage recorded: sizes are estimated, and no prediction is compared")
    if recording.problems:
        shown = first_of([f"{problem.line} ({problem.why})" for problem in recording.problems], SHOWN_PROBLEMS)
        lines.append(printable(f"{len(recording.problems):,} malformed lines left out: {shown}"))
    for model, window in dict.fromkeys((outcome.model, outcome.window) for outcome in report.outcomes):
        here = [outcome for outcome in report.outcomes if (outcome.model, outcome.window) == (model, window)]
        lines += ["", f"{model}, window {window:,}"]
        accuracy = report.accuracies.get((model, window))
        if accuracy is not None:
            lines += _accuracy_lines(accuracy)
        elif recording.metered:
            model_name = printable(recording.model)
            why = f"--model {model_name} does that" if report.is_priced else "its prices are not known"
            lines.append(f"not compared with the recorded usage, which is {model_name}'s: {why}")
        lines += aligned([_HEADINGS, *map(_row, here)])
        lines += [
            f"{each.policy}: {each.bill.calls_over_window:,} of its calls would not have fitted the window"
            for each in here
            if each.bill.calls_over_window
        ]
    return "\n".join([*lines, "", _NOTE])


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a table as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        figures = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((f"{name:<{widths[0]}}", *figures)).rstrip()


def _accuracy_lines(accuracy: Accuracy) -> list[str]:
    far = accuracy.far
    close = f"{len(accuracy.calls) - len(far):,} of {len(accuracy.calls):,} calls ({accuracy.close_share:.1%})"
    lines = [
        f"{AS_RECORDED}: predicted for recorded usage of {len(accuracy.calls):,} calls",
        *_error_lines(accuracy),
        f"  cache reads within {CLOSE_READ:.0%}: {close}",
    ]
    if far:
        shown = [
            f"{call.number} ({compact_count(call.likely_read)} for {compact_count(call.recorded.cache_read_tokens)})"
            for call in far
        ]
        lines.append(f"  not: call {first_of(shown, SHOWN_CALLS)}")
    lost = {moment: each for moment, each in accuracy.losses.items() if each.lost}
    if lost:
        lines.append(
            f"  cache lost (its rules explain {accuracy.explained:.0%} of the tokens; no policy below pays the rest):"
        )
        lines += [f"    at {each.lost:,} of {each.calls:,} {_MOMENTS[moment]}" for moment, each in lost.items()]
    if accuracy.shrunk:
        calls = first_of([*map(str, accuracy.shrunk)], SHOWN_CALLS)
        lines.append(f"  not explained: the prompt shrank without a recorded edit at call {calls}")
    if accuracy.rest is not None:
        lines.append(f"the last {len(accuracy.rest.calls):,} of them, predicted with the rates of the first third:")
        lines += _error_lines(accuracy.rest)
    return lines


def _error_lines(accuracy: Accuracy) -> list[str]:
    predicted, recorded = accuracy.predicted, accuracy.recorded
    cost, recorded_cost = accuracy.costs
    sums = (
        ("sent", predicted.input_tokens, recorded.input_tokens),
        ("read", predicted.cache_read_tokens, recorded.cache_read_tokens),
        ("written", predicted.cache_write_tokens, recorded.cache_write_tokens),
    )
    errors = [
        f"{name} {compact_count(one)} for {compact_count(other)} ({_percent(one, other)})" for name, one, other in sums
    ]
    costs = f"  cost of the calls {money_text(cost)} for {money_text(recorded_cost)} ({_percent(cost, recorded_cost)})"
    return [f"  {', '.join(errors)}", costs]


def _percent(predicted: float, recorded: float) -> str:
    error = error_of(predicted, recorded)
    return f"{error:+.1%}" if math.isfinite(error) else "none recorded"


def document(report: Replay) -> str:
    """The report as a JSON object: costs in USD, shares from 0 to 1, times in seconds, all else in tokens or counts."""
    recording, script, measured = report.recording, report.script, report.measured
    fields: dict[str, object] = {
        "recording": recording.name,
        "format": recording.format,
        "calls": len(script.calls),
        "tokens": script.tokens,
        "assumed": list(script.assumed),
        "malformed_lines": [{"line": problem.line, "why": problem.why} for problem in recording.problems],
        "replays": [_record(outcome) for outcome in report.outcomes],
    }
    if measured is not None:
        fields["measured"] = {"fixed_tokens": measured.fixed, "chars_per_token": measured.chars_per_token}
        fields["as_recorded"] = [
            _accuracy_record(accuracy, window) for (_, window), accuracy in report.accuracies.items()
        ]
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def _accuracy_record(accuracy: Accuracy, window: int) -> dict[str, object]:
    rest = accuracy.rest
    return {
        "model": accuracy.model,
        "window": window,
        **_error_record(accuracy),
        "reads_within_5_percent": accuracy.close_share,
        "losses": {moment: structs.asdict(each) for moment, each in accuracy.losses.items()},
        "lost_tokens_explained": accuracy.explained,
        "shrunk_calls": list(accuracy.shrunk),
        "after_first_third": None if rest is None else {"calls": len(rest.calls), **_error_record(rest)},
        "calls": [
            {
                "call": call.number,
                "predicted": {**msgspec.structs.asdict(call.predicted), "cost_usd": call.predicted_cost},
                "recorded": {**msgspec.structs.asdict(call.recorded), "cost_usd": call.recorded_cost},
                "likely_cache_read_tokens": call.likely_read,
                "read_is_close": call.is_close,
            }
            for call in accuracy.calls
        ],
    }


def _error_record(accuracy: Accuracy) -> dict[str, object]:
    predicted, recorded, costs = accuracy.predicted, accuracy.recorded, accuracy.costs
    errors = {name: _error(getattr(predicted, name), getattr(recorded, name)) for name in _COMPARED}
    return {
        "predicted": {**msgspec.structs.asdict(predicted), "cost_usd": costs[0]},
        "recorded": {**msgspec.structs.asdict(recorded), "cost_usd": costs[1]},
        "errors": {**errors, "cost_usd": _error(*costs)},
    }


def _error(predicted: float, recorded: float) -> float | None:
    """The error as a share of the recorded value; None if that is 0."""
    error = error_of(predicted, recorded)
    return error if math.isfinite(error) else None


def _row(outcome: ReplayOutcome) -> tuple[str, ...]:
    bill, evidence = outcome.bill, outcome.evidence
    return (
        outcome.policy,
        money_text(bill.total),
        compact_count(bill.usage.input_tokens),
        compact_count(bill.usage.cache_read_tokens),
        compact_count(bill.usage.cache_write_tokens),
        f"{outcome.compactions:,}",
        f"{evidence.verbatim_share:.3f}",
        f"{evidence.depth:.2f}",
        f"{evidence.share:.3f}",
        f"{evidence.pointer_share:.3f}",
        f"{bill.waits:,}",
        f"{bill.waited / WRITING_SPEED:,.0f}",
    )


def _record(outcome: ReplayOutcome) -> dict[str, object]:
    bill, evidence = asdict(outcome.bill), outcome.evidence
    del bill["usage"]
    return {
        "policy": outcome.policy,
        "model": outcome.model,
        "window": outcome.window,
        "cost_usd": outcome.bill.total,
        **msgspec.structs.asdict(outcome.bill.usage),
        **bill,
        "compactions": outcome.compactions,
        "clearings": outcome.clearings,
        "needed": evidence.needed,
        "evidence": evidence.share,
        "verbatim": evidence.verbatim_share,
        "depth": evidence.depth,
        "depths": {str(depth): count for depth, count in sorted(evidence.depths.items())},
        "pointed_to": evidence.pointer_share,
        "wait_s": outcome.bill.waited / WRITING_SPEED,
        "longest_wait_s": outcome.bill.longest_wait / WRITING_SPEED,
    }
