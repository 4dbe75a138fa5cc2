"""The watchdog: detects a stuck model by its behaviour.

An observer turns the log into a sequence of observations, each reported once. Signals watch these for one pattern each,
and alert once while the pattern lasts. A custom signal is a class with `name` and `observe`; a custom watchdog is any
`Watchdog`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Delivered, Message
from tui_agent.conversation.view import View
from tui_agent.models.usage import UsageTracker
from tui_agent.settings.schema import WatchdogSettings
from tui_agent.text import money_text, one_line
from tui_agent.tools.base import Effect


class UserSpoke(msgspec.Struct, frozen=True):
    """The user said something: a turn begins, or continues with new words. `time`: seconds since the epoch."""

    time: float = 0.0


class ModelAnswered(msgspec.Struct, frozen=True):
    """A model call ended.

    spoke: the answer has text for the user. tokens: the size of its request and answer. window: of the model, in
    tokens; 0: unknown. cost_usd: spent since the previous answer, including subtasks.
    """

    spoke: bool = False
    tokens: int = 0
    window: int = 0
    cost_usd: float = 0.0
    time: float = 0.0


class ToolCalled(msgspec.Struct, frozen=True):
    """The model called a tool; `arguments`: JSON text as the model wrote it."""

    name: str
    arguments: str


class ToolAnswered(msgspec.Struct, frozen=True):
    """A call has its result. `effect`: the worst its tool can do."""

    name: str
    effect: Effect
    failed: bool = False


Observation: TypeAlias = UserSpoke | ModelAnswered | ToolCalled | ToolAnswered


class Observer:
    """Reads a view's log, each time from where it last stopped."""

    def __init__(self, view: View, tracker: UsageTracker, effect_of: Callable[[str], Effect]) -> None:
        """`effect_of`: maps a tool's name to its effect."""
        self._view = view
        self._tracker = tracker
        self._effect_of = effect_of
        self._read = len(view.log)
        self._cost_usd = tracker.session.cost_usd

    def observe(self, window: int) -> Iterator[Observation]:
        """The observations since the last call, oldest first; `window`: of the active model, in tokens."""
        while self._read < len(self._view.log):
            self._read += 1
            yield from self._facts(self._view.log[self._read], window)

    def _facts(self, entry: AnyEntry, window: int) -> Iterator[Observation]:
        match entry:
            case Message(role="assistant"):
                yield from self._answer(entry, window)
            case Message(kind="tool_result"):
                for block in entry.blocks:
                    call = self._view.call(block.call_id) if isinstance(block, ToolResult) else None
                    if isinstance(block, ToolResult) and call is not None:
                        yield ToolAnswered(call.name, self._effect_of(call.name), block.is_error)
            case Delivered() | Message(kind=""):
                yield UserSpoke(entry.time)

    def _answer(self, message: Message, window: int) -> Iterator[Observation]:
        usage = message.usage
        if usage is not None:
            spoke = any(isinstance(block, Text) and block.text.strip() for block in message.blocks)
            before, self._cost_usd = self._cost_usd, self._tracker.session.cost_usd
            tokens = usage.input_tokens + usage.output_tokens
            yield ModelAnswered(spoke, tokens, window, self._cost_usd - before, message.time)
        for block in message.blocks:
            if isinstance(block, ToolCall):
                yield ToolCalled(block.name, block.malformed or block.arguments)


SHORTEST_BURN_S = 60.0
"""Cost rates are measured over at least this many seconds, so that one expensive first call does not alert."""

LONGEST_CYCLE = 6
"""So many different calls at most are recognised as a loop when they are made again and again."""

WAITING = frozenset(("command_output",))
"""Tools that are called repeatedly to wait for something."""


class WatchdogAlert(msgspec.Struct, frozen=True):
    """A detected pattern: the signal's name, and a sentence for people."""

    signal: str
    text: str


class Signal(Protocol):
    @property
    def name(self) -> str: ...

    def observe(self, observation: Observation) -> str:
        """Take in the next observation; returns a sentence if it completes the pattern, else an empty string."""


class Watchdog(Protocol):
    """Takes in observations and returns alerts."""

    def observe(self, observation: Observation) -> tuple[WatchdogAlert, ...]: ...


class SignalWatchdog:
    def __init__(self, signals: Iterable[Signal]) -> None:
        self._signals = tuple(signals)

    def observe(self, observation: Observation) -> tuple[WatchdogAlert, ...]:
        findings = ((signal.name, signal.observe(observation)) for signal in self._signals)
        return tuple(WatchdogAlert(name, text) for name, text in findings if text)


