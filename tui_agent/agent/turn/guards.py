"""The guards of a turn, checked between its steps: the cost ceiling and the watchdog.

A guard stops a turn by raising a `ModelError`, so the turn ends as after any failed call, with everything kept. The
ceiling is checked before and after every model call, including those of subtasks. Once it is reached, no model is
called until the user resets it: a session that costs too much almost always has something wrong with it. The log
records that it was reached and each reset, so it also holds in the next process.

Several processes may share a ceiling and a provider's limits: those of a batch, or all of one day.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from tui_agent.agent import events
from tui_agent.agent.events import Emit
from tui_agent.agent.record import Record
from tui_agent.agent.turn.hints import WATCHDOG
from tui_agent.agent.turn.watchdog import Observer, Watchdog, WatchdogAlert
from tui_agent.conversation.entries import CeilingReached, CeilingReset, Message
from tui_agent.conversation.log import Log
from tui_agent.conversation.profile import HOUR_S, ModelProfile
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.models.base import ModelError
from tui_agent.models.usage import MTOK, UsageTracker
from tui_agent.system.durable import make_private_folder, to_completion
from tui_agent.text import money_text
from tui_agent.tools.base import Ask, PermissionQuestion, Preview

if TYPE_CHECKING:
    from tui_agent.storage.ledger import Ledger

WatchdogMode: TypeAlias = Literal["warn", "off", "prompt", "auto"]


class StoppedByUser(ModelError):
    """The user declined to continue a turn that looks stuck; `feedback`: why, if they said so."""

    kind = "watchdog"

    def __init__(self, message: str, feedback: str) -> None:
        super().__init__(message)
        self.feedback = feedback


def not_done(error: ModelError) -> str:
    """The result for calls that were not done because the turn ended in an error."""
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
    """The call was not made: a limit is reached, or the call's input alone would exceed it."""

    kind = "cost_ceiling"

    def __init__(self, message: str, bound: Bound) -> None:
        super().__init__(message)
        self.bound = bound


class Limits(msgspec.Struct, frozen=True):
    """The most that a turn may do; None: no limit.

    `max_calls`: calls of the model in one turn; the next `run` or `ask` has as many again. `max_usd`: what one turn may
    cost, subtasks included, and `max_session_usd`: all turns together, also those of earlier processes; once one of
    these is reached, no model is called until `Agent.reset_cost_ceiling`. Costs count as far as prices are known.
    """

    max_calls: int | None = 100
    max_usd: float | None = 5.0
    max_session_usd: float | None = None


class CallLimitReached(ModelError):
    """The turn has made as many calls of the model as it may."""

    kind = "call_limit"
    retryable = True


