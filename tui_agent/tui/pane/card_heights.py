"""The heights of a transcript's blocks, twice: with all cards open and with all closed, so that turning all of them
costs what is in view.
"""

from collections.abc import Sequence

from tui_agent.tui.cards.block_painting import estimate_height
from tui_agent.tui.cards.blocks import Block, Card
from tui_agent.tui.pane.heights import Heights
from tui_agent.tui.pane.transcript import Transcript


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
