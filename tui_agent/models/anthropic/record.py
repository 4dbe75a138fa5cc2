"""The provider record of Anthropic."""

import os
import re
from pathlib import Path

from msgspec import structs

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.anthropic.claude import (
    PICTURE_BYTES,
    binds_reasoning,
    cache_minimum_of,
    most_pictures,
    signs_summaries,
)
from tui_agent.models.base import LocalModels, Model
from tui_agent.models.provider import Provider
from tui_agent.settings.schema import ModelsSettings


def _create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.anthropic.adapter import AnthropicModel

    return AnthropicModel(provider, profile)


def claude_profile(provider: str, model: str, catalogue: str = "anthropic") -> ModelProfile:
    """The profile of a Claude model by its id, for any provider that serves it."""
    return ModelProfile(
        provider=provider,
        id=model,
        cache="marked",
        bound_reasoning=binds_reasoning(model),
        signs_summaries=signs_summaries(model),
        cache_minimum=cache_minimum_of(model),
        picture_bytes=PICTURE_BYTES,
        most_pictures=most_pictures(0),
        catalogue=catalogue,
    )


def _profile_on_disk() -> bool:
    """Whether there is a profile with credentials where Anthropic's SDK looks for one."""
    chosen = os.environ.get("ANTHROPIC_CONFIG_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".config" / "anthropic"
    return any((folder / name).is_file() for name in ("active_config", "configs/default.json"))


ANTHROPIC = Provider(
    id="anthropic",
    title="Anthropic",
    label="Claude (Anthropic)",
    create=_create,
    profile=lambda model: structs.replace(claude_profile("anthropic", model), keeps_hours=True, search_usd=0.01),
    keys=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_IDENTITY_TOKEN_FILE",
    ),
    keys_page="https://console.anthropic.com/settings/keys",
    signed_in=_profile_on_disk,
    addresses=("ANTHROPIC_BASE_URL",),
    models=ModelsSettings().anthropic,
    suggested=(
        "claude-fable-5-2",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-opus-4-7",
        "claude-sonnet-4-6",
        "claude-haiku-4-5",
    ),
    families=("claude",),
    tiers={"frontier": ("opus", "fable", "mythos"), "mid": ("sonnet",), "small": ("haiku",)},
    catalogue="anthropic",
    listed=re.compile(r"claude-[a-z]+-\d"),
    package="anthropic",
)
