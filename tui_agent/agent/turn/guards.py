"""The guards of a turn: the cost ceiling and the watchdog, which look at what stands between one step and the next.

A guard that stops a turn raises a `ModelError`: the turn then ends as after any failed call, with everything kept. The
ceiling is looked at before and after every model call, subtasks included. Once reached, nothing more is asked of a
model until the user resets it: a session that costs more than it should almost always has something wrong with it. That
it was reached, and what was granted since, stands in the log, so it holds in the next process too.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tui_agent.agent import events
from tui_agent.agent.record import Record
from tui_agent.agent.turn.watchdog import Alert, Observer, Watchdog
from tui_agent.conversation.entries import AnyEntry, CeilingReached, CeilingReset, Message
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.models.base import ModelError, ModelProfile, Prices
from tui_agent.models.usage import MTOK, UsageTracker, prices_for
from tui_agent.text import money_text
from tui_agent.tools.base import Ask, PermissionQuestion, Preview

WatchdogMode: TypeAlias = Literal["warn", "off", "prompt", "auto"]
Emit: TypeAlias = Callable[[events.AgentEvent], None]

WATCHDOG = "watchdog"
"""What asks, where it is not a tool."""

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


Bound: TypeAlias = Literal["turn", "session"]

_KEYS = {"turn": "agent.max_turn_cost_usd", "session": "agent.max_session_cost_usd"}


class CostCeilingReached(ModelError):
    """A bound is met or exceeded, or the next call's input alone would do so: the call is not made."""

    kind = "cost_ceiling"

    def __init__(self, message: str, bound: Bound) -> None:
        super().__init__(message)
        self.bound = bound


@dataclass(frozen=True, slots=True)
class Limit:
    """What a turn and a session may cost, in USD; None: no bound."""

    turn: float | None = None
    session: float | None = None


