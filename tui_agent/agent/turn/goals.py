"""Goals: a session that goes on by itself until a command succeeds (``/goal``).

After each turn the command is run, in the sandbox and through the gate like the model's own. While it fails, the model
is told how, and another turn begins. The goal ends with the first turn that fails or that the user stops, and after one
in which the watchdog only warned.
"""

import asyncio
from typing import Final

import msgspec

from tui_agent.agent import events
from tui_agent.agent.events import Emit
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Message, notice
from tui_agent.models.base import ModelError
from tui_agent.regex import regex
from tui_agent.text import counted, money_text, one_line
from tui_agent.tools.base import ToolFailure

GOAL: Final = "goal"
"""The name of the slash command."""
MAX_TURNS: Final = 20
"""Turns of a goal unless ``--max-turns`` is given."""
CHECK_S: Final = 600
"""Seconds the command may take."""
SHOWN_CHARS: Final = 4_000
"""Characters of the command's output, from its end, that the model is told."""
_KEPT: Final = "What was done is kept; /goal begins anew"
DONE: Final = "mark_task_done"

_OPTION: Final = regex(r"""(?:^|\s)--(until|max-usd|max-turns)(?:\s+|=)(?:"([^"]*)"|'([^']*)'|(\S+))""")
_WITHOUT_VALUE: Final = regex(r"(?:^|\s)(--(?:until|max-usd|max-turns))(?=[\s=]|$)")
_USAGE: Final = '/goal TEXT [--until "COMMAND"] [--max-usd 5] [--max-turns 20]'


class Goal(msgspec.Struct, frozen=True):
    """What is to be reached, and within what. until: the command that must succeed; empty: the model says when."""

    text: str
    until: str = ""
    max_usd: float | None = None
    max_turns: int = MAX_TURNS

    @classmethod
    def of(cls, argument: str) -> "Goal":
        """Parse what was typed after ``/goal``. Raises `ToolFailure` if it cannot be."""
        given = {found[1]: found[2] or found[3] or found[4] or "" for found in _OPTION.finditer(argument)}
        text = _OPTION.sub("", argument).strip()
        if bare := _WITHOUT_VALUE.search(text):
            raise ToolFailure(f"{bare[1]} needs a value.", _USAGE)
        try:
            max_usd = float(given["max-usd"].lstrip("$")) if "max-usd" in given else None
            max_turns = int(given.get("max-turns", MAX_TURNS))
        except ValueError as error:
            raise ToolFailure("A bound is no number.", _USAGE) from error
        if not text or max_turns < 1 or (max_usd is not None and not max_usd > 0):
            raise ToolFailure("There is nothing to do in that." if not text else "A bound must be above 0.", _USAGE)
        return cls(text, given.get("until", "").strip(), max_usd, max_turns)

    @property
    def message(self) -> str:
        """What is sent to the model first."""
        if not self.until:
            return f"{self.text}\n\n[Work until all of it is done, then call {DONE}.]"
        return f"{self.text}\n\n[It is done when this command succeeds; it is run after each answer: {self.until}]"


class GoalCeiling(ModelError):
    """The goal has cost what it may."""

    kind = "goal_cost"


class RunningGoal:
    """A goal under way, from its first turn on. `parts`: the agent's."""

    def __init__(self, goal: Goal, parts: TurnParts, emit: Emit) -> None:
        self._goal, self._parts, self._emit = goal, parts, emit
        self._turns = 1
        self._objection: events.Alert | None = None
        self._began_usd, self._began_seq = self._cost_usd, len(parts.record.view.log)

    @property
    def _cost_usd(self) -> float:
        return self._parts.tracker.session.cost_usd

    def tell(self, event: events.AgentEvent) -> None:
        if isinstance(event, events.Alert) and event.action == "warn":
            self._objection = event
        self._emit(event)
        if isinstance(event, events.TurnFailed) and event.kind != GoalCeiling.kind:
            self._emit(events.Notice(level="warning", title="The goal has ended too", hint=f"{_KEPT}."))

    def check_cost(self) -> None:
        """Raise `GoalCeiling` if a further call is not to be made."""
        spent, most = self._cost_usd - self._began_usd, self._goal.max_usd
        if most is not None and spent >= most:
            raise GoalCeiling(f"It has cost {money_text(spent)}, and may cost {money_text(most)} (--max-usd).")

    async def goes_on(self) -> bool:
        """Whether another turn is needed, and may be; if so, the model has been told why."""
        try:
            missing = await self._missing()
        except ToolFailure as failure:
            self._end(f"Its command was not run: {failure.why}", failure.instead)
            return False
        except asyncio.CancelledError:
            self._emit(events.Notice(level="info", title="The goal has ended: its command was stopped"))
            raise
        spent = f"{counted(self._turns, 'turn')}, {money_text(self._cost_usd - self._began_usd)}"
        if not missing:
            self._emit(events.Notice(level="info", title=f"The goal is reached after {spent}"))
            return False
        what, message = missing
        if self._objection is not None or self._turns >= self._goal.max_turns:
            objects = f" The watchdog objects: {self._objection.text}" if self._objection else ""
            more = "" if self._objection else "; --max-turns allows more"
            self._end(f"It is not reached after {spent}: {what}.{objects}", f"{_KEPT}{more}.")
            return False
        self._emit(events.Notice(level="info", title=f"Not there yet after {spent}: {what}"))
        self._turns += 1
        await self._parts.record.append(notice(message))
        return True

    def _end(self, why: str, hint: str) -> None:
        self._emit(events.TurnFailed(kind=GOAL, message=why, retryable=False, hint=hint))

    async def _missing(self) -> tuple[str, str] | None:
        """Why the goal is not reached, for the user and for the model; None if it is."""
        until = self._goal.until
        if not until:
            calls = self._parts.record.view.log.path().after(self._began_seq).of(Message)
            done = any(isinstance(block, ToolCall) and block.name == DONE for each in calls for block in each.blocks)
            message = f"[the goal is not reached yet: go on, and call {DONE} once all of it is done]"
            return None if done else ("the model has not said that it is done", message)
        self._emit(events.GoalCheck(command=until))
        arguments = msgspec.json.encode({"command": until, "timeout": CHECK_S}).decode()
        output = await self._parts.toolbox.call_for_user("run_command", arguments, self._emit)
        code = output.outcome.exit_code
        if code == 0:
            return None
        how = f"exit code {code}" if code is not None else "it did not end"
        shown = output.text[-SHOWN_CHARS:]
        message = f"[the goal is not reached: `{until}` has failed with {how}; go on]\n{shown}"
        return f"{one_line(until, 60)} fails ({how})", message
