"""Lines, tables and what is drawn over lines, cell by cell."""

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tests.tui.painting.test_painted import PALETTE
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.painting.lines import Line, Run, cut, make_line, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.tables import Cell, paint_table
from tui_agent.tui.pane.overlays import with_cursor, with_hint, with_label, with_selection, with_spinner
from tui_agent.tui.pane.search import occurs, with_words

LOOK = Look(PALETTE, ASCII)
BASE, OTHER, MARK = PALETTE.base, PALETTE.error, Style(reverse=True)


def _shown(lines: list[Line]) -> list[str]:
    return [f"{line.text}|{line.width}|{line.gutter}|{line.ending}" for line in lines]


@pytest.mark.parametrize(
    ("texts", "width", "lines"),
    [
        (["one two"], 5, [">>one|5|2| ", "-two|4|1|\n"]),
        (["on", "e two"], 6, [">>one|5|2| ", "-two|4|1|\n"]),
        (["one", "two"], 6, [">>onet|6|2|", "-wo|3|1|\n"]),
        (["a\tb\tc"], 40, [">>a   b   c|11|2|\n"]),
        (["ab", "\tc"], 40, [">>ab  c|7|2|\n"]),
        (["日本"], 5, [">>日|4|2|", "-本|3|1|\n"]),
        (["ab"], 1, [">|1|2|", "-|1|1|\n"]),
        (["one  two"], 5, [">>one|5|2| ", "- tw|4|1|", "-o|2|1|\n"]),
        ([], 9, [">>|2|2|\n"]),
    ],
)
def test_runs_are_wrapped_behind_their_decoration(texts: list[str], width: int, lines: list[str]) -> None:
    runs = [Run(text, BASE) for text in texts]
    assert _shown(wrap(runs, width, first=[Run(">>", OTHER)], rest=[Run("-", OTHER)])) == lines


def test_runs_are_cut_where_their_characters_are() -> None:
    runs = [Run("abc", BASE), Run("de", OTHER), Run("f", BASE)]
    assert cut(runs, 0, 3) == runs[:1]
    assert cut(runs, 1, 4) == [Run("bc", BASE), Run("d", OTHER)]
    assert cut(runs, 3, 6) == runs[1:]
    assert cut(runs[:1], 1, 2) == [Run("b", BASE)]
    line = make_line([*runs, Run("", OTHER)], header=True)
    assert (len(line.segments), line.width, line.header) == (3, 6, True)


@pytest.mark.parametrize(
    ("rows", "width", "lines"),
    [
        (["k v", "a bb"], 20, ["k | v ", "--+---", "a | bb"]),
        (["k v", "a"], 20, ["k | v", "--+--", "a |  "]),
        (["k v w", "a b c"], 11, ["k | v", "--+--", "a | b"]),
        (["k v w", "a b c"], 15, ["k | v | w", "--+---+--", "a | b | c"]),
        (["k v", "a b"], 2, ["k", "-", "a"]),
        (["key", "aaaa_bbbb"], 6, ["key   ", "------", "aaaa_b", "bbb   "]),
        (["k >v", "a >123", "b >4"], 20, ["k |   v", "--+----", "a | 123", "b |   4"]),
        (["", ""], 9, []),
        ([], 9, []),
    ],
)
def test_a_table_is_as_wide_as_it_has_to_be(rows: list[str], width: int, lines: list[str]) -> None:
    cells = [
        [Cell((Run(word.removeprefix(">"), BASE),), right=word.startswith(">")) for word in row.split()] for row in rows
    ]
    assert ["".join(run.text for run in line) for line in paint_table(cells, width, LOOK)] == lines


def _styled(segments: list[Segment] | tuple[Segment, ...]) -> list[tuple[str, bool]]:
    return [(segment.text, bool(segment.style and segment.style.reverse)) for segment in segments]


@pytest.mark.parametrize(
    ("span", "gutter", "shown"),
    [
        (None, 0, [("abc", False), ("def", False)]),
        ((1, 2), 0, [("a", False), ("b", True), ("c", False), ("def", False)]),
        ((2, 4), 0, [("ab", False), ("c", True), ("d", True), ("ef", False)]),
        ((0, -1), 0, [("abc", True), ("def", True)]),
        ((0, 5), 2, [("ab", False), ("c", True), ("de", True), ("f", False)]),
        ((3, 6), 0, [("abc", False), ("def", True)]),
        ((4, -1), 1, [("abc", False), ("d", False), ("ef", True)]),
        ((2, 2), 0, [("ab", False), ("c", False), ("def", False)]),
    ],
)
def test_what_is_selected_is_marked(span: tuple[int, int] | None, gutter: int, shown: list[tuple[str, bool]]) -> None:
    drawn = [Segment("abc", BASE), Segment("def", BASE)]
    assert _styled(list(with_selection(drawn, gutter, span, MARK))) == shown


@pytest.mark.parametrize(
    ("words", "gutter", "shown"),
    [
        ("x", 0, [("aba", False), ("B", False)]),
        ("b", 0, [("a", False), ("b", True), ("a", False), ("B", True)]),
        ("ab", 1, [("ab", False), ("a", True), ("B", True)]),
        ("aba", 0, [("aba", True), ("B", False)]),
    ],
)
def test_words_are_marked_wherever_they_are(words: str, gutter: int, shown: list[tuple[str, bool]]) -> None:
    segments = [Segment("aba", BASE), Segment("B", OTHER)]
    assert _styled(list(with_words(segments, gutter, words, MARK))) == shown
    assert occurs("abaB", words) == (len(shown) > 2 or words == "aba")


def test_words_are_found_in_every_script() -> None:
    assert [occurs(text, "ÄB") for text in ("xäb", "xab", "ä")] == [True, False, False]
    assert [occurs(text, "a.") for text in ("xA.", "xab", "日a.")] == [True, False, True]


def test_a_label_lies_over_an_end_and_a_hint_fits_its_line() -> None:
    strip = Strip([Segment("abcd", BASE)])
    for label, shown in (("xy", "abxy"), ("wxyz", "wxyz"), ("vwxyz", "abcd")):
        assert with_label(strip, label, MARK, right=True).text == shown
    for label, shown in (("xy", "xycd"), ("日", "日cd")):
        assert with_label(strip, label, MARK, right=False).text == shown
    for shown in ("  > hint    ", "  > hint ", "  > ... ", "  > .", "  > ", "  >"):
        strip = with_hint(Strip([Segment(" " * len(shown), BASE)]), "hint", LOOK)
        assert (strip.text, strip.cell_length) == (shown, len(shown))


def test_cursor_and_spinner_take_the_place_of_a_cell() -> None:
    one, two = Segment("  a", BASE), Segment("* b", BASE)
    assert [each.text for each in with_cursor([one, two], "|", MARK)] == ["|", " a", "* b"]
    assert [each.text for each in with_cursor([Segment(" ", BASE), two], "|", MARK)] == ["|", "* b"]
    assert [each.text for each in with_spinner([one, two, two], "*", "+")] == ["  a", "+ b", "* b"]
    assert [each.text for each in with_spinner([one, one, one, two], "*", "+")][-1] == "* b"
    assert [each.text for each in with_spinner([one, one, two], "*", "+")][-1] == "+ b"
