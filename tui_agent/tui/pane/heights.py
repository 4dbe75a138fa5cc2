"""Running sums of line counts: which block is at a line, at which line a block starts."""


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
