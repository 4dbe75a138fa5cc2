"""Large pastes as chips."""

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tui.prompt.pastes import MAX_CHARACTERS, Pastes


def test_a_short_paste_is_inserted_as_it_is() -> None:
    assert Pastes().fold("two\r\nlines") == "two\nlines"


def test_a_long_paste_becomes_a_chip_that_names_its_size() -> None:
    pastes = Pastes()
    text = "x\n" * 3_411 + "x"
    assert pastes.fold(text) == "[pasted 3,412 lines]"
    assert pastes.unfold("see [pasted 3,412 lines] and tell") == f"see {text} and tell"


def test_one_long_line_is_counted_in_characters() -> None:
    assert Pastes().fold("x" * 2_000) == "[pasted 2,000 characters]"


def test_two_pastes_of_one_size_are_told_apart() -> None:
    pastes = Pastes()
    first, second = pastes.fold("a" * 2_000), pastes.fold("b" * 2_000)
    assert first != second
    assert pastes.fold("a" * 2_000) == first
    assert pastes.unfold(first + second) == "a" * 2_000 + "b" * 2_000


def test_a_text_that_comes_back_is_folded_as_it_was() -> None:
    pastes = Pastes()
    chip = pastes.fold("line\n" * 300)
    assert chip == "[pasted 300 lines]"
    assert pastes.fold_again("look:\n" + "line\n" * 300 + "why?") == f"look:\n{chip}why?"


def test_what_a_terminal_should_not_show_is_folded_however_short() -> None:
    pastes = Pastes()
    chip = pastes.fold("\x1b]0;title\x07")
    assert chip.startswith("[pasted")
    assert pastes.unfold(chip) == "\x1b]0;title\x07"


def test_a_chip_inside_a_pasted_text_stays_text() -> None:
    pastes = Pastes()
    chip = pastes.fold("y" * 2_000)
    outer = pastes.fold(f"{chip}\n" * 20)
    assert pastes.unfold(outer) == f"{chip}\n" * 20


@given(st.lists(st.text(max_size=30) | st.text(min_size=1).map(lambda text: text * (MAX_CHARACTERS + 1)), max_size=5))
def test_whatever_is_pasted_is_sent(texts: list[str]) -> None:
    pastes = Pastes()
    folded = [pastes.fold(text) for text in texts]
    assert pastes.unfold("|".join(folded)) == "|".join(text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)


def test_where_chips_stand() -> None:
    pastes = Pastes()
    chip = pastes.fold("line\n" * 20)
    line = f"see {chip} and [picture 1: a.png, 2.0 KB] and [pasted 3 lines]"
    assert [line[start:end] for start, end in pastes.chips_in(line)] == ["[picture 1: a.png, 2.0 KB]", chip]
