"""Requests to a model, and rendering a fold as one: messages valid for every provider, and their raw sizes.

Rendering starts at the first message that changed, so between two calls it costs only what is new. It keeps a hash of
everything that is sent up to each message, reasoning included: whether a message's reasoning is sent depends on nothing
but that hash. Earlier versions stored a hash that leaves reasoning out; it is kept beside the other for their sessions.
The messages themselves are built from the log when they are needed; unchanged ones are the same objects as before.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Image, Text, ToolDefinition
from tui_agent.conversation.entries import Boundary, Prefix, Role, Words
from tui_agent.conversation.fold import Fold
from tui_agent.conversation.sizes import (
    CATEGORIES,
    NOTHING,
    Category,
    TextSize,
    size_of_block,
    size_of_text,
    size_of_tools,
    total_size,
)
from tui_agent.conversation.states import (
    NO_COUNTS,
    NO_SIZES,
    Counts,
    Fingerprint,
    ItemState,
    MessageState,
    RequestMessage,
    counts_of,
    fingerprint_of,
    render,
    segments_of,
    unpack_fingerprints,
    written_out,
)
from tui_agent.conversation.wire import read_opaque

__all__ = ["ModelRequest", "ReasoningPolicy", "Rendering", "RequestMessage"]

LIVE: frozenset[ItemState] = frozenset(("verbatim", "preview", "restored", "shortened"))
"""States in which the request contains a result's content, at least in part."""

OPENING = "[The conversation goes on from here.]"

WORDS_HEADING: Final = (
    "[What the user said, in their own words, oldest first, each after its time (UTC). Where two statements differ, "
    "the later one holds.]"
)
CARRIED_HEADING: Final = "[From before the summary, as it was:]"

WITH_REASONING: Final = "r:"
"""Begins a stored prefix hash that covers reasoning; one without it is an earlier version's, which leaves it out."""


CacheHours: TypeAlias = Literal["", "prefix", "all"]
"""What of a request a provider is asked to keep for an hour: nothing, the system prompt and the tools, or all."""


class ModelRequest(msgspec.Struct, frozen=True):
    """The input of one model call. `max_tokens` limits the answer.

    `cache_edges` are the indices of messages after which a cached prefix may end, ascending; adapters add one after the
    system prompt and one after the newest message. `one_off`: no later request shares its prefix, so do not write it to
    a cache, for which some providers charge. `follows` is the provider's id of the answer to the request this one
    extends (empty: there was none), for providers that explain cache misses; None: do not ask for an explanation.
    `summarize`: the provider is to summarise the messages and sign that, instead of answering, as these instructions
    say (empty: as it does by itself); None: an answer is wanted. `cache_hours`: what to keep for an hour.
    """

    system: str
    tools: tuple[ToolDefinition, ...]
    messages: tuple[RequestMessage, ...]
    max_tokens: int
    cache_edges: tuple[int, ...] = ()
    one_off: bool = False
    follows: str | None = None
    summarize: str | None = None
    cache_hours: CacheHours = ""


class ReasoningPolicy(msgspec.Struct, frozen=True):
    """Which reasoning is sent: only that of `model` and, if it is `bound`, only after an unchanged prefix. `signed`:
    its provider takes the summaries that it signed for the messages they summarise.

    Newer Claude models bind a thinking block to the system prompt, the tools and every earlier message
    (Anthropic, extended thinking: preserved thinking).
    """

    model: str = ""
    bound: bool = True
    signed: bool = False


def takes_signed(signed: str, model: str, *, signs: bool) -> bool:
    """Whether a model takes a summary as its provider `signed` it; what only one model can read, that one takes."""
    only = read_opaque(signed).get("model")
    return bool(signed) and (signs if only is None else only == model)


class RequestStart(msgspec.Struct, frozen=True):
    """The beginning of a request: its messages, its prefix hash and size. `whole`: what follows it, if anything, begins
    a message of its own.
    """

    messages: tuple["RequestMessage", ...]
    prefix_hash: str
    size: TextSize
    whole: bool


class RequestHead(msgspec.Struct, frozen=True):
    """A request split before its tail: the number of messages before it, the size and the number of the results among
    them, and the size of the tail.
    """

    messages: int
    results: TextSize
    result_count: int
    tail: TextSize


