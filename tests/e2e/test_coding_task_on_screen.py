"""The coding task in the full-screen app, in a pseudo-terminal, through each provider's SDK and offline."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.program import WITH_LOCAL
from tests.e2e.test_coding_task import OFFLINE_PROMPT
from tests.servers.coding_task import FIXED_CALC, PROMPT, coding_task_script, make_coding_workspace
from tests.servers.running import in_process
from tests.tui.app.test_terminal_app import Terminal


@pytest.mark.parametrize(
    "provider",
    # The wires of the others are tried without a screen.
    ["offline", "anthropic", *(pytest.param(each, marks=pytest.mark.soak) for each in ("gemini", "ollama"))],
)
def test_the_task_is_done_on_screen(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_coding_workspace(tmp_path / "project")
    with ExitStack() as servers:
        server = None
        if provider != "offline":
            server = servers.enter_context(in_process(provider, tmp_path, coding_task_script()))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, **(server.environment if server else {})}
        model = WITH_LOCAL.get(provider, "offline")
        terminal = Terminal(
            project,
            tmp_path / "home",
            "--model",
            model,
            "--ask",
            "auto",
            "--set",
            "permissions.unasked=known",
            environment=environment,
            rows=40,
            columns=120,
        )
        try:
            terminal.shows("ready")
            terminal.process.send(f"{PROMPT if server else OFFLINE_PROMPT}\r")
            terminal.shows("Allow this?")
            terminal.shows("python test_calc.py")
            # The question says how it is answered once it listens.
            terminal.shows("Esc stops the turn")
            terminal.process.send("1")
            terminal.shows("nothing else was changed" if server else "2 tests passed")
            terminal.until(lambda: "ready" in terminal.text)
            terminal.process.send("\x04")
            assert terminal.ends() == 0
        finally:
            terminal.close()
        assert (project / "calc.py").read_text() == FIXED_CALC
        assert server is None or server.violations == []
