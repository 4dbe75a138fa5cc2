"""What a session is made of: its model's name, its tools, its gate, and what it learned of token counts."""

import contextlib
import json
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.arguments import Arguments
from tui_agent.context.calibration import Ratios
from tui_agent.context.handover import Prompts
from tui_agent.context.manager import ContextManager
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Checkpointed, Message, Summarized
from tui_agent.conversation.view import View
from tui_agent.models.base import Model
from tui_agent.models.catalogue import create_model, missing_key
from tui_agent.models.usage import UsageTracker
from tui_agent.resources import prompt_text
from tui_agent.settings import PermissionMode, Settings, TaskClass, TierModels
from tui_agent.storage.durable import write_file
from tui_agent.tools.base import Tool
from tui_agent.tools.edits import EditFile, WriteFile
from tui_agent.tools.files import ListDir, ReadFile
from tui_agent.tools.paging import PageLimits
from tui_agent.tools.permissions import PermissionGate
from tui_agent.tools.remembered import RememberedRules
from tui_agent.tools.search import Glob, Grep
from tui_agent.tools.shell import RunCommand
from tui_agent.tools.tasks import MarkTaskDone
from tui_agent.tools.workspace import Workspace

REMEMBERED_FILE: Final = "permissions.json"
RATIOS_FILE: Final = "token-ratios.json"


def model_name(settings: Settings, view: View) -> str:
    """A flag's model, else the conversation's own, else the configured one, else the best there is a key for."""
    if settings.source("model.id").startswith("--") or (settings.model.id and not view.model):
        return settings.model.id
    if view.model:
        return view.model
    task = task_class(settings)
    tier = task.tier if task else "mid"
    for provider, models in (("anthropic", settings.models.anthropic), ("gemini", settings.models.gemini)):
        name = f"{provider}:{getattr(models, tier)}"
        if missing_key(name) is None:
            return name
    return "offline"


def task_class(settings: Settings) -> TaskClass | None:
    """The class of work the user named."""
    name = settings.session.task_class
    return getattr(settings.tasks, name) if name else None


def _mode(settings: Settings) -> PermissionMode:
    task = task_class(settings)
    return task.mode if task and not settings.is_set("permissions.mode") else settings.permissions.mode


def told_notices(entries: list[AnyEntry]) -> list[str]:
    """The notices the model was given."""
    notices = (entry for entry in entries if isinstance(entry, Message) and entry.kind == "notice")
    return [block.text for message in notices for block in message.blocks if isinstance(block, Text)]


def tools_of(settings: Settings) -> list[Tool]:
    """What the model can call."""
    output = settings.output
    pages = PageLimits(output.max_lines, output.max_bytes, output.max_chars)
    commands = RunCommand(stream_bytes=output.stream_bytes, raw_stream_bytes=output.raw_stream_bytes)
    tools: list[Tool] = [ReadFile(pages), WriteFile(), EditFile(), ListDir(), Glob(), Grep(), commands]
    if settings.checkpoints.enabled:
        tools.append(MarkTaskDone())
    return tools


def gate_of(settings: Settings, arguments: Arguments, workspace: Workspace) -> PermissionGate:
    """The gate, with what the user allowed for good. Raises `RuleError`, `RememberedError`."""
    rules = settings.permissions
    return PermissionGate(
        _mode(settings),
        workspace,
        allow=rules.allow,
        ask=rules.ask,
        deny=rules.deny,
        remembered=RememberedRules(arguments.home / REMEMBERED_FILE, arguments.project),
    )


def usage_so_far(entries: list[AnyEntry]) -> UsageTracker:
    """What the conversation has cost so far, on every branch."""
    tracker = UsageTracker()
    for entry in entries:
        if isinstance(entry, Message | Summarized | Checkpointed) and entry.usage is not None:
            tracker.record(entry.model, entry.usage, entry.cost_usd)
    tracker.start_turn()
    return tracker


def manager_of(settings: Settings, home: Path) -> ContextManager:
    """The context manager, with what earlier sessions learned of how models count. Reads a file."""
    task = task_class(settings)
    return ContextManager(
        settings,
        Prompts(**{name: prompt_text(name) for name in Prompts.__struct_fields__}),
        ratios=Ratios(_known_ratios(home / RATIOS_FILE)),
        task_threshold=task.threshold if task else None,
        checkpoints=settings.checkpoints.enabled,
    )


def keep_ratios(manager: ContextManager, home: Path) -> None:
    """Keep what was learned for the next session; a disk that takes nothing costs only that."""
    with contextlib.suppress(OSError):
        write_file(home / RATIOS_FILE, json.dumps(manager.gauge.ratios.export()).encode())


def _known_ratios(path: Path) -> dict[str, list[float]]:
    """What earlier sessions learned; nothing where the file is missing or damaged, for it will be learned again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[float]])
    except (OSError, msgspec.DecodeError):
        return {}


class SmallModel:
    """The cheaper model of a session's provider, made when it is first wanted; None where there is none to ask."""

    def __init__(self, settings: Settings, provider: str) -> None:
        self._name = settings.agentic.small_model or _small_of(settings, provider)
        self._model: Model | None = None

    def __call__(self) -> Model | None:
        if self._model is None and self._name and missing_key(self._name) is None:
            self._model = create_model(self._name)
        return self._model

    async def close(self) -> None:
        """Release its connections."""
        if self._model is not None:
            await self._model.close()


def _small_of(settings: Settings, provider: str) -> str:
    models = getattr(settings.models, provider, None)
    return (
        f"{provider}:{models.small}"
        if isinstance(models, TierModels) and models.small and provider != "offline"
        else ""
    )
