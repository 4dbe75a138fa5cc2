"""What the model keeps of its work with its tools, as recorded in the log: plans and questions to the user, its task
list, and episodes. All of it is untrusted text.

An approved plan becomes the task list. Its steps come with the result of the call if the user answered at once, and
with a message of its own if they answered later. The current list is that of the newest successful call on the
conversation's branch, or of a plan approved after it. It is read from the log, not from the view: a summary that hides
the call does not change the list.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, structs

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.log import Log
from tui_agent.conversation.view import View
from tui_agent.system.lenient import decoded

ASK: Final = "ask_user"
PLAN: Final = "submit_plan"
"""The tools' names."""

UNANSWERED: Final = "[nobody was there to answer: the user's next message is the answer]"

PLAN_BEGUN: Final = (
    "[notice] Plan mode: read and search, but change and run nothing. When you know what should be done, submit it "
    f"with {PLAN}; the user approves it, changes it or sends it back."
)
PLAN_OVER: Final = "[notice] Plan mode is over: you may make changes."

_STEPS_HEADING: Final = "Steps:"


class TaskPlan(msgspec.Struct, frozen=True):
    """A plan in prose, and its steps, each on one line."""

    text: str
    steps: tuple[str, ...]

    def whole(self) -> str:
        """The plan as one text, for people to read and edit."""
        return "\n".join((self.text.strip(), "", _STEPS_HEADING, *(f"- {step}" for step in self.steps)))

    @classmethod
    def read(cls, text: str) -> "TaskPlan":
        """Parse a text from `whole`, possibly edited by a person; without a list of steps, each line is a step."""
        before, found, after = text.rpartition(f"\n{_STEPS_HEADING}\n") if text.strip() else ("", "", "")
        lines = (after if found else text).splitlines()
        steps = tuple(step for line in lines if (step := " ".join(line.strip().removeprefix("- ").split())))
        return cls((before if found else text).strip(), steps)


def approval(plan: TaskPlan, mode: str, *, edited: bool) -> str:
    """The text that tells the model that the user approved its plan, and the permission mode from now on."""
    changed = f"They changed it. It is now:\n\n{plan.text}\n\n" if edited else ""
    tasks = "\n".join(f"[ ] {step}" for step in plan.steps)
    return (
        f"[the user approved the plan; the mode is now {mode}]\n{changed}The task list:\n{tasks}\n"
        "Carry it out, and keep the list with todo."
    )


def waiting_plan(log: Log) -> TaskPlan | None:
    """The plan at the log's head that still waits for an answer, because nobody was there when it was submitted."""
    waiting = ""
    for entry in log.back():
        if not isinstance(entry, Message) or entry.kind not in ("", "tool_result"):
            continue
        if entry.kind == "tool_result":
            if entry.stop_reason == "unanswered":
                waiting = next((block.call_id for block in entry.blocks if isinstance(block, ToolResult)), waiting)
            continue
        calls = (block for block in entry.blocks if isinstance(block, ToolCall))
        asked = next((call for call in calls if call.id == waiting and call.name == PLAN), None)
        found = decoded(asked.arguments, _Arguments) if asked is not None else None
        return TaskPlan(found.plan, tuple(" ".join(step.split()) for step in found.steps)) if found else None
    return None


def knows_of_plan_mode(log: Log, known_at: int = 0, known: bool = False) -> bool:
    """Whether the model was last told that plan mode is on.

    `known` is the answer as of entry `known_at`; only the entries since then are read.
    """
    for entry in log.back():
        if entry.seq == known_at:
            return known
        match entry:
            case Message(kind="plan_begun"):
                return True
            case Prefix() | Message(kind="plan_over" | "approval"):
                return False
            case Message() if entry.outcome.steps:
                return False
    return False


class _Arguments(msgspec.Struct, frozen=True):
    plan: str
    steps: tuple[str, ...]


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


EPISODE: Final = "episode"
"""The tool's name."""
MOST_OPEN: Final = 2
"""An episode may contain others, which contain none."""


class Episode(msgspec.Struct, frozen=True):
    """An episode. `first`: the entry of the step that opened it. `closed`: the entry of the step that closed it, and
    `pointers` the one that says what was done, the closing call's result; both 0 while it is open.
    """

    name: str
    first: int
    closed: int = 0
    pointers: int = 0


class EpisodeCall(msgspec.Struct, frozen=True):
    """The arguments of a call: a conclusion closes the episode of this title, none opens it."""

    title: str
    conclusion: str = ""


def episodes(view: View) -> tuple[list[Episode], list[Episode]]:
    """The closed episodes in view, and the open ones, oldest first. Reads only the calls of the tool."""
    closed: list[Episode] = []
    opened: list[Episode] = []
    steps = view.callers(EPISODE)
    results = {group.first: group.results for group in view.groups()} if steps else {}
    for step in steps:
        message = view.log.message(step)
        for call in message.blocks if message is not None else ():
            if not isinstance(call, ToolCall) or call.name != EPISODE:
                continue
            result = results[step].get(call.id, 0)
            answer = view.log.message(result) if result else None
            if answer is None or any(isinstance(each, ToolResult) and each.is_error for each in answer.blocks):
                continue
            given = msgspec.json.decode(call.arguments, type=EpisodeCall)
            place = next((place for place, each in enumerate(opened) if each.name == given.title), None)
            if not given.conclusion.strip():
                opened.append(Episode(given.title, step))
            elif place is not None:
                closed.append(structs.replace(opened[place], closed=step, pointers=result))
                del opened[place:]
    return closed, opened
