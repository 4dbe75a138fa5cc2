"""`tui-agent replay`: replays a recording under each policy on each model, and reports as a table or as JSON."""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.model_choice import model_of_tier
from tui_agent.conversation.entries import ContextEntry, Usage
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import Catalogue, catalogue_of
from tui_agent.models.prices import look_up
from tui_agent.replay.billing import WRITING_SPEED
from tui_agent.replay.plot import plot
from tui_agent.replay.recorded import AS_RECORDED, CLOSE_READ, Accuracy, as_recorded, compare, error_of, measure
from tui_agent.replay.script import Measured, Script, make_script
from tui_agent.replay.simulation import Outcome, policies, simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.storage.recordings.recording import Recording, UnreadableRecording
from tui_agent.text import printable

BAR_AFTER_S: Final = 0.8
"""Seconds after which progress is shown on a terminal."""
SHOWN_PROBLEMS: Final = 5
"""The most unusable lines of the recording that the table lists."""
_BAR_WIDTH = 30
_BAR_EVERY_S = 0.1
SHOWN_CALLS: Final = 5
"""The most calls with a wrongly predicted cache read that the table lists; JSON has all."""
_HEADINGS = (
    "policy",
    "cost $",
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


def replay_report(
    named: str,
    home: Path,
    settings: Settings,
    *,
    names: list[str],
    models: list[str],
    window: int,
    as_json: bool,
    picture: str = "",
) -> str:
    """The report on the recording `named` (a file, a session's id or folder).

    `names` are policies (empty: all), `models` model ids (empty: the recording's own, else the frontier model of the
    settings), `window` is in tokens (0: that of the settings, else the model's). `picture` is the file for a plot of
    the frontier (empty: none). Raises `UnreadableRecording`.
    """
    if picture:
        _check_picture(Path(picture).expanduser())
    chosen, catalogue = policies(names, settings), catalogue_of(settings)
    window = window or max(0, settings.context.context_window)
    bar = ProgressBar()
    try:
        recording = read_recording(named, home, lambda done, total: bar.show("reading", done, total))
        profiles = [_profile(catalogue, "--model", model) for model in models or [_default_model(recording, settings)]]
        profiles = [with_recorded_cache(profile, recording) for profile in profiles]
        measured = measure(recording)
        script = make_script(recording, measured)
        if measured is not None or _is_edited(recording):
            chosen = {AS_RECORDED: as_recorded(recording, settings), **chosen}
        step = bar.counting("replaying", len(script.calls) * len(chosen) * len(profiles))
        outcomes = [
            simulate(script, name, make, profile, small=small_beside(profile, settings), window=window, step=step)
            for profile in profiles
            for name, make in chosen.items()
        ]
    finally:
        bar.clear()
    answered = [profile for profile in profiles if _answered(recording, profile, catalogue)]
    accuracies = _accuracies(recording, measured, script, outcomes, answered)
    report = Report(recording, script, outcomes, measured, accuracies)
    if picture:
        _draw(Path(picture).expanduser(), plot(recording.name, outcomes))
    return document(report) if as_json else table(report)


@dataclass(frozen=True, slots=True)
class Report:
    """The data of a report on one recording. `measured` and `accuracies` (by model and window) need recorded usage."""

    recording: Recording
    script: Script
    outcomes: Sequence[Outcome]
    measured: Measured | None = None
    accuracies: Mapping[tuple[str, int], Accuracy] = field(default_factory=dict)


def _accuracies(
    recording: Recording,
    measured: Measured | None,
    script: Script,
    outcomes: Sequence[Outcome],
    profiles: Sequence[ModelProfile],
) -> dict[tuple[str, int], Accuracy]:
    """The accuracy of "as recorded", for the recording's model; for all models if the recording names none."""
    found: dict[tuple[str, int], Accuracy] = {}
    by_id = {profile.id: profile for profile in profiles}
    for outcome in outcomes:
        profile = by_id.get(outcome.model)
        if measured is not None and outcome.policy == AS_RECORDED and profile is not None:
            accuracy = compare(recording, measured, script, outcome.used, profile)
            if accuracy is not None:
                found[outcome.model, outcome.window] = accuracy
    return found


def _answered(recording: Recording, profile: ModelProfile, catalogue: Catalogue) -> bool:
    """Whether the recording may have been made with this model."""
    try:
        return not recording.model or catalogue.quick_profile(recording.model).name == profile.name
    except UnknownModel:
        return False


def with_recorded_cache(profile: ModelProfile, recording: Recording) -> ModelProfile:
    """The profile with the cache's time to live in the recording; writing for an hour costs twice the input price
    (Anthropic, "Prompt caching").
    """
    ttl_s = recording.cache_ttl_s
    if profile.cache != "marked" or profile.prices is None or ttl_s in (0, profile.cache_ttl_s):
        return profile
    return msgspec.structs.replace(profile, cache_ttl_s=ttl_s, prices=_for_an_hour(profile.prices))


def _for_an_hour(prices: Prices) -> Prices:
    above = tuple((start, _for_an_hour(more)) for start, more in prices.above)
    return msgspec.structs.replace(prices, cache_write=2 * prices.input, above=above)


def _is_edited(recording: Recording) -> bool:
    return any(isinstance(entry, ContextEntry) for entry in recording.log)


def _check_picture(path: Path) -> None:
    """Check before the replay that the picture can be written. Raises `UnreadableRecording`."""
    if path.is_dir() or not path.parent.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UnreadableRecording(f"--plot: {path} cannot be written: {why}. Name a file in a folder that exists.")


def _draw(path: Path, picture: str) -> None:
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        told = f"--plot: {path} cannot be written: {why}. Nothing was drawn; without --plot the figures are printed."
        raise UnreadableRecording(told) from error


def _profile(catalogue: Catalogue, setting: str, name: str) -> ModelProfile:
    try:
        profile = look_up(catalogue.quick_profile(name))
    except UnknownModel as error:
        raise UnreadableRecording(f"{setting}: {error}") from error
    if profile.prices is None:
        raise UnreadableRecording(f"{setting}: the prices of {profile.id} are not known, so nothing could be compared")
    return profile


def _default_model(recording: Recording, settings: Settings) -> str:
    """The first with known prices: the recording's model, the settings' model, else Anthropic's frontier model."""
    for name in (recording.model, settings.model.id):
        if name:
            try:
                if look_up(catalogue_of(settings).quick_profile(name)).prices is not None:
                    return name
            except UnknownModel:
                continue
    return settings.models.anthropic.frontier


def small_beside(profile: ModelProfile, settings: Settings) -> ModelProfile | None:
    """The small model that may write summaries instead, as in a session."""
    name = settings.agentic.small_model or model_of_tier(settings, profile.provider, "small")
    return _profile(catalogue_of(settings), "the small model", name) if name else None


class ProgressBar:
    """A progress bar on standard error: shown only on a terminal, and after `BAR_AFTER_S` seconds."""

    def __init__(self) -> None:
        self._shown = False
        self._wanted = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + BAR_AFTER_S

    def show(self, doing: str, done: int, total: int) -> None:
        """Show progress."""
        if not self._wanted or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _BAR_EVERY_S
        share = min(1.0, done / total) if total else 1.0
        filled = round(share * _BAR_WIDTH)
        sys.stderr.write(f"\r{doing} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def counting(self, doing: str, total: int) -> Callable[[], None]:
        """A function to call after each of `total` steps."""
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            self.show(doing, done, total)

        return step

    def clear(self) -> None:
        """Remove the bar."""
        if self._shown:
            sys.stderr.write("\r" + " " * (_BAR_WIDTH + 24) + "\r")
            sys.stderr.flush()
            self._shown = False


def table(report: Report) -> str:
    """The report as text of at most 100 columns, one block for each model."""
    recording, script = report.recording, report.script
    name = printable(recording.name)
    lines = [f"{name}: {len(script.calls):,} calls, {script.tokens:,} tokens said ({recording.format})"]
    lines += [f"assumed: {each}" for each in script.assumed]
    if report.measured is not None:
        fixed, characters = report.measured.fixed, report.measured.chars_per_token
        lines.append(f"measured: {fixed:,} tokens of system prompt and tools, {characters:.2f} characters a token")
    if recording.problems:
        shown = ", ".join(f"{problem.line} ({problem.why})" for problem in recording.problems[:SHOWN_PROBLEMS])
        rest = len(recording.problems) - SHOWN_PROBLEMS
        more = f" and {rest:,} more" if rest > 0 else ""
        lines.append(printable(f"{len(recording.problems):,} malformed lines left out: {shown}{more}"))
    for model, window in dict.fromkeys((outcome.model, outcome.window) for outcome in report.outcomes):
        here = [outcome for outcome in report.outcomes if (outcome.model, outcome.window) == (model, window)]
        rows = [_HEADINGS, *(_row(outcome) for outcome in here)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines += ["", f"{model}, window {window:,}"]
        accuracy = report.accuracies.get((model, window))
        if accuracy is not None:
            lines += _accuracy_lines(accuracy)
        elif recording.metered:
            told = printable(recording.model)
            lines.append(f"not compared with the recorded usage, which is {told}'s: --model {told} does that")
        lines += ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        lines += [
            f"{each.policy}: {each.bill.overflows:,} of its calls would not have fitted the window"
            for each in here
            if each.bill.overflows
        ]
    return "\n".join([*lines, "", _NOTE])


def _accuracy_lines(accuracy: Accuracy) -> list[str]:
    """How accurate the row "as recorded" is, in words."""
    predicted, recorded = accuracy.predicted, accuracy.recorded
    cost, recorded_cost = accuracy.costs
    sums = (
        ("sent", predicted.input_tokens, recorded.input_tokens),
        ("read", predicted.cache_read_tokens, recorded.cache_read_tokens),
        ("written", predicted.cache_write_tokens, recorded.cache_write_tokens),
    )
    told = [f"{name} {_short(one)} for {_short(other)} ({_percent(one, other)})" for name, one, other in sums]
    far = accuracy.far
    close = f"{len(accuracy.calls) - len(far):,} of {len(accuracy.calls):,} calls ({accuracy.close_share:.1%})"
    lines = [
        f"{AS_RECORDED}: predicted for recorded usage of {len(accuracy.calls):,} calls",
        f"  {', '.join(told)}",
        f"  cost of the calls ${cost:.2f} for ${recorded_cost:.2f} ({_percent(cost, recorded_cost)})",
        f"  cache reads within {CLOSE_READ:.0%}: {close}",
    ]
    if far:
        shown = [
            f"{call.number} ({_short(call.predicted.cache_read_tokens)} for {_short(call.recorded.cache_read_tokens)})"
            for call in far[:SHOWN_CALLS]
        ]
        rest = len(far) - SHOWN_CALLS
        lines.append(f"  not: call {', '.join(shown)}{f' and {rest:,} more' if rest > 0 else ''}")
    return lines


def _percent(predicted: float, recorded: float) -> str:
    error = error_of(predicted, recorded)
    return f"{error:+.1%}" if math.isfinite(error) else "none recorded"


def document(report: Report) -> str:
    """The report as a JSON object: costs in USD, shares from 0 to 1, times in seconds, all else in tokens or counts."""
    recording, script, measured = report.recording, report.script, report.measured
    told: dict[str, object] = {
        "recording": recording.name,
        "format": recording.format,
        "calls": len(script.calls),
        "tokens": script.tokens,
        "assumed": list(script.assumed),
        "malformed_lines": [{"line": problem.line, "why": problem.why} for problem in recording.problems],
        "replays": [_record(outcome) for outcome in report.outcomes],
    }
    if measured is not None:
        told["measured"] = {"fixed_tokens": measured.fixed, "chars_per_token": measured.chars_per_token}
        told["as_recorded"] = [
            _accuracy_record(accuracy, window) for (_, window), accuracy in report.accuracies.items()
        ]
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def _accuracy_record(accuracy: Accuracy, window: int) -> dict[str, object]:
    predicted, recorded = accuracy.predicted, accuracy.recorded
    cost, recorded_cost = accuracy.costs
    return {
        "model": accuracy.model,
        "window": window,
        "predicted": _usage_record(predicted, cost),
        "recorded": _usage_record(recorded, recorded_cost),
        "errors": {
            "input_tokens": _error(predicted.input_tokens, recorded.input_tokens),
            "cache_read_tokens": _error(predicted.cache_read_tokens, recorded.cache_read_tokens),
            "cache_write_tokens": _error(predicted.cache_write_tokens, recorded.cache_write_tokens),
            "cost_usd": _error(cost, recorded_cost),
        },
        "reads_within_5_percent": accuracy.close_share,
        "calls": [
            {
                "call": call.number,
                "predicted": _usage_record(call.predicted, call.predicted_cost),
                "recorded": _usage_record(call.recorded, call.recorded_cost),
                "read_is_close": call.is_close,
            }
            for call in accuracy.calls
        ],
    }


def _error(predicted: float, recorded: float) -> float | None:
    """The error as a share of the recorded value; None if that is 0."""
    error = error_of(predicted, recorded)
    return error if math.isfinite(error) else None


def _usage_record(usage: Usage, cost: float) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": cost,
    }


def _row(outcome: Outcome) -> tuple[str, ...]:
    bill, evidence = outcome.bill, outcome.evidence
    return (
        outcome.policy,
        f"{bill.total:.2f}",
        _short(bill.usage.input_tokens),
        _short(bill.usage.cache_read_tokens),
        _short(bill.usage.cache_write_tokens),
        f"{outcome.compactions:,}",
        f"{evidence.verbatim_share:.3f}",
        f"{evidence.depth:.2f}",
        f"{evidence.share:.3f}",
        f"{evidence.pointer_share:.3f}",
        f"{bill.waits:,}",
        f"{bill.waited / WRITING_SPEED:,.0f}",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]


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
        "verbatim": evidence.verbatim_share,
        "depth": evidence.depth,
        "depths": {str(depth): count for depth, count in sorted(evidence.depths.items())},
        "pointed_to": evidence.pointer_share,
        "waits": bill.waits,
        "wait_s": bill.waited / WRITING_SPEED,
        "longest_wait_s": bill.longest_wait / WRITING_SPEED,
        "fetches": bill.fetches,
        "fetched_tokens": bill.fetched_tokens,
    }
