"""The card of a task list."""

import json

from rich.cells import cell_len

from tests.tui.cards.test_cards import painted
from tui_agent.conversation.tasks import TodoState
from tui_agent.tui.cards.blocks import ResultSize, ToolBlock, ToolState
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.pane.block_painting import estimate_height
from tui_agent.tui.pane.transcript import Transcript

LIST: list[tuple[str, TodoState]] = [
    ("read the parser", "done"),
    ("read its callers", "done"),
    ("rename it", "in_progress"),
    ("run the tests", "pending"),
    ("say so", "pending"),
]


def card(
    items: list[tuple[str, TodoState]], *, state: ToolState = ToolState.OK, opened: bool = False, result: str = "Noted."
) -> ToolBlock:
    transcript = Transcript()
    arguments = json.dumps({"items": [{"text": text, "state": item} for text, item in items]})
    block = transcript.add_tool("1", "todo", summary="{…}", arguments=arguments, state=ToolState.RUNNING)
    transcript.finish_tool(block, state, result, note="2/5 done", size=ResultSize(lines=1, tokens=7))
    if opened:
        transcript.toggle(block)
    return block


def test_a_closed_card_shows_what_is_being_done_and_its_neighbours() -> None:
    assert painted(card(LIST)) == [
        "  ● Tasks  2/5 done",
        "    ☑ read its callers",
        "    › rename it",
        "    ☐ run the tests",
    ]


def test_an_open_card_shows_every_item_whole() -> None:
    long = "word " * 30
    lines = painted(card([*LIST[:1], (long, "in_progress")], opened=True), width=40)
    assert lines[:3] == ["  ● Tasks  2/5 done", "    ☑ read the parser", "    › word word word word word word word"]
    assert all(line.startswith("      word") for line in lines[3:])
    assert " ".join(lines[2:]).count("word") == 30


def test_where_nothing_has_begun_or_all_is_done() -> None:
    assert painted(card([(text, "pending") for text, _ in LIST]))[1:] == [
        "    ☐ read the parser",
        "    ☐ read its callers",
        "    ☐ rename it",
    ]
    assert painted(card([(text, "done") for text, _ in LIST]))[1:] == [
        "    ☑ rename it",
        "    ☑ run the tests",
        "    ☑ say so",
    ]


def test_signs_in_ascii() -> None:
    assert painted(card(LIST), glyphs=ASCII)[1:] == ["    x read its callers", "    > rename it", "    o run the tests"]


def test_a_list_that_was_refused_shows_why_instead() -> None:
    lines = painted(card(LIST, state=ToolState.ERROR, result="todo: item 1 has no text."))
    assert "    todo: item 1 has no text." in lines
    assert not any("rename it" in line for line in lines)


def test_an_ended_list_says_so() -> None:
    assert painted(card([], result="Noted: there is no task list any more."))[1:] == [
        "    Noted: there is no task list any more."
    ]


def test_hostile_items_stay_on_their_lines() -> None:
    block = card([("\x1b[2Jone\ntwo [red]three[/]\u202e", "in_progress"), ("漢字" * 60, "pending")])
    lines = painted(block, width=30)
    assert lines[1] == "    › one two [red]three[/]"
    assert len(lines) == 3
    assert all(cell_len(line) <= 30 for line in lines)


def test_its_height_is_known_before_it_is_painted() -> None:
    for opened, state in ((False, ToolState.OK), (True, ToolState.OK), (False, ToolState.ERROR)):
        block = card(LIST, opened=opened, state=state)
        assert estimate_height(block, None, 80, collapsed=not opened) == len(painted(block))


def test_a_copy_of_it_is_the_list() -> None:
    assert card(LIST).plain_text.split("\n")[:4] == [
        "Tasks",
        "[x] read the parser",
        "[x] read its callers",
        "[>] rename it",
    ]
