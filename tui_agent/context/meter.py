"""The size of the next request: measured by the provider up to the last call, estimated for what came after.

That is what the last call read (including cache reads and writes) and wrote, plus the estimate of everything since,
times the model's ratio. A context step since then changes it by what the step said. Before the first measurement, and
once something else was edited, the whole request is estimated. What is in the view is estimated by how many tokens the
last call's request had for each that was estimated: in 321 recorded sessions a part of a request was off by 4.1%
without that factor, by 1.9% with it (medians). A reported figure that no tokenizer explains is billed but not used: a
server's wrong count must not make a conversation too large to continue.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tui_agent.context.counting import CLASS_OF, CONTENT_CLASSES, HIGHEST_RATIO, ContentClass, Counter, Ratios, class_of
from tui_agent.conversation.blocks import Image, Reasoning, ToolResult
from tui_agent.conversation.entries import AnyEntry, ContextEntry, Message, ModelSwitched, Prefix, Usage
from tui_agent.conversation.sizes import NOTHING, Category, TextSize, size_of_text, size_of_tools
from tui_agent.conversation.states import sent_blocks
from tui_agent.conversation.view import View

PURE = 0.95
"""A growth is a sample of one content class if that class makes up at least this share of it."""
GROWTH_WEIGHT = 0.2
"""The weight of the newest call in the average growth per call."""
CALLS_BACK = 20
"""From how many of the newest calls of a conversation that goes on the average is taken."""
SAID_FACTOR = 2
"""What was said is scaled by no more than this to explain a measurement; the rest is system prompt and tools."""
SURE_OF = 2_000
"""As many tokens more that were as estimated: of a short conversation, a small error says little."""
BELIEVED_FACTOR, BELIEVED_SLACK = 4, 4_000
"""A measurement is used if it is within this factor of the estimate, plus this many tokens."""


class Growth(msgspec.Struct, frozen=True):
    """Tokens one call adds on average: clearable ones (tool results), and all; 0 while unknown."""

    clearable: float = 0.0
    all: float = 0.0


class _Tail(msgspec.Struct):
    """Estimated tokens by class of what was said after the call of entry `call`, up to entry `read`.

    `edited`: something before was changed, by `change` tokens; `unknown`: nobody knows by how many. `pictured`: there
    were pictures among it, which say nothing of how texts are counted.
    """

    call: int
    read: int
    edited: bool = False
    unknown: bool = False
    change: int = 0
    pictured: bool = False
    tokens: dict[ContentClass, int] = msgspec.field(default_factory=dict)


class _Scale(NamedTuple):
    """Tokens measured for each that was estimated of everything, and of pictures beyond that."""

    all: float = 1.0
    pictures: float = 1.0


class TokenMeter:
    """Measures one conversation, and owns the last measurement. Reads only what was said since the last query."""

    def __init__(self, counter: Counter | None = None, ratios: Ratios | None = None) -> None:
        self.counter = counter or Counter()
        self.ratios = ratios or Ratios()
        self._tail = _Tail(0, 0)
        self._before: _Tail | None = None
        self._learned = 0
        self._growth: Growth | None = None
        self._looked_back = False
        self._moves = 0
        self._believed = True
        self._raised, self._raised_once = 1.0, False
        self._coming: dict[Category, TextSize] = {}

    def expect(self, prefix: Prefix | None) -> None:
        """Count this system prompt and these tools for as long as the view has none."""
        self._coming = {}
        if prefix is not None:
            self._coming = {"system": size_of_text(prefix.system), "tools": size_of_tools(prefix.tools)}

    def measure(self, view: View, usage: Usage) -> None:
        """Take in the usage of the call just recorded in the view, and learn the model's ratios from it."""
        call = view.last_call
        if call is None or call.seq == self._learned:
            return
        self._learned = call.seq
        if usage.input_tokens or self._raised_once:
            self.forget_refusal()
        self._read(view)
        before = self._before if self._tail.call == call.seq else None
        # The usage of an answer with searches adds up what the provider's own requests have read.
        if before is not None and not before.edited and call.model == view.model and not usage.searches:
            self._learn_growth(view, before, usage)
        self._learn_answer(view, call, usage)

    def refused(self, view: View, tokens: int, *, bound: bool = False) -> None:
        """Take in the size that a provider reported when it refused the next request as too long.

        Until the call is answered or given up, all estimates are scaled up accordingly. Before the first measurement
        it is also a sample: some servers report sizes at no other time. A `bound` is no sample, and counts until the
        next answer.
        """
        call = view.last_call
        self._raised_once = bound
        if not bound and (call is None or call.usage is None or not call.usage.input_tokens):
            estimated = sum(self.counter.categories(view).values())
            for content in CONTENT_CLASSES:
                self.ratios.learn(view.model, self.counter.shape, content, measured=tokens, estimated=estimated)
        known, fixed = sum(self.categories(view).values()), self._exact(view)
        raised = (tokens - fixed) / max(1, known - fixed)
        if raised <= HIGHEST_RATIO:
            self._raised = max(1.0, raised)

    def forget_bound(self) -> None:
        """No longer scale estimates by a bound."""
        if self._raised_once:
            self.forget_refusal()

    def forget_refusal(self) -> None:
        """No longer scale estimates by what was refused: a restart would not, either."""
        self._raised, self._raised_once = 1.0, False

    def _exact(self, view: View) -> int:
        """Tokens whose estimate is not scaled: a bound says nothing of system prompt and tools, which are prose."""
        return self.fixed(view) if self._raised_once else 0

    @property
    def measured(self) -> bool:
        """Whether the last returned size is based on a measurement."""
        return self._tail.call > 0 and not self._tail.edited and self._believed

    def growth(self, view: View) -> Growth:
        """The average growth per call; at first, that of the newest calls of a conversation that goes on."""
        if self._growth is None and not self._looked_back and view.last_call is not None:
            self._looked_back = True
            for grown in self._earlier_growth(view):
                self._grow(*grown)
        return self._growth or Growth()

    def _earlier_growth(self, view: View) -> list[tuple[float, float]]:
        """What the newest calls added, oldest first, as `_learn_growth` would have seen it."""
        found: list[tuple[float, float]] = []
        since: list[AnyEntry] | None = None
        for entry in view.log.back():
            if isinstance(entry, Message) and entry.usage is not None and entry.usage.input_tokens > 0:
                tail = _Tail(entry.seq, 0)
                self._take(view, tail, since or ())
                if since is not None and not tail.edited:
                    results = tail.tokens.get("results", 0)
                    found.append((results, sum(tail.tokens.values()) + entry.usage.output_tokens))
                since = []
                if len(found) == CALLS_BACK:
                    break
            elif since is not None:
                since.append(entry)
        return found[::-1]

    def tokens(self, view: View) -> int:
        self._read(view)
        fixed = self._exact(view)
        known = sum(self.categories(view).values()) - fixed
        call, estimated = view.last_call, fixed + math.ceil(known * self._raised)
        self._believed = True
        if call is None or call.usage is None or not self._tail.call or self._tail.unknown:
            return max(self.whole_tokens_of(view)(view), estimated if self._raised > 1.0 else 0)
        since = sum(count * self._ratio(view, content) for content, count in self._tail.tokens.items())
        measured = max(0, call.usage.input_tokens + call.usage.output_tokens + math.ceil(since) + self._tail.change)
        self._believed = _is_believed(measured, estimated)
        return max(measured, estimated if self._raised > 1.0 else 0) if self._believed else estimated

    def _scale(self, view: View) -> _Scale:
        """How many tokens the last call's request had for each that is estimated, as far as that is believed: of what
        was said, if system prompt and tools were measured, else of everything. If they were fewer, pictures are what
        was taken for too large, for nothing differs as much from model to model; only the rest is of texts.
        """
        call = view.last_call
        if call is None or call.usage is None or not call.usage.input_tokens or call.model != view.model:
            return _Scale()
        asked = view.sizes_asked()
        measured, known = call.usage.input_tokens, self._estimated(view, asked)
        estimated, exact = sum(known.values()), self._measured_before(view, known)
        if not _is_believed(measured, estimated):
            return _Scale()
        pictures = estimated - sum(self._estimated(view, {c: _shown(size, 0) for c, size in asked.items()}).values())
        less = min(pictures, max(0, estimated - measured))
        gone = pictures if less else 0
        factor = (measured - exact - gone + less + SURE_OF) / (estimated - exact - gone + SURE_OF)
        factor = min(max(factor, 1 / BELIEVED_FACTOR), BELIEVED_FACTOR)
        return _Scale(factor, (1 - less / pictures) / factor if less else 1.0)

    def _measured_before(self, view: View, known: dict[Category, int]) -> int:
        """Tokens of system prompt and tools, if they were measured; 0 if not."""
        is_measured = self.ratios.has_sample(view.model, self.counter.shape, "fixed")
        return known["system"] + known["tools"] if is_measured else 0

    def categories(self, view: View) -> dict[Category, int]:
        """Estimated tokens of the next request by category, for the active model."""
        return self._estimated(view, self.sizes(view))

    def _estimated(self, view: View, sizes: dict[Category, TextSize]) -> dict[Category, int]:
        found: dict[Category, int] = {}
        for category, size in sizes.items():
            content = CLASS_OF[category]
            found[category] = math.ceil(self.counter.size(size, content) * self._ratio(view, content))
        return found

    def sizes(self, view: View) -> dict[Category, TextSize]:
        """Raw sizes of the next request by category, with the system prompt and tools that the view is to get."""
        return view.sizes() | (self._coming if view.prefix is None else {})

    def fixed(self, view: View) -> int:
        """Tokens of the fixed part of the next request (system prompt and tools), for the active model."""
        sizes, ratio = self.sizes(view), self._ratio(view, "fixed")
        return sum(math.ceil(self.counter.size(sizes[each], "fixed") * ratio) for each in ("system", "tools"))

    def breakdown(self, view: View) -> dict[Category, int]:
        """The next request by category, adding up to `tokens`; if that is measured, estimates are scaled to it."""
        return self.shares(view, self.tokens(view))

    def shares(self, view: View, whole: int) -> dict[Category, int]:
        """The request of this view, or of one before it, by category, adding up to `whole` tokens.

        Once system prompt and tools were measured, what was said is scaled first: it does not change their size.
        """
        known = self.categories(view)
        estimated = sum(known.values())
        if estimated == whole:
            return known
        fixed = known["system"] + known["tools"]
        said, told = estimated - fixed, whole * (estimated - fixed) // max(1, estimated)
        if self.ratios.has_sample(view.model, self.counter.shape, "fixed"):
            told = min(max(whole - fixed, said // SAID_FACTOR), said * SAID_FACTOR, whole)
        parts = (whole - told, fixed), (told, said)
        scaled = {
            category: count * part // max(1, of)
            for category, count in known.items()
            for part, of in (parts[category not in ("system", "tools")],)
        }
        largest = max(scaled, key=lambda category: scaled[category])
        scaled[largest] += whole - sum(scaled.values())
        return scaled

    def result_tokens_of(self, view: View) -> Callable[[TextSize], int]:
        """A function from raw sizes of tool results in the view to tokens of the active model."""
        factor, pictures = self._scale(view)
        factor *= self._ratio(view, "results")
        return lambda size: math.ceil(self.counter.size(_shown(size, pictures), "results") * factor)

    def tokens_of_text(self, view: View, text: str, content: ContentClass = "results") -> int:
        """A text's tokens for the active model."""
        return math.ceil(self.counter.text(text, content) * self._ratio(view, content))

    def mixed_tokens_of(self, view: View) -> Callable[[TextSize], int]:
        """A function from raw sizes to tokens of the active model, for content mixed like the whole conversation."""
        known = self.categories(view)
        said = NOTHING
        for category, size in view.sizes().items():
            if category not in ("system", "tools"):
                said = said.plus(size)
        plain = self.counter.size(said, "results")
        ratio = (sum(known.values()) - known["system"] - known["tools"]) / plain if plain else 1.0
        scale, pictures = self._scale(view)
        ratio *= scale
        return lambda size: math.ceil(self.counter.size(_shown(size, pictures), "results") * ratio)

    def whole_tokens_of(self, view: View) -> Callable[[View], int]:
        """A function from this view, or one with more entries, to the estimated tokens of its request."""
        scale, pictures = self._scale(view)

        def whole(each: View) -> int:
            sizes = {category: _shown(size, pictures) for category, size in self.sizes(each).items()}
            known = self._estimated(each, sizes)
            exact = self._measured_before(view, known)
            return round(exact + (sum(known.values()) - exact) * scale)

        return whole

    def tokens_for(self, model: str, size: TextSize) -> int:
        """A raw size of prose in tokens of another model, named ``provider:id``."""
        return math.ceil(self.counter.size(size, "prose") * self.ratios.ratio(model, self.counter.shape, "prose"))

    def _ratio(self, view: View, content: ContentClass) -> float:
        """The factor for estimates; right after a switch, at least the last model's where the new one has no sample."""
        own, call = self.ratios.ratio(view.model, self.counter.shape, content), view.last_call
        if call is None or call.model == view.model or self.ratios.has_sample(view.model, self.counter.shape, content):
            return own
        return max(own, self.ratios.ratio(call.model, self.counter.shape, content))

    def _read(self, view: View) -> None:
        """Bring the tail up to date with the log."""
        call = view.last_call
        seq = call.seq if call is not None and call.usage is not None and call.usage.input_tokens > 0 else 0
        if view.moves != self._moves:
            self._moves, self._before, self._tail = view.moves, None, _Tail(seq, len(view.log))
            self._take(view, self._tail, view.log.path().after(seq))
            self.forget_refusal()  # it was of the branch that was left
        if seq < self._tail.call:
            self._before, self._tail = None, _Tail(seq, len(view.log), edited=True, unknown=True)
        elif seq > self._tail.call:
            self._before = None
            if self._tail.read:
                self._read_on(view, self._tail, until=seq - 1)
                self._before = self._tail
            self._tail = _Tail(seq, seq)
        self._read_on(view, self._tail, until=len(view.log))

    def _read_on(self, view: View, tail: _Tail, until: int) -> None:
        entries = view.log.entries()[tail.read : until]
        tail.read = max(tail.read, until)
        self._take(view, tail, entries)

    def _take(self, view: View, tail: _Tail, entries: Sequence[AnyEntry]) -> None:
        for entry in entries if tail.call else ():
            match entry:
                case ContextEntry():
                    tail.edited, tail.change = True, tail.change + entry.after - entry.before
                    tail.unknown = tail.unknown or not entry.before
                case ModelSwitched() | Prefix():
                    tail.edited = tail.unknown = True
        if tail.unknown:
            return
        for entry in entries:
            message = view.log.message(entry.seq)
            for block in sent_blocks(message) if message is not None and message.agent_visible else ():
                content = class_of(block)
                tail.pictured |= isinstance(block, Image) or (isinstance(block, ToolResult) and bool(block.images))
                tail.tokens[content] = tail.tokens.get(content, 0) + self.counter.block(block)

    def _learn_growth(self, view: View, before: _Tail, usage: Usage) -> None:
        tokens, doubt, grown = dict(before.tokens), 0, usage.input_tokens
        if before.call:
            earlier = view.log[before.call]
            if not isinstance(earlier, Message) or earlier.usage is None:
                return
            grown -= earlier.usage.input_tokens + earlier.usage.output_tokens
            # How many of the answer's tokens may be missing from the next request: those of its reasoning.
            reasons = any(isinstance(block, Reasoning) for block in earlier.blocks)
            doubt = earlier.usage.reasoning_tokens or (earlier.usage.output_tokens if reasons else 0)
            self._grow(tokens.get("results", 0), sum(tokens.values()) + earlier.usage.output_tokens)
        else:
            sizes = view.sizes()
            tokens["fixed"] = sum(self.counter.size(sizes[part], "fixed") for part in ("system", "tools"))
        total = sum(tokens.values())
        for content, count in tokens.items() if not before.pictured else ():
            if count >= PURE * total and doubt <= (1 - PURE) * total:
                self.ratios.learn(view.model, self.counter.shape, content, measured=grown, estimated=total)

    def _learn_answer(self, view: View, call: Message, usage: Usage) -> None:
        """Learn a ratio from an answer that consists of prose alone, or of calls alone."""
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


def _shown(size: TextSize, pictures: float) -> TextSize:
    """A size whose pictures count `pictures` times as much."""
    return TextSize(size.ascii, size.other, size.images * pictures) if size.images else size


def _is_believed(measured: float, estimated: float) -> bool:
    most, least = max(measured, estimated), min(measured, estimated)
    return most <= BELIEVED_FACTOR * least + BELIEVED_SLACK
