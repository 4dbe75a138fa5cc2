"""Names, tiers, windows; and that nothing heavy is imported for them."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.models.talking import create_model
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models import catalogue
from tui_agent.models.anthropic.claude import (
    binds_reasoning,
    cache_minimum_of,
    defers_tools,
    most_pictures,
    parse_id,
    signs_summaries,
    thinking_of,
)
from tui_agent.models.base import InstalledModel, LocalModels, Model, UnknownModel
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.models.prices import DEFAULT_WINDOW, look_up
from tui_agent.models.provider import Provider
from tui_agent.models.records import PROVIDERS
from tui_agent.settings.schema import Endpoint, TierModels, TierSettings


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("claude-opus-5-5", "anthropic:claude-opus-5-5"),
        (" anthropic:claude-x ", "anthropic:claude-x"),
        ("Gemini:gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("google:gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("models/gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("Ollama/hf.co/user/model:Q4_K_M", "ollama:hf.co/user/model:Q4_K_M"),
        ("offline", "offline:offline"),
        ("offline:offline", "offline:offline"),
        ("opus", "anthropic:claude-opus-5-5"),
        ("Haiku", "anthropic:claude-haiku-5-5"),
        ("opus-4-7", "anthropic:claude-opus-4-7"),
        ("sonnet 5", "anthropic:claude-sonnet-5-5"),
        ("gpt", "openai:gpt-6.1-sol"),
        ("claude-opus", "anthropic:claude-opus-5-5"),
        ("claude-haiku", "anthropic:claude-haiku-5-5"),
        ("gemini-flash", "gemini:gemini-3.8-flash"),
        ("gemini-flash-latest", "gemini:gemini-flash-latest"),
        ("anthropic:sonnet", "anthropic:claude-sonnet-5-5"),
        ("ollama:mistral", "ollama:mistral"),
        ("openrouter:auto", "openrouter:auto"),
        ("gpt-5.2-mini", "openai:gpt-5.2-mini"),
        ("anthropic/claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("google/gemini-3.8-flash", "gemini:gemini-3.8-flash"),
        ("openrouter/anthropic/claude-opus-5-5", "openrouter:anthropic/claude-opus-5-5"),
    ],
)
def test_names(name: str, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    assert str(CATALOGUE.resolve(name)) == full
    assert CATALOGUE.resolve(full) == CATALOGUE.resolve(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cluade-opus-5-5", "claude-opus-5-5"),
        ("5", "did you mean"),
        ("cheap", "offline"),
        ("", "offline"),
        ("ollama:", "did you mean|try"),
        ("anthropic:", "did you mean|try"),
        ("offline:x", "offline"),
        ("claude-../../v1/files", "claude"),
        ("claude-x\x1b]0;", "claude"),
    ],
)
def test_names_that_are_none_say_what_is(name: str, hint: str) -> None:
    with pytest.raises(UnknownModel, match=hint) as caught:
        CATALOGUE.resolve(name)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(UnknownModel):
        create_model(name)


def test_a_word_means_a_model_of_who_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert CATALOGUE.resolve("opus").provider == "bedrock"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    assert CATALOGUE.resolve("opus").provider == "anthropic"


TIERS = {
    "frontier": ["claude-opus-5-5", "claude-fable-5-2", "claude-mythos-preview", "gemini-3.1-pro-preview"],
    "mid": ["claude-sonnet-5-5", "gemini-2.5-pro"],
    "small": ["claude-haiku-4-5", "gemini-3.8-flash"],
    "unknown": ["claude-2"],
}


def test_tiers() -> None:
    own = catalogue.Catalogue({}, TierSettings(frontier=(), mid=("CLAUDE-OPUS-5*",), small=()))
    for tier, models in TIERS.items():
        assert {CATALOGUE.tier_of(model) for model in models} == {tier}
        assert [own.tier_of(model) for model in models[1:]] == [tier] * len(models[1:])
    assert own.tier_of("claude-opus-5-5") == "mid"
    assert {each.tier for each in own.known_models() if each.id == "claude-opus-5-5"} == {"mid"}


@pytest.mark.parametrize(
    ("model", "bound", "thinking"),
    [
        ("claude-opus-5-5", True, "adaptive"),
        ("claude-opus-5-5-20261001", True, "adaptive"),
        ("claude-fable-5-1", True, "adaptive"),
        ("claude-fable-5", False, "adaptive"),
        ("claude-mythos-preview", True, "adaptive"),
        ("claude-opus-5", False, "adaptive"),
        ("claude-opus-6", True, "adaptive"),
        ("claude-nova-7-2", True, "adaptive"),
        ("claude-something", True, "adaptive"),
        ("claude-sonnet-4-6", False, "adaptive"),
        ("claude-opus-4-20250514", False, "enabled"),
        ("claude-haiku-4-5-20251001", False, "enabled"),
        ("claude-3-7-sonnet-latest", False, "enabled"),
        ("claude-3-5-haiku-20241022", False, "off"),
        ("claude-3-opus-latest", False, "off"),
    ],
)
def test_what_a_claude_id_tells(model: str, bound: bool, thinking: str) -> None:
    assert binds_reasoning(model) is bound
    assert thinking_of(model) == thinking
    assert defers_tools(model) is (thinking == "adaptive" or "4-5" in model)
    assert signs_summaries(model) is (thinking == "adaptive" and parse_id(model).version > (0, 0))


def test_the_smallest_prefix_that_each_claude_caches() -> None:
    lines = ("opus", "sonnet", "haiku", "fable")
    versions = ("5-5", "5", "4-8", "4-7", "4-6", "4-5", "4-20250514")
    found = {
        f"{line}-{version}": cache_minimum_of(f"claude-{line}-{version}") for line in lines for version in versions
    }
    assert {name: size for name, size in found.items() if size != 1_024} == {
        "opus-5-5": 512,
        "haiku-5-5": 2_048,
        **{f"opus-{version}": 4_096 for version in ("4-8", "4-7", "4-6", "4-5")},
        "sonnet-4-6": 2_048,
        "haiku-4-5": 4_096,
    }
    assert [cache_minimum_of(f"claude-{old}-haiku-latest") for old in ("3-5", "3")] == [2_048, 2_048]
    assert [most_pictures(window) for window in (0, 200_000, 200_001)] == [100, 100, 600]


SEARCH_USD = {
    "claude-opus-5-5": 0.01,
    "gemini-3.8-flash": 0.014,
    "gemini-2.5-pro": 0.035,
    "gemini:gemma-3": None,
    "openai:gpt-6.1-sol": 0.01,
    "deepseek:deepseek-v4-pro": None,
}


def test_what_a_search_of_the_provider_costs() -> None:
    assert {model: CATALOGUE.quick_profile(model).search_usd for model in SEARCH_USD} == SEARCH_USD


def test_windows_and_prices_of_the_catalogue() -> None:
    opus = look_up(CATALOGUE.quick_profile("claude-opus-5-5"))
    assert (opus.window, opus.source) == (1_000_000, "catalogue")
    assert opus.prices is not None
    haiku = look_up(CATALOGUE.quick_profile("claude-haiku-5-5"))
    assert haiku.prices is not None
    assert [start for start, _ in haiku.prices.above] == [100_000]
    pro = look_up(CATALOGUE.quick_profile("gemini-2.5-pro"))
    assert (pro.window, pro.source) == (DEFAULT_WINDOW, "default")
    nobody = look_up(CATALOGUE.quick_profile("claude-nobody-99"))
    assert (nobody.window, nobody.prices, nobody.tier) == (DEFAULT_WINDOW, None, "unknown")


def test_the_list_to_choose_from() -> None:
    found = {profile.name: profile for profile in CATALOGUE.known_models()}
    assert found["anthropic:claude-opus-5-5"].tier == "frontier"
    assert found["gemini:gemini-3.8-flash"].window == 1_000_000
    assert any(name.startswith("offline:") for name in found)
    assert not any("tts" in name or "embedding" in name or "image" in name for name in found)
    assert list(found).index("anthropic:claude-opus-5-5") < list(found).index("anthropic:claude-opus-4-5")


def test_the_key_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert CATALOGUE.missing_key("claude-opus-5-5") == "ANTHROPIC_API_KEY"
    assert CATALOGUE.missing_key("gemini-2.5-pro") == "GEMINI_API_KEY"
    assert CATALOGUE.missing_key("offline") is None
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    (tmp_path / "active_config").write_text("work")
    assert CATALOGUE.missing_key("claude-opus-5-5") is None
    (tmp_path / "active_config").unlink()
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "x")
    monkeypatch.setenv("GOOGLE_API_KEY", "x")
    assert CATALOGUE.missing_key("claude-opus-5-5") is None
    assert CATALOGUE.missing_key("gemini-2.5-pro") is None


def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    code = """
import sys
from tui_agent.models.catalogue import CATALOGUE
from tests.models.talking import create_model
import tui_agent.models.anthropic.adapter, tui_agent.models.gemini.adapter, tui_agent.models.ollama.adapter
import tui_agent.models.retry, tui_agent.models.usage
create_model("claude-opus-5-5"), create_model("gemini-2.5-pro"), create_model("ollama:x")
CATALOGUE.quick_profile("claude-opus-5-5")
heavy = {"anthropic", "google.genai", "genai_prices", "ollama", "pydantic", "httpx", "httpx2", "aiohttp", "textual"}
sys.stdout.write(repr(sorted(heavy & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]"


def test_a_price_does_not_depend_on_the_hour() -> None:
    """DeepSeek's do: the highest of the day is told at every hour."""
    from genai_prices.data_snapshot import get_snapshot

    (served,) = [each for each in get_snapshot().providers if each.id == "deepseek"]
    today = datetime.now(UTC)
    for model in served.models:
        told = look_up(ModelProfile(provider="deepseek", id=model.id, catalogue="deepseek")).prices
        hourly = [model.get_prices(today.replace(hour=hour)).input_mtok for hour in range(24)]
        assert told is not None
        assert told.input == max(float(str(each)) for each in hourly)


def test_a_provider_is_its_record_in_one_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model list, a question for a key, an unknown name and a session need of it is in the record."""

    def create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
        assert (provider.title, profile.window) == ("Acme", 9_000)
        return OfflineModel(window=profile.window)

    acme = Provider(
        id="acme",
        title="Acme",
        label="Acme's models",
        create=create,
        profile=lambda model: ModelProfile(provider="acme", id=model, window=9_000),
        keys=("ACME_API_KEY",),
        models=TierModels(frontier="rocket-2", mid="rocket-1", small="firecracker"),
        suggested=("acme:rocket-2",),
        families=("rocket",),
        tiers={"small": ("firecracker",)},
        installed=lambda _: [InstalledModel("rocket-1", window=5_000)],
    )
    monkeypatch.setattr(catalogue, "PROVIDERS", (*PROVIDERS, acme))
    monkeypatch.delenv("ACME_API_KEY", raising=False)
    known = catalogue.Catalogue()
    assert str(known.resolve("rocket-9")) == "acme:rocket-9"
    assert known.missing_key("acme:rocket-1") == "ACME_API_KEY"
    assert known.tier_of("firecracker") == "small"
    assert acme in known.with_keys()
    assert known.create_model("acme:rocket-1").profile.window == 9_000
    assert ("acme:rocket-1", 5_000) in [(each.name, each.window) for each in known.known_models()]
    with pytest.raises(UnknownModel, match="acme:rocket-2"):
        known.resolve("acme:")
    with pytest.raises(UnknownModel, match="taken"):
        catalogue.Catalogue({"acme": Endpoint(url="http://localhost:1")})
