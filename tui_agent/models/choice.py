"""Chooses a session's main model and its small one: task classes, tiers, and the guard against a small main model.

The user declares a task class; it is never guessed. A model or mode set in any layer of the settings wins over it.
Small models work well in subtasks, but as the main model of a long session they go in circles and stall.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.profile import Tier as ModelTier
from tui_agent.models.base import LocalModels, Model, SeveralModels, UnknownModel
from tui_agent.models.catalogue import OFFLINE, catalogue_of
from tui_agent.models.errors import plain
from tui_agent.settings import Settings
from tui_agent.settings.schema import PermissionMode, TaskClass, Tier, TierModels
from tui_agent.text import first_of

TIERS: Sequence[Tier] = ("frontier", "mid", "small")
FAMILIES: Mapping[str, Tier] = {"opus": "frontier", "sonnet": "mid", "haiku": "small", **{tier: tier for tier in TIERS}}
"""Tiers by the names that files written for Claude Code use, and by our own."""
DEFAULT_TIER: Tier = "mid"
"""The tier of the model if no task class names one."""
GENERATIONS: Final = 2
"""Generations of models in each tier that count as new; older ones are found by searching."""
MAX_NAMED: Final = 8
"""The most models that are named where several are meant."""


def task_class(settings: Settings) -> TaskClass | None:
    """The declared task class, if there is one."""
    name = settings.session.task_class
    return getattr(settings.tasks, name) if name else None


def permission_mode(settings: Settings) -> PermissionMode:
    """The mode in which the session starts: the configured one, else the task class's, else the built-in default."""
    task = task_class(settings)
    return task.mode if task and not settings.is_set("permissions.mode") else settings.permissions.mode


def compaction_threshold(settings: Settings) -> float | None:
    """The share of the window at which the task class compacts; None if no class is declared.

    A threshold the user has set for the model's tier wins over it.
    """
    task = task_class(settings)
    return task.threshold if task else None


def model_name(settings: Settings, conversation: str = "", missing: Callable[[str], str | None] | None = None) -> str:
    """The session's model: from the command line, else from the conversation, else configured, else by task class.

    By task class means the first provider with a key, else ``offline``. `missing` names the key that a model lacks.
    """
    catalogue = catalogue_of(settings)
    missing = missing or catalogue.missing_key
    chosen = settings.model.id
    if chosen and (not conversation or "model.id" in settings.overridden):
        return chosen
    if conversation:
        return conversation
    for provider in catalogue.with_keys():
        name = default_model(settings, provider.id)
        if name and missing(name) is None:
            return name
    return OFFLINE


def meant_model(settings: Settings, typed: str) -> str:
    """The model that the user means by a name or by a part that only one model's name has.

    A name with its provider in front, and one that no known name contains, is what it says: it may be newer than this
    program. Of the same model at several providers, the first with a key is meant. May import the price catalogue and
    ask local servers: call it in a thread. Raises `SeveralModels`, `UnknownModel`.
    """
    catalogue, word = catalogue_of(settings), typed.strip().lower()
    found = unknown = None
    try:
        found = catalogue.resolve(typed)
    except UnknownModel as error:
        if not word:
            raise
        unknown = error
    if found is not None:
        name = typed if found.id in typed else str(found)
        provider = catalogue.provider_of(name)
        suggested = (provider.models.frontier, provider.models.mid, provider.models.small, *provider.suggested)
        if found.id.lower() != word or provider.id == OFFLINE or {found.id, str(found)} & set(suggested):
            return name
        if any(map(os.environ.get, provider.addresses)):
            return name  # another server at the provider's address has models of its own
        from tui_agent.models.prices import listed_models

        listed = listed_models(provider)
        if found.id in listed or not any(word in each.lower() for each in listed):
            return name
    alike = _alike(settings, word, found.provider if found is not None else "")
    if unknown is not None and not alike:
        raise unknown
    if len(alike) == 1:
        return alike[0]
    shown = first_of([*map(catalogue.short_name, alike)], MAX_NAMED)
    raise SeveralModels(f'"{plain(typed)[:80]}" is a part of the names of several models: {shown}.', alike)


def _alike(settings: Settings, word: str, provider: str) -> tuple[str, ...]:
    """The models with `word` in their names, of this provider if there is one: those named so but for the case of
    letters, else the new ones of each provider that has such; and of these those that can be asked if any can.
    """
    catalogue = catalogue_of(settings)
    known = [each for each in catalogue.known_models(local=local_models(settings)) if each.provider != OFFLINE]
    alike = [each for each in known if word in each.name.lower() and provider in ("", each.provider)]
    new = set(newest(known))
    renewed = {each.provider for each in alike if each.name in new}
    whole = [each for each in alike if each.id.lower() == word]
    alike = whole or [each for each in alike if each.name in new or each.provider not in renewed]
    at_hand = [each for each in alike if each.local or catalogue.has_key(each.provider)]
    first: dict[str, str] = {}
    for each in at_hand or alike:
        first.setdefault(each.id, each.name)
    return tuple(first.values())


def newest(models: Iterable[ModelProfile]) -> Iterator[str]:
    """The names of each provider's and tier's newest generations, and those of unknown generation; `models` has the
    newest of a provider first.
    """
    seen: Counter[tuple[str, ModelTier]] = Counter()
    for each in models:
        seen[each.provider, each.tier] += 1
        if seen[each.provider, each.tier] <= GENERATIONS or each.prices is None or not each.prices.input:
            yield each.name


