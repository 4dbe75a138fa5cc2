"""Folds a log into message states: who said what, what covers it, and which context decisions are in force."""

from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from operator import attrgetter
from typing import TypeVar

import msgspec

from tui_agent.conversation.blocks import ToolResult
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Boundary,
    CeilingReached,
    CeilingReset,
    Checkpointed,
    Cleared,
    ContextEntry,
    Delivered,
    Digested,
    FilesChanged,
    FilesKept,
    HeadMoved,
    Lost,
    Message,
    ModeChanged,
    ModelSwitched,
    Partial,
    Pinned,
    Prefix,
    Queued,
    Recorded,
    Restored,
    Shortened,
    Summarized,
    UnattributedCall,
    Undone,
    Withdrawn,
    Words,
    WordsEdited,
    delivered,
)
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import NOTHING, size_of_block, size_of_text
from tui_agent.conversation.states import MessageState, ResultState, state_of_message

AnEntry = TypeVar("AnEntry", bound=AnyEntry)

_number = attrgetter("seq")


class MeasuredCall(msgspec.Struct, frozen=True, gc=False):
    """A model call's request in tokens, as the provider counted it, and the context steps since the call before."""

    tokens: int
    edits: int


class KeptWords(msgspec.Struct, frozen=True):
    """The user's own words to show after `boundary` (0: none), and how many of the messages that boundaries hide are
    not among them. Messages whose words the user dropped are not counted.
    """

    boundary: int = 0
    words: tuple[Words, ...] = ()
    left_out: int = 0


