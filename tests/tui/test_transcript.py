from tui_agent.tui.cards.blocks import Level, ToolState
from tui_agent.tui.pane.transcript import ALL_CARDS, Transcript
from tui_agent.tui.wording import compact_count


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
    transcript.finish_prose(prose)
    transcript.toggle_all()

    assert heard == [0, 1, 1, 1, 1, ALL_CARDS]
    assert (prose.version, prose.text, prose.streaming) == (3, "partial", False)


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


def test_prompts_are_found_in_both_directions() -> None:
    transcript = Transcript()
    transcript.add_user("one")
    transcript.add_prose("answer")
    transcript.add_user("two")
    assert transcript.previous_prompt(2) == 0
    assert transcript.previous_prompt(0) is None
    assert transcript.next_prompt(0) == 2
    assert transcript.next_prompt(2) is None


def test_hostile_text_is_clean_in_every_field() -> None:
    transcript = Transcript()
    evil = "a\x1b]0;x\x07\x1b[2J\ud800\u202eb"
    prose = transcript.start_prose(evil)
    transcript.finish_prose(prose)
    tool = transcript.add_tool("a", evil, summary=evil, arguments=evil)
    transcript.show_tool_output(tool, evil)
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


def test_counts_are_short() -> None:
    shown = [compact_count(count) for count in (0, 999, 1000, 9949, 84_200, 999_499, 1_300_000)]
    assert shown == ["0", "999", "1.0k", "9.9k", "84k", "999k", "1.3M"]


def test_a_streamed_answer_holds_no_more_than_its_text() -> None:
    transcript = Transcript()
    prose = transcript.start_prose()
    for _ in range(1000):
        transcript.stream(prose, "word ")
    transcript.finish_prose(prose)
    assert prose.text == "word " * 1000
