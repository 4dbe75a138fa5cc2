"""What survives five compactions, measured with a public kit: canaries of five types are planted in a session, and the
writer of the summaries says nothing at all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest
from compaction_kit.benchmark import run_budget_benchmark
from compaction_kit.canaries import Canary, seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.compactors import (
    ChecklistCompactor,
    LossyTruncationCompactor,
    NaiveSummaryCompactor,
    PinnedRulesCompactor,
    SummaryTailCompactor,
    UpdateAwareChecklistCompactor,
)
from compaction_kit.corpus import build_random_session
from compaction_kit.probes import BehaviorProbe
from compaction_kit.semantic import SemanticChecklistCompactor
from compaction_kit.semantic_corpus import build_semantic_heldout_session, build_semantic_session
from compaction_kit.session import SeededSession, Turn, build_seeded_session

from tests.profiles import model_named
from tui_agent.context.effects import Answer, AskModel, MemoryHost, Refusal
from tui_agent.context.engine import ContextEngine
from tui_agent.context.summary.words import kept_words
from tui_agent.context.summary.writing import CompactionResult
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Usage, Words, tool_result, user_message
from tui_agent.conversation.request import words_block
from tui_agent.settings import Compaction, Settings

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

QUICK = {"seeded", "random 1", "random 2", "random 3", "semantic 1", "held out 1"}
"""Sessions of the quick suite; the others are played in the soak."""
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in SESSIONS]


class Play:
    """A session of the kit told to the engine; `real`: with the tool calls a turn of real work has."""

    def __init__(self, *, real: bool) -> None:
        self._engine = ContextEngine(Settings(compaction=Compaction(auto=False)), model=MODEL)
        self._host = MemoryHost(self._engine, ask=self._nothing)
        self._engine.extend([ModelSwitched(model=MODEL.name), Prefix(system="You are a coding assistant.")])
        self._real = real
        self._calls = 0

    def say(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if turn.role == "user":
                self._engine.extend([user_message(turn.text)])
                self._work(4 if self._real else 1)
            elif turn.role == "assistant":
                said = Message(role="assistant", blocks=(Text(turn.text),), model=MODEL.name, usage=Usage())
                self._engine.extend([said])

    def compact(self) -> tuple[str, str]:
        """All that the model is shown after a compaction, and what of it stands for turns that left, in lower case."""
        done = self._host.run(self._engine.compact())
        assert isinstance(done, CompactionResult)
        assert done.seq, done.error
        assert self._engine.fits
        view = self._engine.view
        blocks = (block for message in view.messages() for block in message.blocks)
        shown = "\n".join(block.text for block in blocks if isinstance(block, Text))
        kept = "\n".join((*(boundary.text for boundary in view.boundaries()), words_block(view.shown_words())))
        return shown.lower(), kept.lower()

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


def stale(canaries: Sequence[Canary], text: str) -> list[str]:
    return [token for canary in canaries for token in canary.superseded_tokens if token.lower() in text]


@pytest.mark.parametrize("real", [False, True], ids=["small spans", "real-sized spans"])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_survives_every_round(name: str, real: bool) -> None:
    session, canaries = SESSIONS[name]()
    play, turns = Play(real=real), session.turns
    bounds = [round(len(turns) * each / ROUNDS) for each in range(ROUNDS + 1)]
    for start, end in pairwise(bounds):
        play.say(turns[start:end])
        shown, kept = play.compact()
        so_far = [canary for canary in canaries if session.canary_positions[canary.id] < end]
        assert all(share >= LEAST for share in survival(so_far, shown).values()), survival(so_far, shown)
        assert stale(so_far, kept) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_survives_when_all_of_it_is_compacted_again_and_again(name: str) -> None:
    session, canaries = SESSIONS[name]()
    play = Play(real=True)
    play.say(session.turns)
    for number in range(ROUNDS):
        shown, kept = play.compact()
        assert all(share >= LEAST for share in survival(canaries, shown).values()), survival(canaries, shown)
        assert stale(canaries, kept) == []
        play.say([Turn("user", f"Go on with part {number}."), Turn("assistant", "Done.")] * 3)


class KeptWords:
    """The block of the user's words as a compactor of the kit, at the size the kit asks for."""

    name = "kept-words"

    def __init__(self) -> None:
        self._text = ""

    def compact(self, turns: list[Turn], round_num: int = 1, budget_chars: int | None = None) -> CompactedContext:
        said = [Words(number, turn.text) for number, turn in enumerate(turns, 1) if turn.role == "user"]
        if said:
            limit = budget_chars or 32_000
            self._text = words_block(
                kept_words(said, last=len(turns), limit=limit, tokens_of=lambda size: size.characters)
            )
        return CompactedContext(self._text, self.name, round_num)


def test_at_a_fixed_size_it_keeps_more_than_every_compactor_of_the_kit() -> None:
    others = (
        ChecklistCompactor,
        LossyTruncationCompactor,
        NaiveSummaryCompactor,
        PinnedRulesCompactor,
        SummaryTailCompactor,
        SemanticChecklistCompactor,
        UpdateAwareChecklistCompactor,
    )
    report = run_budget_benchmark({each.name: each for each in (KeptWords, *others)}, budgets=(0.2,))
    (first, *_) = report["entries"]
    assert first["compactor"] == "kept-words"
    assert first["budget_compliant"]
    assert first["randomized"]["overall_final_survival"] >= LEAST
    assert first["semantic"]["resolved_rate"] == 1.0
    assert first["semantic"]["distinct_pair_rate"] == 1.0
