"""Where a view keeps what the log says of one message: its blocks, its calls' results, and what covers them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Artifact, Cleared, Digested, Kind, Message, Restored, Role, Shortened
from tui_agent.conversation.sizes import NOTHING, Category, Size, characters_of, size_of_block, size_of_text

ItemState: TypeAlias = Literal[
    "verbatim", "preview", "cleared", "digested", "summarized", "checkpointed", "restored", "shortened"
]

INTERRUPTED = "[interrupted: this call was stopped before it gave a result]"
INTERRUPTED_SIZE = size_of_text(INTERRUPTED)
NO_OUTPUT = "(no output)"
NOT_SHOWN = "[not shown]"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Segment(NamedTuple):
    """A part of a request: consecutive blocks of one role, with a digest of all but their reasoning."""

    role: Role
    blocks: tuple[Block, ...]
    digest: bytes


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
NO_CALLS: Mapping[str, ToolCall] = MappingProxyType({})
NO_SIZES: Mapping[Category, Size] = MappingProxyType({})
"""Shared by all messages without: an empty dictionary for each would take as much as its text."""


@dataclass(slots=True, eq=False)
class ResultState:
    """One call's result and the context entries that name it, oldest first.

    `state` and `size` are those of what the next request says of it.
    """

    seq: int
    result: ToolResult
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
            self.result,
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

    One state is one group: a cut never falls inside it. `covered_by` is the number of the boundary that hides it, or 0.
    `restorations` are the entries that brought it back; of these, `unshortened` are those at which no boundary hid it:
    what comes back from behind one comes back as it was.
    """

    seq: int
    role: Role
    kind: Kind
    blocks: tuple[Block, ...]
    time: float
    model: str = ""
    prefix_hash: str = ""
    calls: Mapping[str, ToolCall] = field(default_factory=lambda: NO_CALLS)
    results: dict[str, ResultState] = field(default_factory=dict)
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
    segments: tuple[Segment, ...] = ()
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
            self.blocks,
            self.time,
            self.model,
            self.prefix_hash,
            self.calls,
            {call_id: result.copy() for call_id, result in self.results.items()} if self.results else {},
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
            self.segments,
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
    def unanswered(self) -> tuple[ToolCall, ...]:
        return tuple(call for call in self.calls.values() if call.id not in self.results)

    @property
    def shown_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the next request shows, as they stand in the log: a shortened message leaves some out."""
        if not self.shortened:
            return tuple(self.calls.values())
        blocks = (block for segment in self.segments for block in segment.blocks)
        return tuple(self.calls[block.id] for block in blocks if isinstance(block, ToolCall))

    @property
    def category(self) -> Category:
        if self.role == "assistant":
            return "assistant"
        if self.kind in ("tool_summary", "summary", "checkpoint"):
            return "summaries"
        return "notices" if self.kind == "notice" else "user"


def state_of_message(message: Message) -> MessageState:
    """The state an agent-visible message opens (not a tool's result: that joins its call's state)."""
    calls: dict[str, ToolCall] = {}
    for block in message.blocks:
        if isinstance(block, ToolCall) and message.role == "assistant":
            calls.setdefault(block.id, block)
    return MessageState(
        message.seq,
        message.role,
        message.kind,
        message.blocks,
        message.time,
        message.model,
        message.prefix_hash,
        calls or NO_CALLS,
        reasonings=sum(isinstance(each, Reasoning) for each in message.blocks) if message.role == "assistant" else 0,
    )


def shown_result(place: ResultState, *, pinned: bool, active: set[int]) -> tuple[ToolResult, ItemState]:
    """The result as the model sees it: as the newest cover that counts says, else as it stands in the log."""
    for cover in reversed(place.covers):
        if cover.seq not in active:
            continue
        match cover:
            case Restored():
                text = cover.texts[cover.items.index(place.seq)]
                return (_with_text(place.result, text) if text else place.result), "restored"
            case Cleared() if not pinned:
                return _stand_in(place.result, cover.texts[cover.results.index(place.seq)]), "cleared"
            case Digested() if not pinned:
                return _stand_in(place.result, cover.placeholder), "digested"
            case Shortened():
                (block,) = cover.blocks[cover.items.index(place.seq)]
                return (block if isinstance(block, ToolResult) else place.result), "shortened"
            case _:
                pass
    if not place.agent_visible:
        return _stand_in(place.result, NOT_SHOWN), "digested"
    evicted = place.artifact is not None and place.artifact.evicted
    return place.result, "preview" if evicted else "verbatim"


def shown_blocks(state: MessageState, active: set[int]) -> tuple[Block, ...]:
    """The message's own blocks as the model sees them: shortened, where the newest entry that counts says so."""
    for shortened in reversed(state.shortenings):
        if shortened.seq in active and not any(seq > shortened.seq and seq in active for seq in state.unshortened):
            return shortened.blocks[shortened.items.index(state.seq)]
    return state.blocks


