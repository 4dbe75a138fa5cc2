"""Reading what the terminal sends, however it cuts it."""

from io import StringIO
from time import monotonic

import pytest
import textual
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from tui_agent.tui.terminal import textual_internals
from tui_agent.tui.terminal.textual_internals import (
    PASTE_END,
    PASTE_START,
    PIECE,
    InputParser,
    Surviving,
    Written,
    _installed_version,
    is_known,
    version_warning,
)


def read(*pieces: str) -> list[tuple[str, str]]:
    parser = InputParser(alt_keys={"alt+v", "alt+shift+z"})
    found: list[tuple[str, str]] = []
    for piece in pieces:
        for message in parser.feed(piece):
            if isinstance(message, events.Key):
                found.append(("key", message.key))
            elif isinstance(message, events.Paste):
                found.append(("paste", message.text))
    return found


def test_keys_before_and_after_a_paste() -> None:
    assert read(f"a{PASTE_START}two\nlines\x00{PASTE_END}b") == [
        ("key", "a"),
        ("paste", "two\nlines"),
        ("key", "b"),
    ]


def test_an_empty_paste() -> None:
    assert ("key", "b") in read(f"{PASTE_START}{PASTE_END}b")


def test_escape_sequences_inside_a_paste_are_text() -> None:
    text = "\x1b[A and \x1b]0;title\x07"
    assert read(f"{PASTE_START}{text}{PASTE_END}") == [("paste", text)]


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        (["\x1b/theme\r"], ["escape", "slash", "t", "h", "e", "m", "e", "enter"]),
        (["\x1bOP\x1b", "/x"], ["f1", "escape", "slash", "x"]),
        (["\x1b\x1b\x1ba"], ["escape", "escape", "escape", "a"]),
        (["\x1bvZ", "\x1bZ"], ["alt+v", "Z", "alt+shift+z"]),
        (["\x1b[1;", "5A\x1b[B"], ["ctrl+up", "down"]),
        (["\x1bf"], ["ctrl+right"]),
        (["\x1b" + "words" * 20], ["escape", *("words" * 20)]),
    ],
)
def test_an_esc_is_no_part_of_what_is_typed_behind_it(pieces: list[str], keys: list[str]) -> None:
    assert [key for _, key in read(*pieces)] == keys


def test_an_esc_with_nothing_behind_it_is_one_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(textual_internals, "monotonic", lambda: now)
    parser = InputParser()
    assert not list(parser.feed("\x1b"))
    assert not list(parser.tick())
    # What it does is to be painted within 100 ms, too.
    assert 0 < parser.waits_for_s <= 0.05
    now += parser.waits_for_s
    assert [message.key for message in parser.tick() if isinstance(message, events.Key)] == ["escape"]


@pytest.mark.parametrize("cut", range(1, len(PASTE_START)))
def test_an_opening_mark_in_two_pieces(cut: int) -> None:
    assert read(f"a{PASTE_START[:cut]}", f"{PASTE_START[cut:]}text{PASTE_END}b{PASTE_START}more{PASTE_END}") == [
        ("key", "a"),
        ("paste", "text"),
        ("key", "b"),
        ("paste", "more"),
    ]


@given(
    st.lists(st.text(alphabet="ab\n[~0é\x1b", min_size=1, max_size=20), min_size=1, max_size=3),
    st.lists(st.integers(1, 30), max_size=20),
)
def test_where_the_terminal_cuts_makes_no_difference_to_a_long_paste(texts: list[str], cuts: list[int]) -> None:
    # The closing mark is what a text may not contain or complete; a terminal filters it out as well.
    texts = [text.replace("\x1b", "") for text in texts]
    stream = "".join(f"{PASTE_START}{text}{PASTE_END}" for text in texts)
    pieces, position = [], len(PASTE_START)
    first = stream[:position]
    for size in cuts:
        pieces.append(stream[position : position + size])
        position += size
    pieces.append(stream[position:])
    pasted = [text for kind, text in read(first, *(piece for piece in pieces if piece)) if kind == "paste"]
    assert pasted == texts


def test_another_textual_is_told_of() -> None:
    assert is_known()
    assert version_warning() == version_warning("8.2.99") == ""
    assert not is_known("8.20.1")
    assert "Textual 8.3.0" in version_warning("8.3.0")


def test_the_installed_version_is_the_one_that_its_notes_tell() -> None:
    assert _installed_version() == textual.__version__


def test_what_is_on_the_way_at_the_end_is_left_out_and_what_gives_the_terminal_back_is_not() -> None:
    taken = StringIO()
    terminal = Surviving(taken)
    terminal.write("a picture")
    assert monotonic() - terminal.taken_at < 60
    to_here, written = terminal.skip_to_here(), Written()
    for text in ("another picture", to_here, "modes off" * PIECE, written):
        terminal.write(text)
    assert taken.getvalue() == "a picture" + "modes off" * PIECE
    assert to_here.reached.is_set()
    assert written.reached.is_set()
