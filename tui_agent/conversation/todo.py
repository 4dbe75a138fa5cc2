"""The task list that the model keeps with the tool `todo`, as recorded in the log. All of it is untrusted text.

The current list is that of the newest successful call on the conversation's branch, or of a plan approved after it. It
is read from the log, not from the view: a summary that hides the call does not change the list.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.conversation.log import Log
from tui_agent.conversation.plan import PLAN
from tui_agent.system.lenient import decoded

TODO: Final = "todo"
"""The tool's name."""

TodoState: TypeAlias = Literal["pending", "in_progress", "done"]

MARKS: Final[dict[TodoState, str]] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}
"""The states as plain text."""


class TodoItem(msgspec.Struct, frozen=True):
    """An item of the task list."""

    text: Annotated[str, Meta(description="What is to be done, in a few words.")]
    state: Annotated[TodoState, Meta(description="One item is in_progress at a time.")]

    @property
    def line(self) -> str:
        """The item on one line: ``[x] read the parser``."""
        return f"{MARKS[self.state]} {' '.join(self.text.split())}"


class TodoList(msgspec.Struct, frozen=True):
    """A whole task list, in the model's order."""

    items: tuple[TodoItem, ...]

    @property
    def done(self) -> int:
        return sum(item.state == "done" for item in self.items)

    @property
    def current(self) -> TodoItem | None:
        """The item in progress, else the first pending one; None if all are done."""
        in_progress = (item for item in self.items if item.state == "in_progress")
        pending = (item for item in self.items if item.state == "pending")
        return next(in_progress, None) or next(pending, None)

    @property
    def progress(self) -> str:
        """Done items and all items: ``2/5``."""
        return f"{self.done}/{len(self.items)}"


def newest_todo(log: Log) -> TodoList:
    """The current list at the log's head; empty before the first call.

    Calls that were refused, stopped or not answered yet do not count. Reads the entries since the call that does.
    """
    carried_out: set[str] = set()
    approved: dict[str, TodoList] = {}
    for entry in log.back():
        if not isinstance(entry, Message):
            continue
        for block in reversed(entry.blocks):
            match block:
                case ToolResult(is_error=False):
                    carried_out.add(block.call_id)
                    if entry.outcome.steps:
                        approved[block.call_id] = _begun(entry.outcome.steps)
                case Text() if entry.outcome.steps:
                    return _begun(entry.outcome.steps)
                case ToolCall(name=name) if name == PLAN and block.id in approved:
                    return approved[block.id]
                case ToolCall() if block.id in carried_out:
                    carried_out.discard(block.id)
                    if block.name == TODO and (found := decoded(block.arguments, TodoList)) is not None:
                        return found
    return TodoList(())


def _begun(steps: tuple[str, ...]) -> TodoList:
    return TodoList(tuple(TodoItem(step, "pending") for step in steps))
