"""What outlives a summary: of the commands and paths that a later call uses again, the share still in view.

    python -m tests.bench.outliving [--windows 64,128] [--model claude-opus-5-5] [--lost] RECORDING...

At every summary under the default policy: the commands that earlier calls ran, and the files that they named, which one
of the next 120 calls uses again. They count as in view where the program shows them: facts, words, where things are,
and the kept turns. The model's own text counts for nothing here: it is prose without a name. `--lost` lists the lost.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tui_agent.context.compaction.extract import PATH_KEYS
from tui_agent.context.compaction.facts import Source, count_mentions
from tui_agent.conversation.blocks import ToolCall
from tui_agent.replay.policies import PolicySetup, ReplayPolicy
from tui_agent.replay.replaying import Replay, small_profile
from tui_agent.replay.script import RecordedCall, Script, commands_of
from tui_agent.replay.simulation import policies, simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file
from tui_agent.system.lenient import object_in

AHEAD = 120
"""Calls after a summary in which something counts as used again."""


class Used(NamedTuple):
    """A command or a path."""

    kind: str
    text: str


def used_by(call: RecordedCall) -> Iterator[Used]:
    """The commands that a call runs, and the files that its arguments name."""
    for block in call.answer.message.blocks:
        if isinstance(block, ToolCall):
            for command in commands_of(block):
                yield Used("command", command)
                yield from (Used("path", fact.text) for fact in count_mentions(command) if fact.kind == "path")
            given = object_in(block.arguments)
            yield from (Used("path", path) for key in PATH_KEYS if isinstance(path := given.get(key), str) and path)


class Watched(NamedTuple):
    """A replay: the number of calls before each summary, and what the prompt showed after it."""

    script: Script
    shown: dict[int, str]


def watch(path: str, model: str, window: int) -> Watched:
    """Replay a recording under the default policy, with summaries that name nothing."""
    settings = Settings()
    replay, made, shown = Replay(read_file(Path(path)), settings), list[ReplayPolicy](), dict[int, str]()
    counts = [0]
    profile = replay.profile(model)

    def make(setup: PolicySetup) -> ReplayPolicy:
        made.append(policies(["balanced"], settings)["balanced"](setup))
        return made[0]

    def step() -> None:
        if made[0].compactions > counts[-1]:
            shown[len(counts) - 1] = "\n".join(part.shown for part in made[0].prompt.parts[1:])
        counts.append(made[0].compactions)

    def write(_sources: Sequence[Source], tokens: int, _factor: float = 1.0) -> str:
        return "words of a summary " * (tokens // 4)

    small = small_profile(profile, settings)
    simulate(replay.script, "balanced", make, profile, small=small, window=window, write=write, step=step)
    return Watched(replay.script, shown)


def main() -> None:
    """Print the shares."""
    parser = ArgumentParser(prog="python -m tests.bench.outliving")
    parser.add_argument("--windows", default="64,128", help="in thousands of tokens")
    parser.add_argument("--model", default="claude-opus-5-5")
    parser.add_argument("--lost", action="store_true")
    parser.add_argument("recordings", nargs="+")
    given = parser.parse_args()
    sums = Counter[tuple[str, bool]]()
    for path, window in product(given.recordings, map(int, given.windows.split(","))):
        watched = watch(path, given.model, window * 1000)
        calls = [set(used_by(call)) for call in watched.script.calls]
        found = Counter[tuple[str, bool]]()
        for index, text in watched.shown.items():
            before, after = (set[Used]().union(*part) for part in (calls[:index], calls[index : index + AHEAD]))
            for used in sorted(before & after):
                kept = is_in(used.text, text)
                found[used.kind, kept] += 1
                if given.lost and not kept:
                    sys.stdout.write(f"    {index} {used.kind}: {used.text[:150]!r}\n")
        sums += found
        name = f"{Path(path).name[:14]:<15}{window:>5}k {len(watched.shown):>3} summaries"
        sys.stdout.write(f"{name} {shares(found)}\n")
    sys.stdout.write(f"all {shares(sums)}\n")


def is_in(wanted: str, text: str) -> bool:
    """Whether a text has these words, or a path's folder as that of a list with the rest below it."""
    folders = (place for place, letter in enumerate(wanted) if letter == "/" and place)
    parts = ((f", in {wanted[:place]}", f"\n- {wanted[place + 1 :]}") for place in folders)
    listed = any(folder in text and rest in text for folder, rest in parts)
    lines = " ⏎ ".join(" ".join(line.split()) for line in wanted.splitlines())
    return wanted in text or lines in text or listed


def shares(found: Counter[tuple[str, bool]]) -> str:
    """The shares in words."""
    kinds = {kind: (found[kind, True], found[kind, True] + found[kind, False]) for kind in ("command", "path")}
    return "  ".join(f"{kind}s {kept} of {all_} ({kept / max(1, all_):.1%})" for kind, (kept, all_) in kinds.items())


if __name__ == "__main__":
    main()
