"""What every process of a walk does first, done here once, before the processes are forked."""

import importlib

from google.genai.types import GenerateContentConfig, GenerateContentResponse

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.prices import look_up
from tui_agent.system.network import tls

for name in ("tests.agent.walks", "anthropic.resources.models", "PIL.Image"):
    importlib.import_module(name)
for kind in (GenerateContentConfig, GenerateContentResponse):
    kind.model_validate({})
look_up(ModelProfile("anthropic", "claude-opus-5-5", catalogue="anthropic"))
tls()
