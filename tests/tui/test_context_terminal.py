"""The context panel and a preview in a pseudo-terminal of 80 by 24."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.test_terminal_app import Terminal

F2 = "\x1bOQ"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(5):
        (folder / f"part{number}.txt").write_text(f"line of part {number}\n" * 60)
    terminal = Terminal(folder, tmp_path / "home", "--model", "offline", environment={"TUI_AGENT_OFFLINE_DELAY_S": "0"})
    yield terminal
    terminal.process.close(force=True)


def test_panel_and_preview(terminal: Terminal) -> None:
    terminal.shows("ready")
    terminal.process.send("read part0.txt, part1.txt, part2.txt, part3.txt and part4.txt\r")
    terminal.shows("part4.txt")
    terminal.until(lambda: "ready" in terminal.text and "line of part 4" in terminal.text)
    terminal.process.send(F2)
    terminal.shows("Protected tail")
    assert "line of part 4" not in terminal.text
    terminal.process.send("i\r")
    terminal.shows("as it was")
    terminal.process.send("\x1b")
    terminal.until(lambda: "as it was" not in terminal.text)
    terminal.process.send(F2)
    terminal.until(lambda: "Esc closes" not in terminal.text)
    terminal.process.send("/clear-results\r")
    terminal.shows("Leaves the view: 2")
    terminal.process.send("\r")
    terminal.shows("2 results cleared")
    terminal.process.send("/compact!\r")
    terminal.shows("older turns summarised")
    terminal.process.send("\x04")
    assert terminal.ends() == 0
