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
from tui_agent.tools.diffs import unified
from tui_agent.tui.cards.blocks import Folding, Level, ToolState
from tui_agent.tui.painting.chunks import CHUNK_CHARACTERS
from tui_agent.tui.painting.code import _lexer
from tui_agent.tui.painting.diffs import (
    MAX_COMPARED,
    paint_rows,
    read_diff,
)
from tui_agent.tui.painting.glyphs import ASCII, UNICODE
from tui_agent.tui.painting.lines import Line, breaks
from tui_agent.tui.painting.markdown import paint_markdown
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.themes import THEMES
from tui_agent.tui.pane.block_painting import BlockPainting
from tui_agent.tui.pane.transcript import Transcript

XTERM = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
"""The sixteen colours of xterm."""
Colour = tuple[int, int, int]
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


def test_words_of_a_line_too_long_to_compare_are_not_marked() -> None:
    long = "word " * MAX_COMPARED
    for old, new in (("word", long), (long, "word")):
        assert all(row.changed == () for row in read_diff(f"@@ -1 +1 @@\n-{old}\n+{new}"))


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


def test_a_line_of_a_megabyte_costs_only_what_is_painted() -> None:
    painting = BlockPainting(Transcript().add_prose("x" * 1_000_000), None, 80, LOOK)
    first = painting.lines(0)
    assert len(first) < 100
    assert "".join(line.text[line.gutter :] for line in paint(painting)) == "x" * 1_000_000
    lines = prose("before\n" + "x" * (CHUNK_CHARACTERS + 1) + "\nafter")
    assert (lines[0], lines[1], lines[-1]) == ("  before", "", "  after")


@given(st.text(st.sampled_from("ab  日\u0301👩"), max_size=60), st.integers(2, 20))
def test_wrapped_lines_fit_and_join_to_the_text_again(text: str, width: int) -> None:
    joined = ""
    for start, end, ending in breaks(text, width):
        assert cell_len(text[start:end]) <= width
        joined += text[start:end] + ("" if ending == "\n" else ending)
    assert joined in (text, text[:-1])


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_theme_can_be_read(theme: Theme) -> None:
    palette = Palette.from_theme(theme.to_color_system().generate())
    old = '# a note\ndef f(a):\n    return "text" + 1\n'
    diff = unified(old, old.replace("text", "other").replace("a note", "two notes"), "a.py")
    lines = paint_rows(read_diff(diff), 40, Look(palette, UNICODE), file="a.py", digits=1)
    assert {line.text[4] for line in lines} == {" ", "+", "-"}
    if theme.ansi:
        assert len({palette.base, palette.faint, palette.added, palette.removed, palette.added_word}) == 5
        return
    apart = (palette.base, palette.muted, palette.accent, palette.error, palette.comment, palette.added_word)
    assert min(map(_contrast, (*apart, palette.selected))) >= (7 if theme.name == "contrast" else 3)
    assert _contrast(palette.faint) >= 3
    for name in palette.__struct_fields__:
        style: Style = getattr(palette, name) + palette.selected
        assert _contrast(style) >= 4.5
        assert _ratio(_colours(style)[1], _colours(palette.base)[1]) >= 1.25
    assert all(line.width == 40 for line in lines if line.text[4] in "+-")
    assert len({segment.style.color for line in lines for segment in line.segments if segment.style}) > 5
    assert min(_contrast(style) for line in lines for text, style, _ in line.segments if text.strip()) >= 3


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
                        assert _ratio(XTERM[number], ground) >= 3


def test_ascii_glyphs_are_ascii() -> None:
    assert all(re.fullmatch(r"[ -~]+", getattr(ASCII, name)) for name in ASCII.__struct_fields__)
    single = [getattr(UNICODE, name) for name in UNICODE.__struct_fields__ if name != "spinner"]
    assert all(cell_len(glyph) == 1 for glyph in (*single, *UNICODE.spinner, *ASCII.spinner))


def _colours(style: Style | None) -> tuple[Colour, Colour]:
    """Ink and ground."""
    assert style is not None
    assert style.color is not None
    assert style.bgcolor is not None
    return style.color.get_truecolor(), style.bgcolor.get_truecolor()


def _contrast(style: Style | None) -> float:
    return _ratio(*_colours(style))


def _ratio(ink: Colour, ground: Colour) -> float:
    """The contrast ratio of WCAG 2.2."""
    lighter, darker = sorted((_luminance(ink), _luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
