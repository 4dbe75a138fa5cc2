"""The blocks of a conversation: how they change, and how another transcript takes their place."""

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tui.cards.blocks import Block, Level, SubtaskBlock, ToolState
from tui_agent.tui.pane.transcript import ALL_CARDS, Transcript


def test_results_of_parallel_calls_land_under_their_own_call() -> None:
    transcript = Transcript()
    first = transcript.add_tool("a", "grep", state=ToolState.RUNNING)
    second = transcript.add_tool("b", "read_file", state=ToolState.RUNNING)

    for call_id, result in (("b", "two\nlines\n"), ("a", "one")):
        block = transcript.tool(call_id)
        assert block is not None
        transcript.finish_tool(block, ToolState.OK, result)

    assert (first.result, first.size.lines) == ("one", 1)
    assert (second.result, second.size.lines, second.size.bytes) == ("two\nlines\n", 2, 10)
    assert transcript.tool("never shown") is None


def test_every_change_counts_a_version_and_names_the_block() -> None:
    transcript = Transcript()
    heard: list[int | None] = []
    transcript.listen(heard.append)

    transcript.add_user("hello")
    prose = transcript.start_prose()
    transcript.stream(prose, "par")
    transcript.stream(prose, "tial")
    transcript.finish(prose)
    transcript.toggle_all()
    card = transcript.add_tool("a", "grep")
    assert transcript.toggle(card)

    assert heard == [0, 1, 1, 1, 1, ALL_CARDS, 2, 2]
    assert (prose.version, prose.plain_text, prose.streaming) == (3, "partial", False)
    assert (card.version, card.collapsed) == (2, True)


def test_all_cards_open_and_close_and_new_ones_follow() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("a", "grep")
    transcript.add_reasoning("because")
    assert [block.collapsed for block in transcript] == [True, True]

    transcript.toggle(tool)
    assert [block.collapsed for block in transcript] == [False, True]
    assert transcript.toggle_all()
    transcript.add_tool("b", "grep")
    assert [block.collapsed for block in transcript] == [False, False, False]
    assert not transcript.toggle_all()
    assert [block.collapsed for block in transcript] == [True, True, True]


def test_what_has_nothing_inside_does_not_open() -> None:
    transcript = Transcript()
    assert not transcript.toggle(transcript.add_user("hello"))
    assert not transcript.toggle(transcript.add_reasoning("", seconds=2))


def test_hostile_text_is_clean_in_every_field() -> None:
    transcript = Transcript()
    evil = "a\x1b]0;x\x07\x1b[2J\ud800\u202eb"
    prose = transcript.start_prose(evil)
    transcript.finish(prose)
    tool = transcript.add_tool("a", evil, summary=evil, arguments=evil)
    transcript.show_progress(tool, evil)
    transcript.finish_tool(tool, ToolState.OK, evil, diff=evil, note=evil)
    transcript.add_user(evil)
    transcript.add_reasoning(evil)
    transcript.add_notice(Level.ERROR, evil, evil, evil)
    transcript.add_boundary(evil, reason=evil, text=evil)

    for block in transcript:
        text = block.plain_text
        assert "a\ufffdb" in text
        assert not set("\x1b\x07\ud800\u202e") & set(text)


def test_a_rewind_forgets_what_came_after() -> None:
    transcript = Transcript()
    transcript.add_user("one")
    tool = transcript.add_tool("a", "grep")
    transcript.truncate(1)
    assert len(transcript) == 1
    assert transcript.tool("a") is None
    assert transcript.get(tool.id) is None
    assert transcript.add_user("two").index == 1


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
    assert (prose.plain_text, running.result) == ("half an answer", "done")
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
    shell.seq = 4
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
