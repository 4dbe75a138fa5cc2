"""The rows of a picker of messages and of one of branches, at the widths where they lose something."""

from time import time

import pytest

from tests.tui.painting.test_painted import PALETTE
from tui_agent.agent.branches import Branch, EarlierPrompt
from tui_agent.tui.dialogs.branch_pickers import rewind_picker, tree_picker
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.painting.palette import Look

LOOK = Look(PALETTE, ASCII)


def _prompts() -> list[EarlierPrompt]:
    return [
        EarlierPrompt(7, "Fix the\nbug, please", time() - 120, 1_234),
        EarlierPrompt(123, " ", time() - 86_400 * 3, 2),
    ]


def _branches() -> list[Branch]:
    return [
        Branch(90, 0, 12, "the present one", time() - 30, present=True),
        Branch(50, 20, 3, "another", time() - 7_200, present=False, answer="It is\ndone."),
        Branch(40, 10, 0, "never said", time() - 60, present=False),
    ]


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (45, ["  123  (no words)               2     3 d ago", "    7  Fix the bug, please  1,234   2 min ago"]),
        (38, ["  123  (no words)        2     3 d ago", "    7  Fix the b...  1,234   2 min ago"]),
        (34, ["  123  (no w...      2     3 d ago", "    7  Fix t...  1,234   2 min ago"]),
        (33, ["  123  (no words)", "    7  Fix the bug, please"]),
        (24, ["  123  (no words)", "    7  Fix the bug, p..."]),
        (10, ["  123  ...", "    7  ..."]),
        (3, ["  123  .", "    7  ."]),
    ],
)
def test_a_message_is_shown_with_what_it_takes_back_and_its_age(width: int, rows: list[str]) -> None:
    picker = rewind_picker(_prompts())
    assert [picker._row(place).draw(width, LOOK).text.rstrip() for place in range(2)] == rows
    assert [picker._row(place).key for place in range(2)] == ["123", "7"]
    assert [picker._words(place) for place in range(2)] == ["123  ", "7 fix the\nbug, please"]


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (46, ["  * the present one             12    just now", "  | another - It is done.        3     2 h ago"]),
        (40, ["  * the present one       12    just now", "  | another - It is d...   3     2 h ago"]),
        (38, ["  * the present one     12    just now", "  | another - It is...   3     2 h ago"]),
        (37, ["  * the present one    12    just now", "  | another             3     2 h ago"]),
        (34, ["  * the present...  12    just now", "  | another          3     2 h ago"]),
        (20, ["  * the present one", "  | another"]),
    ],
)
def test_a_branch_is_shown_with_its_last_words_where_there_is_room(width: int, rows: list[str]) -> None:
    picker = tree_picker(_branches())
    drawn = [picker._row(place).draw(width, LOOK) for place in range(3)]
    assert [line.text.rstrip() for line in drawn[:2]] == rows
    assert drawn[2].text.startswith("  ` nothing sai")
    assert [PALETTE.strong in {segment.style for segment in line.segments} for line in drawn] == [True, False, False]
    assert [picker._words(place) for place in (1, 2)] == ["another it is\ndone.", "never said "]
