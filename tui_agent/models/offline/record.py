"""The provider record of the offline model."""

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import LocalModels, Model
from tui_agent.models.provider import Provider

NAME = "offline"


def _create(_provider: Provider, _profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.offline.adapter import OfflineModel

    return OfflineModel()


def _profile(_model: str) -> ModelProfile:
    from tui_agent.models.offline.adapter import OfflineModel

    return OfflineModel().profile


OFFLINE = Provider(
    id=NAME,
    title="The offline model",
    label="Offline (no key, no network)",
    create=_create,
    profile=_profile,
    suggested=(NAME,),
)
