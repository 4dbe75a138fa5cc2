"""tui-agent: a coding agent for the terminal that shows what its model sees, and can undo every step.

The names below are the library (docs/library.md): an `Agent` runs turns as typed `events` over a `ContextEngine`, which
can also be used alone. They are imported when they are first used, so that the command answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tui_agent.version import __version__ as __version__

if TYPE_CHECKING:
    from tui_agent.agent import events as events
    from tui_agent.agent.agent import Agent as Agent
    from tui_agent.agent.history.branches import Branch as Branch
    from tui_agent.agent.turn.steps import Checkpointer as Checkpointer
    from tui_agent.agent.turn.steps import Compactor as Compactor
    from tui_agent.agent.turn.turns import AgentBusy as AgentBusy
    from tui_agent.agent.turn.turns import NotRunning as NotRunning
    from tui_agent.agent.turn.watchdog import Signal as Signal
    from tui_agent.agent.turn.watchdog import Watchdog as Watchdog
    from tui_agent.agent.turn.watchdog import default_watchdog as default_watchdog
    from tui_agent.arguments import Arguments as Arguments
    from tui_agent.context import effects as effects
    from tui_agent.context.changes import Outlook as Outlook
    from tui_agent.context.compaction.draft import Draft as Draft
    from tui_agent.context.compaction.writing import CompactionResult as CompactionResult
    from tui_agent.context.effects import MemoryHost as MemoryHost
    from tui_agent.context.effects import Refusal as Refusal
    from tui_agent.context.effects import carry_out as carry_out
    from tui_agent.context.engine import ContextEngine as ContextEngine
    from tui_agent.context.engine import Layer as Layer
    from tui_agent.context.stats import ContextStats as ContextStats
    from tui_agent.conversation import blocks as blocks
    from tui_agent.conversation import entries as entries
    from tui_agent.conversation.log import Log as Log
    from tui_agent.conversation.profile import ModelProfile as ModelProfile
    from tui_agent.conversation.request import ModelRequest as ModelRequest
    from tui_agent.conversation.request import RequestMessage as RequestMessage
    from tui_agent.conversation.view import View as View
    from tui_agent.models import forms as forms
    from tui_agent.models.base import Completed as Completed
    from tui_agent.models.base import ContextOverflow as ContextOverflow
    from tui_agent.models.base import Model as Model
    from tui_agent.models.base import ModelError as ModelError
    from tui_agent.models.base import ReasoningDelta as ReasoningDelta
    from tui_agent.models.base import TextDelta as TextDelta
    from tui_agent.session import Session as Session
    from tui_agent.session import open_session as open_session
    from tui_agent.settings import Settings as Settings
    from tui_agent.settings import load_settings as load_settings
    from tui_agent.storage.log import LogStore as LogStore
    from tui_agent.storage.store import MemoryStore as MemoryStore
    from tui_agent.storage.store import Store as Store
    from tui_agent.tools.base import PermissionAnswer as PermissionAnswer
    from tui_agent.tools.base import PermissionQuestion as PermissionQuestion
    from tui_agent.tools.base import Tool as Tool
    from tui_agent.tools.base import ToolContext as ToolContext
    from tui_agent.tools.base import ToolFailure as ToolFailure
    from tui_agent.tools.base import ToolOutput as ToolOutput
    from tui_agent.tools.functions import tool as tool
    from tui_agent.tools.subtasks import SubtaskResult as SubtaskResult
    from tui_agent.tools.subtasks import SubtaskSpec as SubtaskSpec

_PLACES = {
    "Agent": "agent.agent",
    "AgentBusy": "agent.turn.turns",
    "Arguments": "arguments",
    "Branch": "agent.history.branches",
    "Checkpointer": "agent.turn.steps",
    "CompactionResult": "context.compaction.writing",
    "Compactor": "agent.turn.steps",
    "Completed": "models.base",
    "ContextEngine": "context.engine",
    "ContextOverflow": "models.base",
    "ContextStats": "context.stats",
    "Draft": "context.compaction.draft",
    "Layer": "context.engine",
    "Log": "conversation.log",
    "LogStore": "storage.log",
    "MemoryHost": "context.effects",
    "MemoryStore": "storage.store",
    "Model": "models.base",
    "ModelError": "models.base",
    "ModelProfile": "conversation.profile",
    "ModelRequest": "conversation.request",
    "NotRunning": "agent.turn.turns",
    "Outlook": "context.changes",
    "PermissionAnswer": "tools.base",
    "PermissionQuestion": "tools.base",
    "ReasoningDelta": "models.base",
    "Refusal": "context.effects",
    "RequestMessage": "conversation.request",
    "Session": "session",
    "Settings": "settings",
    "Signal": "agent.turn.watchdog",
    "Store": "storage.store",
    "SubtaskResult": "tools.subtasks",
    "SubtaskSpec": "tools.subtasks",
    "TextDelta": "models.base",
    "Tool": "tools.base",
    "ToolContext": "tools.base",
    "ToolFailure": "tools.base",
    "ToolOutput": "tools.base",
    "View": "conversation.view",
    "Watchdog": "agent.turn.watchdog",
    "carry_out": "context.effects",
    "default_watchdog": "agent.turn.watchdog",
    "load_settings": "settings",
    "open_session": "session",
    "tool": "tools.functions",
}
_MODULES = {
    "blocks": "conversation.blocks",
    "effects": "context.effects",
    "entries": "conversation.entries",
    "events": "agent.events",
    "forms": "models.forms",
}

__all__ = [*_PLACES, *_MODULES]  # noqa: PLE0604 (names that are imported when they are used)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tui_agent.{_MODULES[name]}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"tui_agent.{place}"), name)
    return found
