"""tui-agent: a terminal agent that never loses the thread.

The names below are the library: a session is opened with `open_session`, its `Agent` runs turns as typed `events`.
They are imported when they are first used, so that the command answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tui_agent.version import __version__ as __version__

if TYPE_CHECKING:
    from tui_agent.agent import events as events
    from tui_agent.agent.agent import Agent as Agent
    from tui_agent.agent.agent import AgentBusy as AgentBusy
    from tui_agent.agent.watchdog import Signal as Signal
    from tui_agent.agent.watchdog import Watchdog as Watchdog
    from tui_agent.agent.watchdog import default_watchdog as default_watchdog
    from tui_agent.arguments import Arguments as Arguments
    from tui_agent.context.changes import Outlook as Outlook
    from tui_agent.context.effects import Refusal as Refusal
    from tui_agent.context.stats import ContextStats as ContextStats
    from tui_agent.context.summary.writing import CompactionResult as CompactionResult
    from tui_agent.context.summary.writing import Draft as Draft
    from tui_agent.models.base import Model as Model
    from tui_agent.session import Session as Session
    from tui_agent.session import open_session as open_session
    from tui_agent.settings import load_settings as load_settings
    from tui_agent.tools.base import PermissionAnswer as PermissionAnswer
    from tui_agent.tools.base import PermissionQuestion as PermissionQuestion
    from tui_agent.tools.base import Tool as Tool
    from tui_agent.tools.subtasks import SubtaskResult as SubtaskResult
    from tui_agent.tools.subtasks import SubtaskSpec as SubtaskSpec

_PLACES = {
    "Agent": "agent.agent",
    "AgentBusy": "agent.agent",
    "Arguments": "arguments",
    "CompactionResult": "agent.upkeep",
    "ContextStats": "context.stats",
    "Draft": "agent.drafts",
    "Model": "models.base",
    "Outlook": "context.asked",
    "PermissionAnswer": "tools.base",
    "PermissionQuestion": "tools.base",
    "Refusal": "context.refusal",
    "Session": "session",
    "Signal": "agent.watchdog",
    "SubtaskResult": "agent.subtasks",
    "SubtaskSpec": "agent.subtasks",
    "Tool": "tools.base",
    "Watchdog": "agent.watchdog",
    "default_watchdog": "agent.watchdog",
    "load_settings": "settings",
    "open_session": "session",
}

__all__ = [*_PLACES, "events"]  # noqa: PLE0604 (names that are imported when they are used)


def __getattr__(name: str) -> object:
    if name == "events":
        return import_module("tui_agent.agent.events")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"tui_agent.{place}"), name)
    return found
