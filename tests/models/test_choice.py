"""Which model a name or a part of one means."""

import msgspec
import pytest

from tui_agent.models.base import SeveralModels, UnknownModel
from tui_agent.models.choice import meant_model, with_meant_models
from tui_agent.settings import Settings


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("opus", "anthropic:claude-opus-5-5"),
        ("claude-haiku", "anthropic:claude-haiku-5-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("gemini-3.8", "gemini:gemini-3.8-flash"),
        ("3.8-FLASH", "gemini:gemini-3.8-flash"),
        ("gpt-5", "openai:gpt-5"),
        ("CLAUDE-OPUS-5", "anthropic:claude-opus-5"),  # not claude-opus-5-5
        ("O3", "openai:o3"),  # not o3-mini
        ("offline", "offline"),
    ],
)
def test_a_part_that_one_name_has_is_enough(typed: str, meant: str) -> None:
    assert meant_model(Settings(), typed) in (meant, meant.partition(":")[2])


@pytest.mark.parametrize("typed", ["gemini:gemini-3", "claude-opus-99", "claude-haiku-4-5-20251001", "ollama:qwen3:4b"])
def test_what_no_known_name_contains_or_names_its_provider_is_what_it_says(typed: str) -> None:
    assert meant_model(Settings(), typed) == typed


def test_a_part_of_several_names_is_none_of_them() -> None:
    with pytest.raises(SeveralModels, match=r"gemini-3\.8-flash, gemini-3") as several:
        meant_model(Settings(), "gemini-3")
    assert len(several.value.names) > 1
    assert all(name.startswith("gemini:gemini-3") for name in several.value.names)


def test_of_a_model_at_several_providers_that_with_a_key_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SeveralModels):
        meant_model(Settings(), "opus-4-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    assert meant_model(Settings(), "opus-4-5") == "anthropic:claude-opus-4-5"


def test_another_server_at_an_address_has_names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/")
    assert meant_model(Settings(), "gemini-3") == "gemini-3"


@pytest.mark.parametrize("typed", ["nonesuch", "", " ", "claud-opus"])
def test_an_unknown_name_is_none(typed: str) -> None:
    with pytest.raises(UnknownModel, match="There is no model") as unknown:
        meant_model(Settings(), typed)
    assert not isinstance(unknown.value, SeveralModels)


def test_the_models_of_subtasks_and_fallbacks_may_be_named_by_a_part() -> None:
    given = {"agentic": {"small_model": "gemini-3.8"}, "model": {"fallbacks": ["opus", "claude-haiku"]}}
    settings = with_meant_models(msgspec.convert(given, Settings))
    assert settings.agentic.small_model == "gemini:gemini-3.8-flash"
    assert settings.model.fallbacks == ("anthropic:claude-opus-5-5", "anthropic:claude-haiku-5-5")
    assert with_meant_models(Settings()) == Settings()


@pytest.mark.parametrize("given", [{"agentic": {"small_model": "gemini-3"}}, {"model": {"fallbacks": ["gemini-3"]}}])
def test_a_part_of_several_names_in_a_setting_is_said_with_its_name(given: dict[str, dict[str, object]]) -> None:
    key = r"agentic\.small_model" if "agentic" in given else r"model\.fallbacks"
    with pytest.raises(UnknownModel, match=rf'{key} \(.*\): "gemini-3" is a part of the names of several') as refused:
        with_meant_models(msgspec.convert(given, Settings))
    assert not isinstance(refused.value, SeveralModels)
