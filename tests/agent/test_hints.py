"""What to do after an error, with and without a screen."""

import pytest

from tui_agent.agent.turn.hints import HINTS, IN_TEXT


@pytest.mark.parametrize("kind", sorted({*HINTS, *IN_TEXT}))
def test_without_a_screen_nothing_is_said_of_one(kind: str) -> None:
    said = IN_TEXT.get(kind, HINTS.get(kind, ""))
    assert "/model" not in said
    assert "/key" not in said
    assert "the message again" not in said
