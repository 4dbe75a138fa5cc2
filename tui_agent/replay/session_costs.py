"""What a session would have cost under each named policy, and how much of it would have stayed verbatim."""

from pathlib import Path

from tui_agent.conversation.profile import ModelProfile
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
    """Replay the session in `folder` under each of `POLICIES` on this model; `window` is in tokens.

    Slow for a long session: about 3 s per policy for 500 calls. `step` is called after each call and may raise to stop.
    Raises `UnreadableRecording` if there is no answer yet, or the model's prices are not known.
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
