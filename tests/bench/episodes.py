"""What folding finished pieces of work would be worth in recorded sessions, whose models could not close episodes.

    python -m tests.bench.episodes [--model MODEL] [--window N] RECORDING...

Every recorded turn counts as an episode that its answer closes (`prompts`), or the work between two calls that tick off
items of the task list (`list`). Prints for each recording what the default costs, and the share of it that folding
costs, plus that of opening and closing the episodes in calls of their own; the share of what later calls needed that
was in view, and that could be fetched again by what was in view, which is billed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from typing_extensions import override

from tui_agent.context.layers.episodes import EpisodeLayer
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Shortened, Usage
from tui_agent.conversation.tasks import Episode
from tui_agent.conversation.view import View
from tui_agent.models.usage import cost_usd
from tui_agent.replay.engine_policy import EnginePolicy
from tui_agent.replay.policies import PolicySetup
from tui_agent.replay.replaying import Replay, small_profile
from tui_agent.replay.script import RecordedCall
from tui_agent.replay.simulation import simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file

OPENING, CLOSING = 40, 160
"""Tokens that a model writes to open an episode, beside another call, and to close it, in a call of its own."""
Find: TypeAlias = Callable[[View], Sequence[Episode]]
LISTS: Final = ("TodoWrite", "todo", "update_plan", "write_todos")


def none(_view: View) -> list[Episode]:
    """No episodes: the default."""
    return []


def at_prompts(view: View) -> list[Episode]:
    """Every turn before the present one, from its first step to its answer."""
    found: list[Episode] = []
    first = answer = 0
    for group in view.groups():
        if group.starts_turn:
            if first and answer:
                found.append(Episode(f"turn {len(found) + 1}", first, answer, answer))
            first = answer = 0
        elif group.role == "assistant" and group.fingerprints:
            first = first or group.first
            answer = 0 if group.results else group.first
    return found


def at_the_list(view: View) -> list[Episode]:
    """The work between two calls that changed the task list."""
    found: list[Episode] = []
    groups = {group.first: group for group in view.groups()}
    first, done = min(groups, default=0), 0
    for step in sorted(step for name in LISTS for step in view.callers(name)):
        message = view.log.message(step)
        for call in message.blocks if message is not None else ():
            result = groups[step].results.get(call.id, 0) if isinstance(call, ToolCall) else 0
            if isinstance(call, ToolCall) and call.name in LISTS and result:
                now = call.arguments.count("completed") + call.arguments.count('"done"')
                if now > done:
                    found.append(Episode(f"item {now}", first, step, result))
                    first = step + 1
                done = now
    return found


WAYS: Final[Mapping[str, Find]] = {"default": none, "prompts": at_prompts, "list": at_the_list}


class Folding(EnginePolicy):
    """The engine, folding the episodes of this kind; `calls_usd`: what it would cost to open and close them."""

    def __init__(self, setup: PolicySetup, settings: Settings, find: Find) -> None:
        super().__init__(setup, settings)
        self.engine.layers = self.engine.layers._replace(episodes=EpisodeLayer(find))
        self._find, self._profile, self._closed = find, setup.ledger.profile, 0
        self.calls_usd = 0.0

    @override
    def after(self, call: RecordedCall, used: Usage) -> None:
        super().after(call, used)
        closed = max((each.closed for each in self._find(self.engine.view)), default=0)
        if closed > self._closed:
            self._closed, tokens = closed, self.prompt.tokens
            told = Usage(tokens, tokens, output_tokens=OPENING + CLOSING)
            self.calls_usd += cost_usd(told, self._profile.prices) or 0.0


def line(path: Path, model: str, window: int) -> str:
    """The figures of one recording."""
    settings = Settings()
    replay = Replay(read_file(path), settings)
    profile = replay.profile(model)
    small = small_profile(profile, settings)
    shown, base = f"{path.name[-24:]:<24}{len(replay.script.calls):>5} calls", 0.0
    for name, find in WAYS.items():
        made: list[Folding] = []

        def make(setup: PolicySetup, find: Find = find, made: list[Folding] = made) -> Folding:
            made.append(Folding(setup, settings, find))
            return made[-1]

        seen = simulate(replay.script, name, make, profile, small=small, window=window)
        base = base or seen.bill.total
        entries = [entry for entry, _ in made[0].engine.view.context_entries()]
        folded = sum(len(entry.episodes) for entry in entries if isinstance(entry, Shortened))
        dollars = (
            f"${seen.bill.total:.2f}"
            if find is none
            else f"{seen.bill.total / base:.2f} +{made[0].calls_usd / base:.2f}"
        )
        evidence = f"{seen.evidence.share:.3f} and {seen.evidence.pointer_share:.3f}"
        shown += f" | {name}: {dollars}, in view {evidence}, {folded} folded, {seen.compactions} summaries"
    return shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="claude-opus-5-5")
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("recordings", nargs="+")
    given = parser.parse_args()
    for each in given.recordings:
        print(line(Path(each), given.model, given.window), flush=True)
