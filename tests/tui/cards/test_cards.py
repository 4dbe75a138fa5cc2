"""Tool cards and reasoning: what the header tells, what the preview shows, what is inside."""

import pytest

from tui_agent.context.layers.limits import Evicted
from tui_agent.conversation.entries import Hit, Outcome
from tui_agent.tools.diffs import unified
from tui_agent.tui.cards.blocks import Block, Level, ToolBlock, ToolState
from tui_agent.tui.cards.tool import ResultSize
from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.themes import THEMES
from tui_agent.tui.pane.block_painting import BlockPainting
from tui_agent.tui.pane.transcript import Transcript


def painted(block: Block, width: int = 80, glyphs: Glyphs = UNICODE) -> list[str]:
    look = Look(Palette.from_theme(THEMES[0].to_color_system().generate()), glyphs)
    painting = BlockPainting(block, None, width, look)
    return [line.text.rstrip() for section in range(len(painting.heights)) for line in painting.lines(section)]


def finished(
    result: str,
    *,
    summary: str = "",
    arguments: str = "",
    note: str = "",
    diff: str = "",
    state: ToolState = ToolState.OK,
    opened: bool = False,
) -> ToolBlock:
    transcript = Transcript()
    tool = transcript.add_tool("1", "tool", summary=summary, arguments=arguments)
    transcript.finish_tool(tool, state, result, note=note, diff=diff)
    if opened:
        transcript.toggle(tool)
    return tool


def test_what_a_tool_says_of_itself_stands_in_the_header_and_not_again_below() -> None:
    tool = finished("..\n2 passed\n[exit code 0]", note="exit code 0 · 2 passed")
    assert painted(tool) == ["  ● tool  exit code 0 · 2 passed", "    .."]
    assert painted(tool, glyphs=ASCII) == ["  * tool  exit code 0 - 2 passed", "    .."]


def test_why_a_call_failed_comes_before_its_result() -> None:
    tool = finished("result", note="no such file", state=ToolState.ERROR)
    assert painted(tool) == ["  ✗ tool  failed", "    no such file", "    result"]


def test_what_was_declined_says_what_the_user_said_and_keeps_the_words_for_the_model_inside() -> None:
    tool = finished("Do not repeat it.", note="You declined it: use make", state=ToolState.DENIED)
    assert painted(tool) == ["  × tool  denied", "    You declined it: use make"]
    tool = finished("Do not repeat it.", note="You declined it", state=ToolState.DENIED, opened=True)
    assert painted(tool)[-1] == "    Do not repeat it."


def test_an_open_card_says_once_how_a_call_failed() -> None:
    note, result = "exit code 1 · no module", "no module\n[exit code 1]"
    assert painted(finished(result, note=note, state=ToolState.ERROR, opened=True))[1:] == [
        "    no module",
        "    [exit code 1]",
    ]
    assert painted(finished(result, note="stopped", state=ToolState.ERROR, opened=True))[1] == "    stopped"


def test_a_preview_of_a_file_has_its_empty_lines() -> None:
    assert painted(finished("1\tone\n2\t\n3\tthree\n4\n"))[1:] == ["    1   one", "    2", "    3   three"]
    assert painted(finished("one\n\nthree"))[1:] == ["    one", "    three"]


def test_the_preview_of_an_edit_is_what_changed_in_its_surroundings() -> None:
    old = "".join(f"line {number}\n" for number in range(9))
    diff = unified(old, old.replace("line 4", "line four"), "a")
    assert painted(finished("done", diff=diff))[1:] == [
        "    2   line 1",
        "    3   line 2",
        "    4   line 3",
        "    5 - line 4",
        "    5 + line four",
        "    6   line 5",
        "    7   line 6",
        "    8   line 7",
    ]
    long = unified("", "".join(f"new {number}\n" for number in range(50)), "a")
    shown = painted(finished("done", diff=long))
    assert len(shown) == 1 + 10
    assert shown[-1].strip() == "10 + new 9"


