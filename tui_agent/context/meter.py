"""How large the next request is: measured where the provider has counted, estimated for what came after.

The next request is what the last call read (cache reads and writes included) and wrote, plus the estimate of what was
said since, times the model's own ratio. A measurement counts only as long as nothing before it was edited; then, and
where nothing was measured yet, the whole is estimated. A reported figure that lies far from what any tokenizer would
count is billed but not believed: a server that tells a wrong size must not make a conversation too large to go on.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tui_agent.context.counting import CLASS_OF, CONTENT_CLASSES, HIGHEST_RATIO, ContentClass, Counter, Ratios, class_of
from tui_agent.conversation.blocks import Block, Reasoning
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    Cleared,
    Delivered,
    Digested,
    Message,
    ModelSwitched,
    Pinned,
    Prefix,
    Queued,
    Restored,
    Shortened,
    Summarized,
    Undone,
    Usage,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import NOTHING, Category, Size
from tui_agent.conversation.view import View

PURE = 0.95
"""The share of a growth that one class must have for it to be a sample of that class."""
GROWTH_WEIGHT = 0.2
"""What the newest call weighs in the average growth per call."""
BELIEVED_FACTOR, BELIEVED_SLACK = 4, 4_000
"""A measured request is believed up to this many times its estimate, and so many tokens more; likewise below it."""

_EDITS = (
    Cleared,
    Digested,
    Summarized,
    Checkpointed,
    Pinned,
    Restored,
    Shortened,
    Undone,
    ModelSwitched,
    Prefix,
)


class Growth(NamedTuple):
    """Tokens one call adds on average: clearable ones (tool results), and all; 0 before anything is known."""

    clearable: float = 0.0
    all: float = 0.0


@dataclass(slots=True)
class _Tail:
    """What was said after the call recorded as entry `call`, as far as entry `read`. Estimated tokens per class."""

    call: int
    read: int
    edited: bool = False
    tokens: dict[ContentClass, int] = field(default_factory=dict)


class TokenMeter:
    """Measures one conversation. Owns the last measurement; costs what was said since it was last asked."""

    def __init__(self, counter: Counter | None = None, ratios: Ratios | None = None) -> None:
        self.counter = counter or Counter()
        self.ratios = ratios or Ratios()
        self._tail = _Tail(0, 0)
        self._before: _Tail | None = None
        self._learned = 0
        self._growth: Growth | None = None
        self._moves = 0
        self._believed = True
        self._raised = 1.0

    def measure(self, view: View, usage: Usage) -> None:
        """Take in what the call just recorded in the view has used: learn from it what its model counts."""
        call = view.last_call
        if call is None or call.seq == self._learned:
            return
        self._learned = call.seq
        self._raised = 1.0 if usage.input_tokens else self._raised
        before = self._tail_before(view, call)
        if before is not None and not before.edited and call.model == view.model:
            self._learn_growth(view, before, usage)
        self._learn_answer(view, call, usage)

    def refused(self, view: View, tokens: int) -> None:
        """Take in how many tokens a provider counted that refused the next request as too long.

        Until the next measurement all estimates are raised as far as this one was too low. Where nothing was measured
        before, it is a sample too: some servers tell what they have read at no other time.
        """
        call = view.last_call
        if call is None or call.usage is None or not call.usage.input_tokens:
            estimated = sum(self.counter.categories(view).values())
            for content in CONTENT_CLASSES:
                self.ratios.learn(view.model, self.counter.shape, content, measured=tokens, estimated=estimated)
        raised = tokens / max(1, sum(self.categories(view).values()))
        if raised <= HIGHEST_RATIO:
            self._raised = max(1.0, raised)

    @property
    def measured(self) -> bool:
        """Whether the size last told rests on a measurement."""
        return self._tail.call > 0 and not self._tail.edited and self._believed

    @property
    def growth(self) -> Growth:
        """What a call adds on average."""
        return self._growth or Growth()

    def tokens(self, view: View) -> int:
        """The size of the next request, in tokens."""
        self._read(view)
        call, estimated = view.last_call, math.ceil(sum(self.categories(view).values()) * self._raised)
        self._believed = True
        if call is None or call.usage is None or not self.measured:
            return estimated
        since = sum(count * self._ratio(view, content) for content, count in self._tail.tokens.items())
        measured = call.usage.input_tokens + call.usage.output_tokens + math.ceil(since)
        most, least = max(measured, estimated), min(measured, estimated)
        self._believed = most <= BELIEVED_FACTOR * least + BELIEVED_SLACK
        return max(measured, estimated if self._raised > 1.0 else 0) if self._believed else estimated

    def categories(self, view: View) -> dict[Category, int]:
        """The next request estimated per category, in tokens of the model that answers."""
        return {
            category: math.ceil(count * self._ratio(view, CLASS_OF[category]))
            for category, count in self.counter.categories(view).items()
        }

    def fixed(self, view: View) -> int:
        """What of the next request is there before anything is said, in tokens of the model that answers."""
        sizes, ratio = view.sizes(), self._ratio(view, "fixed")
        return sum(math.ceil(self.counter.size(sizes[each], "fixed") * ratio) for each in ("system", "tools"))

    def breakdown(self, view: View) -> dict[Category, int]:
        """The next request per category, adding up to `tokens`: where that is measured, the estimates in proportion."""
        known, whole = self.categories(view), self.tokens(view)
        estimated = sum(known.values())
        if estimated == whole:
            return known
        told = {category: count * whole // max(1, estimated) for category, count in known.items()}
        largest = max(told, key=lambda category: told[category])
        told[largest] += whole - sum(told.values())
        return told

    def tokens_of(self, view: View, size: Size, content: ContentClass = "results") -> int:
        """A raw size in tokens of the model that answers."""
        return math.ceil(self.counter.size(size, content) * self._ratio(view, content))

    def tokens_of_text(self, view: View, text: str, content: ContentClass = "results") -> int:
        """A text in tokens of the model that answers."""
        return math.ceil(self.counter.text(text, content) * self._ratio(view, content))

    def mixed_tokens_of(self, view: View) -> Callable[[Size], int]:
        """Raw sizes into tokens of the model that answers, for what is a mixture like the conversation as a whole."""
        known = self.categories(view)
        said = NOTHING
        for category, size in view.sizes().items():
            if category not in ("system", "tools"):
                said = said.plus(size)
        plain = self.counter.size(said, "results")
        ratio = (sum(known.values()) - known["system"] - known["tools"]) / plain if plain else 1.0
        return lambda size: math.ceil(self.counter.size(size, "results") * ratio)

    def tokens_for(self, model: str, size: Size) -> int:
        """A raw size of prose in tokens of another model, called ``provider:id``."""
        return math.ceil(self.counter.size(size, "prose") * self.ratios.ratio(model, self.counter.shape, "prose"))

    def _ratio(self, view: View, content: ContentClass) -> float:
        return self.ratios.ratio(view.model, self.counter.shape, content)

    def _read(self, view: View) -> None:
        """Bring the tail up to date with the log."""
        call = view.last_call
        if view.moves != self._moves:
            self._moves, self._before = view.moves, None
            self._tail = self._tail_of_branch(view)
        seq = call.seq if call is not None and call.usage is not None and call.usage.input_tokens > 0 else 0
        if seq < self._tail.call:
            self._before, self._tail = None, _Tail(seq, len(view.log), edited=True)
        elif seq > self._tail.call:
            self._before = None
            if self._tail.read:
                self._read_on(view, self._tail, until=seq - 1)
                self._before = self._tail
            self._tail = _Tail(seq, seq)
        self._read_on(view, self._tail, until=len(view.log))

    def _tail_of_branch(self, view: View) -> _Tail:
        """What was said after the newest call of the branch that the head was moved to."""
        call = view.last_call
        seq = call.seq if call is not None and call.usage is not None and call.usage.input_tokens > 0 else 0
        tail = _Tail(seq, len(view.log))
        self._take(view, tail, view.log.path().after(seq))
        return tail

    def _read_on(self, view: View, tail: _Tail, until: int) -> None:
        entries = view.log.entries()[tail.read : until]
        tail.read = max(tail.read, until)
        self._take(view, tail, entries)

    def _take(self, view: View, tail: _Tail, entries: Sequence[AnyEntry]) -> None:
        tail.edited = tail.edited or (tail.call > 0 and any(isinstance(entry, _EDITS) for entry in entries))
        if tail.edited:
            return
        for entry in entries:
            for block in _said_in(entry, view.log):
                content = class_of(block)
                tail.tokens[content] = tail.tokens.get(content, 0) + self.counter.block(block)

    def _tail_before(self, view: View, call: Message) -> _Tail | None:
        """What led up to this call: all that was said since the one before it."""
        self._read(view)
        return self._before if self._tail.call == call.seq else None

    def _learn_growth(self, view: View, before: _Tail, usage: Usage) -> None:
        tokens, doubt, grown = dict(before.tokens), 0, usage.input_tokens
        if before.call:
            earlier = view.log[before.call]
            if not isinstance(earlier, Message) or earlier.usage is None:
                return
            grown -= earlier.usage.input_tokens + earlier.usage.output_tokens
            doubt = _doubt(earlier, earlier.usage)
            self._grow(tokens.get("results", 0), sum(tokens.values()) + earlier.usage.output_tokens)
        else:
            sizes = view.sizes()
            tokens["fixed"] = sum(self.counter.size(sizes[part], "fixed") for part in ("system", "tools"))
        total = sum(tokens.values())
        for content, count in tokens.items():
            if count >= PURE * total and doubt <= (1 - PURE) * total:
                self.ratios.learn(view.model, self.counter.shape, content, measured=grown, estimated=total)

    def _learn_answer(self, view: View, call: Message, usage: Usage) -> None:
        """An answer of prose alone, or of calls alone, tells how its model counts that."""
        classes = {class_of(block) for block in call.blocks}
        if len(classes) == 1 and not usage.reasoning_tokens and call.model == view.model:
            content = classes.pop()
            if content in ("prose", "calls") and call.stop_reason != "interrupted":
                estimated = sum(map(self.counter.block, call.blocks))
                self.ratios.learn(
                    view.model, self.counter.shape, content, measured=usage.output_tokens, estimated=estimated
                )

    def _grow(self, clearable: float, everything: float) -> None:
        if self._growth is None:
            self._growth = Growth(clearable, everything)
            return
        old, weight = self._growth, GROWTH_WEIGHT
        self._growth = Growth(
            old.clearable + weight * (clearable - old.clearable), old.all + weight * (everything - old.all)
        )


def _said_in(entry: AnyEntry, log: Log) -> tuple[Block, ...]:
    """What of an entry the next request says."""
    match entry:
        case Message(agent_visible=True):
            return entry.blocks
        case Delivered():
            queued = log[entry.queued] if 1 <= entry.queued <= len(log) else None
            return queued.blocks if isinstance(queued, Queued) else ()
        case _:
            return ()


def _doubt(message: Message, usage: Usage) -> int:
    """How many of an answer's tokens may not be part of the next request: its reasoning."""
    if any(isinstance(block, Reasoning) for block in message.blocks):
        return usage.reasoning_tokens or usage.output_tokens
    return usage.reasoning_tokens
