"""Where the frontier of dollars and of what stays word for word lies: the knobs of a policy over long sessions.

    python -m tests.bench.frontier [--quick] [RECORDING...]        the table of docs/policies.md
    python -m tests.bench.frontier --plot docs/policies.svg        its picture, of the first session

Each point is told against the default: the mean of its costs as a share of the default's, over all sessions and models,
and of the share of what was needed later that was still verbatim. Points on the frontier are marked with a star.
"""

import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tests.replay.sessions import write_session
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.replay.plot import dots, plot
from tui_agent.replay.script import Script, make_script
from tui_agent.replay.simulation import ReplayOutcome, policies, preset_policy, simulate
from tui_agent.settings import POLICIES, Settings, load_settings
from tui_agent.settings.policies import Policy
from tui_agent.storage.recordings.reading import read_file

MODELS = ("claude-opus-5-5", "gemini-3.1-pro-preview")
SMALL = {"anthropic": "claude-haiku-5-5", "gemini": "gemini-3.8-flash"}
WINDOW = 200_000
SHAPES = ((1, 450, 1.0), (2, 480, 0.5), (3, 120, 3.0), (5, 120, 2.0))
"""Of each made session its seed, how many calls, and how large its results are."""
THRIFT = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0)
KEPT = (8_000, 14_000, 20_000, 30_000, 40_000, 60_000)
FACTS = (2_000, 3_000, 4_000)


class Point(NamedTuple):
    """Thrift, tokens kept, tokens of facts, and the share of the history that is kept at most."""

    thrift: float
    kept: int
    facts: int
    share: float = Settings().compaction.keep_recent_share

    @property
    def settings(self) -> Settings:
        knobs: Mapping[str, float] = {
            "compaction.thrift": self.thrift,
            "compaction.keep_recent_tokens": self.kept,
            "compaction.keep_recent_share": self.share,
            "compaction.facts_tokens": self.facts,
        }
        return load_settings(Path("/"), None, overrides=knobs)

    @property
    def policy(self) -> str:
        """The name that this point has as a policy; empty: none."""
        found = (name for name, policy in POLICIES.items() if point_of(policy) == self)
        return next(found, "")


class Standing(NamedTuple):
    """A point against the default: costs as a share, the verbatim share, all that was in view, and the waits."""

    point: Point
    cost: float
    verbatim: float
    evidence: float
    waits: float


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


def point_of(policy: Policy) -> Point:
    """Where a policy lies."""
    thrift, kept, share, facts = policy.values.values()
    return Point(float(thrift), int(kept), int(facts), float(share))


DEFAULT = point_of(POLICIES["balanced"])


def points(*, quick: bool) -> Iterator[Point]:
    """The policies alone, or all points."""
    if quick:
        yield from map(point_of, POLICIES.values())
        return
    yield from (Point(thrift, kept, facts) for thrift in THRIFT for kept in KEPT for facts in FACTS)


def outcome(point: Point, script: Script, profile: ModelProfile) -> ReplayOutcome:
    """What becomes of a session at this point."""
    settings, small = point.settings, look_up(CATALOGUE.quick_profile(SMALL[profile.provider]))
    return simulate(script, "layered", preset_policy("layered", settings), profile, small=small, window=WINDOW)


def standings(paths: Sequence[str], *, quick: bool) -> list[Standing]:
    """Every point over all sessions and models, the cheapest first."""
    profiles = [look_up(CATALOGUE.quick_profile(model)) for model in MODELS]
    found: dict[Point, list[tuple[float, ReplayOutcome]]] = {}
    for _, script in scripts(paths):
        for profile in profiles:
            default = outcome(DEFAULT, script, profile).bill.total
            for point in points(quick=quick):
                each = outcome(point, script, profile)
                found.setdefault(point, []).append((each.bill.total / default, each))
    made = [
        Standing(
            point,
            mean(cost for cost, _ in each),
            mean(one.evidence.verbatim_share for _, one in each),
            mean(one.evidence.share for _, one in each),
            mean(one.bill.waits for _, one in each),
        )
        for point, each in found.items()
    ]
    return sorted(made, key=lambda standing: (standing.cost, -standing.verbatim))


def show(paths: Sequence[str] = (), *, quick: bool = False) -> None:
    """Print the table."""
    best = -1.0
    print(f"   {'thrift':>6}{'kept':>8}{'facts':>7}{'cost':>8}{'verbatim':>10}{'evidence':>10}{'waits':>7}")
    for standing in standings(paths, quick=quick):
        point, star = standing.point, " "
        if standing.verbatim > best:
            best, star = standing.verbatim, "*"
        figures = f"{standing.cost:>8.3f}{standing.verbatim:>10.4f}{standing.evidence:>10.4f}{standing.waits:>7.1f}"
        print(f" {star} {point.thrift:>6g}{point.kept:>8,}{point.facts:>7,}{figures}  {point.policy}".rstrip())


def draw(path: Path, paths: Sequence[str] = ()) -> None:
    """Draw all policies, ours and others', of the first session."""
    name, script = next(scripts(paths))
    made = policies([], Settings())
    outcomes = []
    for model in MODELS:
        profile = look_up(CATALOGUE.quick_profile(model))
        small = look_up(CATALOGUE.quick_profile(SMALL[profile.provider]))
        outcomes += [simulate(script, each, make, profile, small=small, window=WINDOW) for each, make in made.items()]
    path.write_text(plot(name, dots(outcomes)), encoding="utf-8")


if __name__ == "__main__":
    parser = ArgumentParser(description="the frontier of dollars and of what stays word for word")
    parser.add_argument("recordings", nargs="*", metavar="RECORDING")
    parser.add_argument("--quick", action="store_true", help="the three policies alone")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the policies of the first session instead")
    given = parser.parse_args()
    if given.plot:
        draw(given.plot, given.recordings)
    else:
        show(given.recordings, quick=given.quick)
