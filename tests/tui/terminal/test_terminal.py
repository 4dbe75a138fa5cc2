"""Reading what the terminal sends, however it cuts it."""

import os
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Thread
from time import monotonic
from types import ModuleType

import pytest
import textual
from hypothesis import given
from hypothesis import strategies as st
from textual import _ansi_sequences, _xterm_parser, events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.css.stylesheet import Stylesheet
from textual.message import Message
from typing_extensions import override

from tui_agent.tui import terminal
from tui_agent.tui.app.start import own_driver
from tui_agent.tui.terminal import driver, textual_internals
from tui_agent.tui.terminal.driver import PASTE_END, PASTE_START, InputParser
from tui_agent.tui.terminal.early_keys import EarlyKeys
from tui_agent.tui.terminal.output import PIECE, SurvivingFile, WriteMarker
from tui_agent.tui.terminal.sequences import for_the_keyboard
from tui_agent.tui.terminal.textual_internals import (
    WHEEL_AHEAD,
    TerminalApp,
    _installed_version,
    is_known,
    version_warning,
)

MOUSE = "\x1b[<64;20;10M"


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


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        (["\x1b/theme\r"], ["escape", "slash", "t", "h", "e", "m", "e", "enter"]),
        (["\x1bOP\x1b", "/x"], ["f1", "escape", "slash", "x"]),
        (["\x1b\x1b\x1ba"], ["escape", "escape", "escape", "a"]),
        (["\x1bvZ", "\x1bZ"], ["alt+v", "Z", "alt+shift+z"]),
        (["\x1b[1;", "5A\x1b[B"], ["ctrl+up", "down"]),
        (["\x1bf"], ["ctrl+right"]),
        (["\x1b1"], ["escape", "1"]),
        (["\x1b-\x1b="], ["escape", "minus", "escape", "equals_sign"]),
        (["\x1b\t"], ["escape", "tab"]),
        (["\x1b[Z"], ["shift+tab"]),
        (["\x1b" + "words" * 20], ["escape", *("words" * 20)]),
        (["\x1b[97;1:1ub"], ["a", "b"]),
        (["\x1b[97;1:3ub"], ["b"]),
        (["\x1b[1;1:3Ab"], ["b"]),
        (["\x1b[99999999999ub"], ["b"]),
        (["\x1b[97;;99999999999ub"], ["b"]),
        (["\x1b[55357;;55357ub"], ["b"]),
        (["\x1b[97;;27ub"], ["b"]),
        (["\x1b[27;2;13~b"], ["shift+enter", "b"]),
    ],
)
def test_each_key_is_read_and_what_cannot_be_one_is_none(pieces: list[str], keys: list[str]) -> None:
    assert [key for _, key in read(*pieces)] == keys


def test_a_paste_is_text_wherever_it_is_cut() -> None:
    text = "two\nlines \x1b[A and \x1b]0;title\x07"
    stream = f"a{PASTE_START}{text}\x00{PASTE_END}b{PASTE_START}{PASTE_END}{PASTE_START}more{PASTE_END}c"
    whole = read(stream)
    assert [pasted for pasted in whole if pasted != ("paste", "")] == [
        ("key", "a"), ("paste", text), ("key", "b"), ("paste", "more"), ("key", "c")
    ]  # fmt: skip
    for cut in range(2, len(PASTE_START)):
        assert read(stream[:cut], stream[cut:]) == whole


def shown(message: Message) -> str:
    return message.key if isinstance(message, events.Key) else getattr(message, "text", type(message).__name__)


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        # An Esc with nothing behind it is one after a while. What it does is to be painted within 100 ms, too.
        (["\x1b", 0.0], []),
        (["\x1b", 0.05], ["escape"]),
        # The rest of a sequence may come later.
        *(([MOUSE[:cut], 0.5, MOUSE[cut:]], ["MouseScrollUp"]) for cut in range(3, 9)),
        # A report that was cut behind its Esc writes nothing.
        ([f"{MOUSE}\x1b", 0.2, MOUSE[1:]], ["MouseScrollUp", "MouseScrollUp"]),
        ([f"{MOUSE}\x1b", 0.9, MOUSE[1:]], ["MouseScrollUp", "escape"]),
        # A paste without an end ends with Ctrl+C.
        ([f"{PASTE_START}lost", "\x03 end", 2.0, "\x03", "b"], ["lost\x03 end", "ctrl+c", "b"]),
        (["\x1b[?2026;2$y"], ["TerminalSupportsSynchronizedOutput"]),
    ],
)
def test_time_makes_a_difference_only_where_it_has_to(
    pieces: list[str | float], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(driver, "monotonic", lambda: now)
    parser, messages = InputParser(), list[Message]()
    for piece in pieces:
        if isinstance(piece, str):
            messages += parser.feed(piece)
        else:
            now += piece
            messages += parser.tick()
    assert [shown(message) for message in messages] == found


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


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (_xterm_parser, "XTermParser"),
        (_xterm_parser, "SPECIAL_KEY_TO_CHARACTER"),
        (_ansi_sequences, "ANSI_SEQUENCES_KEYS"),
    ],
)
def test_without_a_private_name_the_driver_is_that_of_textual(
    monkeypatch: pytest.MonkeyPatch, place: ModuleType, name: str
) -> None:
    keys = EarlyKeys()
    own = own_driver(keys)
    assert own is not None
    assert issubclass(own, driver.TerminalDriver)
    monkeypatch.delitem(sys.modules, driver.__name__)
    monkeypatch.delattr(terminal, "driver")
    monkeypatch.delattr(place, name)
    assert own_driver(keys) is None


