"""Money in words: short, and never so short that it says nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.money import money_text


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "$?"),
        (0.0, "$0"),
        (0.00001, "<$0.0001"),
        (0.0004, "$0.0004"),
        (0.0061, "$0.0061"),
        (0.0512, "$0.051"),
        (0.9996, "$1.00"),
        (3.456, "$3.46"),
        (1234.5, "$1,234.50"),
        (-0.02, "-$0.020"),
    ],
)
def test_amounts(usd: float | None, shown: str) -> None:
    assert money_text(usd) == shown


@given(st.floats(0.0001, 1e6))
def test_a_shown_amount_is_the_amount_within_a_twentieth(usd: float) -> None:
    shown = float(money_text(usd).lstrip("$").replace(",", ""))
    assert abs(shown - usd) <= max(0.00005, 0.05 * usd)