@pytest.mark.parametrize(("hits", "shown", "rest"), [(3, 3, ""), (4, 4, ""), (5, 3, "    … +2 lines")])
def test_one_hit_beyond_the_preview_is_shown_in_place_of_the_count(hits: int, shown: int, rest: str) -> None:
    transcript = Transcript()
    search = transcript.add_tool("1", "grep", arguments='{"pattern": "x"}')
    found = tuple(Hit("a.py", number, "x") for number in range(1, 5))
    outcome = Outcome(hits=found, hit_count=hits)
    transcript.finish_tool(search, ToolState.OK, "a.py", outcome=outcome)
    lines = painted(search)[1:]
    assert lines[:shown] == [f"    a.py:{number}  x" for number in range(1, shown + 1)]
    assert lines[shown:] == ([rest] if rest else [])
    outcome = Outcome(hits=(Hit("a.py", 1, "x" * 200),), hit_count=1)
    transcript.finish_tool(search, ToolState.OK, "a.py", outcome=outcome)
    assert painted(search, width=30)[1:] == [f"    a.py:1  {'x' * 17}…"]


def test_an_open_card_shows_the_arguments_its_header_does_not_tell() -> None:
    arguments = '{"path": "a.py", "content": "one\\ntwo", "limit": 5}'
    tool = finished("done", summary="a.py limit=5", arguments=arguments, opened=True)
    assert painted(tool)[1:] == ["    content: one", "    two", "", "    done"]
    malformed = finished("done", arguments="{not json", opened=True)
    assert painted(malformed)[1:] == ["    {not json", "", "    done"]


def test_an_open_edit_shows_its_diff_instead_of_its_arguments() -> None:
    tool = finished("done", arguments='{"old": "a", "new": "b"}', diff="--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b", opened=True)
    assert painted(tool)[1:] == ["    1 - a", "    1 + b"]


def test_reasoning_of_less_than_a_second_has_no_duration() -> None:
    assert painted(Transcript().add_reasoning("So.", seconds=0.04, tokens=25)) == ["  ▸ Thought"]


def test_what_wraps_of_a_second_column_stays_in_it() -> None:
    notice = Transcript().add_notice(
        Level.INFO, "Tools", "grep   finds text in files\nls     lists\nplain text that wraps"
    )
    assert painted(notice, width=24) == [
        "  › Tools",
        "    grep   finds text in",
        "           files",
        "    ls     lists",
        "    plain text that",
        "    wraps",
    ]


def test_a_long_message_shows_its_beginning_and_its_end_until_it_is_opened() -> None:
    transcript = Transcript()
    text = "".join(f"pasted {number}\n" for number in range(1, 301)) + "what is this?"
    block = transcript.add_user(text)
    assert painted(block) == [
        *(f"▌ pasted {number}" for number in range(1, 7)),
        "▌ … +291 lines",
        *(f"▌ pasted {number}" for number in range(298, 301)),
        "▌ what is this?",
    ]
    assert block.estimate(80, collapsed=True) == len(painted(block))
    transcript.toggle(block)
    assert painted(block) == [f"▌ {line}" for line in text.split("\n")]
    short = transcript.add_user("one\ntwo")
    assert not transcript.toggle(short)
    assert painted(short) == ["▌ one", "▌ two"]
    assert painted(transcript.add_user("x" * 3_000), width=602)[1:2] == ["▌ … +2,000 characters"]


def test_what_the_user_ran_shows_more_and_a_cut_result_counts_all_that_was_printed() -> None:
    transcript = Transcript()
    own, models = (transcript.add_tool(str(place), name) for place, name in enumerate(("your shell", "run_command")))
    printed = "".join(f"line {number}\n" for number in range(1, 21))
    transcript.finish_tool(own, ToolState.OK, printed)
    assert painted(own)[1:] == ["    … +10 lines", *(f"    line {number}" for number in range(11, 21))]
    transcript.finish_tool(own, ToolState.OK, f"begins {'and goes on ' * 700}\nlast")
    assert [line[:10] for line in painted(own)[1:]] == ["    begins", "    last"]
    whole = "".join(f"line {number}\n" for number in range(1, 3_001)) + "[exit code 0, 0.1 s]"
    cut = Evicted(whole, whole[:900], whole[-900:])
    outcome = Outcome(exit_code=0, line_count=3_001, notes=1)
    transcript.finish_tool(models, ToolState.OK, cut.text("large/1"), outcome=outcome, size=ResultSize(lines=3_001))
    assert painted(models)[1:3] == ["    … +2,997 lines", "    line 2998"]
