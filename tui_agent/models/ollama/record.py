"""The provider record of Ollama."""

from collections.abc import AsyncGenerator

from tui_agent.conversation.profile import FREE, ModelProfile
from tui_agent.models.base import LocalModels, Model, PullProgress
from tui_agent.models.ollama.server import VARIABLE, installed_models, is_remote
from tui_agent.models.provider import Provider
from tui_agent.settings.schema import ModelsSettings


def _create(provider: Provider, profile: ModelProfile, local: LocalModels) -> Model:
    from tui_agent.models.ollama.adapter import OllamaModel

    return OllamaModel(provider, profile, local)


def _profile(model: str) -> ModelProfile:
    remote = is_remote(model)
    return ModelProfile(
        provider="ollama",
        id=model,
        prices=None if remote else FREE,
        fixed_window=True,
        local=not remote,
        loose_calls=True,
    )


def _pull(model: str, local: LocalModels) -> AsyncGenerator[PullProgress, None]:
    from tui_agent.models.ollama.adapter import pulling

    return pulling(OLLAMA, model, local.host)


OLLAMA = Provider(
    id="ollama",
    title="Ollama",
    label="Local models (Ollama)",
    create=_create,
    profile=_profile,
    keys=("OLLAMA_API_KEY",),
    needs_key=False,
    addresses=(VARIABLE,),
    models=ModelsSettings().ollama,
    free_names=True,
    installed=lambda local: installed_models(local.host, local.window),
    pull=_pull,
)
