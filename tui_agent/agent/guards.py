"""The guards of a turn: what stands between one step and the next, the cost ceiling and the watchdog.

A guard that stops a turn raises a `ModelError`: the turn then ends as after any failed call, with everything kept.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, TypeAlias

from tui_agent.agent import events
from tui_agent.agent.cost_ceiling import CostCeiling, CostCeilingReached, probably_cached
from tui_agent.agent.observations import Observer
from tui_agent.agent.record import Record
from tui_agent.agent.watchdog import Alert, Watchdog
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.models.base import ModelError, ModelProfile
from tui_agent.tools.base import Ask, PermissionQuestion, Preview

WatchdogMode: TypeAlias = Literal["warn", "off", "prompt", "auto"]
Emit: TypeAlias = Callable[[events.AgentEvent], None]

WATCHDOG = "watchdog"
"""What asks, where it is not a tool."""

NOT_APPROVED = "[not done: it needs an approval, and nobody could be asked; go on without it, or say what to allow]"
"""What answers the calls of a turn that a question without a person to answer it ended."""

_ESCALATES = "The provider's frontier model goes on from the next step."
_BY_HAND = "Stop it with Esc, say what to do instead, or go on with a larger model (/escalate)."


class StoppedByUser(ModelError):
    """Asked whether a turn that looks stuck should go on, the user said no, and perhaps why (`feedback`)."""

    kind = "watchdog"

    def __init__(self, message: str, feedback: str) -> None:
        super().__init__(message)
        self.feedback = feedback


def not_done(error: ModelError) -> str:
    """What answers the calls of a turn that ended in an error."""
    match error:
        case CostCeilingReached():
            return "[not done: the cost ceiling was reached before this call; call again if it is still needed]"
        case StoppedByUser():
            instead = f"they said: {error.feedback}" if error.feedback else "do something else"
            return f"[not done: the user stopped the turn before this call because it looked stuck; {instead}]"
        case _:
            return INTERRUPTED


class Watch:
    """A watchdog at work: what it sees, and what follows from an alert (`mode`). `larger` names the model to go on with
    instead of the one given, or nothing.
    """

    def __init__(
        self,
        watchdog: Watchdog,
        observer: Observer,
        mode: WatchdogMode,
        ask: Ask,
        larger: Callable[[ModelProfile], str],
    ) -> None:
        self.mode = mode
        self.larger = larger
        self._watchdog = watchdog
        self._observer = observer
        self._ask = ask
        self._escalation = ""

    async def look(self, profile: ModelProfile, record: Record, emit: Emit) -> None:
        """Take in what is new in the log; tell, ask or prepare to escalate. Raises `StoppedByUser`, `NobodyToAsk`."""
        for observation in self._observer.observe(profile.window):
            if self.mode == "off":
                continue
            for alert in self._watchdog.observe(observation):
                await self._raised(alert, profile, record, emit)

    def escalate(self, name: str) -> None:
        """Go on with the model `name` from the next step."""
        self._escalation = name

    def take_escalation(self) -> str:
        """The model to go on with, told once; empty: the present one."""
        name, self._escalation = self._escalation, ""
        return name

    async def _raised(self, alert: Alert, profile: ModelProfile, record: Record, emit: Emit) -> None:
        larger = self.larger(profile) if self.mode == "auto" else ""
        self._escalation = larger or self._escalation
        action = "escalate" if larger else "ask" if self.mode == "prompt" else "warn"
        record.trace.record("alert", {"signal": alert.signal, "text": alert.text, "action": action, "model": larger})
        hint = "" if action == "ask" else f"{_ESCALATES} ({larger})" if larger else _BY_HAND
        emit(events.Alert(signal=alert.signal, text=alert.text, action=action, hint=hint))
        if action == "ask":
            await self._question(alert, emit)

    async def _question(self, alert: Alert, emit: Emit) -> None:
        question = PermissionQuestion(
            call_id="",
            tool=WATCHDOG,
            arguments="{}",
            accesses=(),
            preview=Preview("Go on with this turn?", text=alert.text),
            reason="The model looks stuck.",
            pattern="",
        )
        emit(events.PermissionAsked(question=question))
        answer = await self._ask(question)
        if not answer.allowed:
            said = f" You said: {answer.feedback}" if answer.feedback else ""
            raise StoppedByUser(f"You stopped the turn: {alert.text}{said}", answer.feedback)


class Guards:
    """The guards of one conversation; a subtask has its session's ceiling and no watch of its own."""

    def __init__(self, ceiling: CostCeiling, watch: Watch | None = None) -> None:
        self.ceiling = ceiling
        self.watch = watch

    def refusal(self) -> ModelError | None:
        """Why no turn may begin now; None: one may."""
        try:
            self.ceiling.check()
        except CostCeilingReached as reached:
            return reached
        return None

    def calling(self, profile: ModelProfile, tokens: int, record: Record, emit: Emit) -> AbstractContextManager[None]:
        """For the time of a call with `tokens` tokens of input; see `CostCeiling.calling`."""
        unwatched = self.ceiling.unwatched(profile)
        if unwatched:
            emit(events.Notice(level="warning", title="The cost ceiling is blind", text=unwatched))
        return self.ceiling.calling(profile, tokens, probably_cached(record.view.last_call, profile))

    async def after_call(self, profile: ModelProfile, record: Record, emit: Emit) -> None:
        """Look at what the call cost and did. Raises `CostCeilingReached`, `StoppedByUser`, `NobodyToAsk`."""
        self.ceiling.check()
        if self.watch is not None:
            await self.watch.look(profile, record, emit)

    def take_escalation(self) -> str:
        """The model to go on with, told once; empty: the present one."""
        return self.watch.take_escalation() if self.watch is not None else ""
