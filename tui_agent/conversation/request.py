"""A request to a model, and rendering a fold as one: messages valid for every provider, and their raw sizes.

Rendering starts at the first message that changed, so between two calls it costs what is new. Along the way it keeps a
hash of everything said so far, reasoning aside: reasoning is a function of that hash, so leaving it out loses nothing.
The messages themselves are put together when they are asked for, from what the log says; what did not change since is
the same object then.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from struct import Struct
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
    Mark,
    MessageState,
    Segment,
    counts_of,
    mark_of,
    marks_of,
    render,
    segments_of,
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


class _Reached(NamedTuple):
    """How far the request had come after one message state: how many messages, the blocks of the newest one, the hash
    of all that was said, how large the messages were, and of that the results, with their number.
    """

    messages: int
    blocks: int
    prefix: bytes
    size: Size
    results: Size = NOTHING
    answers: int = 0


class _Course:
    """How far the request had come after each message state, in a third of the memory that objects take."""

    _PLACE: Final = Struct("=qq16sqqdqqdq")

    def __init__(self, places: bytes | bytearray = b"") -> None:
        self._places = bytearray(places)

    def copy(self) -> "_Course":
        return _Course(self._places)

    def append(self, reached: _Reached) -> None:
        size, results = reached.size, reached.results
        self._places += self._PLACE.pack(
            reached.messages,
            reached.blocks,
            reached.prefix,
            *(size.ascii, size.other, size.images),
            *(results.ascii, results.other, results.images),
            reached.answers,
        )

    def truncate(self, count: int) -> None:
        del self._places[count * self._PLACE.size :]

    def __len__(self) -> int:
        return len(self._places) // self._PLACE.size

    def __getitem__(self, index: int) -> _Reached:
        place = self._PLACE.unpack_from(self._places, index * self._PLACE.size)
        messages, blocks, prefix, *sizes, answers = place
        return _Reached(messages, blocks, prefix, Size(*sizes[:3]), Size(*sizes[3:]), answers)


class Rendering:
    """What the next request says of a fold; `refresh` brings it up to date. `messages` is how many messages that is."""

    def __init__(self, policy: ReasoningPolicy) -> None:
        self.policy = policy
        self.messages = 0
        self.sizes: dict[Category, Size] = dict.fromkeys(CATEGORIES, NOTHING)
        self.prefix = b""
        self.live: dict[int, MessageState] = {}
        self.counts = NO_COUNTS
        self._root = b""
        self._seen_prefix = -1
        self._course = _Course()
        self._written: list[RequestMessage] = []
        self._written_states = 0
        self._boundary_sizes: dict[int, Size] = {}
        self._kept = (0, "", "")

    def copy(self, fold: Fold) -> "Rendering":
        """Another rendering that goes on by itself; `fold` is a copy of the fold this one renders."""
        other = Rendering(self.policy)
        other.__dict__.update(self.__dict__)
        other._written, other.sizes, other._course = list(self._written), dict(self.sizes), self._course.copy()
        other._boundary_sizes = dict(self._boundary_sizes)
        other.live = {seq: state for seq in self.live if (state := fold.state_of(seq)) is not None}
        return other

    def let_go(self) -> None:
        """Free its messages one by one."""
        self.live.clear()
        while self._written:
            self._written.pop()

    def refresh(self, fold: Fold) -> None:
        """Render what changed since the last call."""
        self._read_prefix(fold)
        self._read_words(fold)
        start = min(fold.dirty, len(self._course))
        reached = self._course[start - 1] if start else _Reached(0, 0, self._root, NOTHING)
        if start < len(fold.states):
            self._rewind(start, reached)
        for state in fold.states[start:]:
            for seq in state.anchored:
                reached = self._pass_boundary(fold, seq, reached)
            reached = self._pass_state(fold, state, reached)
            self._course.append(reached)
        self.prefix, self.messages = reached.prefix, reached.messages
        fold.dirty = len(fold.states)

    def write(self, fold: Fold) -> list[RequestMessage]:
        """The request's messages, oldest first. It must be up to date."""
        for state in fold.states[self._written_states :]:
            for seq in state.anchored:
                for text in self._told_at(fold, seq):
                    self._write(Segment("user", (Text(text),)))
            for segment in segments_of(state, fold.log, fold.active):
                self._write(segment)
        self._written_states = len(fold.states)
        return list(self._written)

    def before_tail(self, fits: Callable[[Size], bool]) -> "BeforeTail":
        """What stands before the tail: as many of the newest states as `fits` lets in.

        Costs the logarithm of the conversation's length.
        """
        first = bisect_left(range(len(self._course)), True, key=lambda index: fits(self.after(index)))
        if not first:
            return BeforeTail(0, NOTHING, 0, self._end.size)
        reached = self._course[first - 1]
        return BeforeTail(reached.messages, reached.results, reached.answers, self.after(first - 1))

    def after(self, index: int) -> Size:
        """The size of all messages that follow the state at `index`."""
        return self._end.size.minus(self._course[index].size)

    @property
    def _end(self) -> _Reached:
        count = len(self._course)
        return self._course[count - 1] if count else _Reached(0, 0, self._root, NOTHING)

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

    def _rewind(self, start: int, reached: _Reached) -> None:
        self._course.truncate(start)
        if start < self._written_states:
            self._written_states = start
            del self._written[reached.messages :]
            if self._written and len(self._written[-1].blocks) > reached.blocks:
                newest = self._written[-1]
                self._written[-1] = RequestMessage(newest.role, newest.blocks[: reached.blocks])

    def _told_at(self, fold: Fold, seq: int) -> list[str]:
        """The texts that stand where a boundary does."""
        text = fold.anchors[seq].text if fold.owned.get(seq) else ""
        return [each for each in (text, *(self._kept[1:] if self._kept[0] == seq else ())) if each.strip()]

    def _pass_boundary(self, fold: Fold, seq: int, reached: _Reached) -> _Reached:
        told = self._told_at(fold, seq)
        size, before = size_of_text(*told), self._boundary_sizes.get(seq, NOTHING)
        if size != before:
            self.sizes["summaries"] = self.sizes["summaries"].minus(before).plus(size)
        self._boundary_sizes[seq] = size
        for each in told:
            reached = _after(reached, mark_of("user", (Text(each),)))
        return reached._replace(size=reached.size.plus(size))

    def _pass_state(self, fold: Fold, state: MessageState, reached: _Reached) -> _Reached:
        with_reasoning = (
            state.reasonings > 0
            and state.model == self.policy.model
            and (not self.policy.bound or state.prefix_hash == reached.prefix.hex())
        )
        if state.stale or with_reasoning != state.with_reasoning:
            state.with_reasoning = with_reasoning
            self._rerender(fold, state)
        for mark in marks_of(state.marks):
            reached = _after(reached, mark)
        size, results, answers = reached.size, reached.results, reached.answers
        for each in state.sizes.values():
            size = size.plus(each)
        if "results" in state.sizes:
            results, answers = results.plus(state.sizes["results"]), answers + len(state.results)
        return _Reached(reached.messages, reached.blocks, reached.prefix, size, results, answers)

    def _rerender(self, fold: Fold, state: MessageState) -> None:
        for category, size in state.sizes.items():
            self.sizes[category] = self.sizes[category].minus(size)
        if state.shown and not state.covered_by:
            render(state, fold.log, fold.active)
        else:
            state.marks, state.sizes = b"", NO_SIZES
        for category, size in state.sizes.items():
            self.sizes[category] = self.sizes[category].plus(size)
        state.stale = False
        self._count(state)
        if state.marks and any(place.state in LIVE for place in state.results.values()):
            self.live[state.seq] = state
        else:
            self.live.pop(state.seq, None)

    def _count(self, state: MessageState) -> None:
        before, state.counts = state.counts, counts_of(state)
        if state.counts != before:
            changes = zip(self.counts, before, state.counts, strict=True)
            self.counts = Counts(*(all_of_it - old + new for all_of_it, old, new in changes))

    def _write(self, segment: Segment) -> None:
        written = self._written
        if not written and segment.role == "assistant":
            written.append(RequestMessage("user", (Text(OPENING),)))
        if written and written[-1].role == segment.role:
            written[-1] = RequestMessage(segment.role, written[-1].blocks + segment.blocks)
        else:
            written.append(RequestMessage(segment.role, segment.blocks))


def _after(reached: _Reached, mark: Mark) -> _Reached:
    """How far the request comes with one more segment, put together as `Rendering.write` does."""
    messages, blocks = reached.messages, reached.blocks
    if not messages and mark.role == "assistant":
        messages, blocks = 1, 1
    same = messages > 0 and role_of_last(messages) == mark.role
    prefix = blake2b(reached.prefix + mark.digest, digest_size=16).digest()
    if same:
        return _Reached(messages, blocks + mark.blocks, prefix, *reached[3:])
    return _Reached(messages + 1, mark.blocks, prefix, *reached[3:])


def role_of_last(messages: int) -> Role:
    """Who says the last one of so many messages: the first is the user's, and they take turns."""
    return "user" if messages % 2 else "assistant"


def words_block(words: Sequence[Words], shown: Collection[int] = ()) -> str:
    """What is kept of the user's own words once summaries cover them, as it stands behind the newest summary.

    Empty where there is nothing to say. What is `shown` where it stands is left out.
    """
    lines = [f"- {_indented(each.text)}" for each in words if each.text and each.seq not in shown]
    return "\n".join((WORDS_HEADING, *lines)) if lines else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
