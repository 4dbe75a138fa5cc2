"""What `/context` shows."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.sessions import Session
from tui_agent.agent.commands.context_text import text
from tui_agent.context.budget import budget, thresholds
from tui_agent.context.cache_life import CacheState
from tui_agent.context.counting import Counter, estimate
from tui_agent.context.economics import StepPrice
from tui_agent.context.engine import ContextEngine
from tui_agent.context.forecast import Forecast, StepAhead
from tui_agent.context.stats import Activity, ContextStats, ModelUse, SubtaskUse
from tui_agent.conversation.entries import (
    Artifact,
    Checkpointed,
    Cleared,
    Digested,
    Prefix,
    Summarized,
    Undone,
    Usage,
    user_message,
)
from tui_agent.settings import ClearingSettings, CompactionSettings

NOW = 1_000_000.0
AHEAD = Forecast(
    tokens=84_210,
    cache=CacheState(False, "the cache is warm"),
    cost=0.02,
    later=0.02,
    ahead=StepAhead(step="clear", frees=12_000, calls=9, price=StepPrice(0.02, 0.0512, 0.0044)),
)


def worked() -> Session:
    session = Session()
    ask = session.add(user_message("u" * 300))
    one, two, three = (session.step("r" * 900) for _ in range(3))
    session.step("preview", artifact=Artifact("large_tool_results/c4", 90_000, "0", evicted=True))
    session.add(Cleared(results=(two,), texts=("[cleared]",)))
    session.add(Digested(results=(three,), placeholder="[archived: see digest]", text="digest"))
    session.add(Summarized(first=ask, last=one, text="summary", focus="auth module"), NOW - 252)
    session.add(user_message("next"))
    last = session.step("r" * 100)
    session.add(Checkpointed(first=last - 2, last=last, text="record", note="done surveying"), NOW - 51)
    return session


def figures(session: Session) -> ContextStats:
    return ContextEngine(view=session.view).stats()


def test_counts_are_those_of_the_view() -> None:
    found = figures(worked())
    assert (found.evicted, found.cleared, found.digested) == (1, 1, 1)
    assert found.last_compaction == Activity(count=1, last=NOW - 252, note="auth module")
    assert found.last_checkpoint == Activity(count=1, last=NOW - 51, note="done surveying")
    assert found.summarised_chars >= 300 + 900 + 100
    assert (found.summaries, found.depth) == (2, 1)


def test_sizes_of_items_are_those_of_the_whole() -> None:
    session = Session("")
    session.add(user_message("u" * 300))
    session.answer(Usage(2_000, 0, 0, 0), text="ok")
    session.add(user_message("u" * 600))
    found, items = figures(session), session.view.items()
    assert found.tokens == 2_000 + 198
    assert found.scale > 7
    assert sum(estimate(item.full) * found.scale for item in items) == pytest.approx(found.tokens)


def test_sizes_of_items_leave_out_the_system_prompt_that_is_yet_to_come() -> None:
    """As after `!ls`, before anything was asked."""
    engine = ContextEngine()
    engine.renewed_prefix = Prefix(system="s" * 30_000)
    engine.extend([user_message("u" * 300)])
    found = engine.stats()
    assert (found.tokens, found.scale) == (9_900 + 99, 1.0)


def test_what_was_undone_does_not_count() -> None:
    session = worked()
    for entry, _ in session.view.context_entries():
        session.add(Undone(target=entry.seq))
    found = figures(session)
    assert (found.cleared, found.digested, found.summarised_chars) == (0, 0, 0)
    assert (found.compactions, found.checkpoints) == (0, 0)


def stats(**changes: Any) -> ContextStats:
    found = figures(worked())
    limits = thresholds(budget(200_000, 7_500, 16_384), ClearingSettings(), CompactionSettings(), tier="frontier")
    values: dict[str, Any] = {
        "model": "anthropic:claude-opus-5-5",
        "tokens": 84_210,
        "window": 200_000,
        "reserve": 16_384,
        "measured": True,
        "categories": {"system": 3_100, "tools": 4_400, "user": 1_200, "results": 75_510},
        "evicted": found.evicted,
        "cleared": found.cleared,
        "compactions": 1,
        "checkpoints": 3,
        "summarised_chars": 8_420,
        "summaries": 2,
        "depth": 1,
        "last_compaction": found.last_compaction,
        "last_checkpoint": found.last_checkpoint,
        "marks": limits.all(),
        "forecast": AHEAD,
        "subtasks": SubtaskUse(count=2, input_tokens=32_919, output_tokens=338, cost_usd=0.0107),
        "models": (
            ModelUse(
                model="gemini-3.1-pro-preview-customtools",
                calls=5,
                input_tokens=30_822,
                output_tokens=558,
                cost_usd=0.0683,
            ),
            ModelUse(model="gemini-2.5-flash", calls=2, input_tokens=16_520, output_tokens=206, cost_usd=0.0055),
        ),
    }
    return ContextStats(**{**values, **changes})


def test_the_text_form() -> None:
    assert text(stats(), NOW).splitlines() == [
        "Context: 84,210 of 200,000 tokens (42%), anthropic:claude-opus-5-5",
        "  [########............] measured, 16,384 are room for the answer",
        "  System prompt          3,100    2%",
        "  Tool definitions       4,400    2%",
        "  Your messages          1,200   <1%",
        "  Tool results          75,510   38%",
        "",
        "Thresholds:",
        "  Clearing from        119,000   60%  70% of the way to compaction",
        "  Summary from         170,000   85%  frontier tier",
        "  Full at              183,616   92%  window - reserve",
        "",
        "Next: clearing old tool results in about 9 calls. It frees 12k tokens,",
        "costs about $0.031 and is paid back after 8 calls.",
        "",
        "Activity:",
        "  Summaries:    1 (last 4m12s ago, focus: auth module)",
        "  Recorded:     3 tasks (last 51s ago, note: done surveying)",
        "  Summarised:   8,420 characters in 2 texts, at most 1 deep",
        "  Results:      1 put into files, 1 cleared, 0 digested",
        "  Subtasks:     2 (32,919 in / 338 out tokens, $0.011 in the /stats total)",
        "  Models:       gemini-3.1-pro-preview-customtools",
        "                  (5 calls, 30,822 in / 558 out, $0.068)",
        "              + gemini-2.5-flash (2 calls, 16,520 in / 206 out, $0.0055)",
    ]


def test_one_model_and_no_subtasks_need_no_row() -> None:
    shown = text(stats(models=stats().models[:1], subtasks=SubtaskUse()), NOW)
    assert "Models:" not in shown
    assert "Subtasks:" not in shown


@given(st.lists(st.text(st.sampled_from("abc:/-.漢"), min_size=1, max_size=150), min_size=2, max_size=4, unique=True))
def test_every_model_is_named_in_full(names: list[str]) -> None:
    uses = tuple(ModelUse(model=each, calls=1, input_tokens=2, output_tokens=3, cost_usd=0.5) for each in names)
    shown = text(stats(models=uses), NOW)
    assert all(columns(line) <= 80 for line in shown.splitlines())
    listed = shown.partition("  Models:")[2].replace("+", "").replace("(1 call, 2 in / 3 out, $0.500)", "|")
    assert "".join(listed.split()).split("|")[:-1] == names


def test_the_model_in_the_headline_keeps_both_its_ends() -> None:
    shown = text(stats(model=f"ollama:hf.co/{'someone/' * 9}coder:Q4_K_M"), NOW).splitlines()[0]
    assert shown.startswith("Context: 84,210 of 200,000 tokens (42%), ollama:hf.co")
    assert shown.endswith("coder:Q4_K_M")
    assert len(shown) == 80


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line)


@pytest.mark.parametrize("note", ["long " * 60, "漢字" * 60, "\x1b[31mred\nline\u202e", "[bold]markup[/]"])
def test_it_fits_80_columns_and_shows_foreign_text_on_one_line(note: str) -> None:
    shown = text(
        stats(
            model=note,
            last_compaction=Activity(count=1, last=NOW - 5, note=note),
            cache_share=0.913,
            reasoning_dropped=3,
            measured=False,
            subtasks=SubtaskUse(count=1, cost_usd=None),
        ),
        NOW,
    )
    assert all(columns(line) <= 80 for line in shown.splitlines())
    assert all(each.isprintable() or each == "\n" for each in shown)
    assert len(shown.splitlines()) == len(text(stats(cache_share=0.5, reasoning_dropped=1), NOW).splitlines())
    assert "~84,210" in shown
    assert "91% of all input" in shown
    assert "price unknown" in shown


def test_a_layer_that_rests_says_why() -> None:
    limits = thresholds(budget(20_000, 4_000, 16_384), ClearingSettings(), CompactionSettings(threshold=0.35))
    shown = text(stats(window=20_000, tokens=5_000, marks=limits.all(), forecast=None), NOW)
    assert "  Summary from           7,000   35%  rests" in shown
    assert "! Compaction rests: the system prompt and tools (4,000 tokens)" in shown


def test_an_unknown_window_has_no_share() -> None:
    session = Session()
    shown = text(
        ContextStats(
            model="m", tokens=990, window=0, reserve=0, measured=False, categories=Counter().categories(session.view)
        ),
        NOW,
    )
    assert shown.startswith("Context: ~990 tokens, window unknown, m\n")
    assert "%" not in shown.splitlines()[0]
