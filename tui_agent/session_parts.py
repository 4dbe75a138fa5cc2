"""What a session is made of: its model's name, its tools, its gate, and what it learned of token counts."""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.cost_ceiling import CostCeiling, Limit
from tui_agent.agent.guards import Watch
from tui_agent.agent.knowledge import IndexLimits, Knowledge, Places
from tui_agent.agent.observations import Observer
from tui_agent.agent.record import Record
from tui_agent.agent.task_class import (
    compaction_threshold,
    configured_model,
    larger_model,
    model_of_tier,
    permission_mode,
)
from tui_agent.agent.watchdog import Watchdog, default_watchdog
from tui_agent.arguments import Arguments
from tui_agent.context.calibration import Ratios
from tui_agent.context.handover import Prompts
from tui_agent.context.manager import ContextManager
from tui_agent.conversation.entries import AnyEntry
from tui_agent.models.base import Model
from tui_agent.models.catalogue import missing_key
from tui_agent.models.usage import UsageTracker
from tui_agent.resources import prompt_text
from tui_agent.settings import Settings
from tui_agent.storage.durable import write_file
from tui_agent.tools.base import Ask, Effect, Tool
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.paging import PageLimits
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mark_task_done import MarkTaskDone
from tui_agent.tools.notes.memory import Memory, Notes, memory_folder
from tui_agent.tools.notes.skills import SkillFolder
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.web.fetch_url import FetchUrl
from tui_agent.trust import PROJECT_FOLDER

SKILLS_FOLDER: Final = "skills"
REMEMBERED_FILE: Final = "permissions.json"
RATIOS_FILE: Final = "token-ratios.json"


def places_of(settings: Settings, arguments: Arguments) -> Places:
    """Where the session finds instructions, skills and memory; of an untrusted project only what is the user's own."""
    own = SkillFolder(arguments.home / SKILLS_FOLDER)
    project = SkillFolder(arguments.project / PROJECT_FOLDER / SKILLS_FOLDER, within=arguments.project)
    return Places(
        root=arguments.project,
        folder=arguments.folder.resolve(),
        names=settings.context.instruction_files if arguments.trusted else (),
        skills=(project, own) if arguments.trusted else (own,),
        notes=Notes(memory_folder(arguments.home, arguments.project)),
    )


def knowledge_of(settings: Settings, places: Places) -> Knowledge:
    """What is known at these places, within the settings' limits."""
    context = settings.context
    return Knowledge(places, IndexLimits(context.skills_index_tokens, context.memory_index_tokens))


def tools_of(settings: Settings, gate: PermissionGate, notes: Notes, background: BackgroundCommands) -> list[Tool]:
    """What the model can call."""
    output = settings.output
    pages = PageLimits(output.max_lines, output.max_bytes, output.max_chars)
    commands = RunCommand(
        stream_bytes=output.stream_bytes, raw_stream_bytes=output.raw_stream_bytes, background=background
    )
    tools: list[Tool] = [ReadFile(pages), WriteFile(), EditFile(), ListDir(), Glob(), Grep(), commands]
    tools += [CommandOutput(background), StopCommand(background), FetchUrl(gate), Memory(notes)]
    if settings.checkpoints.enabled:
        tools.append(MarkTaskDone())
    return tools


def gate_of(settings: Settings, arguments: Arguments, workspace: Workspace) -> PermissionGate:
    """The gate, with what the user allowed for good. Raises `RuleError`, `RememberedError`."""
    rules = settings.permissions
    return PermissionGate(
        permission_mode(settings),
        workspace,
        allow=rules.allow,
        ask=rules.ask,
        deny=rules.deny,
        remembered=RememberedRules(arguments.home / REMEMBERED_FILE, arguments.project),
    )


def usage_so_far(entries: list[AnyEntry]) -> UsageTracker:
    """What the conversation has cost so far, on every branch."""
    tracker = UsageTracker()
    tracker.record_log(entries)
    tracker.start_turn()
    return tracker


def ceiling_of(settings: Settings, tracker: UsageTracker) -> CostCeiling:
    """What the session and its subtasks may cost."""
    return CostCeiling(Limit(settings.agent.max_turn_cost_usd, settings.agent.max_session_cost_usd), tracker)


def watch_of(
    settings: Settings,
    record: Record,
    tracker: UsageTracker,
    registry: ToolRegistry,
    ask: Ask,
    watchdog: Watchdog | None = None,
) -> Watch:
    """The watchdog over a conversation, by default the built-in one; silent where guards are to show no notices."""
    mode = settings.watchdog.mode

    def effect_of(name: str) -> Effect:
        return registry.get(name).effect if name in registry else "none"

    return Watch(
        watchdog or default_watchdog(settings.watchdog),
        Observer(record.view, tracker, effect_of),
        "off" if mode == "warn" and not settings.safety.notices else mode,
        ask,
        lambda profile: larger_model(settings, profile),
    )


def manager_of(settings: Settings, home: Path, kept: Collection[str] = ()) -> ContextManager:
    """The context manager, with what earlier sessions learned of how models count. Reads a file.

    What is read from the folders `kept` is never cleared.
    """
    return ContextManager(
        settings,
        Prompts(**{name: prompt_text(name) for name in Prompts.__struct_fields__}),
        ratios=Ratios(_known_ratios(home / RATIOS_FILE)),
        task_threshold=compaction_threshold(settings),
        checkpoints=settings.checkpoints.enabled,
        memory_folders=kept,
    )


def keep_ratios(manager: ContextManager, home: Path) -> None:
    """Keep what was learned for the next session; a disk that takes nothing costs only that."""
    with contextlib.suppress(OSError):
        write_file(home / RATIOS_FILE, json.dumps(manager.meter.ratios.export()).encode())


def _known_ratios(path: Path) -> dict[str, list[float]]:
    """What earlier sessions learned; nothing where the file is missing or damaged, for it will be learned again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[float]])
    except (OSError, msgspec.DecodeError):
        return {}


class SmallModels:
    """The cheaper model beside each provider's, made when it is first wanted; None where there is none to ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str, Model] = {}

    def __call__(self, provider: str) -> Model | None:
        name = self._settings.agentic.small_model or model_of_tier(self._settings, provider, "small")
        if name and name not in self._models and missing_key(name) is None:
            self._models[name] = configured_model(self._settings, name)
        return self._models.get(name)

    async def close(self) -> None:
        """Release their connections."""
        for model in self._models.values():
            await model.close()
