"""The provider record of Google's Vertex AI."""

import re
from importlib.util import find_spec

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.anthropic.record import ANTHROPIC, claude_profile
from tui_agent.models.base import LocalModels, Model
from tui_agent.models.gemini.record import GEMINI, gemini_profile
from tui_agent.models.provider import Provider


def is_claude(model: str) -> bool:
    """Whether a model of Vertex AI is a Claude."""
    return model.startswith("claude")


def _create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.vertex.adapter import ClaudeOnVertex, GeminiOnVertex

    return (ClaudeOnVertex if is_claude(profile.id) else GeminiOnVertex)(provider, profile)


def _profile(model: str) -> ModelProfile:
    return claude_profile("vertex", model, "google") if is_claude(model) else gemini_profile("vertex", model)


def _missing() -> str:
    if find_spec("google.auth") is not None and find_spec("requests") is not None:
        return ""
    return "Vertex AI needs Google's authentication, which is not installed: pip install 'tui-agent[vertex]'."


VERTEX = Provider(
    id="vertex",
    title="Vertex AI",
    label="Claude and Gemini (Vertex AI)",
    create=_create,
    profile=_profile,
    keys=("GOOGLE_APPLICATION_CREDENTIALS",),
    needs_key=False,
    addresses=("ANTHROPIC_VERTEX_BASE_URL", "GOOGLE_VERTEX_BASE_URL"),
    suggested=("vertex:claude-opus-5-5", "vertex:gemini-3.8-flash"),
    tiers={**GEMINI.tiers, **ANTHROPIC.tiers},
    catalogue="google",
    listed=re.compile(rf"claude-[a-z]+-\d|{GEMINI.listed.pattern if GEMINI.listed else ''}"),
    missing=_missing,
)
