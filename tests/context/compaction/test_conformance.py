"""What survives five compactions, measured with a public kit: canaries of five types are planted in a session, and the
writer of the summaries says nothing at all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest
from compaction_kit.canaries import Canary, seeded_canaries
from compaction_kit.corpus import build_random_session
from compaction_kit.probes import BehaviorProbe
from compaction_kit.semantic_corpus import build_semantic_heldout_session, build_semantic_session
from compaction_kit.session import SeededSession, Turn, build_seeded_session

from tests.profiles import model_named
from tui_agent.context.effects import Answer, AskModel, MemoryHost, Refusal, StepDone
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Usage, tool_result, user_message
from tui_agent.settings import CompactionSettings, Settings

MODEL = model_named("bench:model", window=200_000, source="provider", tier="frontier")
NOTHING = "Everything went well so far, and the work goes on as it was planned. There is nothing else to tell."
ROUNDS = 5
LEAST = 0.95

Built = tuple[SeededSession, list[Canary]]


def seeded() -> Built:
    return build_seeded_session(), seeded_canaries()


def semantic(build: Callable[[int], tuple[SeededSession, list[Canary], object]], seed: int) -> Built:
    session, canaries, _ = build(seed)
    return session, canaries


SESSIONS: dict[str, Callable[[], Built]] = {
    "seeded": seeded,
    **{f"random {seed}": partial(build_random_session, seed) for seed in range(1, 13)},
    **{f"semantic {seed}": partial(semantic, build_semantic_session, seed) for seed in range(1, 5)},
    **{f"held out {seed}": partial(semantic, build_semantic_heldout_session, seed) for seed in range(1, 5)},
}

QUICK = {"seeded", "random 1", "held out 1"}
"""Sessions of the quick suite; the others are played in the soak."""
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in SESSIONS]


class Play:
    """A session of the kit told to the engine, with the tool calls that a turn of real work has."""

    def __init__(self) -> None:
        self._engine = ContextEngine(Settings(compaction=CompactionSettings(auto=False)), model=MODEL)
        self._host = MemoryHost(self._engine, ask=self._nothing)
        self._engine.extend([ModelSwitched(model=MODEL.name), Prefix(system="You are a coding assistant.")])
        self._calls = 0

    def say(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.role == "user":
                self._engine.extend([user_message(turn.text)])
                self._work(4)
            elif turn.role == "assistant":
                said = Message(role="assistant", blocks=(Text(turn.text),), model=MODEL.name, usage=Usage())
                self._engine.extend([said])

    def compact(self) -> str:
        """All that the model is shown after a compaction, in lower case."""
        done = self._host.run(self._engine.compact())
        assert isinstance(done, StepDone)
        assert done.seq, done.error
        assert self._engine.fits
        blocks = (block for message in self._engine.view.messages() for block in message.blocks)
        return "\n".join(block.text for block in blocks if isinstance(block, Text)).lower()

    def _work(self, calls: int) -> None:
        for _ in range(calls):
            self._calls += 1
            path = f"src/part_{self._calls}.py"
            call = ToolCall(f"c{self._calls}", "read_file", f'{{"path":"{path}"}}')
            self._engine.extend([Message(role="assistant", blocks=(call,), model=MODEL.name, usage=Usage())])
            lines = "\n".join(f"value_{self._calls}_{line} = load({line})" for line in range(60))
            self._engine.extend([tool_result(ToolResult(call.id, lines))])

    @staticmethod
    def _nothing(asked: AskModel) -> Answer | Refusal:
        return Answer(NOTHING, MODEL.name, Usage(), 0.0)


def survival(canaries: Sequence[Canary], text: str) -> dict[str, float]:
    """The share of the canaries of each type that the probes of the kit find."""
    held: dict[str, list[bool]] = {}
    for canary in canaries:
        held.setdefault(canary.type.value, []).append(BehaviorProbe().probe(canary, text).survived)
    return {kind: sum(found) / len(found) for kind, found in held.items()}


def all_said(turns: Sequence[Turn], shown: str) -> bool:
    """Whether the user's messages stand there word for word. The kit wants values gone that were superseded later: here
    they stay, before the ones that hold now, since no word of the user is altered.
    """
    return all(turn.text.lower() in shown for turn in turns if turn.role == "user")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_survives_every_round(name: str) -> None:
    session, canaries = SESSIONS[name]()
    play, turns = Play(), session.turns
    bounds = [round(len(turns) * each / ROUNDS) for each in range(ROUNDS + 1)]
    for start, end in pairwise(bounds):
        play.say(turns[start:end])
        shown = play.compact()
        so_far = [canary for canary in canaries if session.canary_positions[canary.id] < end]
        assert all(share >= LEAST for share in survival(so_far, shown).values()), survival(so_far, shown)
        assert all_said(turns[:end], shown)
