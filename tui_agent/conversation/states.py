"""Where a view keeps what has become of one message: its calls' results, what covers them, and how large they are.

What was said stands in the log alone, and is read there where it is asked for.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from sys import intern
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    Artifact,
    Cleared,
    Delivered,
    Digested,
    Kind,
    Message,
    Queued,
    Restored,
    Role,
    Shortened,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import NOTHING, Category, Size, size_of_block, size_of_text

ItemState: TypeAlias = Literal[
    "verbatim", "preview", "cleared", "digested", "summarized", "checkpointed", "restored", "shortened"
]

INTERRUPTED = "[interrupted: this call was stopped before it gave a result]"
INTERRUPTED_SIZE = size_of_text(INTERRUPTED)
NO_OUTPUT = "(no output)"
NOT_SHOWN = "[not shown]"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Segment(NamedTuple):
    """A part of a request: consecutive blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]


class Mark(NamedTuple):
    """What is known of a segment without its blocks: how many there are, and a digest of all but their reasoning."""

    role: Role
    blocks: int
    digest: bytes


_MARK: Final = Struct("=?I16s")


def marks_of(marks: bytes) -> Iterator[Mark]:
    """The marks that a state keeps."""
    for spoken, blocks, digest in _MARK.iter_unpack(marks):
        yield Mark("assistant" if spoken else "user", blocks, digest)


class Counts(NamedTuple):
    """Results shown otherwise than they stand in the log, by how, the characters that boundaries hide, and how many
    messages and results are shortened.
    """

    evicted: int = 0
    cleared: int = 0
    digested: int = 0
    hidden: int = 0
    shortened: int = 0


NO_COUNTS = Counts()
NO_SIZES: Mapping[Category, Size] = MappingProxyType({})
NO_RESULTS: "dict[str, ResultState]" = {}
"""Shared by all messages without: an empty dictionary for each would take as much as its text."""


@dataclass(slots=True, eq=False)
class ResultState:
    """One call's result and the context entries that name it, oldest first.

    `name` is the tool's; `full` is the size of what stands in the log. `state` and `size` are those of what the next
    request says of it.
    """

    seq: int
    name: str
    full: Size
    artifact: Artifact | None
    agent_visible: bool
    time: float
    covers: tuple[Cleared | Digested | Restored | Shortened, ...] = ()
    state: ItemState = "verbatim"
    size: Size = NOTHING

    def copy(self) -> "ResultState":
        """Another one that changes on its own."""
        return ResultState(
            self.seq,
            self.name,
            self.full,
            self.artifact,
            self.agent_visible,
            self.time,
            self.covers,
            self.state,
            self.size,
        )


@dataclass(slots=True, eq=False)
class MessageState:
    """A message of the view: the user's, a digest, or an assistant's together with its calls' results.

    One state is one group: a cut never falls inside it. `full` is the size of its own blocks as they stand in the log,
    `calls` are the ids of the calls among them and `names` those of their tools. `covered_by` is the number of the
    boundary that hides it, or 0; `marks` are those of what the next request says of it (see `marks_of`).
    `restorations` are the entries that brought it back; of these, `unshortened` are those at which no boundary hid it:
    what comes back from behind one comes back as it was.
    """

    seq: int
    role: Role
    kind: Kind
    full: Size
    time: float
    model: str = ""
    prefix_hash: str = ""
    calls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    results: dict[str, ResultState] = field(default_factory=lambda: NO_RESULTS)
    boundaries: tuple[int, ...] = ()
    restorations: tuple[int, ...] = ()
    shortenings: tuple[Shortened, ...] = ()
    anchored: tuple[int, ...] = ()
    covered_by: int = 0
    pinned: bool = False
    shown: bool = True
    stale: bool = True
    with_reasoning: bool = False
    shortened: bool = False
    marks: bytes = b""
    sizes: Mapping[Category, Size] = field(default_factory=lambda: NO_SIZES)
    reasonings: int = 0
    counts: Counts = NO_COUNTS
    unshortened: tuple[int, ...] = ()

    def copy(self) -> "MessageState":
        """Another one, with results of its own, that changes on its own."""
        return MessageState(
            self.seq,
            self.role,
            self.kind,
            self.full,
            self.time,
            self.model,
            self.prefix_hash,
            self.calls,
            self.names,
            {call_id: result.copy() for call_id, result in self.results.items()} if self.results else NO_RESULTS,
            self.boundaries,
            self.restorations,
            self.shortenings,
            self.anchored,
            self.covered_by,
            self.pinned,
            self.shown,
            self.stale,
            self.with_reasoning,
            self.shortened,
            self.marks,
            self.sizes,
            self.reasonings,
            self.counts,
            self.unshortened,
        )

    @property
    def last(self) -> int:
        """The number of the newest entry of this group."""
        return max(place.seq for place in self.results.values()) if self.results else self.seq

    @property
    def category(self) -> Category:
        if self.role == "assistant":
            return "assistant"
        if self.kind in ("tool_summary", "summary", "checkpoint"):
            return "summaries"
        return "notices" if self.kind == "notice" else "user"


