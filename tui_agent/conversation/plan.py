"""The model's plans and questions to the user, as recorded in the log. All of it is untrusted text.

An approved plan becomes the task list. Its steps come with the result of the call if the user answered at once, and
with a message of its own if they answered later.
"""

from typing import Final

import msgspec

from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.log import Log
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
