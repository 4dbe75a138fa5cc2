"""Task classes: the bundle each stands for, and that what the user chose wins."""

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
from tui_agent.settings.schema import Tier

CLASSES = {
    "debug": ("frontier", 0.65, "auto"),
    "implement": ("frontier", 0.70, "auto"),
    "chat": ("mid", 0.85, "auto"),
    "research": ("mid", 0.65, "allow"),
    "review": ("frontier", 0.75, "auto"),
}


def settings(folder: Path, **given: str) -> Settings:
    """The settings that overrides with these keys (``__`` for a dot) give."""
    overrides = {key.replace("__", "."): value for key, value in given.items()}
    return load_settings(folder, folder, trusted=False, environ={}, overrides=overrides)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_a_tier_a_threshold_and_a_mode(name: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path, session__task_class=name)
    task = task_class(chosen)
    assert task is not None
    assert (task.tier, compaction_threshold(chosen), permission_mode(chosen)) == CLASSES[name]


def test_without_a_class_nothing_is_bundled(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert task_class(chosen) is None
    assert compaction_threshold(chosen) is None
    assert permission_mode(chosen) == "auto"


@pytest.mark.parametrize(
    ("tier", "anthropic", "gemini"),
    [
        ("frontier", "claude-opus-5-5", "gemini-3.1-pro-preview"),
        ("mid", "claude-sonnet-5-5", "gemini-2.5-pro"),
        ("small", "claude-haiku-5-5", "gemini-3.8-flash"),
    ],
)
def test_each_provider_has_a_model_of_each_tier(tier: Tier, anthropic: str, gemini: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert model_of_tier(chosen, "anthropic", tier) == f"anthropic:{anthropic}"
    assert model_of_tier(chosen, "gemini", tier) == f"gemini:{gemini}"
    assert model_of_tier(chosen, "ollama", tier) == ""


@pytest.mark.parametrize(
    ("name", "anthropic", "gemini"),
    [
        ("debug", "claude-opus-5-5", "gemini-3.1-pro-preview"),
        ("implement", "claude-opus-5-5", "gemini-3.1-pro-preview"),
        ("chat", "claude-sonnet-5-5", "gemini-2.5-pro"),
        ("research", "claude-sonnet-5-5", "gemini-2.5-pro"),
        ("review", "claude-opus-5-5", "gemini-3.1-pro-preview"),
    ],
)
def test_the_class_picks_the_model_of_the_provider_there_is_a_key_for(
    name: str, anthropic: str, gemini: str, tmp_path: Path
) -> None:
    chosen = settings(tmp_path, session__task_class=name)
    assert model_name(chosen, missing=lambda _: None) == f"anthropic:{anthropic}"
    assert (
        model_name(chosen, missing=lambda model: "KEY" if model.startswith("anthropic") else None) == f"gemini:{gemini}"
    )
    assert model_name(chosen, missing=lambda _: "KEY") == "offline"


def test_an_explicit_model_wins_over_the_class(tmp_path: Path) -> None:
    chosen = settings(tmp_path, session__task_class="debug", model__id="gemini-3.8-flash")
    assert model_name(chosen, missing=lambda _: None) == "gemini-3.8-flash"


def test_a_conversation_keeps_its_model_unless_a_flag_names_another(tmp_path: Path) -> None:
    by_class = settings(tmp_path, session__task_class="debug")
    assert model_name(by_class, "gemini:gemini-2.5-pro", missing=lambda _: None) == "gemini:gemini-2.5-pro"
    by_flag = settings(tmp_path, model__id="claude-opus-5-5")
    assert model_name(by_flag, "gemini:gemini-2.5-pro", missing=lambda _: None) == "claude-opus-5-5"
    (tmp_path / "config.json").write_text('{"model": {"id": "claude-opus-4-7"}}')
    by_file = settings(tmp_path)
    assert by_file.model.id == "claude-opus-4-7"
    assert model_name(by_file, "gemini:gemini-2.5-pro", missing=lambda _: None) == "gemini:gemini-2.5-pro"
    assert model_name(by_file, missing=lambda _: None) == "claude-opus-4-7"


def test_a_mode_that_is_set_wins_over_the_class(tmp_path: Path) -> None:
    assert permission_mode(settings(tmp_path, session__task_class="research", permissions__mode="ask")) == "ask"
    assert permission_mode(settings(tmp_path, session__task_class="research", permissions__mode="auto")) == "auto"


def test_a_threshold_set_for_a_tier_wins_over_the_class(tmp_path: Path) -> None:
    chosen = settings(tmp_path, session__task_class="debug", compaction__threshold_by_tier__small="0.30")
    task = compaction_threshold(chosen)
    assert compaction_start(chosen.compaction, Budget(50_000, 2_000, 12_000), "small", task, ["small"])[0] == 15_000
    assert compaction_start(chosen.compaction, Budget(50_000, 2_000, 12_000), "small", task, ["mid"])[0] == 32_500


def test_the_small_model_is_the_providers_unless_one_is_named(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert small_model(chosen, "anthropic:claude-opus-5-5") == "anthropic:claude-haiku-5-5"
    assert small_model(chosen, "gemini:gemini-2.5-pro") == "gemini:gemini-3.8-flash"
    assert small_model(chosen, "offline") == "offline"
    named = settings(tmp_path, agentic__small_model="gemini-2.5-flash")
    assert small_model(named, "anthropic:claude-opus-5-5") == "gemini-2.5-flash"


async def test_a_session_of_the_class_research_asks_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, {"session.task_class": "research"}) as session:
        assert session.agent.permissions.mode == "allow"
    async with talking(tmp_path, {"session.task_class": "research", "permissions.mode": "plan"}) as session:
        assert session.agent.permissions.mode == "plan"
