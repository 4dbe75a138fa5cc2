from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tui.pane.heights import BlockHeights

_HEIGHTS = st.lists(st.integers(0, 9), max_size=60)
_CHANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 9)), max_size=30)


@given(first=_HEIGHTS, more=_HEIGHTS, changes=_CHANGES, replaced=st.booleans())
def test_sums_and_lookups_are_those_of_a_plain_list(
    first: list[int], more: list[int], changes: list[tuple[int, int]], replaced: bool
) -> None:
    heights, naive = BlockHeights(), list(first)
    if replaced:
        heights.replace(list(first))
    else:
        for height in first:
            heights.append(height)
    for height in more:
        heights.append(height)
        naive.append(height)
    for place, height in changes:
        if naive:
            index = place % len(naive)
            assert heights.set(index, height) == height - naive[index]
            naive[index] = height

    assert heights.total == sum(naive)
    assert [heights.start_of(index) for index in range(len(naive) + 1)] == [
        sum(naive[:index]) for index in range(len(naive) + 1)
    ]
    lines = [(index, line) for index, height in enumerate(naive) for line in range(height)]
    assert [heights.find(number) for number in range(len(lines))] == lines


def test_a_line_outside_the_transcript_is_the_nearest_one() -> None:
    heights = BlockHeights()
    assert heights.find(5) == (0, 0)
    heights.append(3)
    heights.append(2)
    assert heights.find(-4) == (0, 0)
    assert heights.find(99) == (1, 1)
