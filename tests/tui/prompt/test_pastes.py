"""Large pastes as chips."""

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tui.prompt.pastes import MAX_CHARACTERS, Pastes


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