def default_model(settings: Settings, provider: str) -> str:
    """The provider's default model, of the task class's tier; empty if there is none."""
    task = task_class(settings)
    return model_of_tier(settings, provider, task.tier if task else DEFAULT_TIER)


def model_of_tier(settings: Settings, provider: str, tier: Tier) -> str:
    """``provider:id`` of a provider's model of this tier; empty if the table has none.

    There is one offline model, whatever the tier.
    """
    if provider == OFFLINE:
        return OFFLINE
    record = catalogue_of(settings).provider_named(provider)
    models = getattr(settings.models, provider, record.models if record else None)
    found = getattr(models, tier) if isinstance(models, TierModels) else ""
    return f"{provider}:{found}" if found else ""


def named_model(settings: Settings, name: str, session_model: str) -> str:
    """The model that a file of the user's own means by `name`.

    ``inherit`` is the session's model; a tier, or one of Claude Code's names for tiers (``opus``, ``sonnet``,
    ``haiku``), is the session provider's model of that tier; anything else is a model's name. Raises `UnknownModel` if
    `session_model` does not exist.
    """
    if name == "inherit":
        return session_model
    tier = FAMILIES.get(name.lower())
    if tier is None:
        return name
    provider = catalogue_of(settings).resolve(session_model).provider
    return model_of_tier(settings, provider, tier) or session_model


def larger_model(settings: Settings, profile: ModelProfile, missing: Callable[[str], str | None] | None = None) -> str:
    """The frontier model of the same provider; empty if this is one already, or there is none that can be asked."""
    missing = missing or catalogue_of(settings).missing_key
    name = model_of_tier(settings, profile.provider, "frontier")
    if profile.tier == "frontier" or name in ("", OFFLINE, profile.name) or missing(name) is not None:
        return ""
    return name


def local_models(settings: Settings) -> LocalModels:
    """The settings for local models: their window if it is set, else the memory they may use."""
    context = settings.context
    return LocalModels(settings.ollama.host, max(0, context.context_window) or context.memory_budget_tokens)


def configured_model(settings: Settings, name: str, *, small: bool = False) -> Model:
    """Create the model of this name, with these settings; one for `small` questions makes no effort of its own.

    Raises `UnknownModel`.
    """
    effort = "" if small or settings.model.effort == "default" else settings.model.effort
    return catalogue_of(settings).create_model(name, local_models(settings), effort)


def with_meant_models(settings: Settings) -> Settings:
    """The settings with the models that are meant by those for subtasks and fallbacks, as by `meant_model`.

    Raises `UnknownModel`, naming the setting, if one of them or of those for tiers is unknown or a part of several
    names. Call it in a thread.
    """
    catalogue = catalogue_of(settings)

    def meant(key: str, name: str, find: Callable[[str], object]) -> str:
        try:
            return str(find(name)) if name else ""
        except UnknownModel as error:
            raise UnknownModel(f"{key} ({settings.source(key)}): {error.message}") from error

    for provider in catalogue.with_keys():
        for tier in TIERS:
            meant(f"models.{provider.id}.{tier}", model_of_tier(settings, provider.id, tier), catalogue.resolve)
    find = partial(meant_model, settings)
    small = meant("agentic.small_model", settings.agentic.small_model, find)
    fallbacks = tuple(meant("model.fallbacks", name, find) for name in settings.model.fallbacks)
    return msgspec.structs.replace(
        settings,
        agentic=msgspec.structs.replace(settings.agentic, small_model=small),
        model=msgspec.structs.replace(settings.model, fallbacks=fallbacks),
    )


def small_model(settings: Settings, session_model: str) -> str:
    """The model for subtasks: the configured one, else the small one of the session's provider, else the session's own.

    Raises `UnknownModel` if `session_model` does not exist.
    """
    if settings.agentic.small_model:
        return settings.agentic.small_model
    provider = catalogue_of(settings).resolve(session_model).provider
    return model_of_tier(settings, provider, "small") or session_model


class SmallTierRefused(Exception):
    """The session's model is small, and the settings do not allow that. `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SmallParent(msgspec.Struct, frozen=True):
    """A warning that the session's model is small, and what to do about it."""

    text: str
    hint: str


def check_parent(
    settings: Settings, profile: ModelProfile, *, one_shot: bool = False, yolo: bool = False
) -> SmallParent | None:
    """A warning if the session's main model is small.

    None for a one-shot run (a script may intend it), with `yolo`, for an unknown tier, or if the settings allow it.
    Raises `SmallTierRefused`.
    """
    mode = settings.safety.small_tier_parent
    if mode == "allow" or one_shot or yolo or profile.tier != "small":
        return None
    text = (
        f"{profile.id} is a small-tier model. Small models work well in subtasks (--agentic-small-model) but go in "
        "circles and stall as the model of a long session."
    )
    larger = model_of_tier(settings, profile.provider, "frontier") or model_of_tier(settings, profile.provider, "mid")
    better = "Choose a frontier or mid-tier model with --model."
    if larger:
        short_name, small = catalogue_of(settings).short_name, small_model(settings, profile.name)
        better = f"Consider --model {short_name(larger)} --agentic-small-model {short_name(small)}."
    if mode == "refuse":
        raise SmallTierRefused(f"small-tier parent: {text}", f"{better} The settings refuse it.")
    return SmallParent(text, f"{better} --small-tier-parent=allow suppresses this notice.")