def state_of_message(message: Message) -> MessageState:
    """The state an agent-visible message opens (not a tool's result: that joins its call's state)."""
    spoken = message.role == "assistant"
    calls = calls_in(message.blocks) if spoken else {}
    return MessageState(
        message.seq,
        message.role,
        message.kind,
        size_of_blocks(message.blocks),
        message.time,
        intern(message.model),
        message.prefix_hash,
        tuple(calls),
        tuple(intern(call.name) for call in calls.values()),
        reasonings=sum(isinstance(each, Reasoning) for each in message.blocks) if spoken else 0,
    )


def size_of_blocks(blocks: tuple[Block, ...]) -> Size:
    """The size of blocks together."""
    total = NOTHING
    for block in blocks:
        total = total.plus(size_of_block(block))
    return total


def calls_in(blocks: tuple[Block, ...]) -> dict[str, ToolCall]:
    """The calls among blocks, by their ids; of two with the same id the first one counts."""
    calls: dict[str, ToolCall] = {}
    for block in blocks:
        if isinstance(block, ToolCall):
            calls.setdefault(block.id, block)
    return calls


def blocks_of(log: Log, seq: int) -> tuple[Block, ...]:
    """The blocks of the state that entry `seq` opened, as they stand in the log."""
    match entry := log[seq]:
        case Message():
            return entry.blocks
        case Delivered():
            queued = log[entry.queued]
            return queued.blocks if isinstance(queued, Queued) else ()
        case Digested():
            return (Text(entry.text),)
        case _:
            return ()


def result_of(log: Log, seq: int, call_id: str) -> ToolResult:
    """The result of a call as it stands in the log, in entry `seq`."""
    return next(block for block in blocks_of(log, seq) if isinstance(block, ToolResult) and block.call_id == call_id)


def shown_blocks(state: MessageState, log: Log, active: AbstractSet[int]) -> tuple[Block, ...]:
    """The message's own blocks as the model sees them: shortened, where the newest entry that counts says so."""
    found = _shortened(state, active)
    return blocks_of(log, state.seq) if found is None else found


def shown_calls(state: MessageState, log: Log, active: AbstractSet[int]) -> dict[str, ToolCall]:
    """The calls that the next request shows, by their ids, as they stand in the log: a shortened message leaves some
    out.
    """
    calls = calls_in(blocks_of(log, state.seq)) if state.calls else {}
    if not state.shortened:
        return calls
    kept = calls_in(shown_blocks(state, log, active))
    return {call_id: call for call_id, call in calls.items() if call_id in kept}


def shown_result(
    place: ResultState, call_id: str, log: Log, *, pinned: bool, active: AbstractSet[int]
) -> tuple[ToolResult, ItemState]:
    """The result as the model sees it: as the newest cover that counts says, else as it stands in the log."""
    result = result_of(log, place.seq, call_id)
    for cover in reversed(place.covers):
        if cover.seq not in active:
            continue
        match cover:
            case Restored():
                text = cover.texts[cover.items.index(place.seq)]
                return (_with_text(result, text) if text else result), "restored"
            case Cleared() if not pinned:
                return _stand_in(result, cover.texts[cover.results.index(place.seq)]), "cleared"
            case Digested() if not pinned:
                return _stand_in(result, cover.placeholder), "digested"
            case Shortened():
                (block,) = cover.blocks[cover.items.index(place.seq)]
                return (block if isinstance(block, ToolResult) else result), "shortened"
            case _:
                pass
    if not place.agent_visible:
        return _stand_in(result, NOT_SHOWN), "digested"
    evicted = place.artifact is not None and place.artifact.evicted
    return result, "preview" if evicted else "verbatim"


def segments_of(state: MessageState, log: Log, active: AbstractSet[int]) -> tuple[Segment, ...]:
    """What the next request says of a rendered state."""
    if not state.marks:
        return ()
    blocks = shown_blocks(state, log, active)
    spoken, answers = (
        _spoken(state, blocks),
        tuple(_answer(state, each, log, active)[0] for each in _asked(state, blocks)),
    )
    segments = (Segment(state.role, spoken), Segment("user", answers))
    return tuple(segment for segment in segments if segment.blocks)


