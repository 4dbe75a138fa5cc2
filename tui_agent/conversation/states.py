"""The state of each message in a view: its calls' results, the context entries that cover it, and its sizes.

The content itself stays in the log and is read from there when needed.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from struct import Struct
from sys import intern
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    Artifact,
    Cleared,
    Digested,
    Kind,
    Message,
    Restored,
    Role,
    Shortened,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import NOTHING, Category, TextSize, size_of_block, size_of_text, total_size
from tui_agent.system.lenient import object_in

ItemState: TypeAlias = Literal[
    "verbatim", "preview", "cleared", "digested", "summarized", "checkpointed", "restored", "shortened"
]

INTERRUPTED = "[interrupted: this call was stopped before it gave a result]"
INTERRUPTED_SIZE = size_of_text(INTERRUPTED)
NO_OUTPUT = "(no output)"
NOT_SHOWN = "[not shown]"

_encode = msgspec.json.Encoder(order="deterministic").encode


class RequestMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of a request, or a part of one: consecutive blocks of one role."""

    role: Role
    blocks: tuple[Block, ...]


class Fingerprint(msgspec.Struct, frozen=True):
    """Identifies blocks of one role without holding them: their number, a digest of them without reasoning, and one of
    their reasoning (empty: they have none).
    """

    role: Role
    blocks: int
    digest: bytes
    reasoning: bytes = b""


_FINGERPRINT: Final = Struct("=?I16s16s")
_NO_REASONING: Final = bytes(16)


def unpack_fingerprints(fingerprints: bytes) -> Iterator[Fingerprint]:
    for by_model, blocks, digest, reasoning in _FINGERPRINT.iter_unpack(fingerprints):
        role: Role = "assistant" if by_model else "user"
        yield Fingerprint(role, blocks, digest, b"" if reasoning == _NO_REASONING else reasoning)


class Counts(msgspec.Struct, frozen=True, gc=False):
    """How many results are shown as previews (`evicted`), cleared or digested, how many characters boundaries hide, and
    how many messages and results are shortened.
    """

    evicted: int = 0
    cleared: int = 0
    digested: int = 0
    hidden: int = 0
    shortened: int = 0

    def changed(self, before: "Counts", after: "Counts") -> "Counts":
        """These counts once a part of them is `after` instead of `before`."""
        parts = zip(*map(msgspec.structs.astuple, (self, before, after)), strict=True)
        return Counts(*(whole - old + new for whole, old, new in parts))


NO_COUNTS = Counts()
NO_SIZES: Mapping[Category, TextSize] = MappingProxyType({})
NO_RESULTS: "dict[str, ResultState]" = {}
"""Shared by all messages without results: an empty dictionary each would take as much memory as the text."""


class ResultState(msgspec.Struct, eq=False, gc=False):
    """The state of one tool result. `seq` is its entry, `name` the tool, `full` its size in the log.

    `covers` are the context entries on this result, oldest first, in force or not. `state` and `size` are those of the
    result in the next request.
    """

    seq: int
    name: str
    full: TextSize
    artifact: Artifact | None
    agent_visible: bool
    time: float
    covers: tuple[Cleared | Digested | Restored | Shortened, ...] = ()
    state: ItemState = "verbatim"
    size: TextSize = NOTHING


