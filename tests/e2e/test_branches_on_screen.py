"""Taking a message back, saying it differently, and going back to what was: the real command in a pseudo-terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.app.test_terminal_app import Terminal

ENTER, DOWN, BACKSPACE, LEAVE = "\r", "\x1b[B", "\x7f", "\x04"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("first", "second", "third"):
        (project / f"{name}.txt").write_text(f"the {name} file says so\n")
    return project


@pytest.fixture
def terminal(project: Path, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(project, tmp_path / "home", "--model", "offline")
    yield terminal
    terminal.close()


def ask(terminal: Terminal, order: str, answer: str) -> None:
    terminal.process.send(f"{order}{ENTER}")
    terminal.shows(answer)
    terminal.shows("ready")


def prompt(terminal: Terminal) -> str:
    """What stands in the prompt: the line in the frame above the status bar."""
    return terminal.text.splitlines()[-3].strip("│ ")


def test_a_message_is_taken_back_and_said_anew_and_the_tree_leads_back(terminal: Terminal) -> None:
    terminal.shows("ready")
    ask(terminal, "read first.txt", "the first file says so")
    ask(terminal, "read second.txt", "the second file says so")
    terminal.process.send(f"/rewind{ENTER}")
    terminal.shows("Rewind to before")
    terminal.shows("Enter rewinds")
    terminal.process.send(ENTER)
    terminal.shows("Rewound to before “read second.txt”")
    terminal.until(lambda: "the second file" not in terminal.text)
    terminal.until(lambda: prompt(terminal) == "read second.txt")
    terminal.process.send(BACKSPACE * len("second.txt"))
    terminal.until(lambda: prompt(terminal) == "read")
    terminal.process.send("third.txt")
    terminal.until(lambda: prompt(terminal) == "read third.txt")
    terminal.process.send(ENTER)
    terminal.shows("the third file says so")
    terminal.shows("ready")
    terminal.process.send(f"/tree{ENTER}")
    terminal.shows("Go on with a branch")
    terminal.shows("└ read second.txt")
    terminal.process.send(DOWN)
    terminal.process.send(ENTER)
    terminal.shows("Back on the branch with “read second.txt”")
    terminal.shows("the second file says so")
    terminal.until(lambda: "third" not in terminal.text)
    terminal.process.send(LEAVE)
    assert terminal.ends() == 0


def test_the_branch_is_gone_on_with_after_a_restart(project: Path, terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("ready")
    ask(terminal, "read first.txt", "the first file says so")
    ask(terminal, "read second.txt", "the second file says so")
    terminal.process.send(f"/rewind{ENTER}")
    terminal.shows("Enter rewinds")
    terminal.process.send(ENTER)
    terminal.shows("Rewound to before")
    terminal.process.send("\x03")
    terminal.until(lambda: prompt(terminal) == "Ask, or / for commands")
    terminal.process.send(LEAVE)
    assert terminal.ends() == 0
    again = Terminal(project, tmp_path / "home", "--model", "offline", "-c")
    try:
        again.shows("the first file says so")
        again.shows("ready")
        assert "second" not in again.text
        again.process.send(f"/tree{ENTER}")
        again.shows("└ read second.txt")
    finally:
        again.close()
