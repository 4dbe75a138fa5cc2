"""Plans and questions of the model that wait for the user's word, as the log has them: untrusted text.

A plan that was approved becomes the task list. What says so is one text, which stands as the result of the call where
somebody was there to answer, and as a notice where the user answered later.
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
_STEPS: Final = "Steps:"
_LIST: Final = "The task list:"
_MARK: Final = "[ ] "


class Plan(NamedTuple):
    """What is to be done, in words, and the steps of it."""

    text: str
    steps: tuple[str, ...]

    def whole(self) -> str:
        """All of it as a person reads and edits it."""
        return "\n".join((self.text.strip(), "", _STEPS, *(f"- {step}" for step in self.steps)))

    @classmethod
    def read(cls, text: str) -> "Plan":
        """What `whole` wrote and a person may have edited; where they left no steps, each line of it is one."""
        before, found, after = text.rpartition(f"\n{_STEPS}\n") if text.strip() else ("", "", "")
        lines = (after if found else text).splitlines()
        steps = tuple(step for line in lines if (step := line.strip().removeprefix("- ").strip()))
        return cls((before if found else text).strip(), steps)


def approval(plan: Plan, mode: str, *, edited: bool) -> str:
    """What tells the model that the user approved a plan, and in which mode it goes on."""
    changed = f"They changed it. It is now:\n\n{plan.text}\n\n" if edited else ""
    tasks = "\n".join(f"{_MARK}{' '.join(step.split())}" for step in plan.steps)
    return f"{_APPROVED}the mode is now {mode}]\n{changed}{_LIST}\n{tasks}\nCarry it out, and keep the list with todo."


def approved_steps(text: str) -> tuple[str, ...] | None:
    """The steps that an `approval` names; None: it is none."""
    if not text.startswith(_APPROVED):
        return None
    lines = text.rpartition(f"\n{_LIST}\n")[2].splitlines()
    return tuple(line.removeprefix(_MARK) for line in lines if line.startswith(_MARK))


def waiting_plan(log: Log) -> Plan | None:
    """The plan that waits for the user's word at the log's head, because nobody was there to be asked."""
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
    """The plan that a call's arguments (JSON text) hold; None where they hold none."""
    try:
        found = _decoder.decode(arguments.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return Plan(found.plan, found.steps)


def told_of_planning(log: Log, known_at: int = 0, known: bool = False) -> bool:
    """Whether what the model was told last of the mode is that it plans; `known` is the answer at entry `known_at`.

    Costs the entries since then.
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
