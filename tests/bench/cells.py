"""The default against the policies of other agents: recorded sessions × lengths × windows × models.

    python -m tests.bench.cells [--jobs N] [--calls 20,60,200,0] [--windows 16,32,…] [--models …] RECORDING...

A cell is one session of so many first calls (0: all) on one model in one window. Prints for each cell the default's
cost as a share of that of the cheapest other policy, and the evidence of both. A policy whose requests would not have
fitted more often than ours is out of the race. Cells in which system prompt and tools alone take more than half of the
window, or in which nobody has to do anything, are counted only. Then: how many cells are no dearer, the worst, and
those in which another is both cheaper and keeps more. At the end the same without the cost of reading again what has
left the view, which is billed to all by one rule: as if it could be done without.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tui_agent.conversation.profile import MILLION, ModelProfile, Prices
from tui_agent.replay.many import end_with_parent
from tui_agent.replay.policies import COMPARED
from tui_agent.replay.replaying import Replay, small_profile
from tui_agent.replay.script import Script
from tui_agent.replay.simulation import ReplayOutcome, policies, simulate
from tui_agent.settings import load_settings
from tui_agent.storage.recordings.reading import read_file

LOCAL = "local"
READING, WRITING = 400.0, 25.0
"""Tokens per second of a model of 8B parameters on a laptop with a graphics chip."""
MODELS = ("claude-opus-5-5", "claude-haiku-5-5", "gemini-3.8-flash", LOCAL)
WINDOWS = (16, 32, 64, 128, 200, 400, 1_000)
CALLS = (20, 60, 200, 0)


class Side(NamedTuple):
    """One policy in a cell: dollars (seconds for a local model), evidence, and requests that would not have fitted."""

    policy: str
    cost: float
    plain: float
    evidence: float
    verbatim: float
    compactions: int
    clearings: int
    over: int


class Cell(NamedTuple):
    """A session cut to so many calls, on a model in a window, under the default and under others."""

    recording: str
    calls: int
    model: str
    window: int
    ours: Side
    others: tuple[Side, ...]

    @property
    def cheapest(self) -> Side:
        """The cheapest of the others whose requests fit as often as ours."""
        return min(self.others, key=lambda side: (side.over > self.ours.over, side.cost))

    @property
    def ratio(self) -> float:
        """Our cost as a share of the cheapest one's."""
        return self.ours.cost / self.cheapest.cost if self.cheapest.cost else 1.0

    @property
    def like_for_like(self) -> float:
        """The same without the cost of what is read again."""
        fitting = [each for each in self.others if each.over <= self.ours.over] or self.others
        return self.ours.plain / min(each.plain for each in fitting)

    @property
    def beaten_by(self) -> list[str]:
        """Those that are both cheaper and keep more."""
        ours = self.ours
        return [
            each.policy
            for each in self.others
            if each.over <= ours.over and each.cost < 0.999 * ours.cost and each.evidence > ours.evidence + 0.0005
        ]


def profile_of(replay: Replay, model: str) -> ModelProfile:
    """The model; the local one is billed in seconds, and its cache lives for ever."""
    if model != LOCAL:
        return replay.profile(model)
    unit = MILLION / READING
    prices = Prices(unit, MILLION / WRITING, 0.05 * unit, unit)
    return ModelProfile(
        "ollama", LOCAL, 32_768, prices=prices, local=True, reading=READING, writing=WRITING, tier="small",
        cache="implicit", cache_ttl_s=float("inf"), cache_minimum=1,
    )  # fmt: skip


def _side(policy: str, outcome: ReplayOutcome) -> Side:
    bill, evidence = outcome.bill, outcome.evidence
    counts = outcome.compactions, outcome.clearings, bill.calls_over_window
    return Side(policy, bill.total, bill.total - bill.fetch_cost_usd, evidence.share, evidence.verbatim_share, *counts)


