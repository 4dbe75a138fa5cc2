"""Folding a log into slots: who said what, what covers it, and which decisions still count."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Boundary,
    Checkpointed,
    Cleared,
    Delivered,
    Digested,
    HeadMoved,
    Message,
    ModelSwitched,
    Partial,
    Pinned,
    Prefix,
    Queued,
    Restored,
    Spent,
    Summarized,
    Undone,
    Withdrawn,
)
from tui_agent.conversation.slots import ResultPlace, Slot, slot_of_message


class Point(NamedTuple):
    """One model call: the tokens of its request, and how many context steps came between it and the call before."""

    tokens: int
    edits: int


class Fold:
    """One conversation after its entries so far. `dirty` is the first slot changed since it was last read."""

    def __init__(self) -> None:
        self.prefix: Prefix | None = None
        self.model = ""
        self.partial = ""
        self.last_call: Message | None = None
        self.queued: dict[int, Queued] = {}
        self.slots: list[Slot] = []
        self.open: dict[int, Slot] = {}
        self.slot_by_call: dict[str, Slot] = {}
        self.context: dict[int, AnyContextEntry] = {}
        self.active: set[int] = set()
        self.anchors: dict[int, Boundary] = {}
        self.owned: dict[int, int] = {}
        self.course: list[Point] = []
        self.dirty = 0
        self._edits = 0
        self._numbers: list[int] = []
        self._slot_by_result: dict[int, Slot] = {}
        self._pins: list[Pinned] = []

    def take(self, entry: AnyEntry) -> None:
        """Take the next entry of this conversation in."""
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
                queued = self.queued.pop(entry.queued, None)
                if queued is not None:
                    self._add(Slot(entry.seq, "user", "", queued.blocks, entry.time))
            case Withdrawn():
                self.queued.pop(entry.queued, None)
            case ModelSwitched():
                self.model = entry.model
            case HeadMoved() | Spent():
                pass
            case _:
                self._take_context(entry)

    def _take_message(self, message: Message) -> None:
        if message.role == "assistant":
            self.partial = ""
            if message.usage is not None:
                self.last_call = message
        if message.usage is not None and message.usage.input_tokens:
            self.course.append(Point(message.usage.input_tokens, self._edits))
            self._edits = 0
        if message.kind == "tool_result":
            self._take_result(message)
        elif message.agent_visible:
            slot = slot_of_message(message)
            self._add(slot)
            self.slot_by_call.update(dict.fromkeys(slot.calls, slot))
            if slot.calls:
                self.open[slot.seq] = slot

    def _take_result(self, message: Message) -> None:
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                continue
            slot = self.slot_by_call.get(block.call_id)
            if slot is None or block.call_id in slot.results:
                continue
            slot.results[block.call_id] = ResultPlace(
                message.seq, block, message.artifact, message.agent_visible, message.time
            )
            self._slot_by_result[message.seq] = slot
            if len(slot.results) == len(slot.calls):
                self.open.pop(slot.seq, None)
            self._touch(slot)

    def _take_context(self, entry: AnyContextEntry) -> None:
        self.context[entry.seq] = entry
        self.active.add(entry.seq)
        self._edits += 1
        match entry:
            case Cleared() | Digested():
                for seq in entry.results:
                    self._cover_result(seq, entry)
                if isinstance(entry, Digested):
                    self._add(Slot(entry.seq, "user", "tool_summary", (Text(entry.text),), entry.time))
            case Restored():
                for seq in entry.items:
                    self._cover_result(seq, entry)
                    slot = self._slot_at(seq)
                    if slot is not None:
                        slot.restorations += (entry.seq,)
                        self._settle(slot)
            case Summarized() | Checkpointed():
                self.anchors[entry.seq] = entry
                covered = self._slots_between(entry.first, entry.last)
                if covered:
                    covered[0].anchored += (entry.seq,)
                for slot in covered:
                    slot.boundaries += (entry.seq,)
                    self._settle(slot)
            case Pinned():
                self._pins.append(entry)
                for slot in self._groups_of(entry.items):
                    self._settle(slot)
            case Undone() if entry.target < entry.seq:
                self._set_active(entry.target, active=False)
            case Undone():
                pass

    def index_of(self, seq: int) -> int:
        """The place of the slot with this number."""
        return bisect_left(self._numbers, seq)

    def slot_of(self, seq: int) -> Slot | None:
        """The slot that holds this message or result."""
        return self._slot_by_result.get(seq) or self._slot_at(seq)

    def _set_active(self, seq: int, *, active: bool) -> None:
        entry = self.context.get(seq)
        if entry is None or (seq in self.active) == active:
            return
        (self.active.add if active else self.active.discard)(seq)
        match entry:
            case Undone() if entry.target < entry.seq:
                self._set_active(entry.target, active=not active)
            case Undone():
                pass
            case Cleared() | Digested():
                for result in entry.results:
                    if (slot := self._slot_by_result.get(result)) is not None:
                        self._touch(slot)
                if isinstance(entry, Digested) and (slot := self._slot_at(entry.seq)) is not None:
                    slot.shown = active
                    self._settle(slot)
            case Restored() | Pinned():
                for slot in self._groups_of(entry.items):
                    self._settle(slot)
            case Summarized() | Checkpointed():
                for slot in self._slots_between(entry.first, entry.last):
                    self._settle(slot)

    def _settle(self, slot: Slot) -> None:
        """Decide anew whether a slot is pinned and which boundary hides it."""
        slot.pinned = self._is_pinned(slot)
        boundary = max((seq for seq in slot.boundaries if seq in self.active), default=0)
        restored = max((seq for seq in slot.restorations if seq in self.active), default=0)
        owner = boundary if boundary > restored and not slot.pinned and slot.shown else 0
        if owner != slot.covered_by:
            for seq, change in ((slot.covered_by, -1), (owner, 1)):
                if seq:
                    self.owned[seq] = self.owned.get(seq, 0) + change
                    self._soil(bisect_left(self._numbers, self.anchors[seq].first))
            slot.covered_by = owner
        self._touch(slot)

    def _is_pinned(self, slot: Slot) -> bool:
        members = {slot.seq, *(place.seq for place in slot.results.values())}
        pinned = False
        for entry in self._pins:
            if entry.seq in self.active and not members.isdisjoint(entry.items):
                pinned = entry.pinned
        return pinned

    def _cover_result(self, seq: int, entry: Cleared | Digested | Restored) -> None:
        slot = self._slot_by_result.get(seq)
        if slot is None:
            return
        for place in slot.results.values():
            if place.seq == seq:
                place.covers += (entry,)
        self._touch(slot)

    def _add(self, slot: Slot) -> None:
        self.slots.append(slot)
        self._numbers.append(slot.seq)

    def _touch(self, slot: Slot) -> None:
        slot.stale = True
        self._soil(bisect_left(self._numbers, slot.seq))

    def _soil(self, index: int) -> None:
        self.dirty = min(self.dirty, index)

    def _slot_at(self, seq: int) -> Slot | None:
        index = bisect_left(self._numbers, seq)
        found = index < len(self.slots) and self._numbers[index] == seq
        return self.slots[index] if found else None

    def _slots_between(self, first: int, last: int) -> list[Slot]:
        return self.slots[bisect_left(self._numbers, first) : bisect_left(self._numbers, last + 1)]

    def _groups_of(self, items: Iterable[int]) -> list[Slot]:
        found = {slot.seq: slot for seq in items if (slot := self.slot_of(seq))}
        return [found[seq] for seq in sorted(found)]
