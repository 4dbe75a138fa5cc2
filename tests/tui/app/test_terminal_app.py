"""The real command in a pseudo-terminal of 80 by 24."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pexpect
import pyte
import pytest

from tests.e2e.starter import STARTER, OnTerminal

ROWS, COLUMNS = 24, 80
BEGUN: Final = re.compile(rb"\x1b(\[[<>=?]?[0-9;]*\$?)?\Z")
"""A control sequence that is not over."""


class Terminal:
    """The command, and what its screen looks like."""

    def __init__(
        self,
        folder: Path,
        home: Path,
        *arguments: str,
        rows: int = ROWS,
        columns: int = COLUMNS,
        environment: Mapping[str, str] | None = None,
        imports: bool = False,
        in_shell: bool = False,
    ) -> None:
        """imports: it is started as a user starts it; else in a process forked from one in which all is imported.
        in_shell: the user has a shell instead, to start it in.
        """
        keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST")
        environ = {name: value for name, value in os.environ.items() if name not in keys}
        environ |= {"TUI_AGENT_HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        environ["PYTHONPATH"] = str(Path(__file__).parents[3])
        environ |= environment or {}
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = self._begun = b""
        size = (rows, columns)
        if in_shell:
            self.process = pexpect.spawn("/bin/sh", cwd=str(folder), env=environ, dimensions=size)
        else:
            self.process = STARTER.open(arguments, folder=folder, environ=environ, size=size, imports=imports)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self, *, looks: bool = True) -> bool:
        """Take in what was printed; False when the program has ended. `looks`: the screen shows it then, which costs
        more than all else.
        """
        try:
            data = self.process.read_nonblocking(65_536, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        if not looks:
            return True
        # Private modes with intermediate bytes are beyond the emulator, and a read may end within one.
        data = self._begun + data
        begun = BEGUN.search(data)
        data, self._begun = (data[: begun.start()], begun[0]) if begun else (data, b"")
        self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*[uq$][a-z]?", b"", data))
        return True

    def until(self, true: Callable[[], bool], *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            alive = self.read()
            assert time.monotonic() < deadline, self.text
            assert alive or true(), self.text

    def shows(self, words: str) -> None:
        self.until(lambda: words in self.text)

    def ends(self) -> int:
        while self.read():
            pass
        self.process.wait()
        return int(self.process.exitstatus or 0)

    def close(self) -> None:
        """End it, however long that takes."""
        if isinstance(self.process, OnTerminal):
            self.process.kill()
            self.process.wait()
        self.process.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello from the file\n")
    return folder


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(folder, tmp_path / "home", "--model", "offline", "--set", "permissions.unasked=known")
    yield terminal
    terminal.close()


@pytest.fixture
def from_the_shell(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(folder, tmp_path / "home", "--model", "offline", imports=True)
    yield terminal
    terminal.close()


def after_the_screen(terminal: Terminal) -> str:
    """What was printed once the alternate screen was left, without control sequences."""
    rest = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
    return re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", rest).strip()


def test_type_send_answer_quit(from_the_shell: Terminal, folder: Path, tmp_path: Path) -> None:
    terminal = from_the_shell
    terminal.shows("Ask, or / for commands"[1:])
    terminal.process.send("read hello.txt\r")
    terminal.shows("hello from the file")
    terminal.shows("ready")
    terminal.process.send("\x04")
    assert terminal.ends() == 0
    for mode in (b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[?1049l"):
        assert mode in terminal.raw
    told = after_the_screen(terminal)
    answer, way_back = told.rsplit("\n", 1)
    assert "hello from the file" in answer
    assert re.fullmatch(r"To go on with this conversation: tui-agent -r \S+", way_back)
    again = Terminal(folder, tmp_path / "home", "-r", told.split()[-1])
    again.shows("hello from the file")
    again.process.send("\x03")
    # The hint stands for a second, and so long counts the first one.
    again.until(lambda: b"again to quit" in again.raw)
    while again.read():
        again.process.send("\x03")
    assert again.ends() == 0


def test_the_screen_is_drawn_though_errors_go_to_a_file(folder: Path, tmp_path: Path) -> None:
    terminal, log = Terminal(folder, tmp_path / "home", in_shell=True), tmp_path / "log"
    try:
        terminal.process.send(f"exec {sys.executable} -m tui_agent --model offline 2>{log}\r")
        terminal.shows("Ask, or / for commands"[1:])
        terminal.process.send("read hello.txt\r")
        terminal.shows("hello from the file")
        terminal.process.send("\x04")
        assert terminal.ends() == 0
        assert "\x1b" not in log.read_text()
    finally:
        terminal.close()


def test_odd_input_and_other_sizes_at_any_moment(terminal: Terminal) -> None:
    terminal.shows("ready")
    for size in ((5, 20), (2, 8), (60, 200)):
        terminal.process.send("read hello.txt\r")
        terminal.screen.resize(*size)
        terminal.process.setwinsize(*size)
        terminal.read()
        terminal.screen.resize(ROWS, COLUMNS)
        terminal.process.setwinsize(ROWS, COLUMNS)
        terminal.shows("hello from the file")
        terminal.process.send("still here")
        terminal.shows("still here")
        terminal.process.send("\x03")
        terminal.until(lambda: "still here" not in terminal.text)
    terminal.process.send("\x1b[200~" + "some text\r\n" * 20_000 + "\x1b[201~")
    terminal.shows("[pasted 20,000 lines]")
    terminal.process.send(b" and a\xff\xfe\xc3(b")
    terminal.shows("lines] and ")
    terminal.shows("(b")
    # The last of many sizes counts.
    for _ in range(12):
        for size in [(5, 20), (ROWS, COLUMNS)] * 20:
            terminal.process.setwinsize(*size)
        # What stood there is lost: it did not fit.
        terminal.screen.erase_in_display(2)
        terminal.until(lambda: "ready" in terminal.screen.display[-1] and "(b" in terminal.text)


def test_what_is_typed_before_the_first_picture_stands_in_the_prompt(from_the_shell: Terminal) -> None:
    terminal = from_the_shell
    terminal.process.send("typed early")
    # From here on the terminal marks what is pasted.
    terminal.until(lambda: b"\x1b[?2004h" in terminal.raw)
    terminal.process.send("\x1b[200~ and\rpasted\x1b[201~")
    terminal.shows("│ typed early and")
    terminal.shows("│ pasted")
    assert terminal.raw.index(b"\x1b[?2004h") < terminal.raw.index(b"\x1b[?1049h")
    terminal.process.send("\x03")
    terminal.until(lambda: "│ typed early" not in terminal.text)


@pytest.mark.parametrize(("typed", "shown"), [("read hello.txt\r", "hello from the file"), ("one\rtwo\r", "│ two")])
def test_a_line_typed_before_the_program_reads_is_sent_and_several_are_not(
    from_the_shell: Terminal, typed: str, shown: str
) -> None:
    """The terminal still has lines then, and puts a line feed for Enter."""
    from_the_shell.process.send(typed)
    from_the_shell.shows(shown)


def test_ctrl_c_before_the_first_picture_empties_all_that_was_typed_before_it(
    from_the_shell: Terminal, tmp_path: Path
) -> None:
    terminal = from_the_shell
    # From here on what is typed waits as keys.
    terminal.until(lambda: b"\x1b[?2004h" in terminal.raw)
    terminal.process.send("some words\x03")
    terminal.shows("prompt cleared")
    terminal.shows("│ Ask, or")
    assert (tmp_path / "home" / "history.jsonl").read_text() == '"some words"\n'
