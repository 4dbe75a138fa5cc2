"""The context panel, a preview and a draft in a pseudo-terminal of 80 by 24."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.tui.app.test_terminal_app import Terminal

F2 = "\x1bOQ"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(5):
        (folder / f"part{number}.txt").write_text(f"line of part {number}\n" * 60)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "1i Written in the editor." "$1"\n')
    editor.chmod(0o700)
    environment = {"TUI_AGENT_OFFLINE_DELAY_S": "0", "EDITOR": str(editor)}
    terminal = Terminal(folder, tmp_path / "home", "--model", "offline", environment=environment)
    yield terminal
    terminal.close()


def test_a_summary_is_edited_in_both_ways_and_used(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("ready")
    terminal.process.send("read part0.txt, part1.txt, part2.txt, part3.txt and part4.txt\r")
    terminal.until(lambda: "ready" in terminal.text and "line of part 4" in terminal.text)
    terminal.process.send("/compact\r")
    terminal.shows("Summarise the older turns?")
    terminal.process.send("\r")
    terminal.shows("Use this summary?")
    terminal.process.send("\x07")
    terminal.shows("Written in the editor.")
    terminal.process.send("e")
    terminal.shows("Esc stops editing")
    terminal.process.send("Typed here. \x13")
    terminal.shows("older turns summarised")
    terminal.process.send("\x04")
    assert terminal.ends() == 0
    (log,) = (tmp_path / "home" / "sessions").glob("*/checkpoints.sqlite")
    assert b"Typed here. Written in the editor." in log.read_bytes()


def test_a_panel_that_opened_by_itself_does_not_cover_the_conversation(tmp_path: Path) -> None:
    with closing(Terminal(tmp_path, tmp_path / "home", "--model", "offline", rows=40, columns=200)) as terminal:
        terminal.shows("Tab goes to these rows")
        terminal.screen.resize(24, 80)
        terminal.process.setwinsize(24, 80)
        terminal.until(lambda: f"╭{'─' * 78}╮" in terminal.text)
        terminal.until(lambda: "Tab goes to these rows" not in terminal.text and "For example" in terminal.text)
        terminal.process.send(F2)
        terminal.shows("Tab goes to these rows, F2 closes")
        terminal.screen.resize(23, 79)
        terminal.process.setwinsize(23, 79)
        terminal.process.send("still there")
        terminal.until(lambda: "still there" in terminal.text and "Tab goes to these rows" in terminal.text)
