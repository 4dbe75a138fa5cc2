import pytest

from tests.settled import wait_for_what_is_due
from tui_agent.tui.app import leaving

wait_for_what_is_due()


@pytest.fixture(autouse=True)
def _two_presses_in_a_row_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes between them."""
    monkeypatch.setattr(leaving, "AGAIN_S", 60.0)
