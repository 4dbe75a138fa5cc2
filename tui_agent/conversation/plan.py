"""The model's plans and questions to the user, as recorded in the log. All of it is untrusted text.

An approved plan becomes the task list. The text of the approval is the result of the call if the user answered at once,
and a notice if they answered later.
"""

from typing import Final, NamedTuple

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.log import Log

ASK: Final = "ask_user"
PLAN: Final = "submit_plan"
"""The tools' names."""

UNANSWERED: Final = "[nobody was there to answer: the user's next message is the answer]"

PLAN_BEGUN: Final = (
    "[notice] Plan mode: read and search, but change and run nothing. When you know what should be done, submit it "
    f"with {PLAN}; the user approves it, changes it or sends it back."
)
PLAN_OVER: Final = "[notice] Plan mode is over: you may make changes."

_APPROVED: Final = "[the user approved the plan; "
_STEPS_HEADING: Final = "Steps:"
_LIST_HEADING: Final = "The task list:"
_CHECKBOX: Final = "[ ] "


class Plan(NamedTuple):
    """A plan in prose, and its steps."""

    text: str
    steps: tuple[str, ...]

    def whole(self) -> str:
        """The plan as one text, for people to read and edit."""
        return "\n".join((self.text.strip(), "", _STEPS_HEADING, *(f"- {step}" for step in self.steps)))

    @classmethod
    def read(cls, text: str) -> "Plan":
        """Parse a text from `whole`, possibly edited by a person; without a list of steps, each line is a step."""
        before, found, after = text.rpartition(f"\n{_STEPS_HEADING}\n") if text.strip() else ("", "", "")
        lines = (after if found else text).splitlines()
        steps = tuple(step for line in lines if (step := line.strip().removeprefix("- ").strip()))
        return cls((before if found else text).strip(), steps)


def approval(plan: Plan, mode: str, *, edited: bool) -> str:
    """The text that tells the model that the user approved its plan, and the permission mode from now on."""
    changed = f"They changed it. It is now:\n\n{plan.text}\n\n" if edited else ""
    tasks = "\n".join(f"{_CHECKBOX}{' '.join(step.split())}" for step in plan.steps)
    listed = f"{_LIST_HEADING}\n{tasks}\n"
    return f"{_APPROVED}the mode is now {mode}]\n{changed}{listed}Carry it out, and keep the list with todo."


def approved_steps(text: str) -> tuple[str, ...] | None:
    """The steps in the text of an `approval`; None if the text is something else."""
    if not text.startswith(_APPROVED):
        return None
    lines = text.rpartition(f"\n{_LIST_HEADING}\n")[2].splitlines()
    return tuple(line.removeprefix(_CHECKBOX) for line in lines if line.startswith(_CHECKBOX))


def waiting_plan(log: Log) -> Plan | None:
    """The plan at the log's head that still waits for an answer, because nobody was there when it was submitted."""
    waiting = ""
    seq = log.head
    while seq:
        entry = log[seq]
        seq = entry.parent
        if not isinstance(entry, Message) or entry.kind == "notice":
            continue
        if entry.kind == "tool_result":
            unanswered = (block for block in entry.blocks if isinstance(block, ToolResult) and block.text == UNANSWERED)
            waiting = next((block.call_id for block in unanswered), waiting)
            continue
        calls = (block for block in entry.blocks if isinstance(block, ToolCall))
        asked = next((call for call in calls if call.id == waiting and call.name == PLAN), None)
        return read_plan(asked.arguments) if asked is not None else None
    return None


def read_plan(arguments: str) -> Plan | None:
    """Parse a plan from a call's arguments (JSON text); None if they are not valid."""
    try:
        found = _decoder.decode(arguments.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return Plan(found.plan, found.steps)


def knows_of_plan_mode(log: Log, known_at: int = 0, known: bool = False) -> bool:
    """Whether the model was last told that plan mode is on.

    `known` is the answer as of entry `known_at`; only the entries since then are read.
    """
    seq = log.head
    while seq and seq != known_at:
        entry = log[seq]
        if isinstance(entry, Prefix):
            return False
        for block in entry.blocks if isinstance(entry, Message) and entry.kind else ():
            match block:
                case Text(text=text) | ToolResult(text=text) if text == PLAN_BEGUN:
                    return True
                case Text(text=text) | ToolResult(text=text) if text == PLAN_OVER or text.startswith(_APPROVED):
                    return False
                case _:
                    pass
        seq = entry.parent
    return known if seq else False


class _Arguments(msgspec.Struct, frozen=True):
    plan: str
    steps: tuple[str, ...]


_decoder = msgspec.json.Decoder(_Arguments)
