"""Which results give way to a digest, and what it may say."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.context.talks import PROMPTS, Talk
from tests.conversation.logs import broken_rules, logs
from tui_agent.context.layers.digests import COMPACTION_PREFIX, PLACEHOLDER, DigestPlan, accept_digest, plan_digest
from tui_agent.conversation.entries import Cleared, Digested, Pinned, Restored
from tui_agent.conversation.view import View
from tui_agent.settings.schema import DigestSettings


def talk(results: int, size: int = 10) -> Talk:
    made = Talk()
    made.ask("Look around.")
    for number in range(results):
        made.tool(f"result_{number} " * size, path=f"f{number}.py")
    return made


def results_of(made: Talk) -> list[int]:
    return [item.seq for item in made.view.items() if item.category == "results"]


def plan(made: Talk, **knobs: Any) -> DigestPlan | None:
    return plan_digest(made.view, DigestSettings(**knobs), PROMPTS.digest)


def test_the_oldest_are_archived_down_to_the_cutoff_with_one_digest() -> None:
    made = talk(15)
    planned = plan(made)
    assert isinstance(planned, DigestPlan)
    assert planned.results == tuple(results_of(made)[:5])
    made.add(accept_digest(planned, "five files were read"))
    assert made.shown.count(PLACEHOLDER) == 5
    assert made.shown.count("five files were read") == 1
    assert "result_4" not in made.shown
    assert "result_5" in made.shown
    assert broken_rules(made.view.messages()) == []
    assert plan(made) is None


def test_off_means_off() -> None:
    assert plan(talk(30), strategy="off") is None


def test_what_is_pinned_cleared_or_brought_back_neither_counts_nor_leaves() -> None:
    made = talk(13)
    first, second, third, *_ = results_of(made)
    made.add(Pinned(items=(first,)))
    made.add(Cleared(results=(second, third), texts=("[cleared]", "[cleared]")))
    made.add(Restored(items=(third,), texts=("",)))
    assert plan(made) is None
    made.tool("one more")
    planned = plan(made)
    assert isinstance(planned, DigestPlan)
    assert set(planned.results).isdisjoint({first, second, third})


@pytest.mark.parametrize("size", [1, 100, 20_000])
@pytest.mark.parametrize("results", [11, 60])
def test_a_model_is_given_at_most_12000_characters_and_may_write_1200(size: int, results: int) -> None:
    planned = plan(talk(results, size))
    assert isinstance(planned, DigestPlan)
    assert len(planned.material) <= 12_000
    assert "result_0" in planned.material
    assert "1200" in planned.instruction
    written = accept_digest(planned, "x" * 5_000)
    assert len(written.text.removeprefix("[Tool digest]\n")) <= 1_200


def test_the_heuristic_keeps_head_and_tail_within_800_characters() -> None:
    planned = plan(talk(40, 300))
    assert isinstance(planned, DigestPlan)
    assert len(planned.by_rule) <= 800
    assert "result_0" in planned.by_rule
    assert "f29.py" in planned.by_rule


@pytest.mark.parametrize("text", ["", "  \n", "...", "[Tool digest]"])
def test_a_model_that_says_nothing_gives_way_to_the_heuristic(text: str) -> None:
    planned = plan(talk(11))
    assert isinstance(planned, DigestPlan)
    assert accept_digest(planned, text).text == f"[Tool digest]\n{planned.by_rule}"


def test_inside_a_compaction_the_recent_window_is_digested() -> None:
    made = talk(30)
    kept_from = results_of(made)[15]
    planned = plan_digest(made.view, DigestSettings(), PROMPTS.digest, first=kept_from, prefix=COMPACTION_PREFIX)
    assert isinstance(planned, DigestPlan)
    assert planned.results == tuple(results_of(made)[15:20])
    assert accept_digest(planned).text.startswith("[Compaction tool digest]\n")


@given(logs(steps=40), st.integers(0, 3))
@settings(deadline=None)
def test_any_digest_of_any_conversation_ends_at_the_cutoff(view: View, cutoff: int) -> None:
    planned = plan_digest(view, DigestSettings(cutoff=cutoff), PROMPTS.digest)
    if isinstance(planned, DigestPlan):
        digest = accept_digest(planned)
        assert isinstance(digest, Digested)
        view.apply(view.log.stamp(digest, 0.0))
        assert broken_rules(view.messages()) == []
        assert plan_digest(view, DigestSettings(cutoff=cutoff), PROMPTS.digest) is None
