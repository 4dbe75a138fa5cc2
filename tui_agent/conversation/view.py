"""The view, which is what the model sees: an incremental fold of the log.

Reading a view costs only what has changed since the last time. Its requests are valid for every provider: each call has
exactly one result, right after it; the first message is the user's; no block is empty.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Artifact,
    Boundary,
    ContextEntry,
    HeadMoved,
    Kind,
    Message,
    Prefix,
    Queued,
    Role,
    Words,
)
from tui_agent.conversation.fold import Fold, KeptWords, MeasuredCall
from tui_agent.conversation.items import Item, Items, items_of
from tui_agent.conversation.log import BLOCK_ENTRIES, Log
from tui_agent.conversation.request import LIVE, ReasoningPolicy, Rendering, RequestHead, RequestStart, role_of_last
from tui_agent.conversation.sizes import Category, TextSize, total_size
from tui_agent.conversation.states import (
    INTERRUPTED_SIZE,
    Counts,
    Fingerprint,
    ItemState,
    MessageState,
    RequestMessage,
    blocks_of,
    calls_in,
    render,
    segments_of,
    shown_calls,
    unpack_fingerprints,
)

_NO_RESULTS: Mapping[str, int] = MappingProxyType({})


class Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Entries that a cut keeps or removes together, from entry `first` to entry `last`.

    `sizes` are the sizes of its part of the next request; `open`: a call still lacks its result; `results` are the
    entry numbers of the results by call id. These fields are a snapshot from when the group was made, but `segments`
    reads the current state. Compare `fingerprints` to find out whether the group's part of the request has changed.
    """

    first: int
    last: int
    role: Role
    kind: Kind
    pinned: bool
    open: bool
    time: float
    sizes: Mapping[Category, TextSize]
    results: Mapping[str, int]
    _fingerprints: bytes
    _state: MessageState
    _log: Log
    _active: AbstractSet[int]

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """The fingerprints of the group's segments, when the group was made."""
        return tuple(unpack_fingerprints(self._fingerprints))

    @property
    def size(self) -> TextSize:
        """The size of its part of the next request, when the group was made."""
        return total_size(self.sizes.values())

    @property
    def segments(self) -> tuple[RequestMessage, ...]:
        return segments_of(self._state, self._log, self._active)

    @property
    def starts_turn(self) -> bool:
        """Whether it is a message of the user's, which starts a turn."""
        return self.role == "user" and self.kind == ""


def group_of(state: MessageState, log: Log, active: AbstractSet[int]) -> Group:
    """The group of a rendered state; `active` are the numbers of the context decisions in force."""
    return Group(
        state.seq,
        state.last,
        state.role,
        state.kind,
        state.pinned,
        len(state.results) < len(state.calls),
        state.time,
        state.sizes,
        {call_id: result.seq for call_id, result in state.results.items()}
        if state.results and state.role == "assistant"
        else _NO_RESULTS,
        state.fingerprints,
        state,
        log,
        active,
    )


__all__ = ["Item", "Items", "LiveResult", "MeasuredCall", "ReasoningPolicy", "RequestMessage", "View"]


class LiveResult(msgspec.Struct, frozen=True, gc=False):
    """A tool result of which the next request contains more than a placeholder.

    `size` is its size in the request, `after` the size of everything that follows it there; `artifact` is the file with
    its full text.
    """

    seq: int
    call: ToolCall
    state: ItemState
    pinned: bool
    size: TextSize
    after: TextSize
    artifact: Artifact | None