class _Totals(msgspec.Struct, frozen=True, gc=False):
    """The request up to and including one message state: the number of messages, the number of blocks in the last one,
    the hash of it and `bare`, the hash of everything but reasoning, the size, and the size and number of the results.
    """

    messages: int
    blocks: int
    prefix: bytes
    bare: bytes
    size: TextSize
    results: TextSize = NOTHING
    result_count: int = 0

    @property
    def hashes(self) -> tuple[str, str]:
        """The hash as answers store it now, and as earlier versions stored it."""
        return WITH_REASONING + self.prefix.hex(), self.bare.hex()


class Rendering:
    """The next request for a fold; `refresh` brings it up to date.

    `messages` is the number of messages, `sizes` their sizes by category, `prefix_hash` identifies all of it. `live`
    are the states with results whose content is sent, by number.
    """

    def __init__(self, policy: ReasoningPolicy) -> None:
        self.policy = policy
        self.messages = 0
        self.sizes: dict[Category, TextSize] = dict.fromkeys(CATEGORIES, NOTHING)
        self.prefix_hash = ""
        self.live: dict[int, MessageState] = {}
        self.counts = NO_COUNTS
        self._root = b""
        self._prefix_seq = -1
        self._running: list[_Totals] = []
        self._written: list[RequestMessage] = []
        self._written_states = 0
        self._boundary_sizes: dict[int, TextSize] = {}
        self._shown_words = (0, "", "")

    def copy(self, fold: Fold) -> "Rendering":
        """An independent copy; `fold` is a copy of the fold this one renders."""
        other = Rendering(self.policy)
        other.__dict__.update(self.__dict__)
        other._written, other.sizes, other._running = list(self._written), dict(self.sizes), list(self._running)
        other._boundary_sizes = dict(self._boundary_sizes)
        other.live = {seq: state for seq in self.live if (state := fold.state_of(seq)) is not None}
        return other

    def refresh(self, fold: Fold) -> None:
        """Render what has changed since the last call."""
        self._read_prefix(fold)
        self._read_words(fold)
        self._forget(fold)
        start = min(fold.dirty, len(self._running))
        totals = self._after_states(start)
        self._rewind(start, totals)
        for state in fold.states[start:]:
            for seq in state.opened_boundaries:
                totals = self._pass_boundary(fold, seq, state, totals)
            totals = self._pass_state(fold, state, totals)
            self._running.append(totals)
        self.prefix_hash, self.messages = totals.hashes[0], totals.messages
        fold.dirty = len(fold.states)

    def write(self, fold: Fold) -> list[RequestMessage]:
        """The request's messages, oldest first. Call `refresh` first."""
        for state in fold.states[self._written_states :]:
            for seq in state.opened_boundaries:
                for block in self._boundary_blocks(fold, seq, state, first=not self._written):
                    self._write(RequestMessage("user", (block,)))
            for segment in segments_of(state, fold.log, fold.active):
                self._write(segment)
        self._written_states = len(fold.states)
        return list(self._written)

    def until(self, fold: Fold, index: int) -> RequestStart:
        """The request up to and including the state at `index`."""
        totals = self._after_states(index + 1)
        messages = tuple(self.write(fold)[: totals.messages])
        whole = not messages or len(messages[-1].blocks) == totals.blocks
        return RequestStart(messages, totals.hashes[0], totals.size, whole)

    def before_tail(self, fits: Callable[[TextSize], bool]) -> "RequestHead":
        """The part before the tail, which is as many of the newest states as `fits` accepts by their total size.

        Costs O(log n) in the conversation's length.
        """
        first = bisect_left(range(len(self._running)), True, key=lambda index: fits(self.after(index)))
        totals = self._after_states(first)
        return RequestHead(totals.messages, totals.results, totals.result_count, self.after(first - 1))

    def after(self, index: int) -> TextSize:
        """The total size of the messages after the state at `index`; -1: of all."""
        return self._after_states(len(self._running)).size.minus(self._after_states(index + 1).size)

    def _after_states(self, count: int) -> _Totals:
        return self._running[count - 1] if count else _Totals(0, 0, self._root, self._root, NOTHING)

    def _read_prefix(self, fold: Fold) -> None:
        seq = fold.prefix.seq if fold.prefix else 0
        if seq == self._prefix_seq:
            return
        self._prefix_seq = seq
        system, tools = (fold.prefix.system, fold.prefix.tools) if fold.prefix else ("", ())
        self.sizes["system"] = size_of_text(system)
        self.sizes["tools"] = size_of_tools(tools)
        self._root = _root_of(fold.prefix)

    def _read_words(self, fold: Fold) -> None:
        if not fold.words_stale:
            return
        fold.words_stale = False
        kept = fold.words()
        seq = kept.boundary
        current = (seq, words_block(kept.words, left_out=kept.left_out), fold.boundaries[seq].state if seq else "")
        if current != self._shown_words:
            for boundary in (self._shown_words[0], seq):
                if boundary in fold.boundaries:
                    fold.dirty = min(fold.dirty, fold.index_of(fold.boundaries[boundary].first))
            self._shown_words = current

    def _forget(self, fold: Fold) -> None:
        """Take what the fold has dropped out of the totals."""
        for state in fold.dropped:
            self._total(state.sizes, state.counts, NO_SIZES, NO_COUNTS)
            self.live.pop(state.seq, None)
        fold.dropped.clear()
        for place in [each for each in self._boundary_sizes if abs(each) not in fold.boundaries]:
            self.sizes["summaries"] = self.sizes["summaries"].minus(self._boundary_sizes.pop(place))

    def _total(
        self, sizes: Mapping[Category, TextSize], counts: Counts, now: Mapping[Category, TextSize], counts_now: Counts
    ) -> None:
        """Change the totals by a state whose sizes and counts have changed."""
        for category, size in sizes.items():
            self.sizes[category] = self.sizes[category].minus(size)
        for category, size in now.items():
            self.sizes[category] = self.sizes[category].plus(size)
        if counts != counts_now:
            self.counts = self.counts.changed(counts, counts_now)

    def _rewind(self, start: int, totals: _Totals) -> None:
        del self._running[start:]
        if start < self._written_states:
            self._written_states = start
            del self._written[totals.messages :]
            if self._written and len(self._written[-1].blocks) > totals.blocks:
                newest = self._written[-1]
                self._written[-1] = RequestMessage(newest.role, newest.blocks[: totals.blocks])

    def _boundary_blocks(self, fold: Fold, seq: int, state: MessageState, *, first: bool) -> list[Text | Image]:
        """What the request contains for a boundary before this state: its own text, then what it carries, the user's
        words and the state of the work. These stand at the annex of a signed one, unless that is covered. `first`:
        nothing stands before.
        """
        boundary, annex = fold.boundaries[seq], fold.state_at(seq)
        own = boundary.text if fold.hidden_counts.get(seq) and state is not annex else ""
        taken = first and takes_signed(boundary.signed, self.policy.model, signs=self.policy.signed)
        texts: list[Text | Image] = [Text(own, boundary.signed if taken else "")]
        if annex is None:
            texts += map(Text, self._shown_words[1:] if self._shown_words[0] == seq else ())
        elif annex.covered_by:
            texts += (*self._carried(fold, boundary), Text(boundary.facts)) if own else ()
        elif annex is state and annex.shown:
            words = words_block(boundary.words, left_out=boundary.left_out)
            if self._shown_words[0] == seq and fold.words_edited_since(seq):
                words = self._shown_words[1]
            texts += (*self._carried(fold, boundary), *map(Text, (words, boundary.state, boundary.facts)))
        return [each for each in texts if isinstance(each, Image) or each.text.strip()]

    def _carried(self, fold: Fold, boundary: Boundary) -> Iterator[Text | Image]:
        """The groups that a signed summary carries, written out, those apart that are shown at their own place."""
        for seq in boundary.carried:
            state = fold.state_of(seq)
            if state is not None and state.covered_by == boundary.seq:
                yield Text(CARRIED_HEADING)
                yield from written_out(state, fold.log, fold.active)

    def _pass_boundary(self, fold: Fold, seq: int, state: MessageState, totals: _Totals) -> _Totals:
        blocks, place = self._boundary_blocks(fold, seq, state, first=not totals.messages), seq
        if state is fold.state_at(seq):
            place = -seq
            if state.shown and not state.covered_by:
                # What is said from here on is bound to the summary, even if there is nothing to add.
                prefix = blake2b(totals.prefix + b"annex" + str(seq).encode(), digest_size=16).digest()
                totals = msgspec.structs.replace(totals, prefix=prefix, bare=prefix)
        size, before = total_size(map(size_of_block, blocks)), self._boundary_sizes.get(place, NOTHING)
        if size != before:
            self.sizes["summaries"] = self.sizes["summaries"].minus(before).plus(size)
        self._boundary_sizes[place] = size
        for each in blocks:
            totals = _totals_with(totals, fingerprint_of("user", (each,)))
            if isinstance(each, Text) and each.opaque:
                through = self._through(fold, seq)
                totals = msgspec.structs.replace(totals, prefix=through, bare=through)
        return msgspec.structs.replace(totals, size=totals.size.plus(size))

    def _through(self, fold: Fold, seq: int) -> bytes:
        """The prefix hash behind a signed summary: that of what it summarises while system prompt and tools are those
        under which it was signed. Under others, the provider takes no reasoning from before it.
        """
        through = bytes.fromhex(fold.boundaries[seq].through.removeprefix(WITH_REASONING))
        if _root_of(fold.signed_under.get(seq)) == self._root:
            return through
        return blake2b(self._root + through, digest_size=16).digest()

    def _pass_state(self, fold: Fold, state: MessageState, totals: _Totals) -> _Totals:
        with_reasoning = (
            state.reasonings > 0
            and state.model == self.policy.model
            and (not self.policy.bound or state.prefix_hash in totals.hashes)
        )
        if state.stale or with_reasoning != state.with_reasoning:
            state.with_reasoning = with_reasoning
            self._rerender(fold, state)
        if not state.fingerprints:
            return totals
        for fingerprint in unpack_fingerprints(state.fingerprints):
            totals = _totals_with(totals, fingerprint)
        size, results, result_count = totals.size, totals.results, totals.result_count
        size = size.plus(total_size(state.sizes.values()))
        if "results" in state.sizes:
            results, result_count = results.plus(state.sizes["results"]), result_count + len(state.results)
        return _Totals(totals.messages, totals.blocks, totals.prefix, totals.bare, size, results, result_count)

    def _rerender(self, fold: Fold, state: MessageState) -> None:
        sizes, counts = state.sizes, state.counts
        if state.shown and not state.covered_by:
            render(state, fold.log, fold.active)
        else:
            state.fingerprints, state.sizes = b"", NO_SIZES
        state.stale, state.counts = False, counts_of(state)
        self._total(sizes, counts, state.sizes, state.counts)
        if state.fingerprints and any(place.state in LIVE for place in state.results.values()):
            self.live[state.seq] = state
        else:
            self.live.pop(state.seq, None)

    def _write(self, segment: RequestMessage) -> None:
        written = self._written
        if not written and segment.role == "assistant":
            written.append(RequestMessage("user", (Text(OPENING),)))
        if written and written[-1].role == segment.role:
            written[-1] = RequestMessage(segment.role, written[-1].blocks + segment.blocks)
        else:
            written.append(segment)


