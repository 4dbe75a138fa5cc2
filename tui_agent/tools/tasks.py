"""How the model reports on its work: its task list (`todo`), that a task is finished (`mark_task_done`), and where a
bounded piece of work begins and ends (`episode`).
"""

from typing_extensions import override

from tui_agent.conversation.tasks import EPISODE, MOST_OPEN, TODO, TodoItem, TodoList, episodes
from tui_agent.conversation.view import View
from tui_agent.tools.base import ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.built_in import BuiltIn
from tui_agent.tools.gate.workspace import shown

MAX_ITEMS = 50
"""The most items of a list; nobody reads a longer one again."""


class Todo(BuiltIn):
    """Only checks its arguments: the call itself, as logged, is the task list."""

    name = TODO

    @override
    async def _do(self, _context: ToolContext, /, items: list[TodoItem]) -> ToolOutput:
        """Keep the task list of work that takes three or more steps. The user sees it, and it outlasts a summary.

        Send it before you begin, and again whenever a state changes or a step is added or dropped.

        Args:
            items: Always the whole list in order, done items too; an empty one ends it.
        """
        if len(items) > MAX_ITEMS:
            raise ToolFailure(
                f"todo: {len(items):,} items are more than the {MAX_ITEMS} a list may have.",
                "Join small steps into one item, and leave out what has been done for long.",
            )
        if empty := next((number for number, item in enumerate(items, 1) if not item.text.strip()), 0):
            raise ToolFailure(f"todo: item {empty} has no text.", "Say in `text` what is to be done.")
        kept = TodoList(tuple(items))
        if not items:
            return ToolOutput("Noted: there is no task list any more.", summary="no items")
        if kept.current is None:
            return ToolOutput(f"Noted: all {len(items)} are done.", summary=f"{kept.progress} done")
        return ToolOutput(f"Noted: {kept.done} of {len(items)} done.", summary=f"{kept.progress} done")


class MarkTaskDone(BuiltIn):
    """Only checks its argument: the logged call makes the next turn begin by writing the record of the task."""

    name = "mark_task_done"

    @override
    async def _do(self, _context: ToolContext, /, detail: str) -> ToolOutput:
        """Say that the task the user gave you is finished and checked.

        Call it once, at the natural end of a task, not after each step. A record then takes the place of what was
        looked at, so that the next task has room.

        Args:
            detail: The outcome and what was verified, in one or two sentences.
        """
        if not detail.strip():
            raise ToolFailure("mark_task_done: `detail` is empty.", "Say in `detail` what was done.")
        return ToolOutput("Noted. The record of this task is written when the next one begins.", summary="noted")


class EpisodeTool(BuiltIn):
    """Only checks its arguments against the episodes that are open in `view`: the logged calls are what counts."""

    name = EPISODE

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    @override
    async def _do(self, _context: ToolContext, /, title: str, conclusion: str = "") -> ToolOutput:
        """Open a piece of work whose calls nobody needs once it is done, such as a search; call again to close it.

        When it is closed, its calls and results leave your view; your conclusion stays.

        Args:
            title: Its name, the same to open and to close it.
            conclusion: To close it: all that later work needs of it, such as findings, paths and decisions.
        """
        opened, name = [each.name for each in episodes(self._view)[1]], shown(title, 100)
        named = ", ".join(shown(each, 100) for each in opened)
        open_now = f"Open now: {named}." if opened else "None is open: a summary may have taken its place."
        if conclusion.strip():
            if title not in opened:
                raise ToolFailure(
                    f"episode: none with the name '{name}' is open. {open_now}", "Go on without closing it."
                )
            return ToolOutput("Noted: its calls leave when that is cheap.", summary=f"{name} closed")
        if not title.strip() or title in opened or len(opened) == MOST_OPEN:
            why = f"episode: '{name}' cannot be opened: a name may be open once, and {MOST_OPEN} at a time. {open_now}"
            raise ToolFailure(why, "Close one with its conclusion first.")
        return ToolOutput("Open. Close it with the same name and your conclusion.", summary=f"{name} opened")