class View:
    """The fold of a log. `apply` adds the next entry; everything else reads."""

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self.log = Log.of(entries)
        self.moves = 0
        """How often the head has moved."""
        self._newest_call: Message | None = None
        self._asked: tuple[int, dict[Category, TextSize]] = (0, {})
        self.head = self.log.head
        """The number of the entry after which the conversation continues."""
        self._fold = Fold(self.log)
        self._rendering = Rendering(ReasoningPolicy())
        path = iter(self.log.path().numbers)
        following = next(path, 0)
        for entry in self.log:
            self._note(entry)
            if entry.seq == following:
                following = next(path, 0)
                self._take(entry)

    def apply(self, entry: AnyEntry) -> None:
        """Append the next entry. Costs what the entry touches; moving the head, what differs between the branches.

        Raises `ValueError`, without a change to the view, if the entry is not the log's next one.
        """
        answers = isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None
        sizes = self.sizes() if answers else {}
        self.log.append(entry)
        self._note(entry)
        if answers:
            self._asked = entry.seq, sizes
        if isinstance(entry, HeadMoved):
            self.go_to(entry.to)
        else:
            self._fold.take(entry)
            self.head = entry.seq

    def go_to(self, seq: int) -> None:
        """Show the conversation that ends at entry `seq`. Costs what differs from the one that is shown.

        In a copy, to look back; entries can be applied only to the conversation that ends at the log's head. May run in
        a thread.
        """
        left, self.head = self.head, seq
        shared = self.log.fork_point(left, seq)
        if len(self.log.path(left, shared)) < shared:
            self._fold.return_to(shared, left)
        elif left:
            shared = 0
            self._fold, self._rendering = Fold(self.log), Rendering(self.policy)
        for entry in self.log.path(seq, shared):
            self._take(entry)
        self._rendered()

    def _take(self, entry: AnyEntry) -> None:
        self._fold.take(entry)
        if entry.seq % BLOCK_ENTRIES == 0 and self._fold.is_settled:
            # Render now, while the block of entries is decoded.
            self._rendered()

    def way_to(self, seq: int) -> tuple[type[AnyEntry], ...]:
        """The kinds of the entries that a move of the head to `seq` takes back, and of those that it brings back."""
        shared = self.log.fork_point(self.head, seq)
        numbers = (*self.log.path(self.head, shared).numbers, *self.log.path(seq, shared).numbers)
        return tuple(map(self.log.kind, numbers))

    def _note(self, entry: AnyEntry) -> None:
        if isinstance(entry, HeadMoved):
            self.moves += 1
        elif isinstance(entry, Message) and entry.role == "assistant" and entry.usage is not None:
            self._newest_call = entry

    def after(self, entries: Iterable[AnyEntry], policy: ReasoningPolicy | None = None) -> "View":
        """A rendered copy of this view with `entries` applied; `policy` defaults to this view's.

        Costs O(length of the conversation). May run in a thread, as long as nothing is applied to this view meanwhile.
        """
        then = self.copy()
        if policy is not None:
            then.policy = policy
        for entry in entries:
            then.apply(entry)
        then._rendered()
        return then

    def become(self, then: "View") -> None:
        """Take over the state of `then`, a view from `after`, whose log extends this view's."""
        for seq in range(len(self.log) + 1, len(then.log) + 1):
            self.log.append(then.log[seq])
        self.moves, self._newest_call, self._asked = then.moves, then._newest_call, then._asked
        self._fold, self._rendering, self.head = then._fold, then._rendering, then.head
        self._fold.log = self.log

    def copy(self) -> "View":
        self._rendered()
        other = View()
        other.log, other.head = self.log.copy(), self.head
        other.moves, other._newest_call, other._asked = self.moves, self._newest_call, self._asked
        other._fold = self._fold.copy(other.log)
        other._rendering = self._rendering.copy(other._fold)
        return other

    def messages(self, policy: ReasoningPolicy | None = None) -> list[RequestMessage]:
        """The request's messages, oldest first, with the reasoning that `policy` allows (default: the current policy).

        Costs what has changed since the last call; the first call reads all of them from the log.
        """
        if policy is not None:
            self.policy = policy
        return self._rendered().write(self._fold)

    @property
    def message_count(self) -> int:
        return self._rendered().messages

    @property
    def ends_with(self) -> Role | None:
        """The role of the next request's last message; None if it has no messages."""
        count = self.message_count
        return role_of_last(count) if count else None

    def before_tail(self, fits: Callable[[TextSize], bool]) -> RequestHead:
        """The part of the request before its tail, which is as many of the newest groups as `fits` accepts.

        Costs O(log n) in the conversation's length.
        """
        return self._rendered().before_tail(fits)

    def until(self, seq: int) -> "RequestStart":
        """The part of the request up to and including everything before entry `seq + 1`."""
        return self._rendered().until(self._fold, self._fold.index_of(seq + 1) - 1)

    def prefix_hash(self) -> str:
        """The hash of the next request; the answer's `Message` stores it."""
        return self._rendered().prefix_hash

    def sizes(self) -> dict[Category, TextSize]:
        """Raw sizes of the next request by category."""
        return dict(self._rendered().sizes)

    def sizes_asked(self) -> dict[Category, TextSize]:
        """Raw sizes by category of the request that `last_call` answered; nothing if there was none.

        Costs O(length of the conversation) once if that was loaded, or its head moved, and what was sent then has
        changed since.
        """
        call = self.last_call
        if call is not None and call.seq != self._asked[0]:
            self._asked = call.seq, self._sizes_before(call.seq)
        return self._asked[1] if call is not None else {}

    def _sizes_before(self, seq: int) -> dict[Category, TextSize]:
        """Raw sizes by category of the request without what came with entry `seq` and after it."""
        numbers = self.log.path(self.head, seq).numbers
        states = (self._fold.state_of(number) for number in numbers)
        changed = any(issubclass(self.log.kind(number), Prefix | ContextEntry) for number in numbers)
        if changed or any(state is not None and state.seq < seq for state in states):
            then = self.copy()
            then.go_to(self.log.parent(seq))
            return then.sizes()
        sizes = self.sizes()
        for state in self._fold.states[self._fold.index_of(seq) :]:
            for category, size in state.sizes.items():
                sizes[category] = sizes[category].minus(size)
        return sizes

    @property
    def characters(self) -> int:
        """How many characters the request had when it was last rendered; costs nothing."""
        return sum(size.characters for size in self._rendering.sizes.values())

    def items(self) -> list[Item]:
        """Every message and result of the conversation in order, with its state."""
        return list(self.outline())

    def outline(self) -> Items:
        """The same as `items`, but each is made when it is accessed: for lists of which only a part is on screen."""
        self._rendered()
        return Items(self._fold)

    def outline_now(self) -> Items:
        """The same as `outline`, but they stay as they are now. Costs O(length of the conversation)."""
        self._rendered()
        return Items(self._fold.copy(self.log))

    def item(self, seq: int) -> Item | None:
        """The message or result with this number; None if the conversation has none."""
        self._rendered()
        state = self._fold.state_of(seq)
        if state is None or not state.is_listed:
            return None
        return next((item for item in items_of(self._fold, state) if item.seq == seq), None)

    def changed_items(self, then: "View") -> list[tuple[Item, Item]]:
        """Pairs of the items that differ: here, and in `then`, a copy of this view to which more was applied."""
        self._rendered()
        then._rendered()
        found: list[tuple[Item, Item]] = []
        for mine, theirs in zip(self._fold.states, then._fold.states, strict=False):
            if mine.sizes is theirs.sizes and mine.covered_by == theirs.covered_by and mine.pinned == theirs.pinned:
                continue
            if mine.shown and theirs.shown:
                found += zip(items_of(self._fold, mine), items_of(then._fold, theirs), strict=False)
        return found

    def messages_after_shared(self, before: "View") -> list[RequestMessage]:
        """The request's messages from the first that differs from `before`'s; none if `before`'s is a prefix of it."""
        mine, theirs = self.messages(), before.messages()
        same = next(
            (place for place, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
            min(len(mine), len(theirs)),
        )
        return mine[same:] if same < len(theirs) else []

    def pinned_size(self) -> TextSize:
        self._rendered()
        states = [state for state in self._fold.states if state.pinned]
        return total_size(size for state in states for size in state.sizes.values() or (state.full,))

    def counts(self) -> Counts:
        """How many results are shown in part, and how much boundaries hide. Costs O(1)."""
        return self._rendered().counts

    def measured_calls(self) -> tuple[MeasuredCall, ...]:
        """The calls whose input tokens the provider reported, oldest first."""
        return tuple(self._fold.measured_calls)

    def groups(self) -> list[Group]:
        """The groups in the next request, oldest first. A cut may fall only between two groups."""
        self._rendered()
        fold = self._fold
        return [group_of(each, fold.log, fold.active) for each in fold.states if each.is_listed and not each.covered_by]

    def live_results(self) -> list[LiveResult]:
        """The results whose content is in the next request, newest first. Costs O(their number)."""
        rendering, fold = self._rendered(), self._fold
        found: list[LiveResult] = []
        for seq in sorted(rendering.live, reverse=True):
            state = rendering.live[seq]
            after = rendering.after(fold.index_of(seq))
            for call in reversed(shown_calls(state, fold.log, fold.active).values()):
                place = state.results.get(call.id)
                if place is not None and place.state in LIVE:
                    found.append(
                        LiveResult(place.seq, call, place.state, state.pinned, place.size, after, place.artifact)
                    )
                after = after.plus(place.size if place is not None else INTERRUPTED_SIZE)
        return found

    def callers(self, tool: str) -> list[int]:
        """The first entries of the groups in the next request that call this tool, oldest first. Reads no entries."""
        self._rendered()
        return [each.seq for each in self._fold.states if tool in each.names and each.fingerprints]

    def originals(self, first: int, last: int) -> list[Group]:
        """The groups from entry `first` to entry `last` as in the log, whatever covers or shortens them now.

        Renders each of them: slow for many.
        """
        log, none = self.log, frozenset[int]()
        found: list[Group] = []
        for state in self._fold.states_between(first, last):
            if state.kind != "tool_summary" and not state.is_annex:
                whole = state.copy()
                render(whole, log, none)
                found.append(group_of(whole, log, none))
        return found

    def boundaries(self) -> list[Boundary]:
        """The summaries and checkpoints in the next request, in its order."""
        fold = self._fold
        return [
            fold.boundaries[seq]
            for state in fold.states
            for seq in state.opened_boundaries
            if fold.hidden_counts.get(seq) and not state.is_annex
        ]

    def said(self) -> list[Words]:
        """The user's messages, oldest first: what they typed or its latest edit. Those edited to nothing lack."""
        edited = self._fold.edited_words()
        found = []
        for state in self._fold.states:
            if state.said_by_user:
                text = edited.get(state.seq)
                if text is None and (message := self.log.message(state.seq)) is not None:
                    pictures = (block for block in message.blocks if isinstance(block, Image))
                    text = _text_of((Text(message.typed), *pictures) if message.typed else message.blocks)
                found += [Words(state.seq, text, state.time)] if text else []
        return found

    def words(self) -> tuple[Words, ...]:
        """The user's own words that are kept behind boundaries, oldest first, shown or not."""
        return self._fold.all_words()

    def shown_words(self) -> KeptWords:
        """Those of `words` that the next request contains, after its newest boundary."""
        return self._fold.words()

    def context_entries(self) -> list[tuple[AnyContextEntry, bool]]:
        """Every context decision of this conversation, oldest first, and whether it is in force."""
        return [(entry, seq in self._fold.active) for seq, entry in self._fold.context.items()]

    def context_entry(self, seq: int) -> AnyContextEntry:
        """The context decision with this number. Raises KeyError."""
        return self._fold.context[seq]

    def last_read(self, call: Message) -> float:
        """When the prefix of `call`'s request was last sent, on any branch (seconds since the epoch)."""
        newest = self._newest_call
        if newest is None or newest is call or self.log.fork_point(newest.seq, call.seq) != call.seq:
            return call.time
        return max(call.time, newest.time)

    def reasoning_dropped(self) -> int:
        """How many reasoning blocks of the current model the next request leaves out."""
        return sum(self._left_out())

    def calls_without_reasoning(self) -> int:
        """How many answers in the next request lack the reasoning that the current model gave with them."""
        return len(self._left_out())

    def _left_out(self) -> list[int]:
        model = self._rendered().policy.model
        return [
            state.reasonings
            for state in self._fold.states
            if state.reasonings and state.model == model and not state.covered_by and not state.with_reasoning
        ]

    def reasoning_shown(self) -> int:
        self._rendered()
        return sum(state.reasonings for state in self._fold.states if state.with_reasoning and not state.covered_by)

    def reasoning_after(self, seq: int) -> TextSize:
        """The size of the reasoning that the next request contains behind entry `seq`."""
        self._rendered()
        states = self._fold.states[self._fold.index_of(seq + 1) :]
        return total_size(state.sizes["reasoning"] for state in states if "reasoning" in state.sizes)

    def end_of(self, seq: int) -> int:
        """The newest entry of the group that contains the message or result `seq`; 0 if there is none."""
        state = self._fold.state_of(seq)
        return state.last if state is not None else 0

    @property
    def policy(self) -> ReasoningPolicy:
        return self._rendering.policy

    @policy.setter
    def policy(self, policy: ReasoningPolicy) -> None:
        if policy != self._rendering.policy:
            self._rendering.policy = policy
            self._fold.dirty = 0

    @property
    def edits(self) -> int:
        """How many context decisions this conversation has."""
        return len(self._fold.context)

    @property
    def edits_since_call(self) -> int:
        """How many of them came after the newest measured call."""
        return self._fold.edits_since_call

    @property
    def prefix(self) -> Prefix | None:
        return self._fold.prefix

    @property
    def model(self) -> str:
        """``provider:id`` of the model that answers; empty until one is set."""
        return self._fold.model

    @property
    def mode(self) -> str:
        """The permission mode that the conversation was last changed to; empty: to none."""
        return self._fold.mode

    @property
    def partial(self) -> str:
        """The text streamed so far of an unfinished reply."""
        return self._fold.partial

    @property
    def last_call(self) -> Message | None:
        """The newest answer with known usage."""
        return self._fold.last_call

    def unanswered_prompt(self) -> Message | None:
        """The user's newest message, if it is shown and no answer to it was finished: its turn failed or was ended."""
        for state in reversed(self._fold.states):
            if state.role == "assistant" and not state.calls:
                answer = self.log.message(state.seq)
                if answer is None or answer.stop_reason != "interrupted":
                    return None
            elif state.said_by_user:
                return None if state.covered_by else self.log.message(state.seq)
        return None

    def queued(self, at: int | None = None) -> tuple[Queued, ...]:
        """The user's messages that wait to be delivered: now, or once the head has moved to entry `at`."""
        return tuple((self._fold.queued if at is None else self._fold.queue_at(at)).values())

    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet, oldest first."""
        return tuple(
            call
            for state in self._fold.open.values()
            for call in calls_in(blocks_of(self.log, state.seq)).values()
            if call.id not in state.results
        )

    def call(self, call_id: str) -> ToolCall | None:
        state = self._fold.state_by_call.get(call_id)
        return calls_in(blocks_of(self.log, state.seq))[call_id] if state else None

    def _rendered(self) -> Rendering:
        self._rendering.refresh(self._fold)
        return self._rendering


def _text_of(blocks: tuple[Block, ...]) -> str:
    parts = [block.text.strip() for block in blocks if isinstance(block, Text)]
    parts += ["[a picture]"] * sum(isinstance(block, Image) for block in blocks)
    return "\n".join(filter(None, parts))
