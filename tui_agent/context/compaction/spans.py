"""Where to cut the view: which groups a summary replaces, and which stay word for word after it.

A summary covers what was said since the previous one, never that one itself. A cut is between two groups, and never
after something that the model has not seen: a running or just finished tool step and a new prompt always stay.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tui_agent.conversation.blocks import Block
from tui_agent.conversation.entries import Boundary
from tui_agent.conversation.groups import Group
from tui_agent.conversation.sizes import NOTHING, Size, size_of_block, size_of_text


class Span(NamedTuple):
    """The groups that a summary replaces, and the groups kept after it. `earlier`: pinned or restored groups among
    earlier summaries.
    """

    covered: tuple[Group, ...]
    kept: tuple[Group, ...]
    earlier: tuple[Group, ...] = ()

    @property
    def first(self) -> int:
        """The first covered entry."""
        return self.covered[0].first

    @property
    def last(self) -> int:
        """The last covered entry; a group is covered whole, even if its results came after the cut."""
        last = max(each.last for each in self.covered)
        return min(last, self.kept[0].first - 1) if self.kept else last

    @property
    def brought_back(self) -> tuple[int, ...]:
        """The user's newest request if it is before the cut: it is restored after the summary."""
        if any(group.starts_turn for group in self.kept):
            return ()
        newest = next((group for group in reversed(self.covered) if group.starts_turn), None)
        return () if newest is None or newest.pinned else (newest.first,)


class Scale:
    """Converts groups and texts to tokens."""

    def __init__(self, tokens_of: Callable[[Size], int]) -> None:
        self._tokens_of = tokens_of

    def group(self, group: Group) -> int:
        """Tokens of all messages of a group."""
        total = NOTHING
        for size in group.sizes.values():
            total = total.plus(size)
        return self._tokens_of(total)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return self._tokens_of(size_of_text(text))

    def blocks(self, blocks: Iterable[Block]) -> int:
        """Tokens of blocks."""
        total = NOTHING
        for block in blocks:
            total = total.plus(size_of_block(block))
        return self._tokens_of(total)


def start_by_tokens(groups: Sequence[Group], keep: int, weigh: Scale) -> int:
    """The index from which the groups take at most `keep` tokens together."""
    start, kept = len(groups), 0
    while start:
        kept += weigh.group(groups[start - 1])
        if kept > keep:
            break
        start -= 1
    return start


def start_by_messages(groups: Sequence[Group], keep: int) -> int:
    """The index from which there are at most `keep` messages, results included, or only the newest group."""
    start, kept = len(groups), 0
    while start:
        group = groups[start - 1]
        kept += 1 + sum(each.blocks for each in group.fingerprints if each.role != group.role)
        if kept > keep and start < len(groups):
            break
        start -= 1
    return start


def _unseen(groups: Sequence[Group]) -> int:
    """The index of the first group the model has not seen: a running or just finished tool step, or a new prompt."""
    for index in range(len(groups) - 1, -1, -1):
        if groups[index].role == "assistant":
            calls = groups[index].open or len(groups[index].fingerprints) > 1
            return index if calls else index + 1
    return 0


def span_before(groups: Sequence[Group], boundaries: Sequence[Boundary], start: int) -> Span:
    """The span between the newest boundary and the group at `start`, as far as the model has seen it."""
    edge = max((boundary.last for boundary in boundaries), default=0)
    begin = sum(group.first <= edge for group in groups)
    cut_at = max(begin, min(start, _unseen(groups)))
    return Span(tuple(groups[begin:cut_at]), tuple(groups[cut_at:]), tuple(groups[:begin]))
