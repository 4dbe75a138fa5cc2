"""A question on a small screen: the answers can be read, and the prompt and the status bar stay.

`questions.txt` has what stands at each height where that changes. After a change that is meant:
``.venv/bin/python -m tests.tui.dialogs.test_room_for_a_question`` writes it anew; look at what changed.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from textual.widgets import Static

from tests.settled import wait_for_what_is_due
from tests.tui.app_of_parts import OFFLINE, project_of_parts, until
from tui_agent.tools.base import PermissionQuestion, Preview
from tui_agent.tui.app.app import TuiAgent

LINES = "\n".join(f"echo line {number} of a long command" for number in range(60))
COMMAND = PermissionQuestion(
    "1", "run_command", "{}", (), Preview("Run a command", command=LINES), "It writes outside.", ("echo *", "ls *")
)
ASKED = PermissionQuestion(
    "2", "ask_user", "{}", (), Preview("Asks you", text=LINES), "", kind="question", choices=("a", "b", "c")
)


PLANNED = PermissionQuestion(
    "3",
    "submit_plan",
    "{}",
    (),
    Preview("The plan", text="# Why\n\nBecause."),
    "",
    kind="plan",
    choices=("ask", "auto"),
)
RULE = PermissionQuestion("4", "run_command", "{}", (), Preview("Run a command", command="ls"), "Why.", ("ls " * 14,))

KEPT = Path(__file__).with_name("questions.txt")
PARTS = ("title", "more", "choices", "keys")
SMALL = (30, *range(24, 13, -1))
CASES = {
    "alone": (COMMAND, False, (60, 40, 35, 31, *range(28, 3, -1))),
    "with a long draft": (COMMAND, True, SMALL),
    "of the model, with a long draft": (ASKED, True, SMALL),
    "a plan": (PLANNED, False, (40, 20, *range(15, 3, -1))),
    "a rule": (RULE, False, (24, 16, 6)),
}


async def _shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the panel shows at each height, and at some widths, where it differs from the one before."""
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, 1), OFFLINE)
    told: list[str] = []
    async with app.run_test(size=(60, 40)) as pilot:
        await until(pilot, lambda: app.conductor.session)
        for case, (question, crowded, heights) in CASES.items():
            told.append(f"=== {case}")
            await pilot.resize_terminal(60, 40)
            app.entry.prompt.clear_draft()
            app.entry.prompt.type("a draft\n" * 20 * crowded)
            app.entry.todo.show("1/2", "writes tests" if crowded else "")
            app.entry.todo.goes_on(goes_on=crowded)
            asking = asyncio.create_task(app.permission.ask(question))
            await until(pilot, lambda: app.permission.has_focus)
            before = [""]
            others = ((120, 30), (40, 30), (24, 16), (16, 12) if crowded else (20, 5))
            for size in (*((60, height) for height in heights), *others):
                app.entry.waiting.show(("one", "two", "three") if crowded else ())
                await pilot.resize_terminal(*size)
                await pilot.pause()
                assert app.permission.hidden or question is not COMMAND, size  # its end was never in view
                texts = _parts(app, *size)
                if texts[1:] != before:
                    told += texts
                before = texts[1:]
            asking.cancel()
            await asyncio.wait({asking})
    return [line.rstrip() for line in told]


def _parts(app: TuiAgent, width: int, height: int) -> list[str]:
    """The size of the panel, and each line of its parts."""
    panel, choices = app.permission.region, app.permission.query_one("#permission-choices").region
    lines = app.permission.query_one("#permission-preview").size.height
    if width == 60 and height > 13:
        assert app.status.region.bottom == height
        assert app.entry.prompt.region.bottom == height - 1, height
        assert app.pane.region.height >= 1, height
        assert choices.height >= 1
        assert panel.contains_region(choices), (height, panel, choices)
        assert lines >= 1, height
        assert app.entry.waiting.region.height == (height >= 20 and app.entry.waiting.texts != ()), height
    parts = [app.permission.query_one(f"#permission-{part}", Static) for part in PARTS]
    texts = [f"{part.id}: {line}" for part in parts if part.display for line in str(part.render()).split("\n")]
    return [f"--- {width}x{height}: {panel.height} lines, {lines} of the call", *texts]


async def test_everything_has_its_place_at_every_height(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert await _shown(monkeypatch, tmp_path) == KEPT.read_text("utf-8").splitlines()


async def _written() -> str:
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
        return "".join(f"{line}\n" for line in await _shown(monkeypatch, Path(folder)))


if __name__ == "__main__":
    wait_for_what_is_due()
    KEPT.write_text(asyncio.run(_written()), "utf-8")
