"""Settings: what can be set (`schema`, and `keys` as a flat table), where values come from (`sources`), and which
projects may set what (`trust`).
"""

from tui_agent.settings.keys import json_text, settings_by_key, values_by_key
from tui_agent.settings.policies import POLICIES, with_policy
from tui_agent.settings.schema import (
    ClearingSettings,
    CompactionSettings,
    ContextSettings,
    ModelSettings,
    PermissionSettings,
    PolicyName,
    Settings,
    ToolServer,
)
from tui_agent.settings.sources import GivenValue, Override, SettingsError, load_settings

__all__ = [
    "POLICIES",
    "ClearingSettings",
    "CompactionSettings",
    "ContextSettings",
    "GivenValue",
    "ModelSettings",
    "Override",
    "PermissionSettings",
    "PolicyName",
    "Settings",
    "SettingsError",
    "ToolServer",
    "json_text",
    "load_settings",
    "settings_by_key",
    "values_by_key",
    "with_policy",
]
