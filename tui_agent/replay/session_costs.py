"""What a session would have cost under each named policy, and how much of it would have stayed verbatim.

It is worked out in a process of its own (this module, run as a script): it takes seconds of computing per policy, and
memory that grows with the session.
"""

import sys
from pathlib import Path

import msgspec

from tui_agent.conversation.profile import ModelProfile
from tui_agent.replay.replaying import Replay, with_recorded_cache
from tui_agent.settings import POLICIES, Settings
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.storage.recordings.recording import UnreadableRecording
from tui_agent.tools.shell.own_process import in_own_process


class PolicyCost(msgspec.Struct, frozen=True):
    """The bill in USD, and the share of later needed text that was still in the window word for word."""

    policy: str
    usd: float
    verbatim_share: float


class _Asked(msgspec.Struct, frozen=True):
    folder: str
    settings: Settings
    profile: ModelProfile
    window: int


async def policy_costs(
    folder: Path, settings: Settings, profile: ModelProfile, *, window: int
) -> tuple[PolicyCost, ...]:
    """Replay the session in `folder` under each of `POLICIES` on this model; `window` is in tokens.

    Slow for a long session: about 3 s per policy for 500 calls; cancelling ends it. Nothing is returned if there is no
    answer yet, or the model's prices are not known.
    """
    if profile.prices is None:
        return ()
    try:
        printed = await in_own_process(__name__, msgspec.json.encode(_Asked(str(folder), settings, profile, window)))
        return msgspec.json.decode(printed, type=tuple[PolicyCost, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def _costs(asked: _Asked) -> list[PolicyCost]:
    try:
        replay = Replay(read_recording(asked.folder, Path(asked.folder).parent), asked.settings)
        outcomes = replay.run(POLICIES, with_recorded_cache(asked.profile, replay.recording), asked.window)
    except UnreadableRecording:
        return []
    return [PolicyCost(each.policy, each.bill.total, each.evidence.verbatim_share) for each in outcomes]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_costs(msgspec.json.decode(sys.stdin.buffer.read(), type=_Asked))))