def default_watchdog(limits: WatchdogSettings, *more: Signal) -> SignalWatchdog:
    """A watchdog of the built-in signals whose limits are not 0, and `more`."""
    signals: dict[Signal, float] = {
        RepeatedCalls(limits.repeated_calls): limits.repeated_calls,
        ToolsWithoutText(limits.tools_without_text): limits.tools_without_text,
        FilesNotTouched(limits.files_not_touched): limits.files_not_touched,
        ContextGrowth(limits.context_growth_share): limits.context_growth_share,
        CostBurn(limits.cost_burn_usd_per_minute): limits.cost_burn_usd_per_minute,
    }
    return SignalWatchdog((*(signal for signal, limit in signals.items() if limit), *more))


class RepeatedCalls:
    """The same call `limit` times in a row, or the same few calls in the same order: the same tools with exactly the
    same arguments.

    Waiting for a running command does not count. A context step in between changes nothing: a model whose results leave
    the view before it uses them calls for them again and again.
    """

    name = "repeated-tool-call"

    def __init__(self, limit: int = 5) -> None:
        self._limit = limit
        self._recent: deque[ToolCalled] = deque(maxlen=LONGEST_CYCLE)
        self._runs = dict.fromkeys(range(1, LONGEST_CYCLE + 1), 0)
        """By the length of a cycle, how many of the newest calls in a row are the same as that many calls earlier."""
        self._alerted = False

    def observe(self, observation: Observation) -> str:
        match observation:
            case ToolCalled(name=name) if name not in WAITING:
                return self._follow(observation)
            case UserSpoke():
                self._recent.clear()
                self._runs = dict.fromkeys(self._runs, 0)
                self._alerted = False
        return ""

    def _follow(self, call: ToolCalled) -> str:
        for length, run in self._runs.items():
            same = len(self._recent) >= length and self._recent[-length] == call
            self._runs[length] = run + 1 if same else 0
        self._recent.append(call)
        length = next((each for each, run in self._runs.items() if run >= each * (self._limit - 1)), 0)
        before, self._alerted = self._alerted, length > 0
        if before or not length:
            return ""
        if length == 1:
            return f"{call.name} was called {self._limit} times in a row with {one_line(call.arguments, 200)}."
        cycle = "; ".join(one_line(f"{each.name} {each.arguments}", 80) for each in list(self._recent)[-length:])
        return f"The same {length} calls were made {self._limit} times in a row: {cycle}."


class ToolsWithoutText:
    """`limit` tool calls without any text for the user."""

    name = "tools-without-text"

    def __init__(self, limit: int = 60) -> None:
        self._limit, self._calls = limit, 0

    def observe(self, observation: Observation) -> str:
        match observation:
            case ToolCalled():
                self._calls += 1
                if self._calls == self._limit:
                    return f"{self._limit} tool calls without a word about what they are for."
            case ModelAnswered(spoke=True) | UserSpoke():
                self._calls = 0
        return ""


class FilesNotTouched:
    """`limit` tool calls since the user spoke without a file tool changing a file."""

    name = "files-not-touched"

    def __init__(self, limit: int = 80) -> None:
        self._limit, self._calls = limit, 0

    def observe(self, observation: Observation) -> str:
        match observation:
            case ToolAnswered(effect="write", failed=False) | UserSpoke():
                self._calls = 0
            case ToolAnswered():
                self._calls += 1
                if self._calls == self._limit:
                    return f"{self._limit} tool calls without a change to any file."
        return ""


class ContextGrowth:
    """The calls since the user spoke added more than `share` of the model's window to the context.

    Only growth is summed up, so a compaction in between hides none of it.
    """

    name = "context-growth"

    def __init__(self, share: float = 0.5) -> None:
        self._share = share
        self._last, self._added, self._alerted = 0, 0, False

    def observe(self, observation: Observation) -> str:
        match observation:
            case UserSpoke():
                self._last, self._added, self._alerted = 0, 0, False
            case ModelAnswered():
                if self._last:
                    self._added += max(0, observation.tokens - self._last)
                self._last = observation.tokens
                if not self._alerted and observation.window and self._added >= self._share * observation.window:
                    self._alerted = True
                    share = self._added / observation.window
                    return f"This turn has added {self._added:,} tokens to the context, {share:.0%} of the window."
        return ""


class CostBurn:
    """More than `usd_per_minute` USD a minute were spent since the user spoke."""

    name = "cost-burn"

    def __init__(self, usd_per_minute: float = 5.0) -> None:
        self._most = usd_per_minute
        self._began, self._spent, self._alerted = 0.0, 0.0, False

    def observe(self, observation: Observation) -> str:
        match observation:
            case UserSpoke():
                self._began, self._spent, self._alerted = observation.time, 0.0, False
            case ModelAnswered():
                self._began = self._began or observation.time
                self._spent += observation.cost_usd
                rate = 60 * self._spent / max(SHORTEST_BURN_S, observation.time - self._began)
                if not self._alerted and rate >= self._most:
                    self._alerted = True
                    return f"This turn costs {money_text(rate)} a minute."
        return ""