def _root_of(prefix: Prefix | None) -> bytes:
    """The hash of system prompt and tools, to which reasoning is bound, as it is not to deferred definitions
    (Anthropic, tool search).
    """
    system, tools = (prefix.system, prefix.tools) if prefix is not None else ("", ())
    undeferred = [tool for tool in tools if not tool.deferred]
    return blake2b(msgspec.json.encode((system, undeferred)), digest_size=16).digest()


def _totals_with(totals: _Totals, fingerprint: Fingerprint) -> _Totals:
    """The totals with one more segment. Merges consecutive segments of one role as `Rendering._write` does."""
    messages, blocks = totals.messages, totals.blocks
    if not messages and fingerprint.role == "assistant":
        messages, blocks = 1, 1
    same = messages > 0 and role_of_last(messages) == fingerprint.role
    prefix = blake2b(totals.prefix + fingerprint.digest + fingerprint.reasoning, digest_size=16).digest()
    bare = prefix
    if fingerprint.reasoning or totals.bare != totals.prefix:
        bare = blake2b(totals.bare + fingerprint.digest, digest_size=16).digest()
    messages, blocks = (messages, blocks + fingerprint.blocks) if same else (messages + 1, fingerprint.blocks)
    return _Totals(messages, blocks, prefix, bare, totals.size, totals.results, totals.result_count)


def role_of_last(messages: int) -> Role:
    """The role of the last of so many messages: roles alternate, and the first is the user's."""
    return "user" if messages % 2 else "assistant"


def words_block(words: Sequence[Words], *, left_out: int) -> str:
    """The text that follows the newest summary: the user's own words, and how many older messages it leaves out.

    Empty if there are neither.
    """
    if not words and not left_out:
        return ""
    lines = [WORDS_HEADING]
    if left_out:
        what = "1 older message is" if left_out == 1 else f"{left_out:,} older messages are"
        lines.append(f"[{what} left out for want of room; recall finds them by their words.]")
    return "\n".join((*lines, *map(said_text, words)))


def said_text(words: Words) -> str:
    """One message in that text: a line with its time, then the words exactly as they were said."""
    time = datetime.fromtimestamp(words.time, UTC).strftime("%Y-%m-%d %H:%M") if words.time else "earlier"
    return f"[{time}]\n{words.text}"