class MessageState(msgspec.Struct, eq=False, gc=False):
    """The state of one message of the view: the user's, a digest, or an assistant's together with its tool results.

    One state is one group: a cut never falls inside it. A command that the user ran has its call and its result in one
    message: the result has the number of the message.

    `prefix_hash`: of the request it answers; empty without reasoning, which is all that is bound to it. `full` is the
    size of its own blocks in the log; `calls` are the ids of its calls and `names` the tools they call. `boundaries`
    are all that cover it, `covered_by` is the one that hides it, or 0. `opened_boundaries` start at it: their texts go
    before it. `restorations` are the `Restored` entries on it. Those in `unshortened` came while no boundary hid it, so
    they also undo earlier shortenings; a restoration from behind a boundary keeps them. `stale`: it must be rendered
    again. `fingerprints`, `sizes` and `counts` are of its part of the next request (`unpack_fingerprints` decodes the
    former).
    """

    seq: int
    role: Role
    kind: Kind
    full: TextSize
    time: float
    model: str = ""
    prefix_hash: str = ""
    calls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    results: dict[str, ResultState] = msgspec.field(default_factory=lambda: NO_RESULTS)
    boundaries: tuple[int, ...] = ()
    restorations: tuple[int, ...] = ()
    shortenings: tuple[Shortened, ...] = ()
    opened_boundaries: tuple[int, ...] = ()
    covered_by: int = 0
    pinned: bool = False
    shown: bool = True
    stale: bool = True
    with_reasoning: bool = False
    shortened: bool = False
    fingerprints: bytes = b""
    sizes: Mapping[Category, TextSize] = msgspec.field(default_factory=lambda: NO_SIZES)
    reasonings: int = 0
    counts: Counts = NO_COUNTS
    unshortened: tuple[int, ...] = ()

    def copy(self) -> "MessageState":
        other = msgspec.structs.replace(self)
        if self.results:
            other.results = {call_id: msgspec.structs.replace(result) for call_id, result in self.results.items()}
        return other

    @property
    def last(self) -> int:
        return max(result_state.seq for result_state in self.results.values()) if self.results else self.seq

    @property
    def said_by_user(self) -> bool:
        return self.role == "user" and not self.kind

    @property
    def is_annex(self) -> bool:
        """Whether it only marks the place of the additions to a signed summary."""
        return self.kind == "summary" and self.opened_boundaries == (self.seq,)

    @property
    def is_listed(self) -> bool:
        """Whether it is one of the messages that people see."""
        return self.shown and not self.is_annex

    @property
    def category(self) -> Category:
        if self.role == "assistant":
            return "assistant"
        match self.kind:
            case "":
                return "user"
            case "user_shell":
                return "results"
            case "tool_summary" | "summary" | "checkpoint":
                return "summaries"
            case _:
                return "notices"


def state_of_message(message: Message) -> MessageState:
    """The new state of an agent-visible message other than a tool result, which joins the state of its call."""
    by_model = message.role == "assistant"
    reasonings = sum(isinstance(each, Reasoning) for each in message.blocks) if by_model else 0
    calls = calls_in(message.blocks) if by_model or message.kind == "user_shell" else {}
    results = {
        block.call_id: ResultState(
            message.seq,
            intern(calls[block.call_id].name),
            size_of_block(user_shell_text(calls[block.call_id], block)),
            message.artifact,
            True,
            message.time,
        )
        for block in (() if by_model else message.blocks)
        if isinstance(block, ToolResult) and block.call_id in calls
    }
    return MessageState(
        message.seq,
        message.role,
        message.kind,
        next((result.full for result in results.values()), None) or total_size(map(size_of_block, message.blocks)),
        message.time,
        intern(message.model),
        message.prefix_hash if reasonings else "",
        tuple(calls),
        tuple(intern(call.name) for call in calls.values()),
        results or NO_RESULTS,
        reasonings=reasonings,
    )


def calls_in(blocks: tuple[Block, ...]) -> dict[str, ToolCall]:
    """The calls among blocks, by id; the first of several with the same id."""
    calls: dict[str, ToolCall] = {}
    for block in blocks:
        if isinstance(block, ToolCall):
            calls.setdefault(block.id, block)
    return calls


def blocks_of(log: Log, seq: int) -> tuple[Block, ...]:
    """The blocks of the state with number `seq`, from the log."""
    entry = log[seq]
    if isinstance(entry, Digested):
        return (Text(entry.text),)
    message = log.message(seq)
    return message.blocks if message is not None else ()


def sent_blocks(message: Message) -> tuple[Block, ...]:
    """A whole message as it is sent: a command that the user ran is text."""
    if message.kind != "user_shell":
        return message.blocks
    calls = calls_in(message.blocks)
    results = (block for block in message.blocks if isinstance(block, ToolResult))
    return tuple(user_shell_text(calls[result.call_id], result) for result in results if result.call_id in calls)


