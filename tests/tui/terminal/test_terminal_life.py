"""The real command in a pseudo-terminal: title, notifications, colours, symbols, and every way it ends."""

import os
import re
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.starter import open_terminal
from tests.e2e.test_hangup import sleepers
from tests.tui.app.test_terminal_app import COLUMNS, ROWS, Terminal

Start = Callable[..., Terminal]

LEFT = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1004l", b"\x1b[?2004l", b"\x1b[23;2t", b"\x1b[<u")
"""What gives the terminal back: main screen, cursor, no focus events, no bracketed paste, its own title and keys."""

ALWAYS_ON = {b"7", b"25"}
"""Modes a terminal has from the start: wrapping, and a cursor."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello from the file\n")
    started: list[Terminal] = []

    def start(*arguments: str, imports: bool = False, **environ: str) -> Terminal:
        arguments = ("--model", "offline", *arguments)
        terminal = Terminal(folder, tmp_path / "home", *arguments, environment=environ, imports=imports)
        started.append(terminal)
        return terminal

    yield start
    for terminal in started:
        if psutil.pid_exists(terminal.process.pid):
            terminal.close()


def gave_back(terminal: Terminal) -> bool:
    modes = {
        mode: state
        for found in re.finditer(rb"\x1b\[\?([0-9;]+)([hl])", terminal.raw)
        for mode, state in ((mode, found[2]) for mode in found[1].split(b";"))
    }
    left_on = {mode for mode, state in modes.items() if state == b"h"}
    began = terminal.raw.rfind(b"\x1b[?1049h")
    return left_on == ALWAYS_ON and all(terminal.raw.rfind(mode) > began for mode in LEFT)


def settings_of(terminal: Terminal) -> list[object]:
    return list(termios.tcgetattr(terminal.process.child_fd))


def settings_of_a_new_one() -> list[object]:
    """Those of a terminal in which nothing was started: the program may be faster than who looks at its own."""
    ends = open_terminal()
    try:
        return list(termios.tcgetattr(ends[1]))
    finally:
        for end in ends:
            os.close(end)


def test_the_title_tells_what_it_works_on_and_a_question_notifies_while_nobody_looks(start: Start) -> None:
    terminal = start("--ask", "ask", COLUMNS="40", LINES="12")
    terminal.until(lambda: b"\x1b]2;project - tui-agent\x07" in terminal.raw)
    assert terminal.raw.index(b"\x1b[22;2t") < terminal.raw.index(b"\x1b]2;")
    terminal.shows("ready")
    terminal.until(lambda: len(terminal.screen.display[-1].rstrip()) > 60)
    terminal.screen.resize(ROWS, COLUMNS - 10)
    terminal.process.setwinsize(ROWS, COLUMNS - 10)
    terminal.shows("╭" + "─" * (COLUMNS - 12) + "╮")
    terminal.process.send("run touch made\r")
    terminal.until(lambda: b"\x1b]2;* run touch made - tui-agent\x07" in terminal.raw)
    terminal.shows("Enter or a number answers")
    assert b"\x1b]9;" not in terminal.raw, "it is seen"
    terminal.process.send("4")
    terminal.until(lambda: b"\x1b]2;run touch made - tui-agent\x07" in terminal.raw)
    # In one piece: a key after the focus went would bring it back, and the question comes soon.
    terminal.process.send("run touch made\r\x1b[O")
    terminal.until(lambda: b"\x1b]9;tui-agent: Run needs your answer (run touch made)\x07" in terminal.raw)
    assert b"\x1b]2;? run touch made - tui-agent\x07" in terminal.raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    terminal = start("--ask", "allow")
    before = settings_of_a_new_one()
    terminal.shows("ready")
    terminal.process.send("run sleep 300 & sleep 300\r")
    terminal.until(lambda: len(sleepers(terminal.process.pid)) >= 2)
    running = sleepers(terminal.process.pid)
    assert settings_of(terminal) != before
    terminal.process.send("not sent yet")
    terminal.shows("not sent yet")
    os.kill(terminal.process.pid, number)
    assert terminal.ends() == 130
    assert gave_back(terminal)
    assert settings_of(terminal) == before
    _, alive = psutil.wait_procs(running, timeout=60)
    assert not alive
    assert b"Traceback" not in terminal.raw
    assert "not sent yet" in (tmp_path / "home" / "history.jsonl").read_text()


def test_a_signal_at_the_start_leaves_the_terminal_whole(start: Start) -> None:
    new = settings_of_a_new_one()

    def ended_once(true: Callable[[Terminal], bool]) -> Terminal:
        terminal = start(imports=True)
        terminal.until(lambda: true(terminal))
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.ends() == 130
        assert settings_of(terminal) == new
        return terminal

    ended_once(lambda terminal: settings_of(terminal) != new)
    assert gave_back(ended_once(lambda terminal: b"\x1b[?1049h" in terminal.raw))


def test_an_editor_that_stays_keeps_nobody_in_the_program(start: Start, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\ntrap '' TERM HUP\nprintf ' and on' >> \"$1\"\necho IT IS OPEN\nread line\n")
    editor.chmod(0o755)
    terminal = start(EDITOR=str(editor))
    terminal.shows("ready")
    terminal.process.send("begun\x07")
    terminal.until(lambda: b"IT IS OPEN" in terminal.raw)
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.ends() == 130
    assert gave_back(terminal)
    assert "begun and on" in (tmp_path / "home" / "history.jsonl").read_text()


def test_ctrl_c_held_down_leaves_the_terminal_whole(start: Start) -> None:
    """From where the terminal is given back each is a signal."""
    terminal = start()
    terminal.shows("ready")
    terminal.process.send("\x03")
    while terminal.read():
        terminal.process.send("\x03")
    assert terminal.ends() == 0
    assert gave_back(terminal)
    assert settings_of(terminal)[:4] == settings_of_a_new_one()[:4]


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_ends_where_nobody_reads_the_terminal(start: Start, number: signal.Signals) -> None:
    """Ctrl+C held down is a signal from where the settings of the terminal are restored."""
    terminal = start()
    fill_up(terminal)
    if number is not signal.SIGINT:
        os.kill(terminal.process.pid, number)
        assert terminal.process.wait(60) == 130
        return
    terminal.process.send("\x03\x03")
    for _ in range(600):
        with suppress(subprocess.TimeoutExpired):
            assert terminal.process.wait(0.1) == 0
            break
        terminal.process.send("\x03")
    assert settings_of(terminal)[:4] == settings_of_a_new_one()[:4]


def fill_up(terminal: Terminal) -> None:
    """Have it print until it stands still, as it waits for somebody to read."""
    terminal.shows("ready")
    terminal.process.send("x\x7f" * 4000)
    app, spent = psutil.Process(terminal.process.pid), -1.0
    while spent != (spent := sum(app.cpu_times()[:2])):
        time.sleep(1)


def test_a_terminal_that_is_gone_ends_it(start: Start) -> None:
    terminal = start("--ask", "allow")
    terminal.shows("ready")
    process = psutil.Process(terminal.process.pid)
    terminal.process.send("run sleep 300\r")
    terminal.until(lambda: bool(sleepers(process.pid)))
    running = process.children(recursive=True)
    terminal.process.close()
    _, alive = psutil.wait_procs([process, *running], timeout=60)
    assert [left for left in alive if left.status() != psutil.STATUS_ZOMBIE] == []


def test_no_color_means_none(start: Start) -> None:
    terminal = start(NO_COLOR="1")
    terminal.shows("ready")
    terminal.process.send("/theme\r")
    terminal.shows("contrast")
    styles = {part for found in re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw) for part in found.split(b";")}
    assert styles <= {b"", b"0", b"1", b"2", b"3", b"4", b"7", b"9", b"39", b"49"}
    terminal.until(lambda: any(cell.reverse for row in terminal.screen.buffer.values() for cell in row.values()))


@pytest.mark.parametrize(
    "environ", [{"TUI_AGENT__UI__GLYPHS": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_plain_symbols_everywhere(start: Start, environ: dict[str, str]) -> None:
    terminal = start(imports="LC_ALL" in environ, **environ)  # what is read when an interpreter starts
    terminal.shows("ready")
    terminal.process.send("read hello.txt\r")
    terminal.shows("hello from the file")
    terminal.process.send("\x1bOP")
    terminal.shows("Esc closes")
    assert terminal.text.isascii(), [sign for sign in terminal.text if not sign.isascii()]
    terminal.process.send("\x1b")
    terminal.until(lambda: "Esc closes" not in terminal.text)
    terminal.process.send("/theme\r")
    terminal.shows("contrast")
    assert terminal.text.isascii(), [sign for sign in terminal.text if not sign.isascii()]


def test_a_theme_of_the_users_own_and_no_mouse(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.json").write_text('{"primary": "#112233", "background": "#010203", "foreground": "#fefdfc"}')
    (folder / "broken.json").write_text('{"primary": "no colour at all", "background": "#000", "foreground": "#fff"}')
    terminal = start(TUI_AGENT__UI__THEME="mine", COLORTERM="truecolor", TUI_AGENT__UI__MOUSE="false")
    terminal.shows("A theme cannot be used")
    terminal.shows("broken.json: primary: 'no colour at all' is no colour")
    assert b"48;2;1;2;3" in terminal.raw
    assert b"\x1b[?1000h" not in terminal.raw
