"""The provider record of the offline model."""

from tui_agent.models.base import Model
from tui_agent.models.provider import Provider

NAME = "offline"


def _model(name: str) -> Model:
    from tui_agent.models.offline.adapter import DEMO, OfflineModel

    return OfflineModel(priced=name == DEMO)


OFFLINE = Provider(
    id=NAME,
    title="The offline model",
    label="Offline (no key, no network)",
    create=lambda _provider, profile, _local: _model(profile.id),
    profile=lambda name: _model(name).profile,
    suggested=(NAME,),
)