def render(state: MessageState, log: Log, active: AbstractSet[int]) -> None:
    """Work out anew what the next request says of a state, with its reasoning where `with_reasoning` says so."""
    blocks = shown_blocks(state, log, active)
    sizes: dict[Category, Size] = {}

    def count(category: Category, size: Size) -> None:
        sizes[category] = sizes[category].plus(size) if category in sizes else size

    spoken = _spoken(state, blocks)
    for block in spoken:
        count(_category_of(state, block), size_of_block(block))
    answers: list[Block] = []
    asked = _asked(state, blocks)
    for call_id in asked:
        answer, shown = _answer(state, call_id, log, active)
        size, place = size_of_block(answer), state.results.get(call_id)
        if place is not None:
            place.state, place.size = shown, place.full if size == place.full else size
        count("results", size)
        answers.append(answer)
    for call_id in state.results.keys() - asked.keys():
        state.results[call_id].state, state.results[call_id].size = "shortened", NOTHING
    marks = (mark_of(state.role, spoken), mark_of("user", tuple(answers)))
    state.marks = b"".join(
        _MARK.pack(mark.role == "assistant", mark.blocks, mark.digest) for mark in marks if mark.blocks
    )
    state.sizes, state.shortened = sizes, _shortened(state, active) is not None


def _shortened(state: MessageState, active: AbstractSet[int]) -> tuple[Block, ...] | None:
    """The blocks that the newest shortening which counts has left; None where none does."""
    for shortened in reversed(state.shortenings):
        if shortened.seq in active and not any(seq > shortened.seq and seq in active for seq in state.unshortened):
            return shortened.blocks[shortened.items.index(state.seq)]
    return None


def _asked(state: MessageState, blocks: tuple[Block, ...]) -> dict[str, ToolCall]:
    return calls_in(blocks) if state.calls else {}


def _spoken(state: MessageState, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Of these blocks of a message those that are sent."""
    calls = _asked(state, blocks)
    spoken: list[Block] = []
    for block in blocks:
        match block:
            case Text() if block.text.strip():
                spoken.append(block)
            case Image() if state.role == "user":
                spoken.append(block)
            case ToolCall() if calls.get(block.id) is block:
                spoken.append(block)
            case Reasoning() if state.with_reasoning:
                spoken.append(block)
            case _:
                pass
    return tuple(spoken) if any(not isinstance(block, Reasoning) for block in spoken) else ()


def _category_of(state: MessageState, block: Block) -> Category:
    match block:
        case ToolCall():
            return "calls"
        case Reasoning():
            return "reasoning"
        case _:
            return state.category


def _answer(state: MessageState, call_id: str, log: Log, active: AbstractSet[int]) -> tuple[ToolResult, ItemState]:
    """What answers a call, and what has become of its result; a call without one was stopped."""
    place = state.results.get(call_id)
    if place is None:
        return ToolResult(call_id, INTERRUPTED, is_error=True), "verbatim"
    answer, shown = shown_result(place, call_id, log, pinned=state.pinned, active=active)
    if not answer.text.strip() and not answer.images:
        answer = _with_text(answer, NO_OUTPUT)
    return answer, shown


def counts_of(state: MessageState) -> Counts:
    """What a rendered state adds to the conversation's counts."""
    if not state.shown:
        return NO_COUNTS
    if state.covered_by:
        return Counts(hidden=state.full.characters + sum(place.full.characters for place in state.results.values()))
    states = [place.state for place in state.results.values() if place.state not in ("verbatim", "restored")]
    if not states and not state.shortened:
        return NO_COUNTS
    return Counts(
        states.count("preview"),
        states.count("cleared"),
        states.count("digested"),
        shortened=states.count("shortened") + state.shortened,
    )


def mark_of(role: Role, blocks: tuple[Block, ...]) -> Mark:
    """The mark of a segment."""
    told = [block for block in blocks if not isinstance(block, Reasoning)]
    return Mark(role, len(blocks), blake2b(role.encode() + _encode(told), digest_size=16).digest())


def _stand_in(result: ToolResult, text: str) -> ToolResult:
    return ToolResult(result.call_id, text, is_error=result.is_error, opaque=result.opaque)


def _with_text(result: ToolResult, text: str) -> ToolResult:
    return msgspec.structs.replace(result, text=text)
