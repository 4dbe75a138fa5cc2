"""The window onto a transcript, checked against the transcript painted whole."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events

from tests.examples import examples
from tui_agent.tui.cards.blocks import Folding, ProseBlock, ToolBlock, ToolState
from tui_agent.tui.painting.glyphs import UNICODE
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.themes import THEMES
from tui_agent.tui.pane import search
from tui_agent.tui.pane.block_painting import BlockPainting
from tui_agent.tui.pane.search import PaneSearch, Typed
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import KEPT_LINES, Viewport

LOOK = Look(Palette.from_theme(THEMES[0].to_color_system().generate()), UNICODE)
PARAGRAPH = "Some words that wrap over a few lines when the column is narrow, as they do here. " * 3


def filled(turns: int) -> Transcript:
    transcript = Transcript()
    for turn in range(turns):
        transcript.add_user(f"prompt {turn}")
        tool = transcript.add_tool(f"call {turn}", "grep", summary="x")
        transcript.finish_tool(tool, ToolState.OK, "\n".join(f"{turn}.{line}" for line in range(turn % 7 * 5)))
        transcript.add_prose(f"answer {turn}\n\n" + PARAGRAPH * (turn % 4) + "\n\n```\ncode\n```")
    return transcript


def viewport_of(transcript: Transcript, width: int = 50, height: int = 12) -> Viewport:
    viewport = Viewport(transcript, LOOK)
    viewport.resize(width, height)
    viewport.rebuild()
    viewport.settle()
    return viewport


def shown(viewport: Viewport) -> list[str]:
    return [row.line.text for row in viewport.rows]


def whole(transcript: Transcript, width: int) -> list[str]:
    lines: list[str] = []
    for index, block in enumerate(transcript.blocks):
        painting = BlockPainting(block, transcript.blocks[index - 1] if index else None, width, LOOK)
        lines += [line.text for section in range(len(painting.heights)) for line in painting.lines(section)]
    return lines


_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(-40, 40)),
        st.tuples(st.just("jump"), st.integers(0, 400)),
        st.tuples(st.just("toggle"), st.integers(0, 100)),
        st.tuples(st.just("stream"), st.integers(1, 5)),
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("resize"), st.integers(20, 70)),
        st.tuples(st.just("all"), st.just(0)),
        st.tuples(st.just("rewind"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("start"), st.just(0)),
    ),
    max_size=12,
)


@given(st.integers(0, 12), _ACTIONS)
@settings(max_examples=examples(30), deadline=None)
def test_what_is_in_view_is_always_a_window_of_the_whole(turns: int, actions: list[tuple[str, int]]) -> None:
    transcript = filled(turns)
    viewport = viewport_of(transcript)
    transcript.listen(lambda index: viewport.rebuild() if index is None else viewport.update(index))
    for action, number in actions:
        _act(viewport, action, number)
        everything = whole(transcript, viewport.width)
        view = shown(viewport)
        assert len(view) == min(viewport.height, len(everything))
        assert any(everything[start : start + len(view)] == view for start in range(len(everything) - len(view) + 1))
        if viewport.following:
            assert view == everything[len(everything) - len(view) :]
        assert 0 <= viewport.top_line <= max(0, viewport.heights.total - len(view))


def _act(viewport: Viewport, action: str, number: int) -> None:
    transcript = viewport.transcript
    match action:
        case "move":
            viewport.move(number)
        case "jump":
            viewport.move_to_line(number)
        case "toggle" if transcript.blocks:
            transcript.toggle(transcript.blocks[number % len(transcript)])
        case "stream":
            last = transcript.blocks[-1] if transcript.blocks else None
            block = last if isinstance(last, ProseBlock) and last.streaming else transcript.start_prose()
            transcript.stream(block, PARAGRAPH * number + "\n\n")
        case "append":
            transcript.add_user("more\n" * number + "end")
        case "resize":
            viewport.resize(number, 5 + number % 20)
        case "all":
            transcript.toggle_all()
        case "rewind":
            transcript.truncate(max(0, len(transcript) - number))
        case "end":
            viewport.move_to_end()
        case "start":
            viewport.move_to_start()
    viewport.settle()


def test_moving_shows_exactly_the_lines_next_to_those_seen_before() -> None:
    transcript = filled(30)
    viewport = viewport_of(transcript)
    everything = whole(transcript, 50)
    start = len(everything) - 12
    for step in (-1, -3, -10, -10, 4, -11, -200, 7, 30, 1000):
        viewport.move(step)
        start = min(max(0, start + step), len(everything) - 12)
        assert shown(viewport) == everything[start : start + 12]


def test_text_in_view_does_not_move_when_heights_above_are_corrected() -> None:
    transcript = filled(40)
    viewport = viewport_of(transcript)
    viewport.move(-120)
    before = shown(viewport)
    guessed = viewport.top_line

    above = next(block for block in transcript if isinstance(block, ToolBlock))
    transcript.finish_tool(above, ToolState.OK, "late\n" * 3)
    transcript.toggle(above)
    viewport.update(above.index)
    viewport.painting(above.index).lines(1)
    viewport.heights.set(above.index, 500)
    viewport.settle()

    assert shown(viewport) == before
    assert viewport.top_line != guessed


def test_painted_lines_are_bounded_however_far_one_scrolls() -> None:
    transcript = filled(400)
    transcript.toggle_all()
    viewport = viewport_of(transcript)
    for _ in range(400):
        viewport.move(-20)
        assert viewport._kept <= KEPT_LINES + 2 * viewport.height


def test_only_what_is_near_the_view_is_painted() -> None:
    viewport = viewport_of(filled(500))
    assert viewport._kept < 100
    viewport.resize(60, 12)
    viewport.settle()
    assert viewport._kept < 100


def test_a_result_of_a_megabyte_opens_by_painting_what_is_in_view() -> None:
    transcript = Transcript(folding=Folding(open=True))
    tool = transcript.add_tool("1", "run_command")
    transcript.finish_tool(tool, ToolState.OK, "\n".join(f"line {number}" for number in range(100_000)))
    viewport = viewport_of(transcript)
    viewport.move_to_start()
    assert viewport._kept < 300
    viewport.move_to_line(50_000)
    assert viewport._kept < 500
    assert shown(viewport)[0].strip().startswith("line 499")


def test_the_top_block_stays_through_a_resize() -> None:
    viewport = viewport_of(filled(50))
    viewport.move(-200)
    top = viewport.rows[0].position.block
    for width in (30, 90, 50):
        viewport.resize(width, 12)
        viewport.settle()
        assert viewport.rows[0].position.block == top


def test_a_block_is_brought_into_view_with_its_beginning() -> None:
    transcript = filled(20)
    viewport = viewport_of(transcript)
    for index in (40, 3, 4, 5, 30, 59, 0):
        viewport.bring_into_view(index)
        assert viewport.row_of(index) is not None


def test_turning_all_cards_gives_the_heights_that_a_new_look_would_find() -> None:
    transcript = filled(20)
    viewport = viewport_of(transcript)
    transcript.listen(lambda index: viewport.update(index) if index is not None else None)
    tools = [block for block in transcript if isinstance(block, ToolBlock)]
    for step in (tools[3], None, tools[5], None, None):
        transcript.toggle(step) if step else transcript.toggle_all()
        new = viewport_of(transcript)
        # What is in view was painted in both, so that its height is no guess.
        assert [viewport.heights[index] for index in range(40)] == [new.heights[index] for index in range(40)]


def test_one_block_alone_is_let_go_where_it_is_too_long_to_keep() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("a", "grep")
    transcript.finish_tool(tool, ToolState.OK, "line\n" * 4 * KEPT_LINES)
    transcript.toggle(tool)
    viewport = viewport_of(transcript)
    viewport.move_to_start()
    for _ in range(3 * KEPT_LINES // viewport.height):
        assert len(viewport.move(viewport.height)) == viewport.height
        assert viewport._kept <= KEPT_LINES + 2 * viewport.height


def test_a_line_that_is_near_is_reached_by_scrolling_and_one_that_is_far_by_its_number() -> None:
    viewport = viewport_of(filled(60))
    viewport.move_to_start()
    for line in (300, 2):
        assert viewport.move_to_line(line) == viewport.rows
        assert abs(viewport.top_line - line) <= 1
    # Once all was painted, no height is a guess.
    while not viewport.following:
        viewport.move(viewport.height)
    for line in (300, 290, 295, 2, 5):
        assert viewport.move_to_line(line) == viewport.rows
        assert viewport.top_line == line


def test_hits_of_a_search_are_counted_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript()
    for number in range(10):
        transcript.add_prose({2: "needle and needle", 7: "a needle"}.get(number, f"answer {number}"))
    viewport = viewport_of(transcript)
    clock = count()
    monkeypatch.setattr(search, "monotonic", lambda: next(clock) * search.SLICE_S * 0.4)
    searched = PaneSearch()
    searched.begin(None)
    for character in "needle":
        assert searched.take(events.Key(character, character)) is Typed.CHANGED
    searched.first(viewport)
    told = []
    while searched.count(transcript):
        told.append(searched.label(UNICODE))
    assert any("1 of 2+" in label for label in told)
    assert "1 of 3 " in searched.label(UNICODE)
    searched.next(viewport, forward=True)
    assert "3 of 3 " in searched.label(UNICODE)
    for _ in range(search.MAX_WORDS):
        searched.take(events.Key("x", "x"))
    assert len(searched.words) == search.MAX_WORDS