class CostCeiling:
    """The cost ceiling of a session and its subtasks, which record into the session's `tracker`."""

    def __init__(self, limit: Limits, tracker: UsageTracker, log: Log | None = None) -> None:
        """`log`: restores from it whether the ceiling was reached, and what was granted since."""
        self._limit = limit
        self._session_bound = limit.max_session_usd
        self._tracker = tracker
        self._reached: CostCeilingReached | None = None
        self._unreported: CeilingReached | None = None
        self._unreset: CeilingReached | None = None
        self._unwatched: set[str] = set()
        self._under_way: list[float] = []
        self.sharing: tuple[LogShare, ...] = ()
        """What is shared with other processes."""
        self._refused_usd = 0.0
        for entry in log.entries().of(CeilingReached, CeilingReset) if log is not None else ():
            match entry:
                case CeilingReached():
                    now = limit.max_usd if entry.bound == "turn" else limit.max_session_usd
                    # If the limit was raised or removed since, the session may go on.
                    still = now is not None and now <= entry.limit_usd
                    self._reached = CostCeilingReached(entry.message, entry.bound) if still else None
                    # A limit that this process does not have can still be reset, for the next process.
                    self._unreset = entry if still or now is None else None
                case CeilingReset():
                    self._reached = self._unreset = None
                    if entry.session_usd is not None and limit.max_session_usd is not None:
                        self._session_bound = max(limit.max_session_usd, entry.session_usd)

    def take_news(self) -> CeilingReached | None:
        """The entry that records that the ceiling was reached; returned once, then None."""
        news, self._unreported = self._unreported, None
        return news

    @property
    def reached(self) -> bool:
        """Whether calls are refused until `reset`."""
        return self._reached is not None

    def check(self) -> None:
        """Raise `CostCeilingReached` if a limit is reached; the same error again until `reset`."""
        if self._reached is not None:
            raise self._reached
        for bound, spent, most in self._bounds():
            if spent >= most:
                reached = f"its ceiling is {money_text(most)} ({_KEYS[bound]})"
                raise self._shut(f"This {bound} has cost {money_text(spent)}; {reached}.", bound, most)

    @contextmanager
    def calling(self, profile: ModelProfile, tokens: int, cached: int = 0) -> Iterator[None]:
        """A context for one call, from before it is made until it is recorded.

        Raises as `check`, and also if its `tokens` tokens of input, with those of other calls in progress, would exceed
        a limit. `cached`: how many of them the provider probably has cached.
        """
        self.check()
        expected = 0.0 if profile.prices is None else profile.prices.of_input(tokens, cached)
        others = sum(self._under_way)
        under_way = f", with {money_text(others)} for the input of calls under way" if others else ""
        for bound, spent, most in self._bounds() if expected else ():
            if spent + others + expected >= most:
                alone = f"{money_text(expected)} for its {tokens:,} tokens of input alone"
                so_far = f"This {bound} has cost {money_text(spent)}{under_way}"
                ceiling = f"its ceiling is {money_text(most)} ({_KEYS[bound]})"
                explanation = f"The next call to {profile.id} would cost {alone}. {so_far}; {ceiling}."
                self._refused_usd = others + expected
                raise self._shut(explanation, bound, most)
        self._under_way.append(expected)
        try:
            yield
        finally:
            self._under_way.remove(expected)

    @asynccontextmanager
    async def turn_to_call(
        self, profile: ModelProfile, tokens: int, cached: int = 0, waits: Callable[[str], None] = lambda why: None
    ) -> AsyncIterator[None]:
        """As `calling`, and waits its turn where calls are shared (`waits` is told why). Raises `SharedCeilingReached`
        besides.
        """
        async with AsyncExitStack() as stack:
            for each in self.sharing:
                await stack.enter_async_context(each.calling(profile, tokens, cached, waits))
            with self.calling(profile, tokens, cached):
                yield

    def allows(self, usd: float) -> bool:
        """Whether a call of this cost would leave every limit unreached."""
        in_flight = sum(self._under_way) + usd
        return self._reached is None and all(spent + in_flight < most for _, spent, most in self._bounds())

    def unwatched(self, profile: ModelProfile) -> str:
        """A warning, once for each model, that its calls cannot be counted against the ceiling; else empty."""
        bounded = self._limit.max_usd is not None or self._limit.max_session_usd is not None
        if not bounded or profile.prices is not None or profile.name in self._unwatched:
            return ""
        self._unwatched.add(profile.name)
        return f"The prices of {profile.id} are not known: what it costs does not count towards the cost ceiling."

    def reset(self) -> tuple[str, CeilingReset | None]:
        """Let the session go on, as the user decided.

        Returns a sentence with the new limit, and the entry for the log (None: nothing was reset).
        """
        reached = self._unreset
        if reached is None:
            return "The cost ceiling is not reached; nothing was reset.", None
        self._reached = self._unreset = None
        if reached.bound == "session":
            spent, more = self._tracker.session.cost_usd, self._limit.max_session_usd or reached.limit_usd
            if self._refused_usd >= more:
                # As much again would not pay for the call that was refused.
                more += self._refused_usd
            self._session_bound = spent + more if self._limit.max_session_usd is not None else None
            explanation = (
                f"The session may cost {money_text(more)} more: it has cost {money_text(spent)}, "
                f"its ceiling is now {money_text(spent + more)}."
            )
            return explanation, CeilingReset(session_usd=spent + more)
        # What follows counts as a new turn, even if it continues with the same question.
        self._tracker.start_turn()
        return f"The next turn may cost {money_text(self._limit.max_usd or reached.limit_usd)} again.", CeilingReset()

    def _bounds(self) -> list[tuple[Bound, float, float]]:
        """Each limit that is set: its name, what was spent, and the most that may be."""
        found: list[tuple[Bound, float, float]] = []
        if self._limit.max_usd is not None and self._tracker.in_turn:
            found.append(("turn", self._tracker.turn.cost_usd, self._limit.max_usd))
        if self._session_bound is not None:
            found.append(("session", self._tracker.session.cost_usd, self._session_bound))
        return found

    def _shut(self, message: str, bound: Bound, limit_usd: float) -> CostCeilingReached:
        self._reached = CostCeilingReached(message, bound)
        self._unreported = self._unreset = CeilingReached(bound=bound, message=message, limit_usd=limit_usd)
        return self._reached


