"""`tui-agent replay`: read a recording, replay it under each policy on each model, and report."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tui_agent.models.base import ModelProfile, UnknownModel
from tui_agent.models.catalogue import quick_profile
from tui_agent.models.prices import look_up
from tui_agent.replay.policies import policies
from tui_agent.replay.reading import read_recording
from tui_agent.replay.recording import Recording, UnreadableRecording
from tui_agent.replay.report import document, table
from tui_agent.replay.script import prepare
from tui_agent.replay.simulation import simulate
from tui_agent.settings import Settings

BAR_AFTER_S: Final = 0.8
"""Seconds after which progress is shown on a terminal."""
_BAR_WIDTH = 30
_BAR_EVERY_S = 0.1


def replay_report(
    named: str, home: Path, settings: Settings, *, names: list[str], models: list[str], window: int, as_json: bool
) -> str:
    """The report on the recording that `named` names (a file, a session's id or folder).

    `names` are policies (none: all), `models` model ids (none: the recording's own, else the frontier model of the
    settings), `window` in tokens (0: the model's). Raises `UnreadableRecording`.
    """
    chosen = policies(names, settings)
    bar = ProgressBar()
    try:
        recording = read_recording(named, home, lambda done, total: bar.show("reading", done, total))
        profiles = [_profile(model) for model in models or [_default_model(recording, settings)]]
        script = prepare(recording)
        total = len(script.calls) * len(chosen) * len(profiles)
        step = bar.counting("replaying", total)
        outcomes = [
            simulate(script, name, make, profile, small=_small(profile, settings), window=window, step=step)
            for profile in profiles
            for name, make in chosen.items()
        ]
    finally:
        bar.clear()
    return document(recording, script, outcomes) if as_json else table(recording, script, outcomes)


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


def _profile(name: str) -> ModelProfile:
    try:
        profile = look_up(quick_profile(name))
    except UnknownModel as error:
        raise UnreadableRecording(f"--model: {error}") from error
    if profile.prices is None:
        raise UnreadableRecording(f"--model: the prices of {profile.id} are not known, so nothing could be compared")
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
    """The model that may write summaries in its place."""
    tiers = settings.models.anthropic if profile.provider == "anthropic" else settings.models.gemini
    if profile.provider not in ("anthropic", "gemini") or not tiers.small or tiers.small == profile.id:
        return None
    small = look_up(quick_profile(tiers.small))
    return small if small.prices is not None else None
