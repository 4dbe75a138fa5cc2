"""The guard against a small model as a session's own model.

Small models work well in subtasks; in long sessions of their own they go in circles and stall.
"""

from tui_agent.agent.events import Notice
from tui_agent.agent.task_class import model_of_tier, small_model
from tui_agent.models.base import ModelProfile
from tui_agent.settings import Settings


class SmallTierRefused(Exception):
    """The session's model is a small one, and the settings refuse that. `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def check_parent(
    settings: Settings, profile: ModelProfile, *, one_shot: bool = False, yolo: bool = False
) -> Notice | None:
    """What the user should know of the model that is to lead the session.

    Nothing for a one-shot run (a script may mean it), with `yolo`, for a tier that is not known, or where the settings
    allow it. Raises `SmallTierRefused`.
    """
    mode = settings.safety.small_tier_parent
    if mode == "allow" or one_shot or yolo or profile.tier != "small":
        return None
    text = (
        f"{profile.id} is a small-tier model. Small models work well in subtasks (--agentic-small-model) but go in "
        "circles and stall as the model of a long session."
    )
    if mode == "refuse":
        raise SmallTierRefused(f"small-tier parent: {text}", f"{_better(settings, profile)} The settings refuse it.")
    hint = f"{_better(settings, profile)} --small-tier-parent=allow suppresses this notice."
    return Notice(level="warning", title="Small-tier parent", text=text, hint=hint)


def _better(settings: Settings, profile: ModelProfile) -> str:
    """A model to lead the session, and the small one for its subtasks."""
    larger = model_of_tier(settings, profile.provider, "frontier") or model_of_tier(settings, profile.provider, "mid")
    if not larger:
        return "Choose a frontier or mid-tier model with --model."
    small = small_model(settings, profile.name)
    return f"Consider --model {_short(larger)} --agentic-small-model {_short(small)}."


def _short(name: str) -> str:
    """A name as it is typed: without the provider where the id alone says it."""
    provider, _, model = name.partition(":")
    return model if model.startswith(("claude-", "gemini-")) and provider in ("anthropic", "gemini") else name