async def test_without_a_private_name_an_error_ends_the_app_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(TerminalApp):
        @override
        def broken(self, error: Exception) -> int:
            return 7

    monkeypatch.setattr(textual_internals, "is_known", lambda _version="": False)
    app = Broken()
    assert type(app.stylesheet) is Stylesheet
    async with app.run_test():
        app.call_later(lambda: 1 / 0)
    assert app.return_code == 7


def test_the_installed_version_is_the_one_that_its_notes_tell() -> None:
    assert _installed_version() == textual.__version__


def test_what_is_on_the_way_at_the_end_is_left_out_and_what_gives_the_terminal_back_is_not() -> None:
    taken = StringIO()
    terminal = SurvivingFile(taken)
    terminal.write("a picture")
    assert monotonic() - terminal.taken_at < 60
    to_here, written = terminal.skip_to_here(), WriteMarker()
    for text in ("another picture", to_here, "modes off" * PIECE, written):
        terminal.write(text)
    assert taken.getvalue() == "a picture" + "modes off" * PIECE
    assert to_here.reached.is_set()
    assert written.reached.is_set()


@pytest.mark.parametrize("first", [lambda terminal: terminal.write("a picture"), SurvivingFile.flush])
def test_a_terminal_that_is_gone_is_left_alone(first: Callable[[SurvivingFile], None], tmp_path: Path) -> None:
    with (tmp_path / "taken").open("w") as taken:
        terminal = SurvivingFile(taken)
    first(terminal)
    assert terminal.gone
    terminal.write("another")
    terminal.flush()


@pytest.mark.parametrize(
    "answer",
    [
        "\x1b[?62;22c", "\x1b[>41;354;0c", "\x1b[0n", "\x1b[12;40R", "\x1b[?25u", "\x1b[?997;1n", "\x1b[4;600;800t",
        "\x1b[48;24;80;480;800t", "\x1b[?2048;2$y", "\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\", "\x1b]11;rgb:0/0/0\x07",
        "\x1bP>|kitty(0.26)\x1b\\", "\x1bP1$r0m\x1b\\", "\x1bP!|00000000\x1b\\", "\x1b_Gi=31;OK\x1b\\",
    ],
)  # fmt: skip
def test_an_answer_to_what_others_have_asked_is_nothing_that_was_typed(answer: str) -> None:
    keys = [("key", "a"), ("key", "b")]
    assert read(f"a{answer}b") == keys
    for cut in range(3, len(answer)):
        assert read(f"a{answer[:cut]}", f"{answer[cut:]}b") == keys


def test_no_key_is_taken_for_an_answer() -> None:
    for sequence in ANSI_SEQUENCES_KEYS:
        assert for_the_keyboard(sequence) == sequence, sequence


@given(
    st.lists(
        st.sampled_from(
            ["\x1b", "[", "<", "?", ">", "O", "P", "]", "_", "G", "0", "3", "9999999999", ";", ":", "$", "u", "~", "M",
             "A", "R", "c", "t", "y", "\x07", "\\", "\x00", "a", "é", "\u200d", "\x9b", "200~", "201~", "48;", "27;"]
        ),
        max_size=60,
    ),
    st.integers(1, 12),
)  # fmt: skip
def test_nothing_that_a_terminal_sends_ends_the_reading(parts: list[str], size: int) -> None:
    text, parser = "".join(parts), InputParser()
    for start in range(0, len(text), size):
        list(parser.feed(text[start : start + size]))
        list(parser.tick())


def test_a_terminal_that_another_program_lets_nobody_wait_for_loses_nothing() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    text = "a picture " * 50_000
    with os.fdopen(writes, "w") as file:
        terminal = SurvivingFile(file)

        def bring() -> None:
            terminal.write(text)
            terminal.flush()

        writing = Thread(target=bring)
        writing.start()
        taken = b""
        while len(taken) < len(text) and (data := os.read(reads, 65_536)):
            taken += data
            if terminal.gone:
                break
        writing.join()
    os.close(reads)
    assert taken.decode() == text


class Wheeled(TerminalApp):
    @override
    def broken(self, error: Exception) -> int:
        raise error


async def test_a_flood_of_the_wheel_lets_keys_through() -> None:
    app = Wheeled()
    async with app.run_test() as pilot:
        taken = sum(app.takes_wheel() for _ in range(10_000))
        assert taken == WHEEL_AHEAD
        for step in InputParser().feed("\x1b[<64;1;1M" * taken):
            app.post_message(step)
        await pilot.pause()
        assert app.takes_wheel()
