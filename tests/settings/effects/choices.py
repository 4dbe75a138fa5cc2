"""Probes of what is chosen at the start: the model, its tier, the permission mode, and what the guards say."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.settings.effects.context import FACTS, thresholds
from tests.settings.effects.probe import Observe, Probe
from tui_agent.agent.briefing.briefing import SectionReader
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.agent.turn.watchdog import (
    ModelAnswered,
    Observation,
    ToolAnswered,
    ToolCalled,
    UserSpoke,
    default_watchdog,
)
from tui_agent.arguments import Arguments
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import CATALOGUE, catalogue_of
from tui_agent.models.choice import (
    SmallTierRefused,
    check_parent,
    configured_model,
    larger_model,
    local_models,
    model_name,
    permission_mode,
    small_model,
)
from tui_agent.models.ollama.server import address_of
from tui_agent.session_parts import knowledge_of
from tui_agent.settings import GivenValue, Settings
from tui_agent.tools.notes.memory import Notes

SMALL = "claude-haiku-5-5"


def leads(provider: str = "anthropic") -> Observe:
    """The model of a new session where only this provider has a key."""
    return lambda settings, _: model_name(settings, missing=lambda name: None if name.startswith(provider) else "A_KEY")


def helps(model: str) -> Observe:
    """The model of subtasks beside this one."""
    return lambda settings, _: small_model(settings, model)


def tier_of(model: str) -> Observe:
    return lambda settings, _: configured_model(settings, model).profile.tier


def styled(settings: Settings, folder: Path) -> object:
    """What a conversation begins with, as to how answers are written."""
    (folder / "styles").mkdir(exist_ok=True)
    (folder / "styles/brief.md").write_text("Be brief.")
    notes = Notes(folder / "memory")
    extensions = (ExtensionFolder(folder, "yours"),)
    return SectionReader(folder, folder, (), (), notes, extensions, settings.session.style).sections().style


def other_folders(settings: Settings, folder: Path) -> object:
    """The folders that are looked in for extensions."""
    arguments = Arguments(folder=folder, home=folder, project=folder, user_home=folder, trusted=True)
    return [root.kind for root in knowledge_of(settings, arguments).extensions]


def is_better(settings: Settings, folder: Path) -> object:
    """What is said of a small local model that is to lead the session."""
    notice = check_parent(settings, catalogue_of(settings).quick_profile("ollama:my-haiku"))
    return notice.hint if notice else ""


def missing_model(settings: Settings, name: str) -> object:
    """The window of a model that only the settings know of; None where they do not."""
    try:
        return configured_model(settings, name).profile.window
    except UnknownModel:
        return None


def told_of_small_model(settings: Settings, folder: Path) -> object:
    try:
        notice = check_parent(settings, catalogue_of(settings).quick_profile(SMALL))
    except SmallTierRefused as refused:
        return refused.message
    return notice


def alerts(*seen: Observation) -> Observe:
    """After how many facts the watchdog speaks."""

    def observe(settings: Settings, folder: Path) -> object:
        watchdog = default_watchdog(settings.watchdog)
        return [number for number, fact in enumerate(seen, 1) if watchdog.observe(fact)]

    return observe


def many(*facts: Observation) -> Iterable[Observation]:
    return [UserSpoke(0.0), *facts * 100]


def compacts_at(settings: Settings, folder: Path) -> object:
    return thresholds(settings, FACTS).compact


def of_class(name: str) -> Mapping[str, GivenValue]:
    return {"session.task_class": name}


CALLED, LOOKED = ToolCalled("read_file", '{"path":"a"}'), ToolAnswered("read_file", "read")
OTHER_TIER = {"debug": "mid", "implement": "mid", "chat": "frontier", "research": "frontier", "review": "mid"}
OTHER_MODE = {"debug": "plan", "implement": "plan", "chat": "plan", "research": "ask", "review": "plan"}

CLASSES: Mapping[str, Probe] = {
    f"tasks.{name}.{part}": probe
    for name in OTHER_TIER
    for part, probe in {
        "tier": Probe(OTHER_TIER[name], leads(), of_class(name)),
        "threshold": Probe(0.5, compacts_at, of_class(name)),
        "mode": Probe(OTHER_MODE[name], lambda settings, _: permission_mode(settings), of_class(name)),
    }.items()
}

PROBES: Mapping[str, Probe] = {
    **CLASSES,
    "model.id": Probe("gemini-2.5-pro", leads()),
    "model.effort": Probe("high", lambda settings, _: configured_model(settings, "gemini-2.5-pro").profile.effort),
    "session.task_class": Probe("debug", leads()),
    "session.style": Probe("brief", styled),
    "session.other_folders": Probe("false", other_folders),
    "session.plugins": Probe(["a/plugin"], other_folders),
    "models.anthropic.frontier": Probe("claude-opus-4-7", leads("anthropic"), of_class("debug")),
    "models.anthropic.mid": Probe("claude-sonnet-4-6", leads("anthropic"), of_class("chat")),
    "models.anthropic.small": Probe("claude-haiku-4-5", helps("claude-opus-5-5")),
    "models.gemini.frontier": Probe("gemini-2.5-pro", leads("gemini"), of_class("debug")),
    "models.gemini.mid": Probe("gemini-3.8-flash", leads("gemini"), of_class("chat")),
    "models.gemini.small": Probe("gemini-2.5-flash", helps("gemini-2.5-pro")),
    "models.openai.frontier": Probe("gpt-5.5", leads("openai"), of_class("debug")),
    "models.openai.mid": Probe("gpt-5.4", leads("openai"), of_class("chat")),
    "models.openai.small": Probe("gpt-5-mini", helps("openai:gpt-6.1-sol")),
    "models.endpoints": Probe(
        {"mine": {"url": "http://10.0.0.7/v1", "models": {"big": {"window": 9_000}}}},
        lambda settings, _: [model_name(settings, "mine:big"), missing_model(settings, "mine:big")],
    ),
    "models.ollama.frontier": Probe(
        "qwen3:235b",
        lambda settings, _: larger_model(settings, CATALOGUE.quick_profile("ollama:qwen3:8b"), missing=lambda _: None),
    ),
    "models.ollama.mid": Probe("qwen3:32b", is_better),
    "models.ollama.small": Probe("qwen3:1b", helps("ollama:qwen3:8b")),
    "agentic.small_model": Probe("gemini-2.5-flash", helps("claude-opus-5-5")),
    "context.memory_budget_tokens": Probe(
        8_192, lambda settings, _: configured_model(settings, "ollama:qwen3:8b").profile.window
    ),
    "ollama.host": Probe("http://10.0.0.7:11434", lambda settings, _: address_of(local_models(settings).host)),
    "tiers.frontier": Probe(["haiku"], tier_of(SMALL)),
    "tiers.mid": Probe(["haiku"], tier_of(SMALL)),
    "tiers.small": Probe(["my-model"], tier_of("claude-my-model")),
    "safety.small_tier_parent": Probe("refuse", told_of_small_model),
    "watchdog.repeated_calls": Probe(3, alerts(*many(CALLED))),
    "watchdog.tools_without_text": Probe(7, alerts(*many(CALLED)), {"watchdog.repeated_calls": 0}),
    "watchdog.files_not_touched": Probe(7, alerts(*many(LOOKED))),
    "watchdog.context_growth_share": Probe(
        0.2, alerts(UserSpoke(), *(ModelAnswered(tokens=tokens, window=100) for tokens in (1, 30, 60, 90)))
    ),
    "watchdog.cost_burn_usd_per_minute": Probe(
        1.0, alerts(UserSpoke(1.0), *(ModelAnswered(cost_usd=2.0, time=61.0) for _ in range(4)))
    ),
}
