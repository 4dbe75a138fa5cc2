"""The pane stays at the end of the conversation, whatever becomes of its size."""

from pathlib import Path

import pytest

from tests.gallery.conversations import record_entries
from tests.tui.app_of_parts import OFFLINE, project_of_parts, until, workers_finished
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, user_message
from tui_agent.tui.app.app import TuiAgent

ANSWER = "None of those I was shown; the whole list is kept, and I can read on in it."
"""One line of 80 cells, two beside the panel."""


async def test_the_end_is_followed_from_no_width_to_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, parts=1)
    log = "\n\n".join(f"12:00:14 statement {number:>5} written, 14 rows" for number in range(400))
    answer = Message(role="assistant", blocks=(Text(ANSWER),), model="offline:offline")
    entries: list[AnyEntry] = [
        ModelSwitched(model="offline:offline"),
        user_message("Show me the log."),
        Message(role="assistant", blocks=(Text(log),), model="offline:offline"),
        user_message("Which of these are off?"),
        answer,
    ]
    session = await record_entries(arguments.home, arguments.folder, entries, age_s=60)
    app = TuiAgent(arguments._replace(resume=session), OFFLINE)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.conductor.session is not None and bool(app.status.status.model))
        await workers_finished(pilot)
        # The panel takes the place of the conversation on a narrow screen, and stands beside it on a wide one.
        await pilot.press("f2")
        await until(pilot, lambda: app.pane.size.width == 0)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert app.pane.following
        assert "read on in it." in app.pane.render_line(app.pane.size.height - 1).text
