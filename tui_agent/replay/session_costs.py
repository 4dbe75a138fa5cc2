"""What a session would have cost under each of the named policies, and what of it would have stayed word for word."""

from pathlib import Path

from tui_agent.models.base import ModelProfile
from tui_agent.replay.command import small_beside, with_recorded_cache
from tui_agent.replay.recorded import measure
from tui_agent.replay.script import make_script
from tui_agent.replay.simulation import Outcome, Step, named_policy, simulate
from tui_agent.settings import POLICIES, Settings
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.storage.recordings.recording import UnreadableRecording


def policy_outcomes(
    folder: Path, settings: Settings, profile: ModelProfile, *, window: int, step: Step | None = None
) -> tuple[Outcome, ...]:
    """The session in `folder`, replayed under each of `POLICIES` on this model; `window` in tokens.

    Slow for a long session: about three seconds for 500 calls and policy. `step` is called after each call and may
    raise to stop it. Raises `UnreadableRecording` where nothing was answered yet or the model's prices are not known.
    """
    recording = read_recording(str(folder), folder.parent)
    if profile.prices is None:
        raise UnreadableRecording(f"the prices of {profile.id} are not known, so nothing could be compared")
    profile, small = with_recorded_cache(profile, recording), small_beside(profile, settings)
    script = make_script(recording, measure(recording))
    return tuple(
        simulate(script, name, named_policy(name, settings), profile, small=small, window=window, step=step)
        for name in POLICIES
    )
