"""How well a part of a name fits a name."""

import pytest

from tui_agent.tui.fuzzy import best, holds, score


@pytest.mark.parametrize(
    ("typed", "better", "worse"),
    [
        ("undo", "undo", "undo-edits"),
        ("undo", "undo-edits", "to-undo"),
        ("tests", "tests/", "contests/"),
        ("read", "reader", "a longer name of a reader"),
        ("ud", "undo", "u-n-d-o"),
        ("ml", "model", "a model"),
        ("abc", "a-bcx", "a-b-c"),
    ],
)
def test_what_fits_better_comes_first(typed: str, better: str, worse: str) -> None:
    assert best((worse, better), typed, lambda name: (name,))[0] == better
    fits = score(better, typed), score(worse, typed)
    assert fits[0] is not None
    assert fits[1] is not None
    assert fits[0] > fits[1]


def test_the_name_counts_for_more_than_what_stands_before_it() -> None:
    named, above = "src/parser.py", "parser/log.py"
    assert (score(named, "parser", 4) or 0) > (score(above, "parser", 7) or 0) > 0
    assert (score("src/parser/log.py", "parser", 11) or 0) > (score("myparser/log.py", "parser", 9) or 0) > 0


def test_scattered_letters_count_only_where_nothing_else_fits() -> None:
    names = ("compact", "clear", "cap")
    assert best(names, "cp", lambda name: (name,)) == ("cap", "compact")
    assert best(names, "comp", lambda name: (name,)) == ("compact",)
    assert best(names, "CA", lambda name: (name,)) == ("cap",)
    assert best(("undo-edits", "back"), "undo", lambda name: ("undo", "my-undo") if name == "back" else (name,)) == (
        "back",
        "undo-edits",
    )


def test_all_stand_as_they_are_where_nothing_is_typed() -> None:
    assert best(("b", "a"), "", lambda name: (name,)) == ("b", "a")


def test_letters_in_another_order_do_not_fit() -> None:
    assert score("model", "lm") is None
    assert best(("model",), "lm", lambda name: (name,)) == ()


def test_every_word_has_to_stand_in_a_text() -> None:
    assert holds("rename the parser", ("parser", "rename"))
    assert not holds("rename the parser", ("parser", "tests"))
