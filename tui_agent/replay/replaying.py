"""Replaying one recording: at which model's prices, under which policies, and how well its usage was predicted."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from tui_agent.conversation.entries import ContextEntry, Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.choice import meant_model, model_of_tier
from tui_agent.models.prices import look_up, sold_anywhere
from tui_agent.models.usage import cost_usd
from tui_agent.replay.forecast import Accuracy, compare
from tui_agent.replay.policies import Write, written_by_rule
from tui_agent.replay.recorded import AS_RECORDED, as_recorded, measure
from tui_agent.replay.script import make_script
from tui_agent.replay.simulation import ReplayOutcome, policies, simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.recording import Recording, UnreadableRecording

OWN: Final = ""
"""Instead of a model's id: the one that the recording was made with."""


class Replay:
    """A recording and its replays so far. `measured` and `accuracies` (by model and window) need recorded usage.

    `step` is called after each replayed call.
    """

    def __init__(self, recording: Recording, settings: Settings, step: Callable[[], None] | None = None) -> None:
        self.recording = recording
        self.measured = measure(recording)
        self.script = make_script(recording, self.measured)
        self.outcomes: list[ReplayOutcome] = []
        self.accuracies: dict[tuple[str, int], Accuracy] = {}
        self._settings = settings
        self._step = step

    @property
    def tells_requests(self) -> bool:
        """Whether its own requests can be replayed: it has usage or compactions."""
        return self.measured is not None or any(isinstance(entry, ContextEntry) for entry in self.recording.log)

    def profile(self, model: str) -> ModelProfile:
        """The profile of a model with known prices, with the cache's time to live in the recording.

        `OWN` is the recording's, else the settings' model, else Anthropic's frontier model. Raises
        `UnreadableRecording`.
        """
        if model == OWN:
            for name in filter(None, (self.recording.model, self._settings.model.id)):
                try:
                    return with_recorded_cache(priced_profile(self._settings, name), self.recording)
                except UnreadableRecording:
                    continue
            model = self._settings.models.anthropic.frontier
        return with_recorded_cache(priced_profile(self._settings, model), self.recording)

    def run(
        self, names: Iterable[str], profile: ModelProfile, window: int = 0, write: Write = written_by_rule
    ) -> list[ReplayOutcome]:
        """Replay it under these policies on a model; `window` is in tokens (0: the session's, else the model's)."""
        window = window or self.recording.window
        found: list[ReplayOutcome] = []
        known = policies([name for name in names if name != AS_RECORDED], self._settings)
        for name in names:
            make = as_recorded(self.recording, self._settings) if name == AS_RECORDED else known[name]
            small = small_profile(profile, self._settings)
            outcome = simulate(
                self.script, name, make, profile, small=small, window=window, write=write, step=self._step
            )
            if name == AS_RECORDED and self.measured is not None and self._answered(profile):
                accuracy = compare(self.recording, self.measured, self.script, outcome.used, profile)
                if accuracy is not None:
                    self.accuracies[outcome.model, outcome.window] = accuracy
                    outcome = _as_billed(outcome, accuracy)
            found.append(outcome)
        self.outcomes += found
        return found

    @property
    def is_priced(self) -> bool:
        try:
            return bool(priced_profile(self._settings, self.recording.model))
        except UnreadableRecording:
            return False

    def _answered(self, profile: ModelProfile) -> bool:
        model = self.recording.model
        return not model or (self.is_priced and priced_profile(self._settings, model).name == profile.name)


def _as_billed(outcome: ReplayOutcome, accuracy: Accuracy) -> ReplayOutcome:
    """The outcome with the recorded usage of its calls in place of the simulated one."""
    recorded = {call.number: call for call in accuracy.calls}
    simulated = [used for number, used in enumerate(outcome.used, 1) if number in recorded]
    prices = accuracy.prices
    cost = outcome.bill.call_cost_usd - sum(cost_usd(used, prices) or 0.0 for used in simulated) + accuracy.costs[1]
    usage = sum(
        (recorded[number].recorded if number in recorded else used for number, used in enumerate(outcome.used, 1)),
        Usage(),
    )
    return replace(outcome, bill=replace(outcome.bill, usage=usage, call_cost_usd=cost))


def with_recorded_cache(profile: ModelProfile, recording: Recording) -> ModelProfile:
    """The profile with the cache's time to live in the recording, at its price."""
    lasting = recording.cache_ttl_s not in (0, profile.cache_ttl_s)
    return profile.for_an_hour() if profile.cache == "marked" and profile.prices is not None and lasting else profile


def priced_profile(settings: Settings, name: str) -> ModelProfile:
    """A model that this program can use or, as in recordings of others, any that somebody sells.

    Raises `UnreadableRecording` if its prices are not known.
    """
    try:
        profile = look_up(catalogue_of(settings).quick_profile(name))
        unknown = f"the prices of {profile.id} are not known, so nothing could be compared"
    except UnknownModel as error:
        profile, unknown = ModelProfile("", name), str(error)
    profile = profile if profile.prices is not None else sold_anywhere(name) or profile
    if profile.prices is None:
        raise UnreadableRecording(f"--model: {unknown}")
    return profile


def small_profile(profile: ModelProfile, settings: Settings) -> ModelProfile | None:
    """The small model that may write summaries instead, as in a session.

    Raises `UnreadableRecording` if it is none, or its prices are not known.
    """
    name = settings.agentic.small_model
    try:
        name = meant_model(settings, name) if name else model_of_tier(settings, profile.provider, "small")
    except UnknownModel as error:
        raise UnreadableRecording(f"agentic.small_model: {error}") from error
    return priced_profile(settings, name) if name else None
