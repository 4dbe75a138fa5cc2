"""How many hits a search has, and how long its words can be; `test_walk_of_keys` has its keys."""

from itertools import count

import pytest
from textual import events

from tests.tui.pane.test_viewport import viewport_of
from tui_agent.tui.painting.glyphs import UNICODE
from tui_agent.tui.pane import search
from tui_agent.tui.pane.search import PaneSearch, Typed
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import Viewport

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


def test_words_have_an_end() -> None:
    searched = PaneSearch()
    searched.begin(None)
    typed(searched, "x" * (search.MAX_WORDS + 1))
    assert len(searched.words) == search.MAX_WORDS
