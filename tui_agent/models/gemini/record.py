"""The provider record of the Gemini API."""

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import LocalModels, Model
from tui_agent.models.gemini.request import wants_signatures
from tui_agent.models.provider import Provider
from tui_agent.regex import regex
from tui_agent.settings.schema import ModelsSettings

# Tokens of the smallest cacheable prefix (Gemini API, context caching); 4,096 for models that are not listed.
_CACHE_MINIMUM = {"gemini-2.5": 2048}
_PICTURE_BYTES = 15_000_000
"""Bytes in base64: three quarters of the 20 MB of a request (Gemini API, inline data), the rest for text."""
LISTED = regex(r"gemini-(2\.5|[3-9])(?!.*(tts|image|live|omni|robotics|audio|embedding))")


def _create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.gemini.adapter import GeminiModel

    return GeminiModel(provider, profile)


def gemini_profile(provider: str, model: str) -> ModelProfile:
    """The profile of a Gemini model by its id, for any provider that serves it."""
    smallest = next((size for prefix, size in _CACHE_MINIMUM.items() if model.startswith(prefix)), 4096)
    return ModelProfile(
        provider=provider,
        id=model,
        cache="implicit",
        cache_minimum=smallest,
        picture_bytes=_PICTURE_BYTES,
        catalogue="google",
        # For each query from Gemini 3 on, for each prompt before (Gemini API, pricing: grounding with Google Search).
        search_usd=None if model.startswith("gemma") else 0.014 if wants_signatures(model) else 0.035,
    )


GEMINI = Provider(
    id="gemini",
    title="Gemini",
    label="Gemini (Google)",
    create=_create,
    profile=lambda model: gemini_profile("gemini", model),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    keys_page="https://aistudio.google.com/apikey",
    addresses=("GOOGLE_GEMINI_BASE_URL",),
    models=ModelsSettings().gemini,
    suggested=("gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-2.5-pro", "gemini-2.5-flash"),
    families=("gemini", "gemma"),
    aliases=("google",),
    tiers={"frontier": ("gemini-[3-9]*-pro",), "mid": ("gemini-2.5-pro",), "small": ("flash",)},
    catalogue="google",
    listed=LISTED,
    package="google-genai",
)
