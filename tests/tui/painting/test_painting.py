"""Blocks painted to lines: streaming equals painting at once, nothing is wider than the column, nothing is lost."""

import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pygments.lexers.python import PythonLexer
from rich.cells import cell_len
from rich.style import Style
from textual.theme import Theme

from tests.examples import examples
from tui_agent.conversation.entries import Hit, Outcome
from tui_agent.tools.diffs import unified
from tui_agent.tui.cards.blocks import Folding, Level, ResultSize, ToolState
from tui_agent.tui.painting.chunks import CHUNK_CHARACTERS
from tui_agent.tui.painting.code import _lexer
from tui_agent.tui.painting.diffs import (
    MAX_COMPARED,
    NO_NEWLINE,
    NOTE,
    DiffLines,
    counts,
    paint_rows,
    read_diff,
    visible_diff,
)
from tui_agent.tui.painting.glyphs import ASCII, UNICODE
from tui_agent.tui.painting.lines import Line, Run, breaks, wrap
from tui_agent.tui.painting.markdown import paint_markdown
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.tables import share
from tui_agent.tui.painting.themes import THEMES
from tui_agent.tui.pane.block_painting import BlockPainting
from tui_agent.tui.pane.transcript import Transcript

XTERM = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
"""The sixteen colours of xterm."""
LOOK = Look(Palette.from_theme(THEMES[0].to_color_system().generate()), UNICODE)

_MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# Title",
            "A paragraph with **bold** and `code` that goes on for a good while.",
            "- item",
            "  - nested",
            "* other",
            "1. one",
            "   continued",
            "```python",
            "```",
            "~~~",
            "    indented",
            "  ```",
            "> quote",
            "| a | b |",
            "|---|--:|",
            "| 1 | 2 |",
            "---",
            "===",
            "",
            "",
            "def f(): pass",
            "[link](http://x.y) <b>html</b> &amp; &#x202e;",
            "word " * 30,
        ]
    ),
    max_size=14,
).map("\n".join)
_HOSTILE = st.text(
    st.sampled_from("ab \n\t\x1b[]0;m*_`#>|-\u202e\u200d\ufe0f\u0301é日本👩👧") | st.characters(), max_size=120
)


def paint(painting: BlockPainting) -> list[Line]:
    return [line for section in range(len(painting.heights)) for line in painting.lines(section)]


def texts(lines: list[Line]) -> list[str]:
    return [line.text.rstrip() for line in lines]


def prose(text: str, width: int = 60) -> list[str]:
    return texts(paint(BlockPainting(Transcript().add_prose(text), None, width, LOOK)))


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[google.com](https://google.com.evil.example)", "google.com (https://google.com.evil.example)"),
        ("[x.y](http://x.y/)", "x.y"),
        ("[evil](https://evil.example)", "evil (https://evil.example)"),
        ("<https://x.y/z>", "https://x.y/z"),
        ("[a@x.y](mailto:a@x.y)", "a@x.y"),
        ("[](https://x.y)", "(https://x.y)"),
    ],
)
def test_a_link_shows_its_address_unless_that_is_its_text(link: str, shown: str) -> None:
    assert " ".join(prose(link)).strip() == shown


@given(_MARKDOWN, st.lists(st.integers(0, 600), max_size=8), st.integers(20, 90))
@settings(max_examples=examples(60), deadline=None)
def test_streaming_in_any_pieces_paints_what_painting_at_once_does(text: str, cuts: list[int], width: int) -> None:
    transcript = Transcript()
    block = transcript.start_prose()
    painting = BlockPainting(block, None, width, LOOK)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        transcript.stream(block, text[start:end])
        painting.refresh()
        paint(painting)
    transcript.finish(block)
    painting.refresh()

    assert paint(painting) == paint(BlockPainting(transcript.add_prose(text), None, width, LOOK))
    assert painting.height == len(paint(painting))


@given(_MARKDOWN)
@example("- item\n\n  more\n\n- other\n\n  - nested\n\nafter")
@example("1. one\n\n   ```\n   code\n\n   - code\n   ```\n\n2. two\n```\ntop\n```")
@settings(max_examples=examples(100), deadline=None)
def test_an_answer_in_chunks_reads_as_it_does_whole(text: str) -> None:
    whole = texts(paint_markdown(text, 60, LOOK))
    assert [line for line in prose(text) if line] == [line for line in whole if line]