class Fold:
    """The state of one conversation after the entries taken so far.

    `log` holds those entries, possibly among others. `states` are the messages in order; `dirty` is the index of the
    first one that changed since the last rendering. `open` are the states whose calls still lack results. `context` are
    all context entries, by number; `active` the numbers of those in force. `boundaries` are the summaries and
    checkpoints; `hidden_counts` is how many states each of them hides, and `signed_under` the system prompt and tools
    in force when a signed one was entered. `dropped` are the states that were taken back since the last rendering.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.prefix: Prefix | None = None
        self.model = ""
        self.mode = ""
        self.partial = ""
        self.last_call: Message | None = None
        self.queued: dict[int, Queued] = {}
        self.states: list[MessageState] = []
        self.open: dict[int, MessageState] = {}
        self.state_by_call: dict[str, MessageState] = {}
        self.context: dict[int, AnyContextEntry] = {}
        self.active: set[int] = set()
        self.boundaries: dict[int, Boundary] = {}
        self.hidden_counts: dict[int, int] = {}
        self.signed_under: dict[int, Prefix | None] = {}
        self.measured_calls: list[MeasuredCall] = []
        self.dirty = 0
        self.dropped: list[MessageState] = []
        self.words_stale = False
        self.edits_since_call = 0
        """How many context decisions were made since the newest call."""
        self._state_by_result: dict[int, MessageState] = {}
        self._pins: list[Pinned] = []
        # For taking entries back: which context entries each `Undone` switched on or off; by message and call id, which
        # earlier call has the same id.
        self._switched: dict[int, list[int]] = {}
        self._earlier_calls: dict[tuple[int, str], MessageState] = {}

    @property
    def is_settled(self) -> bool:
        """Whether the newest message has all its results, so that it will not change with the next entry."""
        return not self.states or self.states[-1].seq not in self.open

    def copy(self, log: Log) -> "Fold":
        """An independent copy; `log` is a copy of the log. Costs O(length of the conversation)."""
        other = Fold(log)
        containers = {name: copy(each) for name, each in vars(self).items() if isinstance(each, dict | list | set)}
        other.__dict__.update(vars(self) | containers, log=log, dropped=[])
        other.states = [state.copy() for state in self.states]
        same = {state.seq: state for state in other.states}
        other.open = {seq: same[seq] for seq in self.open}
        other.state_by_call = {call_id: same[state.seq] for call_id, state in self.state_by_call.items()}
        other._state_by_result = {seq: same[state.seq] for seq, state in self._state_by_result.items()}
        other._switched = {seq: list(targets) for seq, targets in self._switched.items()}
        other._earlier_calls = {key: same[state.seq] for key, state in self._earlier_calls.items()}
        return other

    def take(self, entry: AnyEntry) -> None:
        """Apply the next entry of this conversation."""
        match entry:
            case Message():
                self._take_message(entry)
            case Prefix():
                self.prefix = entry
                self.dirty = 0
            case Partial():
                self.partial = entry.text if entry.restart else self.partial + entry.text
            case Queued():
                self.queued[entry.seq] = entry
            case Delivered():
                if (queued := self.queued.pop(entry.queued, None)) is not None:
                    self._take_message(delivered(queued, entry))
            case Withdrawn():
                self.queued.pop(entry.queued, None)
            case ModelSwitched():
                self.model = entry.model
            case ModeChanged():
                self.mode = entry.mode
            case HeadMoved() | UnattributedCall() | CeilingReached() | CeilingReset() | FilesKept() | FilesChanged():
                pass
            case Recorded() | Lost():
                pass
            case _:
                self._take_context(entry)

    def _take_message(self, message: Message) -> None:
        if message.role == "assistant":
            self.partial = ""
            if message.usage is not None:
                self.last_call = message
        if message.usage is not None and message.usage.input_tokens:
            self.measured_calls.append(MeasuredCall(message.usage.input_tokens, self.edits_since_call))
            self.edits_since_call = 0
        if message.kind == "tool_result":
            self._take_result(message)
        elif message.agent_visible:
            state = state_of_message(message)
            self.states.append(state)
            for call_id in state.calls:
                if (earlier := self.state_by_call.get(call_id)) is not None:
                    self._earlier_calls[state.seq, call_id] = earlier
                self.state_by_call[call_id] = state
            if state.results:
                self._state_by_result[state.seq] = state
            elif state.calls:
                self.open[state.seq] = state

    def _take_result(self, message: Message) -> None:
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                continue
            state = self.state_by_call.get(block.call_id)
            if state is None or block.call_id in state.results:
                continue
            # Results usually come in the order of the calls; do not search thousands of calls for each.
            place = len(state.results)
            if state.calls[place] != block.call_id:
                place = state.calls.index(block.call_id)
            result = ResultState(
                message.seq,
                state.names[place],
                size_of_block(block),
                message.artifact,
                message.agent_visible,
                message.time,
            )
            if not state.results:
                state.results = {}
            state.results[state.calls[place]] = result
            self._state_by_result[message.seq] = state
            if len(state.results) == len(state.calls):
                self.open.pop(state.seq, None)
            self._touch(state)

    def _take_context(self, entry: AnyContextEntry) -> None:
        self.context[entry.seq] = entry
        self.active.add(entry.seq)
        self.edits_since_call += 1
        match entry:
            case Cleared() | Digested():
                for seq in entry.results:
                    self._cover_result(seq, entry)
                if isinstance(entry, Digested):
                    size = size_of_text(entry.text)
                    self.states.append(MessageState(entry.seq, "user", "tool_summary", size, entry.time))
            case Restored():
                for seq in entry.items:
                    self._cover_result(seq, entry)
                    if (state := self.state_at(seq)) is not None:
                        state.restorations += (entry.seq,)
                        state.unshortened += () if state.covered_by else (entry.seq,)
            case Shortened():
                for seq in entry.items:
                    if (state := self.state_at(seq)) is not None:
                        state.shortenings += (entry,)
                    else:
                        self._cover_result(seq, entry)
            case Summarized() | Checkpointed():
                self.boundaries[entry.seq] = entry
                for number, state in enumerate(self.states_between(entry.first, entry.last)):
                    state.opened_boundaries += () if number else (entry.seq,)
                    state.boundaries += (entry.seq,)
                if entry.signed:
                    self.signed_under[entry.seq] = self.prefix
                    # The additions to it stand behind all that was said before.
                    opened = (entry.seq,)
                    annex = MessageState(entry.seq, "user", "summary", NOTHING, entry.time, opened_boundaries=opened)
                    self.states.append(annex)
            case Pinned():
                self._pins.append(entry)
            case Undone():
                self._switched[entry.seq] = []
            case WordsEdited():
                pass
        self._reconsider(entry, active=True)

    def return_to(self, seq: int, left: int) -> None:
        """Go back from entry `left` of this conversation, its newest, to how it was after entry `seq` of it.

        Costs what the entries in between touch: they are taken back, newest first.
        """
        entries = self.log.path(left, seq)
        for entry in reversed(entries):
            match entry:
                case Message():
                    self._take_back_message(entry)
                case Delivered():
                    self._take_back_state(entry.seq)
                case ContextEntry():
                    self._take_back_context(entry)
        kinds = {self.log.kind(number) for number in entries.numbers}
        if Prefix in kinds:
            self.prefix, self.dirty = self._newest(Prefix, seq), 0
        if ModelSwitched in kinds:
            self.model = switched.model if (switched := self._newest(ModelSwitched, seq)) else ""
        if ModeChanged in kinds:
            self.mode = changed.mode if (changed := self._newest(ModeChanged, seq)) else ""
        if Message in kinds:
            self.last_call = self._last_call_at(seq)
        if not kinds.isdisjoint((Queued, Delivered, Withdrawn)):
            self.queued = self.queue_at(seq)
        self.open = dict(sorted(self.open.items()))
        self.partial = self._partial_at(seq)

    def _newest(self, kind: type[AnEntry], seq: int) -> AnEntry | None:
        """The newest entry of a kind up to entry `seq` of this conversation."""
        numbers = reversed(self.log.path(seq).numbers)
        found = next((self.log[number] for number in numbers if self.log.kind(number) is kind), None)
        return found if isinstance(found, kind) else None

    def _last_call_at(self, seq: int) -> Message | None:
        on_path = set(self.log.path(seq).numbers)
        answers = (self.log.message(each) for each in reversed(self.log.answers) if each in on_path)
        return next((answer for answer in answers if answer is not None and answer.usage is not None), None)

    def _partial_at(self, seq: int) -> str:
        parts: list[str] = []
        for entry in self.log.back(seq):
            if isinstance(entry, Message) and entry.role == "assistant":
                break
            if isinstance(entry, Partial):
                parts.append(entry.text)
                if entry.restart:
                    break
        return "".join(reversed(parts))

    def _take_back_message(self, message: Message) -> None:
        if message.usage is not None and message.usage.input_tokens:
            self.edits_since_call = self.measured_calls.pop().edits
        if message.kind != "tool_result":
            self._take_back_state(message.seq)
            return
        self._state_by_result.pop(message.seq, None)
        for block in message.blocks:
            if not isinstance(block, ToolResult) or (state := self.state_by_call.get(block.call_id)) is None:
                continue
            if (result := state.results.get(block.call_id)) is not None and result.seq == message.seq:
                del state.results[block.call_id]
                self.open[state.seq] = state
                self._touch(state)

    def _take_back_state(self, seq: int) -> None:
        """Drop the newest state, if it is that of entry `seq`."""
        if not self.states or self.states[-1].seq != seq:
            return
        state = self.states.pop()
        self.dropped.append(state)
        self._mark_dirty(len(self.states))
        self.open.pop(seq, None)
        self._state_by_result.pop(seq, None)
        for call_id in state.calls:
            del self.state_by_call[call_id]
            if (earlier := self._earlier_calls.pop((seq, call_id), None)) is not None:
                self.state_by_call[call_id] = earlier

    def _take_back_context(self, entry: AnyContextEntry) -> None:
        """Take back the newest context entry, which is in force: what undid it was taken back before."""
        seq = entry.seq
        self.edits_since_call -= 1
        self.active.discard(seq)
        self.words_stale = True
        self._take_back_state(seq)
        self._pins = [each for each in self._pins if each.seq != seq]
        for target in reversed(self._switched.pop(seq, ())):
            self.active ^= {target}
            if not isinstance(self.context[target], Undone):
                self._reconsider(self.context[target], active=target in self.active)
        for state in self._states_of(entry):
            for result in state.results.values():
                result.covers = tuple(each for each in result.covers if each.seq != seq)
            state.shortenings = tuple(each for each in state.shortenings if each.seq != seq)
            for name in ("boundaries", "opened_boundaries", "restorations", "unshortened"):
                setattr(state, name, tuple(each for each in getattr(state, name) if each != seq))
            self._recompute(state)
        del self.context[seq]
        for named in (self.boundaries, self.hidden_counts, self.signed_under):
            named.pop(seq, None)

    def queue_at(self, seq: int) -> dict[int, Queued]:
        """The texts that wait at entry `seq`, on this conversation or another branch, by number; decodes no others."""
        queue: dict[int, Queued] = {}
        for number in self.log.path(seq).numbers:
            if self.log.kind(number) in (Queued, Delivered, Withdrawn):
                match entry := self.log[number]:
                    case Queued():
                        queue[number] = entry
                    case Delivered() | Withdrawn():
                        queue.pop(entry.queued, None)
        return queue

    def _reconsider(self, entry: AnyContextEntry, *, active: bool) -> None:
        """Update every state that an entry is about, once it is in force or no longer is."""
        states = self._states_of(entry)
        # A digest, or what marks the place of the additions to a signed summary.
        if (own := self.state_at(entry.seq)) is not None:
            own.shown = active
            states.append(own)
        match entry:
            case Summarized() | Checkpointed() | WordsEdited():
                self.words_stale = True
            case Undone():
                target = self.context.get(entry.target) if entry.target < entry.seq else None
                if target is not None and (target.seq in self.active) == active:
                    self.active ^= {target.seq}
                    self.words_stale = True
                    self._switched[next(reversed(self.context))].append(target.seq)
                    self._reconsider(target, active=not active)
        for state in states:
            self._recompute(state)

    def _states_of(self, entry: AnyContextEntry) -> list[MessageState]:
        match entry:
            case Cleared() | Digested():
                return self._groups_of(entry.results)
            case Restored() | Pinned() | Shortened():
                return self._groups_of(entry.items)
            case Summarized() | Checkpointed():
                return self.states_between(entry.first, entry.last)
            case WordsEdited() | Undone():
                return []

    def words(self) -> KeptWords:
        """The user's own words to show. Words of messages that the request contains anyway, pinned or restored, are
        not among them.
        """
        shown = [boundary for boundary in self.boundaries.values() if self.hidden_counts.get(boundary.seq)]
        if not shown:
            return KeptWords()
        newest = max(shown, key=lambda boundary: boundary.first).seq
        kept, dropped = {each.seq: each for each in self.all_words()}, self.edited_words()
        if not kept:
            return KeptWords(newest)
        words, left_out = [], 0
        for state in self.states:
            if not state.said_by_user or not state.covered_by or state.seq in self.boundaries[state.covered_by].carried:
                continue
            if (each := kept.get(state.seq)) is not None:
                words.append(each if each.time else Words(each.seq, each.text, state.time))
            elif state.full != NOTHING and dropped.get(state.seq) != "":
                left_out += 1
        return KeptWords(newest, tuple(words), left_out)

    def edited_words(self) -> dict[int, str]:
        """The texts to which the user changed the words of their messages, by number; empty: nothing is kept."""
        edits: dict[int, str] = {}
        for seq, entry in self.context.items():
            if isinstance(entry, WordsEdited) and seq in self.active:
                edits |= {each.seq: each.text for each in entry.edits}
        return edits

    def words_edited_since(self, seq: int) -> bool:
        """Whether an edit of the user's words after entry `seq` is in force."""
        return any(
            each > seq and each in self.active and isinstance(self.context[each], WordsEdited) for each in self.context
        )

    def all_words(self) -> tuple[Words, ...]:
        """The user's own words as kept by the newest boundary or edit in force, shown or not."""
        for seq in reversed(self.context):
            entry = self.context[seq]
            if seq not in self.active:
                continue
            if isinstance(entry, WordsEdited) or (isinstance(entry, Summarized | Checkpointed) and entry.words):
                return entry.words
        return ()

    def index_of(self, seq: int) -> int:
        return bisect_left(self.states, seq, key=_number)

    def state_of(self, seq: int) -> MessageState | None:
        return self._state_by_result.get(seq) or self.state_at(seq)

    def _recompute(self, state: MessageState) -> None:
        """Update whether a state is pinned and which boundary hides it."""
        state.pinned = self._is_pinned(state)
        boundary = max((seq for seq in state.boundaries if seq in self.active), default=0)
        restored = max((seq for seq in state.restorations if seq in self.active), default=0)
        pinned = state.pinned and (not boundary or state.seq not in self.boundaries[boundary].carried)
        covered_by = boundary if boundary > restored and not pinned and state.shown else 0
        if covered_by != state.covered_by:
            for seq, change in ((state.covered_by, -1), (covered_by, 1)):
                if seq:
                    self.hidden_counts[seq] = self.hidden_counts.get(seq, 0) + change
                    self._mark_dirty(self.index_of(self.boundaries[seq].first))
            state.covered_by = covered_by
            self.words_stale = True
            if state.is_annex:
                # Without it, the facts stand behind the summary itself.
                self._mark_dirty(self.index_of(self.boundaries[state.seq].first))
        self._touch(state)

    def _is_pinned(self, state: MessageState) -> bool:
        if not self._pins:
            return False
        members = {state.seq, *(result.seq for result in state.results.values())}
        pinned = False
        for entry in self._pins:
            if entry.seq in self.active and not members.isdisjoint(entry.items):
                pinned = entry.pinned
        return pinned

    def _cover_result(self, seq: int, entry: Cleared | Digested | Restored | Shortened) -> None:
        if (state := self._state_by_result.get(seq)) is not None:
            for place in state.results.values():
                if place.seq == seq:
                    place.covers += (entry,)

    def _touch(self, state: MessageState) -> None:
        state.stale = True
        self._mark_dirty(self.index_of(state.seq))

    def _mark_dirty(self, index: int) -> None:
        self.dirty = min(self.dirty, index)

    def state_at(self, seq: int) -> MessageState | None:
        """The state of entry `seq` itself; that of a signed summary stands where the additions to it do."""
        index = self.index_of(seq)
        return self.states[index] if index < len(self.states) and self.states[index].seq == seq else None

    def states_between(self, first: int, last: int) -> list[MessageState]:
        return self.states[self.index_of(first) : self.index_of(last + 1)]

    def _groups_of(self, items: Iterable[int]) -> list[MessageState]:
        found = {state.seq: state for seq in items if (state := self.state_of(seq))}
        return [found[seq] for seq in sorted(found)]