def cells_of(task: tuple[str, tuple[int, ...], tuple[str, ...], tuple[int, ...], dict[str, float]]) -> list[Cell]:
    """All cells of one recording; those that would repeat a shorter one are left out."""
    path, lengths, models, windows, changed = task
    settings = load_settings(Path("/"), None, overrides=changed)
    replay = Replay(read_file(Path(path)), settings)
    known = policies(["balanced", *COMPARED], settings)
    found: list[Cell] = []
    whole = len(replay.script.calls)
    for length in sorted({min(each or whole, whole) for each in lengths}):
        script: Script = replace(replay.script, calls=replay.script.calls[:length])
        for model in models:
            profile = profile_of(replay, model)
            small = small_profile(profile, settings) if model != LOCAL else None
            for window in windows:
                if script.fixed > window * 500:
                    continue
                sides = [
                    _side(name, simulate(script, name, make, profile, small=small, window=window * 1000))
                    for name, make in known.items()
                ]
                found.append(Cell(Path(path).name[:12], length, model, window, sides[0], tuple(sides[1:])))
    return found


def lines(cells: list[Cell]) -> Iterator[str]:
    """The table, and what it comes to."""
    yield f"{'recording':<13}{'calls':>6} {'model':<18}{'window':>7}{'ratio':>7}  evidence ours / theirs   policy"
    busy = [each for each in cells if each.ours.compactions or each.ours.clearings or each.ratio != 1.0]
    for cell in busy:
        ours, other = cell.ours, cell.cheapest
        work = f"{ours.compactions}+{ours.clearings} / {other.compactions}+{other.clearings}"
        yield (
            f"{cell.recording:<13}{cell.calls:>6} {cell.model:<18}{cell.window:>6}k{cell.ratio:>7.2f}"
            f"  {ours.evidence:.3f} / {other.evidence:.3f}  {work:>14}  {other.policy:<12}"
            f"{'  BEATEN by ' + ', '.join(cell.beaten_by) if cell.beaten_by else ''}"
        )
    yield f"{len(cells)} cells, {len(busy)} in which something is done:"
    for title, chosen in _groups(busy):
        ratios = [each.ratio for each in chosen]
        if ratios:
            yield (
                f"  {title:<18}{len(chosen):>5} cells  mean {mean(ratios):.3f}  worst {max(ratios):.2f}"
                f"  <=1.0 {sum(each <= 1.0005 for each in ratios) / len(ratios):.0%}"
                f"  <=1.05 {sum(each <= 1.05 for each in ratios) / len(ratios):.0%}"
                f"  beaten {sum(bool(each.beaten_by) for each in chosen)}"
                f"  evidence {mean(each.ours.evidence for each in chosen):.3f}"
            )
    plain = [each.like_for_like for each in busy]
    if plain:
        yield (
            f"without what is read again: mean {mean(plain):.3f}  worst {max(plain):.2f}"
            f"  <=1.0 {sum(each <= 1.0005 for each in plain) / len(plain):.0%}"
            f"  <=1.05 {sum(each <= 1.05 for each in plain) / len(plain):.0%}"
        )


def _groups(cells: list[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for window in sorted({each.window for each in cells}):
        yield f"{window}k", [each for each in cells if each.window == window]
    for model in dict.fromkeys(each.model for each in cells):
        yield model, [each for each in cells if each.model == model]
    yield "all", cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cells")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--calls", default=",".join(map(str, CALLS)))
    parser.add_argument("--windows", default=",".join(map(str, WINDOWS)), help="in thousands of tokens")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--json", type=Path, help="keep the cells in this file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the default")
    parser.add_argument("recordings", nargs="+")
    given = parser.parse_args()
    lengths, windows = (tuple(map(int, each.split(","))) for each in (given.calls, given.windows))
    models = tuple(given.models.split(","))
    changed = {key: json.loads(value) for key, _, value in (each.partition("=") for each in given.set)}
    todo = [
        (path, lengths, (model,), (window,), changed)
        for path in given.recordings
        for model in models
        for window in windows
    ]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        cells = [cell for found in pool.map(cells_of, todo) for cell in found]
    if given.json:
        given.json.write_text(json.dumps(cells))
    for line in lines(cells):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