def user_shell_text(call: ToolCall, result: ToolResult) -> Text:
    """What the model reads of a command that the user ran."""
    command = object_in(call.arguments).get("command", "")
    return Text(f"<user-command>\n{command}\n</user-command>\n<output>\n{result.text}\n</output>")


def result_of(log: Log, seq: int, call_id: str) -> ToolResult:
    """The result of a call from entry `seq` of the log."""
    return next(block for block in blocks_of(log, seq) if isinstance(block, ToolResult) and block.call_id == call_id)


def shown_blocks(state: MessageState, log: Log, active: AbstractSet[int]) -> tuple[Block, ...]:
    """The message's own blocks as the model sees them: from the newest shortening in force, else from the log."""
    found = _shortened(state, active)
    return blocks_of(log, state.seq) if found is None else found


def shown_calls(state: MessageState, log: Log, active: AbstractSet[int]) -> dict[str, ToolCall]:
    """The calls in the next request by id, in their full form from the log; a shortened message may lack some."""
    calls = calls_in(blocks_of(log, state.seq)) if state.calls else {}
    if not state.shortened:
        return calls
    kept = calls_in(shown_blocks(state, log, active))
    return {call_id: call for call_id, call in calls.items() if call_id in kept}


def shown_result(
    result_state: ResultState, call_id: str, log: Log, *, pinned: bool, active: AbstractSet[int]
) -> tuple[ToolResult, ItemState]:
    """The result as the model sees it: from the newest cover in force, else from the log."""
    result = result_of(log, result_state.seq, call_id)
    for cover in reversed(result_state.covers):
        if cover.seq not in active:
            continue
        match cover:
            case Restored():
                text = cover.texts[cover.items.index(result_state.seq)]
                return (msgspec.structs.replace(result, text=text) if text else result), "restored"
            case Cleared() if not pinned:
                return _replaced_by(result, cover.texts[cover.results.index(result_state.seq)]), "cleared"
            case Digested() if not pinned:
                return _replaced_by(result, cover.placeholder), "digested"
            case Shortened():
                (block,) = cover.blocks[cover.items.index(result_state.seq)]
                return (block if isinstance(block, ToolResult) else result), "shortened"
    if not result_state.agent_visible:
        return _replaced_by(result, NOT_SHOWN), "digested"
    evicted = result_state.artifact is not None and result_state.artifact.evicted
    return result, "preview" if evicted else "verbatim"


def segments_of(state: MessageState, log: Log, active: AbstractSet[int]) -> tuple[RequestMessage, ...]:
    if not state.fingerprints:
        return ()
    blocks = shown_blocks(state, log, active)
    results = (_sent_result(state, call, log, active)[0] for call in _calls(state, blocks).values())
    segments = (RequestMessage(state.role, _sent_blocks(state, blocks)), RequestMessage("user", tuple(results)))
    return tuple(segment for segment in segments if segment.blocks)


def render(state: MessageState, log: Log, active: AbstractSet[int]) -> None:
    """Update a state's fingerprints, sizes and result states for the next request; see `with_reasoning`."""
    blocks = shown_blocks(state, log, active)
    sizes: dict[Category, TextSize] = {}

    def count(category: Category, size: TextSize) -> None:
        sizes[category] = sizes[category].plus(size) if category in sizes else size

    own = _sent_blocks(state, blocks)
    for block in own:
        category: Category = "calls" if isinstance(block, ToolCall) else state.category
        count("reasoning" if isinstance(block, Reasoning) else category, size_of_block(block))
    results: list[Block] = []
    calls = _calls(state, blocks)
    for call_id, call in calls.items():
        answer, shown = _sent_result(state, call, log, active)
        size, result_state = size_of_block(answer), state.results.get(call_id)
        if result_state is not None:
            result_state.state, result_state.size = shown, result_state.full if size == result_state.full else size
        count("results", size)
        results.append(answer)
    for call_id in state.results.keys() - calls.keys():
        state.results[call_id].state, state.results[call_id].size = "shortened", NOTHING
    fingerprints = (fingerprint_of(state.role, own), fingerprint_of("user", tuple(results)))
    state.fingerprints = b"".join(
        _FINGERPRINT.pack(each.role == "assistant", each.blocks, each.digest, each.reasoning or _NO_REASONING)
        for each in fingerprints
        if each.blocks
    )
    state.sizes, state.shortened = sizes, _shortened(state, active) is not None