@given(_HOSTILE, st.integers(1, 40), st.sampled_from([UNICODE, ASCII]))
@settings(max_examples=examples(60), deadline=None)
def test_no_line_is_wider_than_the_column(text: str, width: int, glyphs: object) -> None:
    look = LOOK if glyphs is UNICODE else Look(LOOK.palette, ASCII)
    transcript = Transcript(folding=Folding(open=len(text) % 2 == 0))
    transcript.add_user(text)
    transcript.add_prose(text)
    transcript.add_prose(f"```\n{text}\n```\n- {text}\n\n| {text} | b |\n|---|---|\n| c | {text} |")
    transcript.add_reasoning(text, seconds=1, tokens=5)
    for state in ToolState:
        tool = transcript.add_tool(text, text, summary=text, arguments=text)
        transcript.finish_tool(tool, state, text, note=text, diff=unified(text, f"{text}x", "a"), seconds=5)
    transcript.add_notice(Level.ERROR, text, text, text)
    transcript.add_boundary(text, before=1, after=2, reason=text, text=text)

    for block in transcript:
        for line in paint(BlockPainting(block, None, width, look)):
            assert line.width == sum(cell_len(segment.text) for segment in line.segments) <= width
            assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in line.text)


def test_only_the_open_end_of_an_answer_is_painted_again() -> None:
    transcript = Transcript()
    block = transcript.start_prose("First paragraph.\n\n```python\nx = 1\n```\n\nOpen")
    painting = BlockPainting(block, None, 60, LOOK)
    before = paint(painting)
    transcript.stream(block, " end grows")
    painting.refresh()
    after = paint(painting)

    kept = [line for line in after if any(line is old for old in before)]
    # The blank line before the open end comes out the same.
    assert texts(kept) == ["  First paragraph.", "", "   x = 1", ""]
    assert after[-1].text == "  Open end grows"


def test_markdown_is_read() -> None:
    shown = prose(
        "# Title\n\nSome *emphasis*, `code` and [a guide](https://x.y/z).\n\n"
        "1. one\n2. two\n   - [x] nested\n\n> quoted\n\n| a | n |\n|---|--:|\n| bb | 10 |\n\n***\n\nLast  \nbroken"
    )
    assert shown == [
        "  Title",
        "",
        "  Some emphasis, code and a guide (https://x.y/z).",
        "",
        "  1. one",
        "  2. two",
        "     • ☑ nested",
        "",
        "  │ quoted",
        "",
        "  a  │  n",
        "  ───┼───",
        "  bb │ 10",
        "",
        "  " + "─" * 24,
        "",
        "  Last",
        "  broken",
    ]


def test_a_list_that_a_paragraph_introduces_stands_right_below_it() -> None:
    assert prose("These:\n- one\n- two") == ["  These:", "  • one", "  • two"]
    assert prose("# These\n- one") == ["  These", "", "  • one"]


def test_what_follows_a_quote_or_a_list_is_none_of_it() -> None:
    assert prose("> said\n\nafter") == ["  │ said", "", "  after"]
    assert prose("- one\n  ```\n  - code\n  ```\n- two\n\nafter") == [
        "  • one", "     - code", "  • two", "", "  after"
    ]  # fmt: skip


def test_a_line_too_long_to_parse_stands_below_what_came_before_it() -> None:
    lines = prose("before\n" + "x" * (CHUNK_CHARACTERS + 1) + "\nafter")
    assert (lines[0], lines[1], lines[-1]) == ("  before", "", "  after")


def test_words_of_a_line_too_long_to_compare_are_not_marked() -> None:
    long = "word " * MAX_COMPARED
    for old, new in (("word", long), (long, "word")):
        assert all(row.changed == () for row in read_diff(f"@@ -1 +1 @@\n-{old}\n+{new}"))


def test_html_and_markup_are_text() -> None:
    assert prose("<script>alert(1)</script> [bold]x[/bold] &#x202e;y") == [
        "  <script>alert(1)</script> [bold]x[/bold] y",
    ]


def test_a_long_fence_is_painted_in_parts_that_lose_nothing() -> None:
    code = [f"line_{number} = {number}" for number in range(500)]
    painting = BlockPainting(Transcript().add_prose("```python\n" + "\n".join(code) + "\n```"), None, 60, LOOK)
    assert len(painting.heights) > 5
    assert [line.strip() for line in texts(paint(painting))] == code
    painting.forget()
    painting.lines(0)
    assert painting.painted <= 60


