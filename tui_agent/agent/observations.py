"""What a watchdog sees of a session: the log read as a row of plain facts, each once.

Reading costs what is new in the log.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, ContextEntry, Delivered, HeadMoved, Message, Pinned
from tui_agent.conversation.view import View
from tui_agent.models.usage import UsageTracker
from tui_agent.tools.base import Effect


class UserSpoke(msgspec.Struct, frozen=True):
    """The user said something: a turn begins, or goes on with a new wish. `time` in seconds since the epoch."""

    time: float = 0.0


class ModelAnswered(msgspec.Struct, frozen=True):
    """A model call ended. `spoke`: the answer has words for the user. `tokens` is the size of its request with its
    answer, `window` the model's (0: unknown); `cost_usd` is what was spent since the answer before, subtasks included.
    """

    spoke: bool = False
    tokens: int = 0
    window: int = 0
    cost_usd: float = 0.0
    time: float = 0.0


class ToolCalled(msgspec.Struct, frozen=True):
    """The model asks for a call; `arguments` is JSON text as the model wrote it."""

    name: str
    arguments: str


class ToolAnswered(msgspec.Struct, frozen=True):
    """A call has its result. `effect` is the worst its tool can do."""

    name: str
    effect: Effect
    failed: bool = False


class ViewEdited(msgspec.Struct, frozen=True):
    """What the model is shown was changed: results cleared, turns summarised, something restored or undone."""


Observation: TypeAlias = UserSpoke | ModelAnswered | ToolCalled | ToolAnswered | ViewEdited


class Observer:
    """Reads a view's log on from where it last stopped."""

    def __init__(self, view: View, tracker: UsageTracker, effect_of: Callable[[str], Effect]) -> None:
        """`effect_of`: the effect of the tool of this name."""
        self._view = view
        self._tracker = tracker
        self._effect_of = effect_of
        self._read = len(view.log)
        self._cost_usd = tracker.session.cost_usd

    def observe(self, window: int) -> Iterator[Observation]:
        """What happened since the last time, oldest first; `window` is that of the model which answers."""
        while self._read < len(self._view.log):
            self._read += 1
            yield from self._facts(self._view.log[self._read], window)

    def _facts(self, entry: AnyEntry, window: int) -> Iterator[Observation]:
        match entry:
            case Message() if entry.role == "assistant":
                yield from self._answer(entry, window)
            case Message() if entry.kind == "tool_result":
                yield from self._results(entry)
            case Delivered():
                yield UserSpoke(entry.time)
            case Message() if entry.kind == "":
                yield UserSpoke(entry.time)
            case Pinned():
                pass
            case ContextEntry() | HeadMoved():
                yield ViewEdited()
            case _:
                pass

    def _results(self, message: Message) -> Iterator[Observation]:
        for block in message.blocks:
            call = self._view.call(block.call_id) if isinstance(block, ToolResult) else None
            if isinstance(block, ToolResult) and call is not None:
                yield ToolAnswered(call.name, self._effect_of(call.name), block.is_error)

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
