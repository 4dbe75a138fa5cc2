"""Heights of the blocks of a transcript: which block is at a line, and at which line a block starts. Heights are kept
for all cards open and for all closed, so that toggling every card costs no more than painting what is in view.
"""

from collections.abc import Sequence

from tui_agent.tui.cards.base import Block, Card
from tui_agent.tui.pane.block_painting import estimate_height
from tui_agent.tui.pane.transcript import Transcript


class BlockHeights:
    """Heights of a growing list of blocks, in lines, as a Fenwick tree.

    Appending, changing and looking up cost O(log n); `total`, the sum, costs O(1).
    """

    __slots__ = ("_heights", "_tree", "total")

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._tree: list[int] = [0]
        self.total = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def append(self, height: int) -> None:
        self._heights.append(height)
        position = len(self._heights)
        node, child, lowest = height, position - 1, position - (position & -position)
        while child > lowest:
            node += self._tree[child]
            child -= child & -child
        self._tree.append(node)
        self.total += height

    def set(self, index: int, height: int) -> int:
        """Change the height of one block; returns the difference in lines."""
        difference = height - self._heights[index]
        if difference:
            self._heights[index] = height
            self.total += difference
            position = index + 1
            while position < len(self._tree):
                self._tree[position] += difference
                position += position & -position
        return difference

    def replace(self, heights: list[int]) -> None:
        """Replace all heights, in O(n)."""
        self._heights = heights
        self.total = sum(heights)
        self._tree = tree = [0, *heights]
        for position in range(1, len(tree)):
            parent = position + (position & -position)
            if parent < len(tree):
                tree[parent] += tree[position]

    def start_of(self, index: int) -> int:
        """The line at which a block starts: the sum of the heights before it."""
        total = 0
        while index > 0:
            total += self._tree[index]
            index -= index & -index
        return total

    def find(self, line: int) -> tuple[int, int]:
        """The block that contains a line, and the line's number within it.

        A line before the first block maps to the first block's first line, one past the end to the last block's last.
        """
        if not self._heights:
            return 0, 0
        if line >= self.total:
            last = len(self._heights) - 1
            return last, max(0, self._heights[last] - 1)
        remaining = max(0, line)
        position = 0
        step = 1 << (len(self._heights).bit_length())
        while step:
            following = position + step
            if following < len(self._tree) and self._tree[following] <= remaining:
                position = following
                remaining -= self._tree[following]
            step >>= 1
        return position, remaining


class CardHeights:
    """The heights of one transcript's blocks, with its cards as they are and with all of them toggled.

    `width`: of a line, in cells. Heights of blocks that were never painted are estimates.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.width = 80
        self._transcript = transcript
        self._heights = {False: BlockHeights(), True: BlockHeights()}
        self._individual: set[int] = set()

    @property
    def now(self) -> BlockHeights:
        return self._heights[self._transcript.cards_open]

    @property
    def _toggled(self) -> BlockHeights:
        return self._heights[not self._transcript.cards_open]

    def append(self, index: int) -> None:
        block = self._transcript.blocks[index]
        height = self.guess(index)
        self.now.append(height)
        self._toggled.append(self._guess_toggled(index) if isinstance(block, Card) else height)

    def set(self, index: int, height: int) -> None:
        self.now.set(index, height)
        if not isinstance(self._transcript.blocks[index], Card):
            self._toggled.set(index, height)

    def change(self, index: int) -> None:
        """Take in that a block's content changed, or that this one card was opened or closed."""
        block = self._transcript.blocks[index]
        if isinstance(block, Card):
            self._toggled.set(index, self._guess_toggled(index))
            if self._differs_from_all(block):
                self._individual.add(index)

    def forget_individual(self) -> None:
        """Take in that all cards were toggled: cards opened or closed individually now agree with the others."""
        for index in self._individual:
            self._toggled.set(index, self._guess_toggled(index))
        self._individual.clear()

    def replace(self, heights: Sequence[int]) -> None:
        """Replace all heights by these, and estimate the toggled ones."""
        blocks = self._transcript.blocks
        self.now.replace(list(heights))
        toggled = [
            self._guess_toggled(block.index) if isinstance(block, Card) else heights[block.index] for block in blocks
        ]
        self._toggled.replace(toggled)
        self._individual = {
            block.index for block in blocks if isinstance(block, Card) and self._differs_from_all(block)
        }

    def guess(self, index: int) -> int:
        """Estimated height of a block in lines, from the size of its text."""
        return self._guess(index, collapsed=self._transcript.blocks[index].collapsed)

    def _guess_toggled(self, index: int) -> int:
        return self._guess(index, collapsed=self._transcript.cards_open)

    def _guess(self, index: int, *, collapsed: bool) -> int:
        blocks = self._transcript.blocks
        before: Block | None = blocks[index - 1] if index else None
        return estimate_height(blocks[index], before, self.width, collapsed=collapsed)

    def _differs_from_all(self, card: Card) -> bool:
        return card.collapsed is self._transcript.cards_open
