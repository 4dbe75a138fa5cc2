"""How high the blocks of a transcript are: which block is at a line, at which line a block starts; with all cards open
and with all closed, so that turning all of them costs what is in view.
"""

from collections.abc import Sequence

from tui_agent.tui.cards.base import Block, Card
from tui_agent.tui.pane.block_painting import estimate_height
from tui_agent.tui.pane.transcript import Transcript


class Heights:
    """Heights of a growing list of blocks, in lines, as a Fenwick tree.

    Appending, changing and looking up cost O(log n); the sum of all heights is known at once.
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
        """Add a block of `height` lines at the end."""
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
        """Set every height at once, in O(n)."""
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
        """The block that holds a line, and the line's number inside it.

        A line before the first block is the first block's; a line past the end is the last block's last.
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
    """Follows one transcript. `width` is that of a line, in cells; the heights of what was not painted are guesses."""

    def __init__(self, transcript: Transcript) -> None:
        self.width = 80
        self._transcript = transcript
        self._heights = {False: Heights(), True: Heights()}
        self._apart: set[int] = set()

    @property
    def now(self) -> Heights:
        """As the cards stand."""
        return self._heights[self._transcript.cards_open]

    @property
    def _turned(self) -> Heights:
        """As they would stand, were all cards turned."""
        return self._heights[not self._transcript.cards_open]

    def append(self, index: int) -> None:
        """A block came at the end."""
        block = self._transcript.blocks[index]
        height = self.guess(index)
        self.now.append(height)
        self._turned.append(self._guess_turned(index) if isinstance(block, Card) else height)

    def set(self, index: int, height: int) -> None:
        """How a block stands is known."""
        self.now.set(index, height)
        if not isinstance(self._transcript.blocks[index], Card):
            self._turned.set(index, height)

    def change(self, index: int) -> None:
        """A card says something else, or was opened or closed by itself."""
        block = self._transcript.blocks[index]
        if isinstance(block, Card):
            self._turned.set(index, self._guess_turned(index))
            if self._stands_apart(block):
                self._apart.add(index)

    def reunite(self) -> None:
        """All cards were turned: those that stood apart will not, when they are turned again."""
        for index in self._apart:
            self._turned.set(index, self._guess_turned(index))
        self._apart.clear()

    def replace(self, heights: Sequence[int]) -> None:
        """Every height anew."""
        blocks = self._transcript.blocks
        self.now.replace(list(heights))
        turned = [
            self._guess_turned(block.index) if isinstance(block, Card) else heights[block.index] for block in blocks
        ]
        self._turned.replace(turned)
        self._apart = {block.index for block in blocks if isinstance(block, Card) and self._stands_apart(block)}

    def guess(self, index: int) -> int:
        """How high a block is, by the size of its text."""
        return self._guess(index, collapsed=self._transcript.blocks[index].collapsed)

    def _guess_turned(self, index: int) -> int:
        return self._guess(index, collapsed=self._transcript.cards_open)

    def _guess(self, index: int, *, collapsed: bool) -> int:
        blocks = self._transcript.blocks
        before: Block | None = blocks[index - 1] if index else None
        return estimate_height(blocks[index], before, self.width, collapsed=collapsed)

    def _stands_apart(self, card: Card) -> bool:
        return card.collapsed is self._transcript.cards_open
