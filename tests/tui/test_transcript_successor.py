"""A transcript that is filled to stand in another's place."""

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tui.cards.blocks import Block, SubtaskBlock, ToolState
from tui_agent.tui.pane.transcript import Transcript


def asked(*numbers: int) -> Transcript:
    """Messages of the user with these numbers, an answer after each."""
    transcript = Transcript()
    for number in numbers:
        transcript.add_user(f"message {number}", seq=number)
        transcript.add_prose("answer")
    return transcript


def test_cards_stand_as_they_did_and_are_turned_together() -> None:
    before = Transcript()
    before.toggle_all()
    after = before.successor()
    card = after.add_reasoning("a thought")
    seen = [card.collapsed]
    after.toggle_all()
    seen.append(card.collapsed)
    assert seen == [False, True]
    assert not before.cards_open


def test_what_came_meanwhile_follows_with_places_and_ids_of_its_own() -> None:
    before = asked(1, 5, 9)
    after = before.successor()
    after.add_user("message 1", seq=1)
    running = before.add_tool("call", "run_command", state=ToolState.RUNNING)
    prose = before.start_prose("half an ")
    after.take_over([running, prose])
    assert [block.index for block in after] == [0, 1, 2]
    assert [block.id for block in after] == sorted({block.id for block in after})
    assert min(block.id for block in after) > 6
    assert after.tool("call") is running
    told: list[int | None] = []
    after.listen(told.append)
    after.stream(prose, "answer")
    after.finish_tool(running, ToolState.OK, "done")
    assert (prose.text, running.result) == ("half an answer", "done")
    assert told == [2, 1]


def number(block: Block | None) -> int:
    return block.message if block is not None else 0


@given(st.sets(st.integers(1, 60), max_size=12), st.integers(0, 60))
def test_messages_are_found_by_number(numbers: set[int], seq: int) -> None:
    transcript = asked(*sorted(numbers))
    assert number(transcript.said_after(seq)) == min((each for each in numbers if each > seq), default=0)
    assert number(transcript.said_up_to(seq)) == max((each for each in numbers if each <= seq), default=0)


def test_what_was_said_is_told_as_it_was_typed() -> None:
    transcript = asked(3)
    shell = transcript.add_tool("user-4", "your shell", summary="ls -l")
    assert (shell.message, transcript.blocks[0].said) == (0, "message 3")
    transcript.set_number(shell, 4)
    assert transcript.said_after(3) is shell
    assert shell.said == "!ls -l"
    assert transcript.blocks[1].said == ""


def test_cards_that_stand_open_are_told_of_too() -> None:
    transcript = Transcript()
    transcript.toggle_all()
    card = transcript.add_tool("1", "agentic_research", state=ToolState.OK)
    transcript.add_tool("2", "read_file", state=ToolState.OK)
    told: list[SubtaskBlock] = []
    transcript.when_opened(told.append)
    assert told == [card]
    transcript.toggle_all()
    transcript.toggle(card)
    assert told == [card, card]