def test_python_is_read_as_by_pygments_without_its_lists_of_letters() -> None:
    lexer = _lexer("python")
    assert isinstance(lexer, PythonLexer)
    code = "".join(path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob("*.py")))
    code += "@größe\nclass Καλά(名前): pass\ndef ключ_1(x٣=0x1F, *, y: 'é') -> None: return 1if x else y@x\n"
    assert list(lexer.get_tokens(code)) == list(PythonLexer(stripnl=False).get_tokens(code))
    rules = [rule for rules in PythonLexer.tokens.values() for rule in rules]
    assert any(PythonLexer.uni_name in str(rule) for rule in rules)
    assert not any(PythonLexer.uni_name in str(rule) for rules in type(lexer).tokens.values() for rule in rules)


def test_a_long_table_is_cut_and_its_head_repeated() -> None:
    rows = [f"| {number} | text |" for number in range(400)]
    shown = prose("| n | t |\n|---|---|\n" + "\n".join(rows))
    assert [line.split()[0] for line in shown if "text" in line] == [str(number) for number in range(400)]
    assert 1 < sum(line.split()[:1] == ["n"] for line in shown) < 10


def test_a_line_of_a_megabyte_costs_only_what_is_painted() -> None:
    painting = BlockPainting(Transcript().add_prose("x" * 1_000_000), None, 80, LOOK)
    first = painting.lines(0)
    assert len(first) < 100
    assert "".join(line.text[line.gutter :] for line in paint(painting)) == "x" * 1_000_000


def test_a_collapsed_card_shows_a_header_and_three_lines() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "read_file", summary="pyproject.toml", arguments='{"path": "pyproject.toml"}')
    result = "\n".join(f"row {number}" for number in range(1200))
    transcript.finish_tool(tool, ToolState.OK, result, size=ResultSize(lines=1200, tokens=3210), seconds=2.04)
    painting = BlockPainting(tool, None, 80, LOOK)
    assert texts(paint(painting)) == [
        "  ● Read pyproject.toml  1,200 lines · 2.0s",
        "    row 0",
        "    row 1",
        "    row 2",
    ]
    transcript.toggle(tool)
    painting.refresh()
    opened = texts(paint(painting))
    assert opened[0] == "  ● Read pyproject.toml  1,200 lines · 2.0s · 3.2k tokens"
    assert opened[-1] == "    row 1199"


@pytest.mark.parametrize("width", [12, 24, 40, 79])
def test_a_header_gives_way_in_order(width: int) -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "run_command", summary="pytest -q " + "very long " * 20)
    transcript.finish_tool(tool, ToolState.ERROR, "")
    (header,) = paint(BlockPainting(tool, None, width, LOOK))
    assert header.text.startswith("  ✗ Run pyt")
    assert ("failed" in header.text) == (width >= 24)
    assert header.header


def test_a_command_shows_the_newest_of_its_output_while_it_runs_and_when_it_is_done() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "run_command", summary="count", state=ToolState.RUNNING)
    transcript.show_progress(tool, "zero\none\ntwo\n\nthree\nfour\n")
    newest = ["    … +2 lines", "    two", "    three", "    four"]
    assert texts(paint(BlockPainting(tool, None, 60, LOOK)))[1:] == newest
    transcript.show_progress(tool, "one\ntwo\n\nthree\nfour\n", above=1_000)
    assert texts(paint(BlockPainting(tool, None, 60, LOOK)))[1] == "    … +1,001 lines"
    output = "\n".join(["begin", *(f"line {number}" for number in range(2000)), "", "the end"])
    facts = Outcome(exit_code=1, notes=2)
    transcript.finish_tool(tool, ToolState.ERROR, f"{output}\n[exit code 1, 0.3 s]\n[and a note]", outcome=facts)
    painting = BlockPainting(tool, None, 60, LOOK)
    assert painting.height == 5
    assert texts(paint(painting)) == [
        "  ✗ Run count  failed · exit code 1",
        "    … +1,999 lines",
        "    line 1998",
        "    line 1999",
        "    the end",
    ]