def _shortened(state: MessageState, active: AbstractSet[int]) -> tuple[Block, ...] | None:
    """The blocks left by the newest shortening in force; None if there is none."""
    for shortened in reversed(state.shortenings):
        if shortened.seq in active and not any(seq > shortened.seq and seq in active for seq in state.unshortened):
            return shortened.blocks[shortened.items.index(state.seq)]
    return None


def _calls(state: MessageState, blocks: tuple[Block, ...]) -> dict[str, ToolCall]:
    return calls_in(blocks) if state.calls else {}


def _sent_blocks(state: MessageState, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks of a message that are sent; none if only reasoning would be left."""
    calls = _calls(state, blocks)
    own: list[Block] = []
    for block in blocks:
        match block:
            case Text() if block.text.strip():
                own.append(block)
            case Image() if state.role == "user":
                own.append(block)
            case ToolCall() if state.role == "assistant" and calls.get(block.id) is block:
                own.append(block)
            case Reasoning() if state.with_reasoning:
                own.append(block)
    return tuple(own) if any(not isinstance(block, Reasoning) for block in own) else ()


def _sent_result(
    state: MessageState, call: ToolCall, log: Log, active: AbstractSet[int]
) -> tuple[ToolResult | Text, ItemState]:
    """The result to send for a call and its state; a call without a result was interrupted."""
    result_state = state.results.get(call.id)
    if result_state is None:
        return ToolResult(call.id, INTERRUPTED, is_error=True), "verbatim"
    answer, shown = shown_result(result_state, call.id, log, pinned=state.pinned, active=active)
    if not answer.text.strip() and not answer.images:
        answer = msgspec.structs.replace(answer, text=NO_OUTPUT)
    return (answer if state.role == "assistant" else user_shell_text(call, answer)), shown


def written_out(state: MessageState, log: Log, active: AbstractSet[int]) -> Iterator[Text | Image]:
    """What a state shows, its calls and their results too, as text and pictures of a message of the user."""
    for block in _sent_blocks(state, shown_blocks(state, log, active)):
        match block:
            case Text() | Image():
                yield block
            case ToolCall():
                answer, _ = _sent_result(state, block, log, active)
                yield Text(f"[call of {block.name}] {block.arguments}\n[its result]\n{answer.text}")
                yield from answer.images if isinstance(answer, ToolResult) else ()


def counts_of(state: MessageState) -> Counts:
    if not state.shown:
        return NO_COUNTS
    if state.covered_by:
        results = state.results.values() if state.role == "assistant" else ()
        return Counts(hidden=state.full.characters + sum(each.full.characters for each in results))
    states = [each.state for each in state.results.values() if each.state not in ("verbatim", "restored")]
    if not states and not state.shortened:
        return NO_COUNTS
    return Counts(
        states.count("preview"),
        states.count("cleared"),
        states.count("digested"),
        shortened=states.count("shortened") + state.shortened,
    )


def fingerprint_of(role: Role, blocks: tuple[Block, ...]) -> Fingerprint:
    said = [block for block in blocks if not isinstance(block, Reasoning)]
    reasoning = [(place, block) for place, block in enumerate(blocks) if isinstance(block, Reasoning)]
    return Fingerprint(
        role,
        len(blocks),
        blake2b(role.encode() + _encode(said), digest_size=16).digest(),
        blake2b(_encode(reasoning), digest_size=16).digest() if reasoning else b"",
    )


def _replaced_by(result: ToolResult, text: str) -> ToolResult:
    return ToolResult(result.call_id, text, is_error=result.is_error, opaque=result.opaque)
