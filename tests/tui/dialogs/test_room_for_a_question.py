"""A question on a small screen: the answers can be read, and the prompt and the status bar stay.

`questions.txt` has what stands at each height where that changes. After a change that is meant:
``.venv/bin/python -m tests.tui.dialogs.test_room_for_a_question`` writes it anew; look at what changed.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from textual.widgets import Static

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
    "alone": (COMMAND, False, (60, *range(40, 3, -1))),
    "with a long draft": (COMMAND, True, SMALL),
    "of the model, with a long draft": (ASKED, True, SMALL),
    "a plan": (PLANNED, False, (40, *range(20, 3, -1))),
    "a rule": (RULE, False, (24, 16, 6)),
}


async def _shown(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the panel shows at each height, and at some widths, where it differs from the one before."""
    question, crowded, heights = CASES[case]
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, 1), OFFLINE)
    told, before = [f"=== {case}"], [""]
    async with app.run_test(size=(60, 40)) as pilot:
        await until(pilot, lambda: app.conductor.session)
        asking = asyncio.create_task(app.permission.ask(question))
        await until(pilot, lambda: app.permission.has_focus)
        if crowded:
            app.entry.prompt.type("a draft\n" * 20)
            app.entry.todo.show("1/2", "writes tests")
            app.entry.waiting.show(("one", "two", "three"))
        for width, height in (*((60, height) for height in heights), (120, 30), (40, 30), (24, 16), (16, 12)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            panel, choices = app.permission.region, app.permission.query_one("#permission-choices").region
            lines = app.permission.query_one("#permission-preview").size.height
            assert app.permission.hidden or question is not COMMAND, height  # its end was never in view
            if width == 60 and height > 13:
                assert app.status.region.bottom == height
                assert app.entry.prompt.region.bottom == height - 1, height
                assert app.pane.region.height >= 1, height
                assert choices.height >= 1
                assert panel.contains_region(choices), (height, panel, choices)
                assert lines >= 1, height
            parts = [app.permission.query_one(f"#permission-{part}", Static) for part in PARTS]
            texts = [f"{part.id}: {line}" for part in parts if part.display for line in str(part.render()).split("\n")]
            if texts != before:
                told += [f"--- {width}x{height}: {panel.height} lines, {lines} of the call", *texts]
            before = texts
        asking.cancel()
    return [line.rstrip() for line in told]


@pytest.mark.parametrize("case", CASES)
async def test_everything_has_its_place_at_every_height(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    kept = KEPT.read_text("utf-8").split("=== ")
    expected = next(each for each in kept if each.startswith(f"{case}\n")).splitlines()
    assert await _shown(case, monkeypatch, tmp_path) == [f"=== {case}", *expected[1:]]


async def _written() -> str:
    told = []
    for case in CASES:
        with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
            told += await _shown(case, monkeypatch, Path(folder))
    return "".join(f"{line}\n" for line in told)


if __name__ == "__main__":
    KEPT.write_text(asyncio.run(_written()), "utf-8")