def probably_cached(last: Message | None, profile: ModelProfile, now: float | None = None) -> int:
    """How many tokens of the next request the provider probably has cached, judged by the `last` call and its age.

    `now`: seconds since the epoch; by default the present time.
    """
    if last is None or last.usage is None or last.model != profile.name:
        return 0
    age = (time.time() if now is None else now) - last.time
    used = last.usage
    ttl_s = HOUR_S if 0 < used.cache_write_tokens == used.cache_write_hour_tokens else profile.cache_ttl_s
    return used.cache_read_tokens + used.cache_write_tokens if age < ttl_s else 0


class WatchdogGuard(msgspec.Struct, eq=False):
    """Feeds a watchdog from the log, and acts on its alerts as `mode` says.

    `larger`: maps a model to the larger one to escalate to; empty if there is none.
    """

    _watchdog: Watchdog
    _observer: Observer
    mode: WatchdogMode
    _ask: Ask
    larger: Callable[[ModelProfile], str]
    escalation: str = ""
    """The model to switch to at the next step; empty: none."""

    async def look(self, profile: ModelProfile, record: Record, emit: Emit) -> None:
        """Observe what is new in the log; on an alert warn, ask or escalate. Raises `StoppedByUser`, `NobodyToAsk`."""
        for observation in self._observer.observe(record.engine.window.tokens):
            if self.mode == "off":
                continue
            for alert in self._watchdog.observe(observation):
                await self._raised(alert, profile, record, emit)

    async def _raised(self, alert: WatchdogAlert, profile: ModelProfile, record: Record, emit: Emit) -> None:
        larger = self.larger(profile) if self.mode == "auto" else ""
        self.escalation = larger or self.escalation
        action = "escalate" if larger else "ask" if self.mode == "prompt" else "warn"
        record.note("alert", {"signal": alert.signal, "text": alert.text, "action": action, "model": larger})
        hint = "Stop it with Esc, say what to do instead, or go on with a larger model (/escalate)."
        if larger:
            hint = f"The provider's strongest model takes over from the next step. ({larger})"
        hint = "" if action == "ask" else hint
        emit(events.Alert(signal=alert.signal, text=alert.text, action=action, hint=hint))
        if action != "ask":
            return
        question = PermissionQuestion(
            "", WATCHDOG, "{}", (), Preview("Go on with this turn?", text=alert.text), "The model looks stuck."
        )
        emit(events.PermissionAsked(question=question))
        answer = await self._ask(question)
        if not answer.allowed:
            said = f" You said: {answer.feedback}" if answer.feedback else ""
            raise StoppedByUser(f"You stopped the turn: {alert.text}{said}", answer.feedback)


class Guards:
    """The guards of one conversation. A subtask has its session's ceiling and no watchdog."""

    def __init__(self, ceiling: CostCeiling, watch: WatchdogGuard | None = None, max_calls: int | None = None) -> None:
        self.ceiling = ceiling
        self.watch = watch
        self.max_calls = max_calls
        self._more: Callable[[], None] | None = None

    @contextmanager
    def also(self, check: Callable[[], None] | None) -> Iterator[None]:
        """A context in which this check, which raises a `ModelError`, comes before each call, too."""
        self._more = check
        try:
            yield
        finally:
            self._more = None

    def before_call(self, made: int) -> None:
        """Check whether a turn that has made so many calls may make one more.

        Raises `CostCeilingReached`, `CallLimitReached`, and what a further check raises.
        """
        self.ceiling.check()
        if self._more is not None:
            self._more()
        if self.max_calls is not None and made >= self.max_calls:
            raise CallLimitReached(f"The turn has called the model {made} times; its limit is {self.max_calls}.")

    async def after_call(self, profile: ModelProfile, record: Record, emit: Emit) -> None:
        """Check what the call cost and did. Raises `CostCeilingReached`, `StoppedByUser`, `NobodyToAsk`."""
        self.ceiling.check()
        if self.watch is not None:
            await self.watch.look(profile, record, emit)