def test_a_command_left_running_says_so_however_long_its_line_is() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "run_command", summary="serve --all " * 20)
    note = "still running in the background as process 71: command_output(process=71) reads what it prints"
    facts = Outcome(left_running=71, notes=1)
    transcript.finish_tool(tool, ToolState.OK, f"ready\n[{note}]", note=note, outcome=facts, seconds=1.1)
    header, *below = texts(paint(BlockPainting(tool, None, 79, LOOK)))
    assert header.endswith("…  in the background · 1.1s")
    assert below == ["    ready"]


def test_a_search_shows_its_hits_and_how_many_more_there_are() -> None:
    transcript = Transcript()
    lines = (("a.py", 2, "first = 1"), ("a.py", 9, "last"), ("2024.md", 3, "third"), ("2024.md", 4, "fourth"))
    for count, below in ((4, ["2024.md:4  fourth"]), (6, ["… +3 lines"])):
        tool = transcript.add_tool(f"{count}", "grep", summary="x")
        found = Outcome(hits=tuple(Hit(*line) for line in lines), hit_count=count)
        transcript.finish_tool(tool, ToolState.OK, "for the model", note="4 matches in 2 files", outcome=found)
        painting = BlockPainting(tool, None, 60, LOOK)
        hits = ["a.py:2  first = 1", "a.py:9  last", "2024.md:3  third", *below]
        assert texts(paint(painting)) == ["  ● Search x  4 matches in 2 files", *(f"    {hit}" for hit in hits)]
        assert painting.height == 5


def test_a_search_of_the_web_shows_the_pages_by_title_and_address() -> None:
    transcript = Transcript()
    pages = tuple(Hit(f"Title {number}\x1b[2J", 0, f"https://{number}.example/") for number in range(5))
    tool = transcript.add_tool("1", "web_search", summary="x")
    found = Outcome(hits=pages, hit_count=5)
    transcript.finish_tool(tool, ToolState.OK, "for the model\n" * 20, note="5 pages, $0.02", outcome=found)
    painting = BlockPainting(tool, None, 60, LOOK)
    estimated = painting.height
    assert texts(paint(painting)) == [
        "  ● Search the web x  5 pages, $0.02",
        *(f"    Title {number}  https://{number}.example/" for number in range(3)),
        "    … +2 pages",
    ]
    assert painting.height == estimated == 5


def test_tab_stops_are_counted_in_cells_from_the_beginning_of_the_line() -> None:
    style = Style()
    runs = [Run("a", style), Run("\tb\t", Style(bold=True)), Run("漢\tc", style)]
    (line,) = wrap(runs, 40, first=(Run("  ", style),), rest=())
    assert line.text == "  a   b   漢  c"


def test_reasoning_is_one_line_until_it_is_opened() -> None:
    transcript = Transcript()
    block = transcript.add_reasoning("Because **of** this.", seconds=3.21, tokens=412)
    painting = BlockPainting(block, None, 60, LOOK)
    assert texts(paint(painting)) == ["  ▸ Thought for 3.2s"]
    transcript.toggle(block)
    painting.refresh()
    assert texts(paint(painting)) == ["  ▾ Thought for 3.2s · 412 tokens", "    Because of this."]


def test_an_error_says_what_was_kept_and_what_to_do() -> None:
    notice = Transcript().add_notice(Level.ERROR, "Overloaded", "Everything is kept.", "Press Enter to try again.")
    assert texts(paint(BlockPainting(notice, None, 60, LOOK))) == [
        "  ✗ Overloaded",
        "    Everything is kept.",
        "    → Press Enter to try again.",
    ]


def test_what_wraps_in_a_notice_stays_under_its_column() -> None:
    notice = Transcript().add_notice(
        Level.INFO,
        "Found",
        "Sandbox  what commands may write here\n     3  you said this and then more of it\n        and so on it went",
    )
    assert texts(paint(BlockPainting(notice, None, 34, LOOK)))[1:] == [
        "    Sandbox  what commands may",
        "             write here",
        "         3  you said this and then",
        "            more of it",
        "            and so on it went",
    ]


