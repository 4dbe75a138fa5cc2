"""The list of models: each row says which it is, and all that is to be known at a glance."""

import pytest

from tui_agent.settings import Settings
from tui_agent.tui.commands.models import MAX_MODEL, model_options
from tui_agent.tui.dialogs.pickers import FRAME_CELLS, WIDTH


@pytest.fixture(scope="module")
def rows() -> dict[str, tuple[str, str]]:
    """Label and description by the model's name."""
    options = model_options("offline", Settings())
    return {option.value: (option.label, option.description) for option in options if not option.heading}


def test_no_two_models_look_the_same(rows: dict[str, tuple[str, str]]) -> None:
    labels = [label for label, _ in rows.values()]
    assert len(set(labels)) == len(labels) > 80
    assert max(map(len, labels)) <= MAX_MODEL
    assert rows["bedrock:global.anthropic.claude-opus-5-5"][0] == "bedrock:…claude-opus-5-5"
    assert rows["groq:meta-llama/llama-4-scout-17b-16e-instruct"][0] == "groq:…llama-4-scout-17b-16…"


def test_that_a_key_is_missing_leaves_room_for_the_tier(rows: dict[str, tuple[str, str]]) -> None:
    room = WIDTH - FRAME_CELLS - len("• ") - MAX_MODEL - 2
    frontier = [told for _, told in rows.values() if told.endswith("no key  frontier")]
    assert frontier
    assert max(map(len, frontier)) <= room


@pytest.mark.parametrize("typed", ["versatile", "anthropic.claude-opus", "meta-llama"])
def test_a_search_looks_at_the_whole_name(typed: str) -> None:
    assert any(option.score([typed]) is not None for option in model_options("offline", Settings()))
