"""The coding task in the full-screen app, in a pseudo-terminal: the wires of providers are tried without a screen."""

import os
import sys
from pathlib import Path

from tests.servers.coding_task import FIXED_CALC, make_coding_workspace
from tests.tui.app.test_terminal_app import Terminal

PROMPT = (
    "read calc.py, find 'return a' in ., replace 'return a - b' with 'return a + b' in calc.py, run python test_calc.py"
)
SETTINGS = ("--model", "offline", "--ask", "auto", "--set", "permissions.unasked=known")


def test_the_task_is_done_on_screen(tmp_path: Path) -> None:
    project = make_coding_workspace(tmp_path / "project")
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    terminal = Terminal(project, tmp_path / "home", *SETTINGS, environment=environment, rows=40, columns=120)
    try:
        terminal.shows("ready")
        terminal.process.send(f"{PROMPT}\r")
        terminal.shows("Allow this?")
        terminal.shows("python test_calc.py")
        # The question says how it is answered once it listens.
        terminal.shows("Esc stops the turn")
        terminal.process.send("1")
        terminal.shows("2 tests passed")
        terminal.until(lambda: "ready" in terminal.text)
        terminal.process.send("\x04")
        assert terminal.ends() == 0
    finally:
        terminal.close()
    assert (project / "calc.py").read_text() == FIXED_CALC
