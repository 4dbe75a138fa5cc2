"""Task classes: the bundle each stands for, and that what the user chose wins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.talking import talking
from tui_agent.context.budget import Budget, compaction_start
from tui_agent.models.choice import (
    compaction_threshold,
    model_name,
    model_of_tier,
    permission_mode,
    small_model,
    task_class,
)
from tui_agent.settings import Settings, load_settings

OF_TIER = {
    "frontier": ("claude-opus-5-5", "gemini-3.1-pro-preview"),
    "mid": ("claude-sonnet-5-5", "gemini-2.5-pro"),
    "small": ("claude-haiku-5-5", "gemini-3.8-flash"),
}
CLASSES = {
    "debug": ("frontier", 0.65, "auto"),
    "implement": ("frontier", 0.70, "auto"),
    "chat": ("mid", 0.85, "auto"),
    "research": ("mid", 0.65, "allow"),
    "review": ("frontier", 0.75, "auto"),
}
SAID = "gemini:gemini-2.5-pro"


def settings(folder: Path, **given: str) -> Settings:
    """The settings that overrides with these keys (``__`` for a dot) give."""
    overrides = {key.replace("__", "."): value for key, value in given.items()}
    return load_settings(folder, folder, trusted=False, environ={}, overrides=overrides)


def without(provider: str) -> Callable[[str], str | None]:
    return lambda model: "KEY" if model.startswith(provider) else None


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_a_tier_a_threshold_and_a_mode_and_picks_a_model_there_is_a_key_for(
    name: str, tmp_path: Path
) -> None:
    chosen = settings(tmp_path, session__task_class=name)
    task = task_class(chosen)
    assert task is not None
    assert (task.tier, compaction_threshold(chosen), permission_mode(chosen)) == CLASSES[name]
    anthropic, gemini = OF_TIER[task.tier]
    assert model_name(chosen, missing=without("nobody")) == f"anthropic:{anthropic}"
    assert model_name(chosen, missing=without("anthropic")) == f"gemini:{gemini}"
    assert model_name(chosen, missing=without("")) == "offline"


def test_without_a_class_nothing_is_bundled_and_each_provider_has_a_model_of_each_tier(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert (task_class(chosen), compaction_threshold(chosen), permission_mode(chosen)) == (None, None, "auto")
    for tier, (anthropic, gemini) in OF_TIER.items():
        assert model_of_tier(chosen, "anthropic", tier) == f"anthropic:{anthropic}"  # type: ignore[arg-type]
        assert model_of_tier(chosen, "gemini", tier) == f"gemini:{gemini}"  # type: ignore[arg-type]
        assert model_of_tier(chosen, "ollama", tier) == ""  # type: ignore[arg-type]
    assert small_model(chosen, "anthropic:claude-opus-5-5") == "anthropic:claude-haiku-5-5"
    assert small_model(chosen, SAID) == "gemini:gemini-3.8-flash"
    assert small_model(chosen, "offline") == "offline"
    named = settings(tmp_path, agentic__small_model="gemini-2.5-flash")
    assert small_model(named, "anthropic:claude-opus-5-5") == "gemini-2.5-flash"


def test_a_model_that_is_named_wins_and_a_conversation_keeps_its_own_unless_a_flag_names_another(
    tmp_path: Path,
) -> None:
    any_key = without("nobody")
    named = settings(tmp_path, session__task_class="debug", model__id="gemini-3.8-flash")
    assert model_name(named, missing=any_key) == "gemini-3.8-flash"
    assert model_name(settings(tmp_path, session__task_class="debug"), SAID, missing=any_key) == SAID
    by_flag = settings(tmp_path, model__id="claude-opus-5-5")
    assert model_name(by_flag, SAID, missing=any_key) == "claude-opus-5-5"
    (tmp_path / "config.json").write_text('{"model": {"id": "claude-opus-4-7"}}')
    by_file = settings(tmp_path)
    assert by_file.model.id == "claude-opus-4-7"
    assert model_name(by_file, SAID, missing=any_key) == SAID
    assert model_name(by_file, missing=any_key) == "claude-opus-4-7"


def test_a_threshold_set_for_a_tier_wins_over_the_class(tmp_path: Path) -> None:
    chosen = settings(tmp_path, session__task_class="debug", compaction__threshold_by_tier__small="0.30")
    task = compaction_threshold(chosen)
    assert compaction_start(chosen.compaction, Budget(50_000, 2_000, 12_000), "small", task, ["small"])[0] == 15_000
    assert compaction_start(chosen.compaction, Budget(50_000, 2_000, 12_000), "small", task, ["mid"])[0] == 32_500


async def test_a_session_of_the_class_research_asks_nothing_unless_a_mode_is_set(tmp_path: Path) -> None:
    for given, mode in (({}, "allow"), ({"permissions.mode": "plan"}, "plan"), ({"permissions.mode": "auto"}, "auto")):
        async with talking(tmp_path, {"session.task_class": "research", **given}) as session:
            assert session.agent.permissions.mode == mode
