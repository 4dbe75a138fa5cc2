"""`tui-agent replay`: read a recording, replay it under each policy on each model, and report as a table or as data."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.model_choice import model_of_tier
from tui_agent.models.base import ModelProfile, UnknownModel
from tui_agent.models.catalogue import quick_profile
from tui_agent.models.prices import look_up
from tui_agent.replay.reading import Recording, UnreadableRecording, read_recording
from tui_agent.replay.script import Script, make_script
from tui_agent.replay.simulation import Outcome, policies, simulate
from tui_agent.settings import Settings

BAR_AFTER_S: Final = 0.8
"""Seconds after which progress is shown on a terminal."""
SHOWN_PROBLEMS: Final = 5
"""How many of the lines that could not be used the table names."""
_BAR_WIDTH = 30
_BAR_EVERY_S = 0.1
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


def replay_report(
    named: str, home: Path, settings: Settings, *, names: list[str], models: list[str], window: int, as_json: bool
) -> str:
    """The report on the recording that `named` names (a file, a session's id or folder).

    `names` are policies (none: all), `models` model ids (none: the recording's own, else the frontier model of the
    settings), `window` in tokens (0: that of the settings, else the model's). Raises `UnreadableRecording`.
    """
    chosen = policies(names, settings)
    window = window or max(0, settings.context.context_window)
    bar = ProgressBar()
    try:
        recording = read_recording(named, home, lambda done, total: bar.show("reading", done, total))
        profiles = [_profile("--model", model) for model in models or [_default_model(recording, settings)]]
        script = make_script(recording)
        step = bar.counting("replaying", len(script.calls) * len(chosen) * len(profiles))
        outcomes = [
            simulate(script, name, make, profile, small=_small(profile, settings), window=window, step=step)
            for profile in profiles
            for name, make in chosen.items()
        ]
    finally:
        bar.clear()
    return document(recording, script, outcomes) if as_json else table(recording, script, outcomes)


def _profile(setting: str, name: str) -> ModelProfile:
    try:
        profile = look_up(quick_profile(name))
    except UnknownModel as error:
        raise UnreadableRecording(f"{setting}: {error}") from error
    if profile.prices is None:
        raise UnreadableRecording(f"{setting}: the prices of {profile.id} are not known, so nothing could be compared")
    return profile


def _default_model(recording: Recording, settings: Settings) -> str:
    """The model that answered, where its prices are known."""
    for name in (recording.model, settings.model.id):
        if name:
            try:
                if look_up(quick_profile(name)).prices is not None:
                    return name
            except UnknownModel:
                continue
    return settings.models.anthropic.frontier


def _small(profile: ModelProfile, settings: Settings) -> ModelProfile | None:
    """The model beside it that may write summaries in its place, as in a session."""
    name = settings.agentic.small_model or model_of_tier(settings, profile.provider, "small")
    return _profile("the small model", name) if name else None


class ProgressBar:
    """One line on standard error, on a terminal and once it takes long; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown = False
        self._wanted = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + BAR_AFTER_S

    def show(self, doing: str, done: int, total: int) -> None:
        """So much of it is done."""
        if not self._wanted or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _BAR_EVERY_S
        share = min(1.0, done / total) if total else 1.0
        filled = round(share * _BAR_WIDTH)
        sys.stderr.write(f"\r{doing} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {share:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def counting(self, doing: str, total: int) -> Callable[[], None]:
        """To be called after each of `total` steps."""
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            self.show(doing, done, total)

        return step

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r" + " " * (_BAR_WIDTH + 24) + "\r")
            sys.stderr.flush()
            self._shown = False


def table(recording: Recording, script: Script, outcomes: Sequence[Outcome]) -> str:
    """The replays of one recording as text of at most 100 columns, one block for each model."""
    lines = [f"{recording.name}: {len(script.calls):,} calls, {script.tokens:,} tokens said ({recording.format})"]
    lines += [f"assumed: {each}" for each in script.assumed]
    if recording.problems:
        shown = ", ".join(f"{problem.line} ({problem.why})" for problem in recording.problems[:SHOWN_PROBLEMS])
        rest = len(recording.problems) - SHOWN_PROBLEMS
        more = f" and {rest:,} more" if rest > 0 else ""
        lines.append(f"{len(recording.problems):,} malformed lines left out: {shown}{more}")
    for model, window in dict.fromkeys((outcome.model, outcome.window) for outcome in outcomes):
        here = [outcome for outcome in outcomes if (outcome.model, outcome.window) == (model, window)]
        rows = [_HEADINGS, *(_row(outcome) for outcome in here)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines += ["", f"{model}, window {window:,}"]
        lines += ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        lines += [
            f"{each.policy}: {each.bill.overflows:,} of its calls would not have fitted the window"
            for each in here
            if each.bill.overflows
        ]
    return "\n".join([*lines, "", _NOTE])


def document(recording: Recording, script: Script, outcomes: Sequence[Outcome]) -> str:
    """The same as one JSON object; costs in USD, shares of 1, everything else in tokens or counts."""
    told = {
        "recording": recording.name,
        "format": recording.format,
        "calls": len(script.calls),
        "tokens": script.tokens,
        "assumed": list(script.assumed),
        "malformed_lines": [{"line": problem.line, "why": problem.why} for problem in recording.problems],
        "replays": [_record(outcome) for outcome in outcomes],
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


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
