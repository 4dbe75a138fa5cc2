"""The visible form of texts: nothing is lost, nothing acts on a terminal."""

import random
import unicodedata
from collections.abc import Iterator

import pytest

from tests.examples import examples
from tui_agent.visible import CONTINUED, original, visible, visible_line

SPECIAL = (
    "\t\t\n\n  \x00\x07\x1b\r\x7f\x85\x9b\xa0\xad\u034f\u061c\u115f\u1160\u200b\u200d\u202e\u2028\u2066\u2800"
    "\u3164\ufe0f\ufeff"
)
SHOWN = "abc$;|&'\"-/ 日本한👩é␛␉␠␊⟦⟧↪U+0041"
MARKS = "\u0301\u0302\u0304\u0610\u0e31\u11a8\U0001f3fb\U000e0041"


def hostile_texts(chance: random.Random, count: int) -> Iterator[str]:
    """Random texts of controls, tabs, wide and combining characters, and anything else."""
    pool = [*SPECIAL, *SHOWN, *MARKS, *("\ud800\udfff")]
    for _ in range(count):
        anything = [chr(chance.randrange(0x110000)) for _ in range(4)]
        yield "".join(chance.choices(pool + anything, k=chance.randrange(200)))


def check(text: str) -> None:
    shown = visible(text)
    assert original(shown) == text
    assert original(visible_line(text)) == text
    assert original(visible(text, tabs=False)) == text
    assert shown.count("\n") == text.count("\n")
    assert "\n" not in visible_line(text)
    assert CONTINUED[0] not in shown
    for line in shown.split("\n"):
        assert not line.endswith(" ") or line.endswith("␉   ")
        for character in line:
            assert character.isprintable() or unicodedata.category(character).startswith("M")


def test_thousands_of_hostile_texts_come_back_exactly() -> None:
    for text in hostile_texts(random.Random(23), examples(2_500)):
        check(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("echo hi; \x1b]0; touch PWNED; \x07 true", "echo hi; ␛]0; touch PWNED; ␇ true"),
        ("a\tb", "a␉   b"),
        ("rm -rf /tmp/a\u202e", "rm -rf /tmp/a⟦U+202E⟧"),
        ("a\\ \nb", "a\\␠\nb"),
        ("rm\xa0-rf", "rm⟦U+00A0⟧-rf"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "⟦U+0301⟧"),
        ("e" + "\u0301" * 5, "e" + "\u0301" * 3 + "⟦U+0301⟧" * 2),
        ("␛⟦U+001B⟧", "⟦U+241B⟧⟦U+27E6⟧U+001B⟧"),
        ("日本 = é", "日本 = é"),
    ],
)
def test_how_it_looks(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_text_comes_back_exactly() -> None:
    for piece in ("x", "\x1b", "\t", " ", "\n", "日", "\u0301", " \n"):
        text = piece * (100_000 // len(piece))
        assert original(visible(text)) == text
