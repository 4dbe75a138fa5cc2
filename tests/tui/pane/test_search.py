"""The search in the conversation: where it begins, where it goes on, and what it says of itself."""

from itertools import count

import pytest
from textual import events

from tests.tui.pane.test_viewport import viewport_of
from tui_agent.tui.painting.glyphs import UNICODE
from tui_agent.tui.pane import search
from tui_agent.tui.pane.search import PaneSearch, Typed
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import Position, Viewport

WORDS = "needle"


@pytest.fixture
def viewport() -> Viewport:
    """Ten answers; the words stand in the third, twice, and in the eighth."""
    transcript = Transcript()
    for number in range(10):
        transcript.add_prose({2: f"{WORDS} and {WORDS}", 7: f"a {WORDS}"}.get(number, f"answer {number}"))
    return viewport_of(transcript)


def typed(begun: PaneSearch, words: str) -> None:
    for character in words:
        assert begun.take(events.Key(character, character)) is Typed.CHANGED


def block(position: Position | None) -> int | None:
    return position.block if position is not None else None


def test_it_goes_on_from_where_it_was_begun_and_round_at_the_ends(viewport: Viewport) -> None:
    searched = PaneSearch()
    searched.begin(Position(5, 0, 0))
    typed(searched, WORDS)
    assert block(searched.first(viewport)) == 7
    assert [block(searched.next(viewport, forward=True)) for _ in range(2)] == [2, 7]
    assert [block(searched.next(viewport, forward=False)) for _ in range(2)] == [2, 7]


def test_what_is_not_there_is_said_and_a_new_search_knows_nothing_of_it(viewport: Viewport) -> None:
    searched = PaneSearch()
    searched.begin(None)
    typed(searched, "nowhere")
    assert searched.first(viewport) is None
    assert (searched.missing, "nothing found" in searched.label(UNICODE)) == (True, True)
    searched.begin(None)
    assert (searched.words, searched.missing, searched.typing, searched.at) == ("", False, True, None)
    typed(searched, WORDS)
    assert block(searched.first(viewport)) == 2


def test_hits_are_counted_a_slice_at_a_time(viewport: Viewport, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(search, "monotonic", lambda: next(clock) * search.SLICE_S * 0.4)
    searched = PaneSearch()
    searched.begin(None)
    typed(searched, WORDS)
    searched.first(viewport)
    told = []
    while searched.count(viewport.transcript):
        told.append(searched.label(UNICODE))
    assert any("1 of 2+" in label for label in told)
    assert "1 of 3 " in searched.label(UNICODE)
    searched.next(viewport, forward=True)
    assert "3 of 3 " in searched.label(UNICODE)


def test_keys_write_the_words_keep_them_or_leave_them() -> None:
    searched = PaneSearch()
    searched.begin(None)
    typed(searched, "ab")
    assert searched.take(events.Key("backspace", None)) is Typed.CHANGED
    assert (searched.words, searched.take(events.Key("enter", None)), searched.typing) == ("a", Typed.DONE, False)
    searched.begin(None)
    assert (searched.take(events.Key("backspace", None)), searched.active) == (Typed.LEFT, False)
    searched.begin(None)
    typed(searched, "x" * (search.MAX_WORDS + 1))
    assert len(searched.words) == search.MAX_WORDS
