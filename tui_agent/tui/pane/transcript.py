"""The data behind the conversation pane: an ordered list of blocks, and every change that can be made to it."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from sys import intern
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

from msgspec import Struct, field

from tui_agent.conversation.entries import NO_OUTCOME, Outcome
from tui_agent.text import clean, one_line
from tui_agent.tui.cards.blocks import (
    Block,
    BoundaryBlock,
    Card,
    Folding,
    Level,
    NoticeBlock,
    ProseBlock,
    ReasoningBlock,
    ResultSize,
    StreamedText,
    SubtaskBlock,
    ToolBlock,
    ToolState,
    UserBlock,
    block_for,
)
from tui_agent.tui.cards.notice import notice
from tui_agent.tui.painting.diffs import visible_diff

if TYPE_CHECKING:
    from tui_agent.tools.base import SubtaskProgress

ALL_CARDS: Final = -1
Listener = Callable[[int | None], None]
"""Called with the index of a block that was appended or changed, with `ALL_CARDS` when all cards were opened or closed,
and with None when any block may have changed or been removed.
"""

AnyBlock = TypeVar("AnyBlock", bound=Block)


class BlockPlace(TypedDict):
    """The arguments of `Block` that its place in the transcript determines; see there."""

    id: int
    index: int


class Transcript(Struct, eq=False):
    """Blocks in the order they are shown. Only the transcript changes them; it notifies one listener of each change."""

    blocks: list[Block] = []
    folding: Folding = field(default_factory=Folding)
    _by_call: dict[str, ToolBlock] = {}
    _next_id: int = 1
    _listener: Listener | None = None
    _opened: Callable[[SubtaskBlock], None] | None = None

    def listen(self, listener: Listener | None) -> None:
        """Notify `listener` of every later change, in place of the listener before."""
        self._listener = listener

    @property
    def cards_open(self) -> bool:
        """Whether cards are open by default."""
        return self.folding.open

    def when_opened(self, listener: Callable[[SubtaskBlock], None]) -> None:
        """Call `listener` with each subtask card when it is opened, or when it is added open."""
        self._opened = listener
        self._tell_all_opened()

    def successor(self) -> "Transcript":
        """An empty transcript to fill and show in place of this one, with cards open or closed as here."""
        return Transcript(folding=self.folding, _next_id=self._next_id)

    def take_over(self, blocks: Iterable[Block]) -> None:
        """Append blocks moved here from another transcript, which is no longer shown."""
        for block in blocks:
            block.id, block.index = self._next_id, len(self.blocks)
            if isinstance(block, ToolBlock):
                self._by_call[block.call_id] = block
            self.add(block)

    def repeat(self, blocks: Iterable[Block]) -> None:
        """Append copies of blocks that stay in another transcript."""
        self.take_over(copy(block) for block in blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    @property
    def topic(self) -> str:
        """The conversation's first prompt on one line, as its title; empty if nothing was asked yet."""
        return one_line(next((block.text for block in self.blocks if isinstance(block, UserBlock)), ""), 60)

    # Messages

    def add_user(self, text: str, *, seq: int = 0, lines: int = 0) -> UserBlock:
        """Append a message of the user's.

        `seq`: its number. `lines`: its number of lines, if some are left out of `text`; else 0.
        """
        return self.add(UserBlock(**self.place(), folding=self.folding, text=clean(text), seq=seq, lines=lines))

    def start_prose(self, text: str = "") -> ProseBlock:
        return self.add(ProseBlock(**self.place(), content=StreamedText(text), streaming=True))

    def add_prose(self, text: str) -> ProseBlock:
        block = ProseBlock(**self.place(), content=StreamedText(text))
        block.content.finish()
        return self.add(block)

    def start_reasoning(self, text: str = "") -> ReasoningBlock:
        return self.add(
            ReasoningBlock(**self.place(), folding=self.folding, content=StreamedText(text), streaming=True)
        )

    def add_reasoning(self, text: str, *, seconds: float | None = None, tokens: int | None = None) -> ReasoningBlock:
        block = ReasoningBlock(
            **self.place(), folding=self.folding, content=StreamedText(text), seconds=seconds, tokens=tokens
        )
        block.content.finish()
        return self.add(block)

    def stream(self, block: ProseBlock | ReasoningBlock, delta: str) -> None:
        block.content.append(delta)
        self._changed(block)

    def finish(
        self, block: ProseBlock | ReasoningBlock, *, seconds: float | None = None, tokens: int | None = None
    ) -> None:
        """Mark a streaming block as complete; reasoning took `seconds` and `tokens`."""
        block.content.finish()
        block.streaming = False
        if isinstance(block, ReasoningBlock):
            block.seconds, block.tokens = seconds, tokens
        self._changed(block)

    # Tools

    def add_tool(
        self,
        call_id: str,
        name: str,
        *,
        summary: str = "",
        arguments: str = "",
        state: ToolState = ToolState.PENDING,
        instead: ToolBlock | None = None,
    ) -> ToolBlock:
        """Append a tool call, or show it in place of the block `instead`; later updates look it up by `call_id`."""
        name = intern(one_line(name, 80))
        kept = instead is not None and self.get(instead.id) is instead
        place: BlockPlace = {"id": instead.id, "index": instead.index} if instead is not None and kept else self.place()
        block = block_for(name)(
            **place,
            folding=self.folding,
            call_id=call_id,
            name=name,
            summary=one_line(summary),
            arguments=clean(arguments),
            state=state,
        )
        self._by_call[block.call_id] = block
        if instead is None or not kept:
            return self.add(block)
        block.changes, block.own = instead.changes, instead.own
        self.blocks[block.index] = block
        self._changed(block)
        return block

    def tool(self, call_id: str) -> ToolBlock | None:
        """The newest block of a tool call; None if the call was never shown."""
        return self._by_call.get(call_id)

    def set_tool_state(self, block: ToolBlock, state: ToolState) -> None:
        block.state, block.note = state, ""
        self._changed(block)

    def show_progress(
        self, block: ToolBlock, text: str, above: int = 0, subtask: "SubtaskProgress | None" = None
    ) -> None:
        """Show the progress of a running call: the last lines it printed, after `above` earlier ones, and how the
        subtask stands that works for it.
        """
        block.show_progress(clean(text), above, subtask)
        self._changed(block)

    def finish_tool(
        self,
        block: ToolBlock,
        state: ToolState,
        result: str,
        *,
        size: ResultSize | None = None,
        diff: str = "",
        note: str = "",
        outcome: Outcome = NO_OUTCOME,
        seconds: float | None = None,
    ) -> None:
        """Set a call's result. Without `size`, the lines and bytes of `result` are counted."""
        block.state = state
        block.result = clean(result)
        block.size = size or ResultSize.of(block.result)
        block.diff = visible_diff(diff) if diff else block.diff
        block.note, block.facts = one_line(note), outcome
        block.seconds = seconds
        block.tail = ""
        self._changed(block)

    # Notices and context steps

    def add_notice(self, level: Level, title: str, text: str = "", hint: str = "") -> NoticeBlock:
        """Append a notice, warning or error; `hint` says what to do next."""
        return self.add(notice(level, title, text, hint, **self.place()))

    def retell(self, block: NoticeBlock, text: str) -> None:
        """Replace the text of a notice, if it is still in the transcript."""
        if self.get(block.id) is block and block.text != (cleaned := clean(text).rstrip("\n")):
            block.text = cleaned
            self._changed(block)

    def add_boundary(
        self,
        kind: str,
        *,
        before: int | None = None,
        after: int | None = None,
        saved: str = "",
        reason: str = "",
        text: str = "",
        seq: int = 0,
        restores: bool = False,
    ) -> BoundaryBlock:
        """Append a step of the context engine; `text` is shown when it is opened, such as a summary."""
        boundary = BoundaryBlock(
            **self.place(),
            folding=self.folding,
            kind=one_line(kind),
            before=before,
            after=after,
            saved=saved,
            reason=one_line(reason),
            text=clean(text),
            seq=seq,
            restores=restores,
        )
        return self.add(boundary)

    def mark_undone(self, seq: int, *, undone: bool = True) -> None:
        """Mark the context step of entry `seq` as undone, or as in force again."""
        for block in reversed(self.blocks):
            if isinstance(block, BoundaryBlock) and block.seq == seq and not block.restores:
                block.undone = undone
                self._changed(block)
                return

    def truncate(self, count: int) -> None:
        """Keep the first `count` blocks, as a rewind does."""
        for block in self.blocks[count:]:
            if isinstance(block, ToolBlock):
                self._by_call.pop(block.call_id, None)
        del self.blocks[count:]
        self._notify(None)

    def remove(self, start: int, end: int) -> None:
        """Remove the blocks from index `start` up to, not including, `end`."""
        later = self.blocks[end:]
        self.truncate(start)
        self.take_over(later)

    # Cards

    def toggle(self, block: Block) -> bool:
        """Open a collapsed card or collapse an open one. False if the block cannot be opened."""
        if not isinstance(block, Card) or not block.can_open:
            return False
        block.toggle()
        self._changed(block)
        if isinstance(block, SubtaskBlock):
            self._tell_opened(block)
        return True

    def toggle_all(self) -> bool:
        """Open every card, or collapse all if they are open; returns whether they are open now."""
        self.folding.open = not self.folding.open
        self.folding.round += 1
        self._tell_all_opened()
        self._notify(ALL_CARDS)
        return self.cards_open

    def _tell_all_opened(self) -> None:
        for block in self.blocks:
            if isinstance(block, SubtaskBlock):
                self._tell_opened(block)

    def _tell_opened(self, block: SubtaskBlock) -> None:
        if self._opened is not None and not block.collapsed:
            self._opened(block)

    # Finding

    def get(self, block_id: int) -> Block | None:
        """The block with an id."""
        # Ids ascend along the list, so a binary search finds them.
        place = bisect_left(self.blocks, block_id, key=lambda block: block.id)
        found = self.blocks[place] if place < len(self.blocks) else None
        return found if found is not None and found.id == block_id else None

    def prompt_beside(self, index: int, direction: int) -> int | None:
        """The index of the nearest user block before `index` (-1) or after it (1)."""
        end = len(self.blocks)
        places = range(index + 1, end) if direction > 0 else range(min(index, end) - 1, -1, -1)
        return next((place for place in places if isinstance(self.blocks[place], UserBlock)), None)

    def said_after(self, seq: int) -> Block | None:
        """The first block with a message of the user's whose number is above `seq`."""
        found: Block | None = None
        for block in reversed(self.blocks):
            number = block.message
            if number > seq:
                found = block
            elif number:
                break
        return found

    def said_up_to(self, seq: int) -> Block | None:
        """The last block with a message of the user's whose number is at most `seq`."""
        return next((block for block in reversed(self.blocks) if 0 < block.message <= seq), None)

    def place(self) -> BlockPlace:
        """The id and index for the next block to be appended."""
        return {"id": self._next_id, "index": len(self.blocks)}

    def add(self, block: AnyBlock) -> AnyBlock:
        """Append a block that was created with `place()`."""
        self._next_id += 1
        self.blocks.append(block)
        self._notify(block.index)
        return block

    def _changed(self, block: Block) -> None:
        block.changes += 1
        self._notify(block.index)

    def _notify(self, index: int | None) -> None:
        if self._listener is not None:
            self._listener(index)
