"""The real command is stopped, continued and told to end, from outside and by its own keys, at a shell and without."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.tui.app.test_terminal_app import ROWS, Terminal
from tests.tui.terminal.test_terminal_life import gave_back, settings_of, settings_of_a_new_one

Start = Callable[..., Terminal]
PROMPT = "what now? "
"""Of the shell."""
TAKES_THE_TERMINAL = f"""#!{sys.executable}
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.setpgid(0, 0)
os.tcsetpgrp(0, os.getpid())
os.kill(os.getpid(), signal.SIGKILL)
"""
COMMAND = f"{sys.executable} -P -m tui_agent --model offline"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    folder = tmp_path / "project"
    folder.mkdir()
    started: list[Terminal] = []

    def start(*, in_shell: bool = False) -> Terminal:
        home, environment = tmp_path / "home", {"PS1": PROMPT, "ENV": ""}
        terminal = Terminal(folder, home, "--model", "offline", in_shell=in_shell, environment=environment)
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        terminal.close()


def stopped(terminal: Terminal) -> Callable[[], bool]:
    process = psutil.Process(terminal.process.pid)
    return lambda: bool(process.status() == psutil.STATUS_STOPPED)


def leaves_it_whole(terminal: Terminal) -> bool:
    terminal.process.send("\x03\x03\x03")
    return terminal.ends() == 0 and gave_back(terminal) and settings_of(terminal)[:4] == settings_of_a_new_one()[:4]


def test_stopped_and_continued_from_outside_it_has_the_terminal_as_before(start: Start) -> None:
    terminal = start()
    terminal.shows("ready")
    # Without a shell, it stops for nobody who could not continue it; continued without a stop, nothing changes.
    for _ in range(20):
        os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.process.send("half a thought\x1a goes on")
    terminal.shows("no shell to go back to")
    terminal.shows("half a thought goes on")
    os.kill(terminal.process.pid, signal.SIGSTOP)
    terminal.until(stopped(terminal))
    terminal.process.send(" meanwhile")
    terminal.screen.reset()
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.shows("goes on meanwhile")
    terminal.shows("auto")
    assert leaves_it_whole(terminal)


@pytest.mark.parametrize("command", [COMMAND, f"sh -c '{COMMAND}; echo left'"])
def test_ctrl_z_leads_to_the_shell_and_fg_comes_back_in_another_size(start: Start, command: str) -> None:
    """Also where the shell waits for another program that has started this one, as `make run` does."""
    terminal = start(in_shell=True)
    terminal.shows(PROMPT.strip())
    terminal.process.send(f"{command}\r")
    terminal.shows("ready")
    terminal.process.send("half a thought")
    terminal.shows("half a thought")
    terminal.process.send("\x1a")
    terminal.until(lambda: terminal.raw.decode(errors="replace").endswith(PROMPT))
    assert gave_back(terminal)
    terminal.screen.reset()
    terminal.screen.resize(ROWS - 4, 60)
    terminal.process.setwinsize(ROWS - 4, 60)
    terminal.process.send("fg\r")
    terminal.until(lambda: "ready" in terminal.screen.display[-1])
    terminal.shows("╭" + "─" * 58 + "╮")
    terminal.process.send(" goes on")
    terminal.shows("half a thought goes on")
    terminal.process.send("\x1bOP")
    terminal.shows("Esc closes")
    terminal.process.send("\x1a")
    terminal.until(lambda: terminal.raw.decode(errors="replace").endswith(PROMPT))
    terminal.screen.reset()
    terminal.process.send("fg\r")
    terminal.shows("Esc closes")
    # What stands below a dialog comes back with it.
    terminal.until(lambda: "ready" in terminal.screen.display[-1])


def test_a_shell_that_was_killed_does_not_keep_the_terminal(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(TAKES_THE_TERMINAL)
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    terminal = start(in_shell=True)
    terminal.shows(PROMPT.strip())
    terminal.process.send(f"{COMMAND}\r")
    terminal.shows("ready")
    terminal.process.send("half a thought\x07")
    terminal.shows("The draft stays as it was")
    terminal.process.send(" goes on")
    terminal.shows("half a thought goes on")


@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGINT],
        [signal.SIGTERM, signal.SIGHUP, signal.SIGINT],
        [signal.SIGTSTP, signal.SIGCONT, signal.SIGTERM],
        [signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT],
        [signal.SIGPIPE, *[signal.SIGWINCH] * 20, signal.SIGCONT, signal.SIGHUP, signal.SIGHUP],
    ],
    ids=lambda numbers: "-".join(dict.fromkeys(number.name.removeprefix("SIG").lower() for number in numbers)),
)
def test_signals_in_one_burst_end_it_in_order(start: Start, tmp_path: Path, numbers: list[signal.Signals]) -> None:
    terminal = start()
    terminal.shows("ready")
    terminal.process.send("not sent yet")
    terminal.shows("not sent yet")
    for number in numbers:
        os.kill(terminal.process.pid, number)
    assert terminal.ends() == 130
    assert gave_back(terminal)
    assert settings_of(terminal)[:4] == settings_of_a_new_one()[:4]
    assert b"Traceback" not in terminal.raw
    assert "not sent yet" in (tmp_path / "home" / "history.jsonl").read_text()


def test_what_was_not_sent_is_an_up_away_even_after_it_was_killed(start: Start, tmp_path: Path) -> None:
    drafts = tmp_path / "home" / "drafts"

    def on_disk() -> str:
        return "".join(path.read_text() for path in drafts.glob("*/draft.json"))

    terminal = start()
    terminal.shows("ready")
    terminal.process.send("half a thought")
    terminal.until(lambda: "half a thought" in on_disk())
    os.kill(terminal.process.pid, signal.SIGKILL)
    terminal.process.wait()
    terminal = start()
    # Another session: it is offered, and what is typed does not join it.
    terminal.shows('You left unsent: "half a thought"')
    terminal.process.send("\x1b[A")
    terminal.shows("│ half a thought")
    terminal.process.send(" more\r")
    terminal.until(lambda: not on_disk())
    terminal.process.send("/key sk-secret")
    terminal.shows("│ /key sk-")
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.ends() == 130
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file() and b"sk-secret" in path.read_bytes()]
    terminal = start()
    terminal.process.send("one more\x04")
    terminal.shows("│ one more")
    assert "half a thought" not in terminal.text.rpartition("╭")[2]