def render(state: MessageState, *, active: set[int]) -> None:
    """Compute the state's segments and sizes anew, with its reasoning where `with_reasoning` says so."""
    blocks, calls = state.blocks, state.calls
    if state.shortenings and (blocks := shown_blocks(state, active)) is not state.blocks:
        calls = {block.id: block for block in blocks if isinstance(block, ToolCall)}
        for call_id in state.results.keys() - calls.keys():
            state.results[call_id].state, state.results[call_id].size = "shortened", NOTHING
    sizes: dict[Category, Size] = {}

    def count(category: Category, block: Block) -> None:
        sizes[category] = sizes.get(category, Size()).plus(size_of_block(block))

    segments: list[Segment] = []
    spoken: list[Block] = []
    for block in blocks:
        match block:
            case Text() if block.text.strip():
                count(state.category, block)
            case Image() if state.role == "user":
                count(state.category, block)
            case ToolCall() if calls.get(block.id) is block:
                count("calls", block)
            case Reasoning() if state.with_reasoning:
                count("reasoning", block)
            case _:
                continue
        spoken.append(block)
    if any(not isinstance(block, Reasoning) for block in spoken):
        segments.append(_segment(state.role, spoken))
    else:
        sizes.pop("reasoning", None)
    answers: list[Block] = []
    for call in calls.values():
        place = state.results.get(call.id)
        if place is None:
            answer = ToolResult(call.id, INTERRUPTED, is_error=True)
            count("results", answer)
        else:
            answer = _answer(place, pinned=state.pinned, active=active)
            sizes["results"] = sizes.get("results", NOTHING).plus(place.size)
        answers.append(answer)
    if answers:
        segments.append(_segment("user", answers))
    state.segments, state.sizes, state.shortened = tuple(segments), sizes, blocks is not state.blocks


def counts_of(state: MessageState) -> Counts:
    """What a rendered state adds to the conversation's counts."""
    if not state.shown:
        return NO_COUNTS
    if state.covered_by:
        said = sum(map(characters_of, state.blocks))
        return Counts(hidden=said + sum(len(place.result.text) for place in state.results.values()))
    states = [place.state for place in state.results.values() if place.state not in ("verbatim", "restored")]
    if not states and not state.shortened:
        return NO_COUNTS
    return Counts(
        states.count("preview"),
        states.count("cleared"),
        states.count("digested"),
        shortened=states.count("shortened") + state.shortened,
    )


def _answer(place: ResultState, *, pinned: bool, active: set[int]) -> ToolResult:
    answer, place.state = shown_result(place, pinned=pinned, active=active)
    if not answer.text.strip() and not answer.images:
        answer = _with_text(answer, NO_OUTPUT)
    place.size = size_of_block(answer)
    return answer


def _segment(role: Role, blocks: list[Block]) -> Segment:
    told = [block for block in blocks if not isinstance(block, Reasoning)]
    return Segment(role, tuple(blocks), blake2b(role.encode() + _encode(told), digest_size=16).digest())


def text_segment(text: str) -> Segment:
    """A user's segment of one text."""
    return _segment("user", [Text(text)])


def _stand_in(result: ToolResult, text: str) -> ToolResult:
    return ToolResult(result.call_id, text, is_error=result.is_error, opaque=result.opaque)


def _with_text(result: ToolResult, text: str) -> ToolResult:
    return msgspec.structs.replace(result, text=text)
