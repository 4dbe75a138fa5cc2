"""The named policies: what each sets, and what it leaves to those who have set it themselves."""

from pathlib import Path

import pytest

from tui_agent.settings import POLICIES, PolicyName, Settings, load_settings, values_by_key, with_policy


def test_the_default_is_balanced_to_the_letter() -> None:
    assert Settings().context.policy == "balanced"
    assert with_policy(Settings(), "balanced") == Settings()
    assert {frozenset(policy.values) for policy in POLICIES.values()} == {frozenset(POLICIES["balanced"].values)}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_sets_its_keys_and_no_other(tmp_path: Path, name: PolicyName) -> None:
    chosen = values_by_key(load_settings(tmp_path, None, overrides={"context.policy": name}))
    assert chosen == {**values_by_key(Settings()), "context.policy": name, **POLICIES[name].values}


def test_what_is_set_by_its_own_key_stays_in_whatever_layer_it_is_set(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"compaction": {"keep_recent_tokens": 12345}}')
    settings = load_settings(tmp_path, None, environ={"TUI_AGENT__CONTEXT__POLICY": "careful"})
    assert settings.compaction.keep_recent_tokens == 12_345
    assert settings.compaction.facts_tokens == POLICIES["careful"].values["compaction.facts_tokens"]
    thrifty = with_policy(settings, "thrifty")
    assert thrifty.compaction.keep_recent_tokens == 12_345
    assert thrifty.compaction.thrift == POLICIES["thrifty"].values["compaction.thrift"]
    assert with_policy(thrifty, "careful") == settings
