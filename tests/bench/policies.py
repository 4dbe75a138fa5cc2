"""What policies for the context cost, and what they keep in view, on long sessions at real prices.

Wanted, on every session, model and window: no compared policy is both cheaper and keeps more evidence in view than the
default; and at the evidence of the cheapest compared policy, ours costs at most 0.85 of it. Where the default keeps
more than that, `even` is what ours costs when its own knobs (`KNOBS`) give the surplus away.

    python -m tests.bench.policies [RECORDING...]
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.replay.sessions import write_session
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.replay.policies import COMPARED, MakePolicy
from tui_agent.replay.script import Script, make_script
from tui_agent.replay.simulation import ReplayOutcome, preset_policy, simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file

MODELS = ("claude-opus-4-7", "claude-opus-5-5", "claude-haiku-5-5", "gemini-3.1-pro-preview")
WINDOWS = (200_000, 1_000_000)
SMALL = {"anthropic": "claude-haiku-5-5", "gemini": "gemini-3.8-flash"}
WANTED = 0.85
KNOBS = ((1.0, 8_000, 4_000), (1.0, 14_000, 4_000), (1.0, 14_000, 8_000), (1.0, 20_000, 4_000), (1.5, 16_000, 6_000))
"""Thrift, tokens kept, and tokens of facts."""


class Shape(NamedTuple):
    """A made session: its seed, how many calls, and how large its results are."""

    seed: int
    calls: int
    size: float


SHAPES = (Shape(1, 450, 1.0), Shape(2, 480, 0.5), Shape(3, 120, 3.0), Shape(5, 120, 2.0))


class Verdict(NamedTuple):
    """The default against the compared policies: which are better in both, the cheapest, and costs against it.

    `ratio` is the default's, `even` that of the cheapest setting of ours that keeps no less than the cheapest policy.
    """

    ours: ReplayOutcome
    better: tuple[str, ...]
    cheapest: ReplayOutcome
    ratio: float
    even: float

    @property
    def holds(self) -> bool:
        """Whether all that is wanted is so."""
        return not self.better and self.even <= WANTED


def verdict(script: Script, profile: ModelProfile, window: int) -> Verdict:
    """How the default stands on one session."""
    small = look_up(CATALOGUE.quick_profile(SMALL[profile.provider]))

    def replay(name: str, make: MakePolicy) -> ReplayOutcome:
        return simulate(script, name, make, profile, small=small, window=window)

    ours = replay("layered", preset_policy("layered", Settings()))
    rivals = [replay(name, make) for name, make in COMPARED.items()]
    better = tuple(
        rival.policy
        for rival in rivals
        if rival.bill.total < ours.bill.total and rival.evidence.share > ours.evidence.share
    )
    cheapest = min(rivals, key=lambda rival: rival.bill.total)
    tuned = [ours, *(replay("layered", preset_policy("layered", settings)) for settings in knobs())]
    enough = [each.bill.total for each in tuned if each.evidence.share >= cheapest.evidence.share]
    even = min(enough, default=float("inf")) / cheapest.bill.total
    return Verdict(ours, better, cheapest, ours.bill.total / cheapest.bill.total, even)


def knobs() -> Iterator[Settings]:
    """Settings that spend less and keep less."""
    settings = Settings()
    for thrift, keep, facts in KNOBS:
        compaction = msgspec.structs.replace(
            settings.compaction, thrift=thrift, keep_recent_tokens=keep, facts_tokens=facts
        )
        yield msgspec.structs.replace(settings, compaction=compaction)


def lines(name: str, script: Script) -> Iterator[str]:
    """The table of one session."""
    yield f"\n{name}: {len(script.calls)} calls"
    yield f"  {'model':<24}{'window':>8}{'default':>15}{'cheapest':>25}{'ratio':>7}{'even':>6}"
    for model in MODELS:
        profile = look_up(CATALOGUE.quick_profile(model))
        for window in WINDOWS:
            found = verdict(script, profile, window)
            rival = found.cheapest
            default = f"${found.ours.bill.total:.2f} {found.ours.evidence.share:.3f}"
            other = f"{rival.policy} ${rival.bill.total:.2f} {rival.evidence.share:.3f}"
            beaten = f" (better in both: {', '.join(found.better)})" if found.better else ""
            figures = f"{found.ratio:>7.2f}{found.even:>6.2f}  {'ok' if found.holds else 'MISSED'}{beaten}"
            yield f"  {model:<24}{window // 1000:>7}k{default:>15}{other:>25}{figures}"


def scripts(paths: Sequence[str]) -> Iterator[tuple[str, Script]]:
    """The recordings named, else the made sessions."""
    for named in paths:
        yield Path(named).name, make_script(read_file(Path(named)))
    if paths:
        return
    with tempfile.TemporaryDirectory() as folder:
        for seed, calls, size in SHAPES:
            path = write_session(Path(folder) / "session.jsonl", seed=seed, calls=calls, size=size)
            yield f"made session {seed} (size {size})", make_script(read_file(path))


def show(paths: Sequence[str] = ()) -> None:
    """Print all tables."""
    print("\nPolicies: cost, and evidence in view; wanted: even at most 0.85, nothing better in both", flush=True)
    for name, script in scripts(paths):
        for line in lines(name, script):
            print(line, flush=True)


if __name__ == "__main__":
    show(sys.argv[1:])
