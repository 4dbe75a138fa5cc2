"""The provider record of Amazon Bedrock."""

import re
from importlib.util import find_spec

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.anthropic.record import ANTHROPIC, claude_profile
from tui_agent.models.base import LocalModels, Model
from tui_agent.models.provider import Provider


def _create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.bedrock.adapter import BedrockModel

    return BedrockModel(provider, profile)


def _missing() -> str:
    if find_spec("boto3") is not None:
        return ""
    return "Amazon Bedrock needs AWS's SDK, which is not installed: pip install 'tui-agent[bedrock]'."


BEDROCK = Provider(
    id="bedrock",
    title="Amazon Bedrock",
    label="Claude (Amazon Bedrock)",
    create=_create,
    profile=lambda model: claude_profile("bedrock", model, catalogue="aws"),
    keys=("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"),
    needs_key=False,
    addresses=("ANTHROPIC_BEDROCK_BASE_URL",),
    suggested=("bedrock:global.anthropic.claude-opus-5-5",),
    tiers=ANTHROPIC.tiers,
    free_names=True,
    catalogue="aws",
    listed=re.compile(r"global\.anthropic\.claude-[a-z]+-\d"),
    missing=_missing,
)
