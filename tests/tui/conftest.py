import pytest

from tests.settled import share_style_sheets, wait_for_what_is_due
from tui_agent.tui import host
from tui_agent.tui.app import app, leaving

wait_for_what_is_due()
share_style_sheets()


@pytest.fixture(autouse=True)
def _two_presses_in_a_row_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a hint stands until it was looked at, however long a busy machine takes for either."""
    for module, name in ((leaving, "AGAIN_S"), (app, "AGAIN_S"), (host, "HINT_S")):
        monkeypatch.setattr(module, name, 60.0)
