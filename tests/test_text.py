"""Text for people: safe in a terminal, calls on a line, amounts short but never so short that they say nothing."""

import json
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, get_character_cell_size

import tui_agent
from tui_agent.text import (
    StreamCleaner,
    call_summary,
    clean,
    displayed,
    expanded,
    money_text,
    one_line,
    percent_text,
    printable,
)

_HOSTILE = st.text(
    st.sampled_from(
        "ab \n\r\t\x1b[]0;mP\\\x07\x9b\x9d\x9c\x00\x7f\u202e\u2066\u200d\ufe0f\ud800\u0301\U000e0041é日👩31?"
    )
    | st.characters(),
    max_size=80,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x9b2Jcleared \x9d0;t\x9cx", "cleared x"),
        ("a\x00b\x08c\x7fd", "abcd"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("user\u202egnp.exe\u2066", "usergnp.exe"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
        ("hidden\U000e0041tag\ufeff", "hiddentag"),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_what_a_terminal_would_obey_is_removed(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_an_escape_sequence_that_never_ends_hides_nothing() -> None:
    assert clean("\x1b]0;" + "x" * 5000) == "0;" + "x" * 5000
    assert clean("before \x1b]0;unfinished\nnext line") == "before 0;unfinished\nnext line"
    assert clean("ends here \x1b[3") == "ends here [3"


@given(_HOSTILE)
def test_nothing_dangerous_is_left(text: str) -> None:
    shown = clean(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t" for character in shown)
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(shown)
    assert clean(shown) == shown


@given(_HOSTILE, st.lists(st.integers(0, 80), max_size=6))
def test_cleaning_does_not_depend_on_where_a_stream_was_cut(text: str, cuts: list[int]) -> None:
    cleaner = StreamCleaner()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    streamed = "".join(cleaner.feed(text[start:end]) for start, end in pairwise(edges))
    assert streamed + cleaner.finish() == clean(text)


@given(_HOSTILE)
def test_a_displayed_line_is_as_wide_as_its_characters(text: str) -> None:
    for line in clean(text).split("\n"):
        shown = displayed(line)
        assert "\t" not in shown
        assert cell_len(shown) == sum(get_character_cell_size(character) for character in shown)


def test_combining_marks_do_not_pile_up() -> None:
    assert displayed("Z" + "\u0301" * 50) == "Z" + "\u0301" * 3


def test_a_path_that_begins_like_a_users_home_is_one_of_its_own() -> None:
    assert expanded("~/notes.md") == Path.home() / "notes.md"
    assert expanded("~nobody-here/a.png") == Path("~nobody-here/a.png")
    code = "".join(path.read_text(encoding="utf-8") for path in Path(tui_agent.__file__).parent.rglob("*.py"))
    assert ").expanduser()" not in code, "it raises where no such user is"


def test_a_label_is_one_short_line() -> None:
    assert one_line("  a\n\n\tb\x1b[1m  c ") == "a b c"
    assert len(one_line("x" * 10_000)) == 400


@given(st.recursive(_HOSTILE, lambda inner: st.lists(inner, max_size=3)))
def test_a_printable_line_of_json_is_the_same_json_without_control_characters(value: object) -> None:
    line = printable(json.dumps(value, ensure_ascii=False))
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in line)
    assert json.loads(line) == value


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ('{"path": "a.py"}', "a.py"),
        ('{"path": "a.py", "offset": 10, "limit": 20}', "a.py offset=10 limit=20"),
        ('{"command": "ls -la", "timeout": 5}', "ls -la timeout=5"),
        ('{"path": "a.py", "old": "x", "new": "y"}', "a.py"),
        ('{"path": "a.py", "edits": [{"old": "x", "new": "y"}]}', "a.py"),
        ('{"file_path": "a.py", "old_string": "x", "new_string": "y"}', "a.py"),
        ('{"pattern": "TODO", "path": "src"}', "TODO src"),
        ('{"pattern": "TODO", "path": "."}', "TODO"),
        ('{"path": "."}', "."),
        ("{}", ""),
        ("", ""),
        ("[1, 2]", "[1, 2]"),
        ("not json", "not json"),
        ('{"command": "a\\nb \\u001b[31mred"}', "a␊b ␛[31mred"),
    ],
)
def test_the_telling_arguments_come_first(arguments: str, summary: str) -> None:
    assert call_summary(arguments) == summary


def test_a_long_value_is_cut() -> None:
    assert len(call_summary(f'{{"command": "{"x" * 10_000}"}}')) < 200


def test_arguments_nested_too_deeply_to_be_shown_are_shown_as_they_came() -> None:
    for depth in range(600, 1_100):
        assert call_summary(f'{{"a": {"[" * depth}{"]" * depth}}}').startswith(("a=[[", '{"a": [['))


AMOUNTS = {
    None: "$?",
    0.0: "$0",
    0.00001: "<$0.0001",
    0.0004: "$0.0004",
    0.0512: "$0.051",
    0.9996: "$1.00",
    1234.5: "$1,234.50",
    -0.02: "-$0.020",
}


def test_amounts() -> None:
    assert {usd: money_text(usd) for usd in AMOUNTS} == AMOUNTS


@given(st.floats(0.0001, 1e6))
def test_a_shown_amount_is_the_amount_within_a_twentieth(usd: float) -> None:
    shown = float(money_text(usd).lstrip("$").replace(",", ""))
    assert abs(shown - usd) <= max(0.00005, 0.05 * usd)


def test_a_share_that_is_there_is_never_nothing() -> None:
    said = {0.0: "0%", 0.0004: "<1%", 0.0099: "<1%", 0.01: "1%", 0.126: "13%", 1.2: "120%"}
    assert {share: percent_text(share) for share in said} == said