LOOK_AGAIN_S: Final = 0.5
"""How often it is asked whether another process's call has ended."""
USUAL_OUTPUT: Final = 32_000
"""Tokens of an answer that are paid at most, where the model's own limit is not known."""

TASKS: Final = "All tasks together have cost {spent}; they may cost {ceiling}."
TODAY: Final = "All sessions together have cost {spent} today; they may cost {ceiling} (limits.day_usd)."
WAITS: Final = "It can cost up to {most}, and with calls under way elsewhere more than is left of {ceiling}."
DAYS: Final = "days"
"""The folder of the ledgers, one for each day."""


def ledger_of_today(home: Path, usd: float) -> "Ledger":
    """The ledger of all sessions of this day, in which they may cost so much; older ones are removed."""
    from tui_agent.storage.ledger import Ledger  # it needs sqlite

    today = home / DAYS / f"{date.today()}.db"
    kept = f"{date.today() - timedelta(days=2)}"  # a call of yesterday may still be under way
    if not today.exists():
        make_private_folder(today.parent)
        for past in today.parent.iterdir():
            if past.name < kept:
                past.unlink(missing_ok=True)
    ledger = Ledger(today)
    ledger.set_ceiling(usd)
    return ledger


class SharedCeilingReached(ModelError):
    """All processes together have spent what they may."""

    kind = "shared_ceiling"


class LogShare:
    """This process's part.

    `ledger`: returns the one that counts now. `tracker`: what its calls have cost. `refusal`: said at the ceiling.
    """

    def __init__(self, ledger: "Callable[[], Ledger]", tracker: UsageTracker, refusal: str = TASKS) -> None:
        self._ledger, self._tracker, self._refusal = ledger, tracker, refusal

    @asynccontextmanager
    async def calling(
        self, profile: ModelProfile, tokens: int, cached: int = 0, waits: Callable[[str], None] = lambda why: None
    ) -> AsyncIterator[None]:
        """A context for one call, which waits for its turn first; then `waits` is told why.

        Raises `SharedCeilingReached`.
        """
        ledger = await asyncio.to_thread(self._ledger)
        least = most = 0.0
        if profile.prices is not None:
            rates = profile.prices.of(tokens)
            least = profile.prices.of_input(tokens, cached)
            # The dearest it can be: all of it written to the cache for an hour.
            most = (2 * tokens * rates.input + (profile.max_output or USUAL_OUTPUT) * rates.output) / MTOK
        call = await self._reserved(ledger, profile.provider, least, most, waits)
        before = self._tracker.session.cost_usd
        try:
            yield
        finally:
            cost = self._tracker.session.cost_usd - before
            await to_completion(asyncio.to_thread(ledger.settle, call, cost))

    async def _reserved(
        self, ledger: "Ledger", provider: str, least: float, most: float, waits: Callable[[str], None]
    ) -> int:
        has_waited = False
        while True:
            if (wait := await asyncio.to_thread(ledger.limited_s, provider)) > 0:
                await asyncio.sleep(wait)
                continue
            found = await asyncio.to_thread(ledger.reserve, least, most)
            if found == "never":
                money = await asyncio.to_thread(ledger.money)
                spent, ceiling = money_text(money.spent), money_text(money.ceiling or 0.0)
                raise SharedCeilingReached(self._refusal.format(spent=spent, ceiling=ceiling))
            if isinstance(found, int):
                return found
            if not has_waited:
                has_waited = True
                ceiling = money_text((await asyncio.to_thread(ledger.money)).ceiling or 0.0)
                waits(WAITS.format(most=money_text(most), ceiling=ceiling))
            await asyncio.sleep(LOOK_AGAIN_S)

    async def limited(self, profile: ModelProfile, until: float) -> None:
        """The provider takes no calls until then: the other processes wait, too."""
        await asyncio.to_thread((await asyncio.to_thread(self._ledger)).limit, profile.provider, until)
