"""A request to a model, and rendering a fold as one: messages valid for every provider, and their raw sizes.

Rendering starts at the first message that changed, so between two calls it costs what is new. Along the way it keeps a
hash of everything said so far, reasoning aside: reasoning is a function of that hash, so leaving it out loses nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from tui_agent.conversation.blocks import Block, Text, ToolDefinition
from tui_agent.conversation.entries import Role, Words
from tui_agent.conversation.fold import Fold
from tui_agent.conversation.sizes import CATEGORIES, NOTHING, Category, Size, size_of_text, size_of_tools
from tui_agent.conversation.states import (
    NO_COUNTS,
    NO_SIZES,
    Counts,
    ItemState,
    MessageState,
    Segment,
    counts_of,
    render,
    text_segment,
)

LIVE: frozenset[ItemState] = frozenset(("verbatim", "preview", "restored", "shortened"))
"""States in which a result says more than where to find it."""

OPENING = "[The conversation goes on from here.]"

WORDS_HEADING: Final = "[What the user said, in their own words, oldest first]"


class RequestMessage(NamedTuple):
    """One message of a request: consecutive blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]


class ModelRequest(msgspec.Struct, frozen=True):
    """One call of a model. `max_tokens` bounds the answer.

    `cache_edges` are indices into `messages` after which a cached prefix may end, ascending; an adapter adds those of
    the system prompt and of the newest message. `one_off`: no later request begins like this one, so nothing of it is
    to be kept in a cache, which some providers charge for. `follows` is the provider's id of the answer to the request
    that this one grew from (empty: there was none), with which some tell why a cache was missed; None: do not ask.
    """

    system: str
    tools: tuple[ToolDefinition, ...]
    messages: tuple[RequestMessage, ...]
    max_tokens: int
    cache_edges: tuple[int, ...] = ()
    one_off: bool = False
    follows: str | None = None


class ReasoningPolicy(NamedTuple):
    """Which reasoning goes back: only what `model` made and, where it is `bound`, only under an unchanged prefix.

    Newer Claude models bind a thinking block to the system prompt, the tools and every earlier message
    (Anthropic, extended thinking: preserved thinking).
    """

    model: str = ""
    bound: bool = True


class BeforeTail(NamedTuple):
    """How many messages stand before the tail of a request, how large the results among them are, how many those are,
    and how large the tail is.
    """

    messages: int
    results: Size
    answers: int
    tail: Size


class _Mark(NamedTuple):
    """How far the request had come after one message state: how many messages, the blocks of the newest one, the hash
    of all that was said, how large the messages were, and of that the results, with their number.
    """

    messages: int
    blocks: int
    prefix: bytes
    size: Size
    results: Size = NOTHING
    answers: int = 0