def test_a_boundary_is_a_rule_with_tokens_and_reason() -> None:
    boundary = Transcript().add_boundary("Cleared 3 results", before=84_200, after=61_000, reason="cache is cold")
    (line,) = paint(BlockPainting(boundary, None, 70, LOOK))
    assert "── Cleared 3 results · 84k → 61k tokens · cache is cold ──" in line.text
    assert line.width == 70


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            120,
            [
                "── ▸ turns summarised · 84k → 21k tokens · cost $0.047, saves $0.0020 a call · {} ───────".format(
                    "asked for; 5 facts are left out"
                )
            ],
        ),
        (
            80,
            [
                "── ▸ turns summarised · 84k → 21k · cost $0.047, saves $0.0020 a call ────────",
                "asked for; 5 facts are left out",
            ],
        ),
        (
            60,
            [
                "── ▸ turns summarised · 84k → 21k ────────────────────────",
                "cost $0.047, saves $0.0020 a call · asked for; 5 facts",
                "are left out",
            ],
        ),
    ],
)
def test_nothing_that_is_said_of_a_step_is_cut(width: int, lines: list[str]) -> None:
    boundary = Transcript().add_boundary(
        "turns summarised",
        before=84_200,
        after=21_000,
        saved="cost $0.047, saves $0.0020 a call",
        reason="asked for; 5 facts are left out",
        text="# State",
    )
    painted = paint(BlockPainting(boundary, None, width, LOOK))
    assert [line.text.strip() for line in painted] == lines
    assert painted[0].width == width


def test_a_diff_has_numbers_signs_and_changed_words() -> None:
    diff = unified("a\nx = 1\nc\n", "a\nx = 2\nc\nd\n", "a")
    assert counts(diff) == (2, 1)
    rows = read_diff(diff)
    assert [(row.sign, row.number, row.text) for row in rows] == [
        (" ", 1, "a"),
        ("-", 2, "x = 1"),
        ("+", 2, "x = 2"),
        (" ", 3, "c"),
        ("+", 4, "d"),
    ]
    assert rows[1].changed == rows[2].changed == ((4, 5),)


@pytest.mark.parametrize(
    ("old", "new", "marked"),
    [
        ("def f(a, b): return a + b", "def g(a, c): return a + c", ["g", "c", "c"]),
        ("    call(one, three)", "        call(one, two, three)", ["        ", "two, "]),
        ("one two three four", "one 2 3 four", ["2 3"]),
        ("nothing of this is left", "what came instead of it", []),
        ("a\tb\tc", "a\tx\tc", ["x"]),
        ("word " * 100 + "old1 and one more", "word " * 100 + "new1 and one more", ["new1"]),
        ("word " * 100, "something else " * 40, []),
    ],
)
def test_every_changed_word_of_a_line_is_marked(old: str, new: str, marked: list[str]) -> None:
    row = read_diff(unified(old, new, "a"))[-1]
    assert [row.text[start:end] for start, end in row.changed] == marked


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("a\fb\nold\n", "a\fb\nnew\n", [" a␌b", "-old", "+new"]),
        ("one\rold\rtwo\n", "one\rnew\rtwo\n", ["-one␍old␍two", "+one␍new␍two"]),
        ("a\u2028b\nold\n", "a\u2028b\nnew\n", [" a⟦U+2028⟧b", "-old", "+new"]),
        ("a\r\nold\r\n", "a\r\nnew\r\n", [" a", "-old", "+new"]),
        ("a\r\n", "a\n", ["-a␍", "+a"]),
        ("a", "a\n", ["-a", f"{NOTE}{NO_NEWLINE}", "+a"]),
        ("a\n", "b", ["-a", "+b", f"{NOTE}{NO_NEWLINE}"]),
        ("a", "b", ["-a", "+b"]),
    ],
)
def test_a_line_of_a_diff_is_a_line_of_the_file(old: str, new: str, told: list[str]) -> None:
    rows = read_diff(visible_diff(unified(old, new, "a")))
    assert [row.sign + row.text for row in rows] == told
    lines = DiffLines("@@ -1 +1 @@\n… 3 more lines")
    assert [lines.text(*place) for place in lines.breaks(40)] == ["    … 3 more lines"]


@given(st.text(st.sampled_from("ab  日\u0301👩"), max_size=60), st.integers(2, 20))
def test_wrapped_lines_fit_and_join_to_the_text_again(text: str, width: int) -> None:
    joined = ""
    for start, end, ending in breaks(text, width):
        assert cell_len(text[start:end]) <= width
        joined += text[start:end] + ("" if ending == "\n" else ending)
    assert joined in (text, text[:-1])


def test_words_are_kept_whole_where_they_fit() -> None:
    lines = wrap([Run("the quick brown fox", LOOK.palette.base)], 11, first=(), rest=())
    assert [line.text for line in lines] == ["the quick", "brown fox"]
    assert [line.ending for line in lines] == [" ", "\n"]