class CostCeiling:
    """One ceiling for a session and all its subtasks; `tracker` is the session's, which subtasks record into too."""

    def __init__(self, limit: Limit, tracker: UsageTracker) -> None:
        self._limit = limit
        self._session_bound = limit.session
        self._tracker = tracker
        self._reached: CostCeilingReached | None = None
        self._told: CeilingReached | None = None
        self._unreset: CeilingReached | None = None
        self._unwatched: set[str] = set()
        self._under_way: list[float] = []

    def restore(self, entries: Iterable[AnyEntry]) -> None:
        """Take over what a log says of ceilings that were reached and of what was granted since."""
        for entry in entries:
            match entry:
                case CeilingReached():
                    now = self._limit.turn if entry.bound == "turn" else self._limit.session
                    # A ceiling that was raised or taken away since lets the session go on.
                    still = now is not None and now <= entry.limit_usd
                    self._reached = CostCeilingReached(entry.message, entry.bound) if still else None
                    # One that this process was not told of may still be reset for the next one.
                    self._unreset = entry if still or now is None else None
                case CeilingReset():
                    self._reached = self._unreset = None
                    if entry.session_usd is not None and self._limit.session is not None:
                        self._session_bound = max(self._limit.session, entry.session_usd)
                case _:
                    pass

    def take_news(self) -> CeilingReached | None:
        """That the ceiling was reached, for the log, told once."""
        news, self._told = self._told, None
        return news

    @property
    def reached(self) -> bool:
        """Whether it stays shut until `reset`."""
        return self._reached is not None

    def check(self) -> None:
        """Raises `CostCeilingReached`, the same again until `reset`, where a bound is met or exceeded."""
        if self._reached is not None:
            raise self._reached
        for bound, spent, most in self._bounds():
            if spent >= most:
                reached = f"its ceiling is {money_text(most)} ({_KEYS[bound]})"
                raise self._shut(f"This {bound} has cost {money_text(spent)}; {reached}.", bound, most)

    @contextmanager
    def calling(self, profile: ModelProfile, tokens: int, cached: int = 0) -> Iterator[None]:
        """For the time of one call, from before it is made until it is recorded.

        Raises as `check` does, also where `tokens` tokens of input would break a bound by themselves, together with the
        input of calls under way at the same time. `cached`: how many of them the provider probably holds in its cache.
        """
        self.check()
        expected = 0.0 if profile.prices is None else input_cost_usd(profile.prices, tokens, cached)
        if expected:
            self._check_expected(profile, tokens, expected)
        self._under_way.append(expected)
        try:
            yield
        finally:
            self._under_way.remove(expected)

    def _check_expected(self, profile: ModelProfile, tokens: int, expected: float) -> None:
        others = sum(self._under_way)
        beside = f", with {money_text(others)} for the input of calls under way" if others else ""
        call = (
            f"The next call to {profile.id} would cost {money_text(expected)} for its {tokens:,} tokens of input alone."
        )
        for bound, spent, most in self._bounds():
            if spent + others + expected >= most:
                so_far = f"This {bound} has cost {money_text(spent)}{beside}"
                raise self._shut(f"{call} {so_far}; its ceiling is {money_text(most)} ({_KEYS[bound]}).", bound, most)

    def unwatched(self, profile: ModelProfile) -> str:
        """That calls to this model cannot be counted against the ceiling, said once per model; else nothing."""
        bounded = self._limit.turn is not None or self._limit.session is not None
        if not bounded or profile.prices is not None or profile.name in self._unwatched:
            return ""
        self._unwatched.add(profile.name)
        return f"The prices of {profile.id} are not known: what it costs does not count towards the cost ceiling."

    def reset(self) -> tuple[str, CeilingReset | None]:
        """Let the session go on, by decision of the user: a sentence that says what it may cost from here on, and the
        entry for the log (None: nothing was reset).
        """
        reached = self._unreset
        if reached is None:
            return "The cost ceiling is not reached; nothing was reset.", None
        self._reached = self._unreset = None
        if reached.bound == "session":
            spent, more = self._tracker.session.cost_usd, self._limit.session or reached.limit_usd
            self._session_bound = spent + more if self._limit.session is not None else None
            told = (
                f"The session may cost {money_text(more)} more: it has cost {money_text(spent)}, "
                f"its ceiling is now {money_text(spent + more)}."
            )
            return told, CeilingReset(session_usd=spent + more)
        # The rest of what was asked is a turn of its own, also where it goes on with the same question.
        self._tracker.start_turn()
        return f"The next turn may cost {money_text(self._limit.turn or reached.limit_usd)} again.", CeilingReset()

    def _bounds(self) -> list[tuple[Bound, float, float]]:
        """Each bound there is: its name, what was spent, what may be."""
        found: list[tuple[Bound, float, float]] = []
        if self._limit.turn is not None and self._tracker.in_turn:
            found.append(("turn", self._tracker.turn.cost_usd, self._limit.turn))
        if self._session_bound is not None:
            found.append(("session", self._tracker.session.cost_usd, self._session_bound))
        return found

    def _shut(self, message: str, bound: Bound, limit_usd: float) -> CostCeilingReached:
        self._reached = CostCeilingReached(message, bound)
        self._told = self._unreset = CeilingReached(bound=bound, message=message, limit_usd=limit_usd)
        return self._reached


def input_cost_usd(prices: Prices, tokens: int, cached: int = 0) -> float:
    """What `tokens` tokens of input cost in USD, `cached` of them read from the provider's cache."""
    rates = prices_for(prices, tokens)
    read = rates.input if rates.cache_read is None else rates.cache_read
    held = min(cached, tokens)
    return ((tokens - held) * rates.input + held * read) / MTOK


def probably_cached(last: Message | None, profile: ModelProfile, now: float | None = None) -> int:
    """How many tokens of the next request the provider's cache still holds, by the `last` call and its age.

    `now` in seconds since the epoch (by default, the clock's).
    """
    if last is None or last.usage is None or last.model != profile.name:
        return 0
    age = (time.time() if now is None else now) - last.time
    return last.usage.cache_read_tokens + last.usage.cache_write_tokens if age < profile.cache_ttl_s else 0


class WatchdogGuard:
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
        for observation in self._observer.observe(record.engine.window.tokens):
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
        )
        emit(events.PermissionAsked(question=question))
        answer = await self._ask(question)
        if not answer.allowed:
            said = f" You said: {answer.feedback}" if answer.feedback else ""
            raise StoppedByUser(f"You stopped the turn: {alert.text}{said}", answer.feedback)


class Guards:
    """The guards of one conversation; a subtask has its session's ceiling and no watch of its own."""

    def __init__(self, ceiling: CostCeiling, watch: WatchdogGuard | None = None) -> None:
        self.ceiling = ceiling
        self.watch = watch

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
