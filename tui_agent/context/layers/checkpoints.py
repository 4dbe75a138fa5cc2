"""Checkpoints: a finished task becomes its completion record.

The task is everything since the last boundary, up to and including the step that declared it done. `plan_checkpoint`
returns the same kind of plan as a compaction, and `summary.plan.accept` takes its text. The model declares a task done
with the tool `mark_task_done`, which only sets a flag: the next turn writes the record before anything else. What the
model said after the declaration stays in view.
"""

from typing import Final, NamedTuple

import msgspec

from tui_agent.context.compaction.plan import Plan, plan_checkpoint
from tui_agent.context.economics import Situation
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Block, ToolCall
from tui_agent.conversation.entries import Checkpointed, Message
from tui_agent.conversation.groups import Group
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

TASK_DONE: Final = "mark_task_done"


class Checkpoints:
    """The layer. Reads each entry of the log once."""

    name = "checkpoints"

    def __init__(self, settings: Settings, *, on: bool) -> None:
        self.on = on
        self._settings = settings.compaction
        self._off = settings.context.preset == "off"
        self._declarations = Declarations()

    def follow(self, settings: Settings) -> None:
        """Decide by these settings from now on."""
        self._settings = settings.compaction

    def plan(self, view: View, situation: Situation) -> Plan | None:
        """The record of a task that the model has declared done, due at the start of the next turn."""
        if not self.on or self._off or not situation.between_turns:
            return None
        task = self._declarations.newest(view)
        if task is None:
            return None
        reason = "the model declared the task done"
        plan = plan_checkpoint(view, situation, self._settings, step=task.step, note=task.detail, reason=reason)
        return None if isinstance(plan, Refusal) else plan


class Declared(NamedTuple):
    """A declaration that a task is done: the first entry of its step, and the model's description."""

    step: int
    detail: str


class Declarations:
    """Finds the model's declarations in one conversation; reads each entry once."""

    def __init__(self) -> None:
        self._read = 0
        self._steps: list[int] = []

    def newest(self, view: View) -> Declared | None:
        """The same as `declared`, without a search if nothing was declared since the last record."""
        for seq in range(self._read + 1, len(view.log) + 1):
            entry = view.log[seq]
            if isinstance(entry, Message) and _declares(entry.blocks):
                self._steps.append(seq)
        self._read = len(view.log)
        recorded = _records(view)
        if all(any(entry.first <= step <= entry.last for entry in recorded) for step in self._steps):
            return None
        return declared(view)


def _declares(blocks: tuple[Block, ...]) -> bool:
    return any(isinstance(block, ToolCall) and block.name == TASK_DONE for block in blocks)


def _records(view: View) -> list[Checkpointed]:
    return [entry for entry, _ in view.context_entries() if isinstance(entry, Checkpointed)]


def declared(view: View) -> Declared | None:
    """The newest declaration in view without a record, undone ones included. Searches the whole view."""
    recorded = _records(view)
    for group in reversed(view.groups()):
        detail = _detail(group)
        if detail is None:
            continue
        if any(entry.first <= group.first <= entry.last for entry in recorded):
            return None
        return Declared(group.first, detail)
    return None


def _detail(group: Group) -> str | None:
    for segment in group.segments:
        for block in segment.blocks:
            if isinstance(block, ToolCall) and block.name == TASK_DONE:
                arguments = msgspec.json.decode(block.arguments)
                detail = arguments.get("detail", "") if isinstance(arguments, dict) else ""
                return detail if isinstance(detail, str) else ""
    return None