def test_every_theme_colours_the_text_apart_from_its_ground() -> None:
    for theme in THEMES:
        palette = Palette.from_theme(theme.to_color_system().generate())
        if theme.ansi:
            assert len({palette.base, palette.faint, palette.added, palette.removed, palette.added_word}) == 5
            continue
        for style in (
            palette.base,
            palette.muted,
            palette.faint,
            palette.accent,
            palette.error,
            palette.comment,
            palette.added_word,
            palette.selected,
        ):
            assert style.color is not None
            assert style.bgcolor is not None
            least = 7 if theme.name == "contrast" and style is not palette.faint else 3
            assert _contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= least


@pytest.mark.parametrize("theme", [theme for theme in THEMES if not theme.ansi], ids=lambda theme: theme.name)
def test_what_is_selected_can_be_read_and_is_seen_to_be_selected(theme: Theme) -> None:
    palette = Palette.from_theme(theme.to_color_system().generate())
    for name in palette.__struct_fields__:
        style: Style = getattr(palette, name) + palette.selected
        assert style.color is not None
        assert style.bgcolor is not None
        assert palette.base.bgcolor is not None
        assert _contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= 4.5
        assert _contrast(style.bgcolor.get_truecolor(), palette.base.bgcolor.get_truecolor()) >= 1.25


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_a_diff_can_be_read_in_the_colours_of_its_language(theme: Theme) -> None:
    look = Look(Palette.from_theme(theme.to_color_system().generate()), UNICODE)
    old = '# a note\ndef f(a):\n    return "text" + 1\n'
    diff = unified(old, old.replace("text", "other").replace("a note", "two notes"), "a.py")
    lines = paint_rows(read_diff(diff), 40, look, file="a.py", digits=1)
    kinds = {line.text[4] for line in lines}
    assert kinds == {" ", "+", "-"}
    if theme.ansi:
        return
    assert all(line.width == 40 for line in lines if line.text[4] in "+-")
    assert len({segment.style.color for line in lines for segment in line.segments if segment.style}) > 5
    for line in lines:
        for text, style, _ in line.segments:
            assert style is not None
            assert style.color is not None
            assert style.bgcolor is not None
            if text.strip():
                assert _contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= 3, text


def test_the_terminals_own_colours_can_be_read_on_white_and_on_black() -> None:
    (theme,) = (theme for theme in THEMES if theme.ansi)
    for in_dialog in (False, True):
        palette = Palette.from_theme(theme.to_color_system().generate(), in_dialog=in_dialog)
        for style in (palette.base, palette.code, palette.accent, palette.heading, palette.link, palette.warning):
            assert style.color is not None
            assert style.bgcolor is not None
            assert style.bgcolor.is_default
            if not style.color.is_default:
                assert style.color.number is not None
                for number in {style.color.number, style.color.number | 8 if style.bold else style.color.number}:
                    for ground in ((0, 0, 0), (255, 255, 255)):
                        assert _contrast(XTERM[number], ground) >= 3


def test_ascii_glyphs_are_ascii() -> None:
    assert all(re.fullmatch(r"[ -~]+", getattr(ASCII, name)) for name in ASCII.__struct_fields__)
    single = [getattr(UNICODE, name) for name in UNICODE.__struct_fields__ if name != "spinner"]
    assert all(cell_len(glyph) == 1 for glyph in (*single, *UNICODE.spinner, *ASCII.spinner))


def _contrast(ink: tuple[int, int, int], ground: tuple[int, int, int]) -> float:
    """The contrast ratio of WCAG 2.2."""
    lighter, darker = sorted((_luminance(ink), _luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: tuple[int, int, int]) -> float:
    linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("natural", "room", "widths"),
    [
        ([30, 28, 2], 60, [30, 28, 2]),
        # The widest first give way, down to the next, then both alike.
        ([30, 28, 2], 59, [29, 28, 2]),
        ([30, 28, 2], 50, [24, 24, 2]),
        ([50, 3], 20, [17, 3]),
        ([9, 9, 0], 7, [3, 3, 1]),
        ([3, 3], 1, [1, 1]),
    ],
)
def test_wide_columns_share_what_narrow_ones_leave(natural: list[int], room: int, widths: list[int]) -> None:
    assert share(natural, room) == widths
