"""tui-agent: a coding agent for the terminal that shows what its model sees, and can undo every step.

The names below are the library (docs/library.md): an `Agent` runs turns as typed `events` over a `ContextEngine`, which
can also be used alone. They are imported when they are first used, so that the command answers at once.
"""

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from tui_agent.version import __version__ as __version__

if TYPE_CHECKING:
    from tui_agent.agent import events as events
    from tui_agent.agent.agent import Agent as Agent
    from tui_agent.agent.agent import AgentOptions as AgentOptions
    from tui_agent.agent.answers import TurnError as TurnError
    from tui_agent.agent.branches import Branch as Branch
    from tui_agent.agent.branches import Branches as Branches
    from tui_agent.agent.branches import EarlierPrompt as EarlierPrompt
    from tui_agent.agent.context import AgentContext as AgentContext
    from tui_agent.agent.context import Overview as Overview
    from tui_agent.agent.context import Step as Step
    from tui_agent.agent.context import SwitchPreview as SwitchPreview
    from tui_agent.agent.context import WindowFill as WindowFill
    from tui_agent.agent.files import ChangedFiles as ChangedFiles
    from tui_agent.agent.history.calls import CallHistory as CallHistory
    from tui_agent.agent.history.calls import CallRecord as CallRecord
    from tui_agent.agent.history.calls import ViewAtCall as ViewAtCall
    from tui_agent.agent.history.file_history import PutBackDone as PutBackDone
    from tui_agent.agent.persistence import DiskPersistence as DiskPersistence
    from tui_agent.agent.persistence import Persistence as Persistence
    from tui_agent.agent.turn import watchdog as watchdog
    from tui_agent.agent.turn.guards import Limits as Limits
    from tui_agent.agent.turn.steps import Checkpointer as Checkpointer
    from tui_agent.agent.turn.steps import Compactor as Compactor
    from tui_agent.agent.turn.toolbox import AfterTool as AfterTool
    from tui_agent.agent.turn.toolbox import BeforeModel as BeforeModel
    from tui_agent.agent.turn.toolbox import BeforeTool as BeforeTool
    from tui_agent.agent.turn.turns import AgentBusy as AgentBusy
    from tui_agent.agent.turn.turns import AgentClosed as AgentClosed
    from tui_agent.agent.turn.turns import NotRunning as NotRunning
    from tui_agent.agent.turn.turns import Turns as Turns
    from tui_agent.agent.turn.watchdog import Signal as Signal
    from tui_agent.agent.turn.watchdog import SignalWatchdog as SignalWatchdog
    from tui_agent.agent.turn.watchdog import Watchdog as Watchdog
    from tui_agent.agent.turn.watchdog import WatchdogAlert as WatchdogAlert
    from tui_agent.agent.turn.watchdog import default_watchdog as default_watchdog
    from tui_agent.arguments import Arguments as Arguments
    from tui_agent.context import effects as effects
    from tui_agent.context.before_expiry import ExpirySummary as ExpirySummary
    from tui_agent.context.budget import Budget as Budget
    from tui_agent.context.budget import ModelLimits as ModelLimits
    from tui_agent.context.budget import Threshold as Threshold
    from tui_agent.context.budget import Thresholds as Thresholds
    from tui_agent.context.budget import Window as Window
    from tui_agent.context.cache_life import CacheState as CacheState
    from tui_agent.context.cache_life import PauseCounts as PauseCounts
    from tui_agent.context.cache_life import Pauses as Pauses
    from tui_agent.context.cache_life import PrefixCache as PrefixCache
    from tui_agent.context.cache_watch import ColdCache as ColdCache
    from tui_agent.context.changes import StepPreview as StepPreview
    from tui_agent.context.compaction.draft import Draft as Draft
    from tui_agent.context.compaction.forms import Prompts as Prompts
    from tui_agent.context.compaction.plan import Plan as Plan
    from tui_agent.context.counting import Ratios as Ratios
    from tui_agent.context.economics import Situation as Situation
    from tui_agent.context.economics import StepPrice as StepPrice
    from tui_agent.context.effects import AsyncMemoryHost as AsyncMemoryHost
    from tui_agent.context.effects import MemoryHost as MemoryHost
    from tui_agent.context.effects import Refusal as Refusal
    from tui_agent.context.effects import carry_out as carry_out
    from tui_agent.context.effects import carry_out_async as carry_out_async
    from tui_agent.context.engine import ContextEngine as ContextEngine
    from tui_agent.context.forecast import Forecast as Forecast
    from tui_agent.context.forecast import StepAhead as StepAhead
    from tui_agent.context.layers.digests import DigestPlan as DigestPlan
    from tui_agent.context.layers.due import Layer as Layer
    from tui_agent.context.layers.limits import Cut as Cut
    from tui_agent.context.layers.limits import Evicted as Evicted
    from tui_agent.context.layers.limits import Uncut as Uncut
    from tui_agent.context.requests import Prepared as Prepared
    from tui_agent.context.stats import ContextStats as ContextStats
    from tui_agent.conversation import blocks as blocks
    from tui_agent.conversation import entries as entries
    from tui_agent.conversation.fold import KeptWords as KeptWords
    from tui_agent.conversation.fold import MeasuredCall as MeasuredCall
    from tui_agent.conversation.items import Item as Item
    from tui_agent.conversation.items import Items as Items
    from tui_agent.conversation.log import Entries as Entries
    from tui_agent.conversation.log import Log as Log
    from tui_agent.conversation.profile import ModelProfile as ModelProfile
    from tui_agent.conversation.profile import Prices as Prices
    from tui_agent.conversation.profile import Rates as Rates
    from tui_agent.conversation.recalled import RecallHit as RecallHit
    from tui_agent.conversation.recalled import RecallHits as RecallHits
    from tui_agent.conversation.request import ModelRequest as ModelRequest
    from tui_agent.conversation.request import ReasoningPolicy as ReasoningPolicy
    from tui_agent.conversation.request import RequestHead as RequestHead
    from tui_agent.conversation.request import RequestMessage as RequestMessage
    from tui_agent.conversation.request import RequestStart as RequestStart
    from tui_agent.conversation.sizes import TextSize as TextSize
    from tui_agent.conversation.states import Counts as Counts
    from tui_agent.conversation.tasks import TodoItem as TodoItem
    from tui_agent.conversation.tasks import TodoList as TodoList
    from tui_agent.conversation.view import Group as Group
    from tui_agent.conversation.view import LiveResult as LiveResult
    from tui_agent.conversation.view import View as View
    from tui_agent.models import forms as forms
    from tui_agent.models.base import AuthFailed as AuthFailed
    from tui_agent.models.base import Completed as Completed
    from tui_agent.models.base import ConnectionLost as ConnectionLost
    from tui_agent.models.base import ContextOverflow as ContextOverflow
    from tui_agent.models.base import InvalidRequest as InvalidRequest
    from tui_agent.models.base import Metered as Metered
    from tui_agent.models.base import Model as Model
    from tui_agent.models.base import ModelError as ModelError
    from tui_agent.models.base import ModelRetrying as ModelRetrying
    from tui_agent.models.base import Overloaded as Overloaded
    from tui_agent.models.base import RateLimited as RateLimited
    from tui_agent.models.base import ReasoningDelta as ReasoningDelta
    from tui_agent.models.base import StreamEvent as StreamEvent
    from tui_agent.models.base import TextDelta as TextDelta
    from tui_agent.models.base import ToolCallDelta as ToolCallDelta
    from tui_agent.models.base import Unavailable as Unavailable
    from tui_agent.models.base import UnknownModel as UnknownModel
    from tui_agent.models.catalogue import create_model as create_model
    from tui_agent.models.usage import Speed as Speed
    from tui_agent.models.usage import Totals as Totals
    from tui_agent.models.usage import UsageTracker as UsageTracker
    from tui_agent.session import Session as Session
    from tui_agent.session import open_session as open_session
    from tui_agent.settings import Settings as Settings
    from tui_agent.settings import load_settings as load_settings
    from tui_agent.settings.sources import Override as Override
    from tui_agent.storage.artifacts import Artifacts as Artifacts
    from tui_agent.storage.errors import StorageError as StorageError
    from tui_agent.storage.log import LogStore as LogStore
    from tui_agent.storage.store import MemoryStore as MemoryStore
    from tui_agent.storage.store import MemoryTexts as MemoryTexts
    from tui_agent.storage.store import Store as Store
    from tui_agent.storage.store import Texts as Texts
    from tui_agent.tools.base import Access as Access
    from tui_agent.tools.base import Ask as Ask
    from tui_agent.tools.base import Change as Change
    from tui_agent.tools.base import Effect as Effect
    from tui_agent.tools.base import PermissionAnswer as PermissionAnswer
    from tui_agent.tools.base import PermissionQuestion as PermissionQuestion
    from tui_agent.tools.base import Preview as Preview
    from tui_agent.tools.base import SubtaskProgress as SubtaskProgress
    from tui_agent.tools.base import Tool as Tool
    from tui_agent.tools.base import ToolContext as ToolContext
    from tui_agent.tools.base import ToolFailure as ToolFailure
    from tui_agent.tools.base import ToolOutput as ToolOutput
    from tui_agent.tools.base import WorkspaceView as WorkspaceView
    from tui_agent.tools.files.editing import Buffers as Buffers
    from tui_agent.tools.files.put_back import FileStep as FileStep
    from tui_agent.tools.files.put_back import PutBack as PutBack
    from tui_agent.tools.functions import FunctionTool as FunctionTool
    from tui_agent.tools.functions import tool as tool
    from tui_agent.tools.gate.judging import Judgement as Judgement
    from tui_agent.tools.gate.permissions import Confinement as Confinement
    from tui_agent.tools.gate.permissions import GrantedRule as GrantedRule
    from tui_agent.tools.gate.permissions import History as History
    from tui_agent.tools.gate.permissions import NobodyToAsk as NobodyToAsk
    from tui_agent.tools.gate.permissions import PermissionGate as PermissionGate
    from tui_agent.tools.gate.permissions import Verdict as Verdict
    from tui_agent.tools.gate.remembered import RememberedRules as RememberedRules
    from tui_agent.tools.gate.rules import Rule as Rule
    from tui_agent.tools.gate.workspace import Workspace as Workspace
    from tui_agent.tools.subtasks import SubtaskResult as SubtaskResult
    from tui_agent.tools.subtasks import SubtaskSpec as SubtaskSpec

    __all__: list[str]


@cache
def _places() -> dict[str, str]:
    """The module of each public name, as the imports above say."""
    import re
    from inspect import getsource

    found = re.findall(r"^    from (tui_agent\.[\w.]+) import (\w+) as", getsource(sys.modules[__name__]), re.MULTILINE)
    return {name: module for module, name in found}


if not TYPE_CHECKING:  # which knows the names above, and no others

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return list(_places())
        # What asks for another name with underscores, such as `__path__`, is the machinery of imports.
        if name.startswith("__") or name not in _places():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_places()[name])
        found: object = getattr(module, name, None) or import_module(f"{module.__name__}.{name}")
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_places()})