class Rendering:
    """What the next request says of a fold; `refresh` brings it up to date."""

    def __init__(self, policy: ReasoningPolicy) -> None:
        self.policy = policy
        self.messages: list[RequestMessage] = []
        self.sizes: dict[Category, Size] = dict.fromkeys(CATEGORIES, NOTHING)
        self.prefix = b""
        self.live: dict[int, MessageState] = {}
        self.counts = NO_COUNTS
        self._root = b""
        self._seen_prefix = -1
        self._marks: list[_Mark] = []
        self._boundary_sizes: dict[int, Size] = {}
        self._kept = (0, "", "")

    def copy(self, fold: Fold) -> "Rendering":
        """Another rendering that goes on by itself; `fold` is a copy of the fold this one renders."""
        other = Rendering(self.policy)
        other.__dict__.update(self.__dict__)
        other.messages, other.sizes, other._marks = list(self.messages), dict(self.sizes), list(self._marks)
        other._boundary_sizes = dict(self._boundary_sizes)
        other.live = {seq: state for seq in self.live if (state := fold.state_of(seq)) is not None}
        return other

    def let_go(self) -> None:
        """Free its messages one by one."""
        self.live.clear()
        while self.messages:
            self.messages.pop()
        while self._marks:
            self._marks.pop()

    def refresh(self, fold: Fold) -> None:
        """Render what changed since the last call."""
        self._read_prefix(fold)
        self._read_words(fold)
        start = min(fold.dirty, len(self._marks))
        mark = self._marks[start - 1] if start else _Mark(0, 0, self._root, NOTHING)
        if start < len(fold.states):
            self._rewind(start, mark)
        prefix, total, results, answers = mark.prefix, mark.size, mark.results, mark.answers
        for state in fold.states[start:]:
            for seq in state.anchored:
                prefix = self._emit_boundary(fold, seq, prefix)
                total = total.plus(self._boundary_sizes[seq])
            prefix = self._emit_state(fold, state, prefix)
            for size in state.sizes.values():
                total = total.plus(size)
            if "results" in state.sizes:
                results, answers = results.plus(state.sizes["results"]), answers + len(state.results)
            newest = len(self.messages[-1].blocks) if self.messages else 0
            self._marks.append(_Mark(len(self.messages), newest, prefix, total, results, answers))
        self.prefix = prefix
        fold.dirty = len(fold.states)

    def before_tail(self, fits: Callable[[Size], bool]) -> "BeforeTail":
        """What stands before the tail: as many of the newest states as `fits` lets in.

        Costs the logarithm of the conversation's length.
        """
        first = bisect_left(range(len(self._marks)), True, key=lambda index: fits(self.after(index)))
        if not first:
            return BeforeTail(0, NOTHING, 0, self._marks[-1].size if self._marks else NOTHING)
        mark = self._marks[first - 1]
        return BeforeTail(mark.messages, mark.results, mark.answers, self.after(first - 1))

    def after(self, index: int) -> Size:
        """The size of all messages that follow the state at `index`."""
        return self._marks[-1].size.minus(self._marks[index].size)

    def _read_prefix(self, fold: Fold) -> None:
        seq = fold.prefix.seq if fold.prefix else 0
        if seq == self._seen_prefix:
            return
        self._seen_prefix = seq
        system, tools = (fold.prefix.system, fold.prefix.tools) if fold.prefix else ("", ())
        self.sizes["system"] = size_of_text(system)
        self.sizes["tools"] = size_of_tools(tools)
        # Definitions that are held back are no part of what reasoning is bound to (Anthropic, tool search).
        told = [tool for tool in tools if not tool.deferred]
        self._root = blake2b(msgspec.json.encode((system, told)), digest_size=16).digest()

    def _read_words(self, fold: Fold) -> None:
        if not fold.words_stale:
            return
        fold.words_stale = False
        seq, words = fold.words()
        told = (seq, words_block(words), fold.anchors[seq].state if seq else "")
        if told != self._kept:
            for boundary in (self._kept[0], seq):
                if boundary:
                    fold.dirty = min(fold.dirty, fold.index_of(fold.anchors[boundary].first))
            self._kept = told

    def _rewind(self, start: int, mark: _Mark) -> None:
        del self._marks[start:]
        del self.messages[mark.messages :]
        if self.messages and len(self.messages[-1].blocks) > mark.blocks:
            newest = self.messages[-1]
            self.messages[-1] = RequestMessage(newest.role, newest.blocks[: mark.blocks])

    def _emit_boundary(self, fold: Fold, seq: int, prefix: bytes) -> bytes:
        text = fold.anchors[seq].text if fold.owned.get(seq) else ""
        told = [each for each in (text, *(self._kept[1:] if self._kept[0] == seq else ())) if each.strip()]
        size, before = size_of_text(*told), self._boundary_sizes.get(seq, NOTHING)
        if size != before:
            self.sizes["summaries"] = self.sizes["summaries"].minus(before).plus(size)
        self._boundary_sizes[seq] = size
        for each in told:
            prefix = self._emit(text_segment(each), prefix)
        return prefix

    def _emit_state(self, fold: Fold, state: MessageState, prefix: bytes) -> bytes:
        with_reasoning = (
            state.reasonings > 0
            and state.model == self.policy.model
            and (not self.policy.bound or state.prefix_hash == prefix.hex())
        )
        if state.stale or with_reasoning != state.with_reasoning:
            state.with_reasoning = with_reasoning
            self._rerender(fold, state)
        for segment in state.segments:
            prefix = self._emit(segment, prefix)
        return prefix

    def _rerender(self, fold: Fold, state: MessageState) -> None:
        for category, size in state.sizes.items():
            self.sizes[category] = self.sizes[category].minus(size)
        if state.shown and not state.covered_by:
            render(state, active=fold.active)
        else:
            state.segments, state.sizes = (), NO_SIZES
        for category, size in state.sizes.items():
            self.sizes[category] = self.sizes[category].plus(size)
        state.stale = False
        self._count(state)
        if state.segments and any(place.state in LIVE for place in state.results.values()):
            self.live[state.seq] = state
        else:
            self.live.pop(state.seq, None)

    def _count(self, state: MessageState) -> None:
        before, state.counts = state.counts, counts_of(state)
        if state.counts != before:
            changes = zip(self.counts, before, state.counts, strict=True)
            self.counts = Counts(*(all_of_it - old + new for all_of_it, old, new in changes))

    def _emit(self, segment: Segment, prefix: bytes) -> bytes:
        messages = self.messages
        if not messages and segment.role == "assistant":
            messages.append(RequestMessage("user", (Text(OPENING),)))
        if messages and messages[-1].role == segment.role:
            messages[-1] = RequestMessage(segment.role, messages[-1].blocks + segment.blocks)
        else:
            messages.append(RequestMessage(segment.role, segment.blocks))
        return blake2b(prefix + segment.digest, digest_size=16).digest()


def words_block(words: Sequence[Words], shown: Collection[int] = ()) -> str:
    """What is kept of the user's own words once summaries cover them, as it stands behind the newest summary.

    Empty where there is nothing to say. What is `shown` where it stands is left out.
    """
    lines = [f"- {_indented(each.text)}" for each in words if each.text and each.seq not in shown]
    return "\n".join((WORDS_HEADING, *lines)) if lines else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
