"""The terminal emulation of command output."""

import random
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tools.shell.terminal import EMULATED_END, MOST_WORK, Terminal


def shown(*pieces: bytes, **sizes: int) -> str:
    terminal = Terminal(**sizes)
    for piece in pieces:
        terminal.feed(piece)
    terminal.finish()
    return terminal.text()


ESCAPES = [
    *(b"\r", b"\n", b"\r\n", b"\b", b"\x1b[A", b"\x1b[2A", b"\x1b[B", b"\x1b[C", b"\x1b[5C", b"\x1b[D"),
    *(b"\x1b[3D", b"\x1b[E", b"\x1b[F", b"\x1b[4G", b"\x1b[H", b"\x1b[2;3H", b"\x1b[3d", b"\x1b[J", b"\x1b[1J"),
    *(b"\x1b[2J", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[2X", b"\x1b[2P", b"\x1b[2@", b"\x1bM", b"\x1b[31m"),
    *(b"\x1b[0m", b"\x1b[?25l", b"\x1b]0;title\x07", b"\x1b]8;;http://x\x1b\\", b"\x1b(B", b"\x07", b"\x00"),
    *(b"\x7f", b"\x0e", b"\v", b"\f", b"\x1bE", b"\x1b7\x1b[2Bz\x1b8", b"\x1b[L", b"\x1b[2L", b"\x1b[2a"),
    *(b"\x1b[2e", b"\x1b[2;3f", b"\x1b[99A", b"\x1b[2\x18", "\x9b2A".encode(), b"\xff"),
]

FULL, LINE = "\u2588", "\u2501"
WORDS = [b"hello", b"x", b"ab cd", b"12%", "\u2588\u2588".encode(), "\u00e9".encode()]
WILD = [
    *(b"\x1b7", b"\x1b8", b"\x1b[L", b"\x1b[2M", b"\x1bPq\x1b\\", b"\t", "\u65e5\u672c".encode()),
    *("e\u0301".encode(), "\u0301".encode(), b"\xff", b"\xe2\x82", b"\x1b", b"\x1b[", b"\x1b[3", b"\x1b]"),
    *("\x9b2J".encode(), "\x85".encode(), b"\x1b[?1049h", b"\x1b[?1049l", b"\x1bc", b"\x1b[99999A"),
    *(b"\x1b[" + b"1" * 70 + b"m", b"\x1b[7;300H", b"\x1b[50C", b"a" * 30, b"line\n" * 9),
]


@given(st.lists(st.sampled_from(ESCAPES + WORDS + WILD), max_size=40).map(b"".join), st.data())
def test_the_pieces_the_bytes_came_in_do_not_matter(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=12)))
    sizes = {"rows": 5, "columns": 40}
    whole, pieces = Terminal(**sizes), Terminal(**sizes)
    whole.feed(data)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pieces.feed(data[start:end])
        pieces.tail(3)
    whole.finish()
    pieces.finish()
    assert pieces.text() == whole.text()
    assert pieces.tail(3) == whole.tail(3)


def test_half_of_a_wide_character_is_a_blank() -> None:
    assert shown("中\ba".encode()) == " a"
    assert shown("中\b".encode(), b"a\x1b[J") == " a"
    assert shown("a中\r\x1b[C文".encode()) == "a文"
    assert shown("中中\r\x1b[C文".encode()) == " 文"


def test_what_wraps_out_of_a_row_stays() -> None:
    terminal = Terminal(rows=5, columns=8)
    terminal.feed("\x1b[50C日本\n".encode())
    assert terminal.text() == " " * 7 + "日\n本\n"


def test_a_line_begun_on_a_screen_of_its_own_stays() -> None:
    assert shown(b"\x1b[?1049hab", b"\x1bMc") == shown(b"\x1b[?1049hab\x1bMc") == "  c\nab"


@given(st.binary(max_size=300))
def test_nothing_but_text_comes_out(data: bytes) -> None:
    text = shown(data)
    assert not [c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f"]
    text.encode()


def test_plain_text_comes_back_as_it_is() -> None:
    text = "all:\n\tcc -o x x.c  \n\n\u65e5\u672c \u00e9 e\u0301 \U0001f600\n no newline at the end"
    assert shown(text.encode()) == text
    assert shown(*(bytes([byte]) for byte in text.encode())) == text
    assert shown(b"dos\r\nlines\r\n") == "dos\nlines\n"


def test_progress_bars_collapse_to_their_last_frame() -> None:
    tqdm = b"".join(
        f"\r{n:3}%|{FULL * (n // 10):10}| {n}/100 [00:0{n // 20}<00:01, 20.11it/s]".encode() for n in range(0, 101, 5)
    )
    assert shown(b"start\n" + tqdm + b"\ndone\n") == (
        f"start\n100%|{FULL * 10}| 100/100 [00:05<00:01, 20.11it/s]\ndone\n"
    )
    bar = LINE.encode() * 40
    pip = (
        b"Collecting numpy\n  Downloading numpy-2.1.0.whl (16.3 MB)\n\x1b[?25l     \x1b[38;5;237m" + bar + b"\x1b[0m "
        b"\x1b[32m0.0/16.3 MB\x1b[0m \x1b[31m?\x1b[0m eta \x1b[36m-:--:--\x1b[0m"
        b"\r\x1b[2K     \x1b[38;2;249;38;114m" + bar + b"\x1b[0m "
        b"\x1b[32m16.3/16.3 MB\x1b[0m \x1b[31m9.9 MB/s\x1b[0m eta \x1b[36m0:00:00\x1b[0m"
        b"\n\x1b[?25hInstalling collected packages: numpy\n"
    )
    assert shown(pip).splitlines()[2:] == [
        f"     {LINE * 40} 16.3/16.3 MB 9.9 MB/s eta 0:00:00",
        "Installing collected packages: numpy",
    ]
    layers = (
        b"a: waiting\nb: waiting\nc: waiting\n"
        b"\x1b[3A\x1b[2Ka: done\r\n\x1b[2Kb: 50%\r\n\x1b[1B"
        b"\x1b[2A\x1b[2Kb: done\n\n"
    )
    assert shown(layers) == "a: done\nb: done\nc: waiting\n"


def test_text_is_written_over_and_rows_are_inserted_and_deleted() -> None:
    assert shown("e\u0301f\rx".encode()) == "xf"
    assert shown("abc\x1b[2G\u0301".encode()) == "\u00e1bc"
    assert shown("10%\r\u2714\ufe0f done\n".encode()) == "\u2714 done\n", "pyte stops at a character without a cell"
    assert shown("\u65e5\u672c 1%\r\u65e5\u672c 2%\n".encode()) == "\u65e5\u672c 2%\n"
    assert shown(b"1\n2\n3\x1b[2A\x1b[Lnew") == "new\n1\n2\n3"
    assert shown(b"1\n2\n3\x1b[2A\x1b[2M") == "3"
    assert shown(b"hello\x1b[2M") == ""
    assert shown(b"a\x1b7bc\nnext\x1b8X") == "aXc\nnext"


def test_a_line_that_is_written_over_leaves_the_others_as_they_are() -> None:
    long = "x" * 100_000
    assert shown(b"a\tb  \n1%\r2%\nc\td  \n") == "a\tb  \n2%\nc\td  \n"
    assert shown(f"{long}\n\rA\n{long}".encode()) == f"{long}\nA\n{long}"
    assert shown(b"tab\there\n" * 60 + b"1\n2\x1b[A!\n" + b"more\n" * 60 + b"\tend") == (
        "tab\there\n" * 12 + "tab     here\n" * 48 + "1!\n" + "more\n" * 60 + "\tend"
    )


def test_a_command_string_never_passes_and_hides_at_most_its_line() -> None:
    assert shown(b"a\x1b]0;evil\x07b") == "ab"
    assert (
        shown(
            b"a\x1b]52;c;ZXZpbA==\x1b\\b\x1bP1;2qsixel\x1b\\c\x9d0;x\x9cd".replace(b"\x9d", b"\xc2\x9d").replace(
                b"\x9c", b"\xc2\x9c"
            )
        )
        == "abcd"
    )
    assert shown(b"a\x1b]0;never closed\nnext\n") == "a\nnext\n"
    assert shown(b"cut off\x1b[3") == "cut off"


def test_a_full_screen_program_leaves_what_was_there() -> None:
    editor = b"before\n\x1b[?1049h\x1b[2J\x1b[Heditor\nlines"
    assert shown(editor + b"\x1b[?1049l\rafter\n") == "before\neditor\nlines\nafter\n"


def test_the_end_is_kept_from_the_start_of_a_line() -> None:
    terminal = Terminal(limit=1000)
    lines = [f"line {number}" for number in range(5000)]
    terminal.feed("\n".join(lines).encode())
    text = terminal.text()
    kept = text.split("\n")
    assert len(text.encode()) <= 1000 < len(text.encode()) + 12
    assert kept == lines[-len(kept) :]
    assert terminal.dropped_lines == 5000 - len(kept)
    assert terminal.dropped_bytes + len(text) == len("\n".join(lines))
    assert terminal.tail(2) == "line 4998\nline 4999"


def test_the_limit_counts_bytes_and_one_long_line_is_cut_inside() -> None:
    terminal = Terminal(limit=1000)
    terminal.feed("\u65e5".encode() * 5000)
    assert terminal.text() == "\u65e5" * 333
    assert terminal.dropped_bytes == 15_000 - 999


def test_tail_is_what_should_be_seen_now() -> None:
    terminal = Terminal()
    terminal.feed(b"1\n2\n3\n4\n 10%\r 20%")
    assert terminal.tail(2) == "4\n 20%"
    terminal.feed(b"\n")
    assert terminal.tail(2) == "4\n 20%\n"
    assert terminal.tail(100) == "1\n2\n3\n4\n 20%\n"
    terminal.feed(b"\x1b[5A")
    assert terminal.tail(2) == "4\n 20%"


def test_one_cell_takes_few_marks_and_a_line_any_number() -> None:
    marks = "\u0301" * 100_000
    assert shown(f"a{marks}".encode()) == f"a{marks}"
    assert len(shown(f"ab\x1b[D{marks}".encode() * 3)) < 100


UNITS = {
    "plain": b"a line of plain text, as most commands print it\n" * 1300,
    "one line": b"x" * 65_536,
    "colours": b"\x1b[32mPASSED\x1b[0m tests/test_one.py::test_it\n" * 1400,
    "progress": b"\r 42%|#####     | 42/100 [00:01<00:02]" * 1700,
    "up and down": b"a\x1b[A\x1b[2K\n" * 6500,
    "C0": bytes(range(0x20)) * 2048,
    "escapes": b"\x1b" * 65_536,
    "deletions": b"\x1b[P" * 22_000,
    "marks after a move": "\x1b[2G\u0301".encode() * 11_000,
    "string without end": b"\x1b]0;" + b"x" * 65_532,
    "alternate screens": b"\x1b[?1049h\x1b[?1049l" * 4_096,
    "into scrollback": b"x\n" * 60 * 400 + b"\x1b[49A",
}


QUICK = ("progress", "string without end", "into scrollback")


@pytest.mark.parametrize(
    "unit",
    [pytest.param(unit, id=name, marks=() if name in QUICK else pytest.mark.soak) for name, unit in UNITS.items()],
)
def test_large_streams_take_bounded_work_and_memory(unit: bytes) -> None:
    """The time is printed; what would take longest is left out in the middle."""
    terminal, started, most = Terminal(), time.process_time(), 0
    for _ in range(12):
        terminal.feed(unit)
        terminal.tail(20)
        most = max(most, terminal.held)
    print(f"{time.process_time() - started:.2f} s for {12 * len(unit) / 1e6:.1f} MB")
    assert terminal.work < 6 * MOST_WORK
    assert most < 2_000_000
    assert len(terminal.text().encode()) <= 262_144


FLOOD = b"\x1b[2;1Hab\x1b[B\x1b[3D\x1b[A*\x1b[K\r\n"


def pieces_of(data: bytes, seed: int) -> Iterator[bytes]:
    rest, sizes = memoryview(data), random.Random(seed)
    while rest:
        size = sizes.choice((1, 7, 100, 5_000, 70_000))
        yield bytes(rest[:size])
        rest = rest[size:]


def test_a_flood_is_not_followed_to_its_end_but_its_end_is_shown() -> None:
    """In whatever pieces it comes; what was printed before stays, and what comes after is shown as ever."""
    repeats = MOST_WORK // 100 + 5 * EMULATED_END // len(FLOOD)
    data = b"before\n" + FLOOD * repeats + b"\n\n\nthe end \x1b[31m\xe2"
    for seed in range(2):
        terminal = Terminal(rows=8, columns=40)
        for piece in pieces_of(data, seed) if seed else [data]:
            terminal.feed(piece)
        assert terminal.tail(1).startswith("the end")
        first = terminal.text()
        assert terminal.text() == first
        terminal.feed(b"\x82\xac\nmore\rM")
        terminal.finish()
        text = terminal.text()
        assert text.startswith("before\n")
        assert re.search(r"\n\[[\d,]+ bytes are left out here: too many control sequences to follow\]\n", text)
        assert text.endswith("\nthe end \u20ac\nMore")
