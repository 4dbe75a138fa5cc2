"""A person's first ten minutes: the real command in a pseudo-terminal, a real SDK, a server that keeps the protocol."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Script, Step, Turn
from tests.tui.test_terminal_app import Terminal

ENTER, TAB, BACK_TAB, BREAK, HISTORY, PANEL = "\r", "\t", "\x1b[Z", "\x03", "\x12", "\x1bOQ"
ESC: Final = "\x1b[27u"
"""As terminals send it that tell it from the beginning of another key."""
SIZES: Final = [(40, 120), (24, 80), (20, 60)]
TILL: Final = "def total(prices):\n    # TODO: tax\n    return sum(prices)\n"
TAXED: Final = "def total(prices):\n    return sum(prices) * 1.2\n"
TALK: Final = "".join(f"Line {number} of what the till is for.\n\n" for number in range(40))
CHECK: Final = "cat till.py && touch checked"
SCRIPT: Final = Script(
    (
        Turn(
            (
                Step(
                    text="I look first.",
                    calls=(Call("read_file", {"path": "till.py"}), Call("grep", {"pattern": "TODO"})),
                ),
                Step(
                    text="Now the change.",
                    calls=(
                        Call(
                            "edit_file",
                            {
                                "path": "till.py",
                                "old": "    # TODO: tax\n    return sum(prices)",
                                "new": "    return sum(prices) * 1.2",
                            },
                        ),
                    ),
                ),
                Step(text="And a check.", calls=(Call("run_command", {"command": CHECK}),)),
                Step(text="The till adds the tax."),
            ),
            when="Add tax",
        ),
        Turn((Step(text=TALK, chunk=36, delay=0.08),), when="Talk on"),
        Turn((Step(text=TALK),), when="Talk"),
    ),
)


class Person:
    """Someone at a terminal: types, and looks until it shows what was expected."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        terminal.process.delaybeforesend = None
        self.focused = ""

    @property
    def screen(self) -> str:
        return self.terminal.text

    def sends(self, keys: str) -> None:
        self.terminal.process.send(keys)

    def sees(self, *words: str) -> None:
        for each in words:
            self.terminal.shows(each)

    def no_longer_sees(self, words: str) -> None:
        self.terminal.until(lambda: words not in self.screen)

    def types(self, text: str) -> None:
        """Write it into the prompt, and see it there."""
        self.sends(text)
        self.sees(f"│ {text}"[: self.terminal.screen.columns - 4])

    def says(self, text: str, *answer: str) -> None:
        self.types(text)
        self.sends(ENTER)
        self.sees(*answer)

    def closes(self, words: str) -> None:
        """Esc over a dialog that shows these words."""
        self.sends(ESC)
        self.no_longer_sees(words)

    @property
    def frame(self) -> str:
        """The colour of the prompt's frame."""
        return str(self.terminal.screen.buffer[self.terminal.screen.lines - 2][0].fg)

    def goes_back_to_the_prompt(self) -> None:
        """Esc, until its frame says that it has the keyboard."""
        self.sends(ESC)
        self.terminal.until(lambda: self.frame == self.focused)

    def notes_the_frame(self) -> None:
        """As it is while the prompt has the keyboard."""
        self.focused = self.frame

    def empties(self) -> None:
        self.sends(BREAK)
        self.sees("│ Ask, or / for commands")

    @property
    def status(self) -> str:
        return self.screen.splitlines()[-1]

    def waits_until_ready(self) -> None:
        self.terminal.until(lambda: self.status.split()[:1] == ["ready"])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "till.py").write_text(TILL)
    (project / "README.md").write_text("# till\n")
    # On the path of commands, as an environment in the project is.
    editor = project / "bin" / "vim"
    editor.parent.mkdir()
    editor.write_text("#!/bin/sh\necho THIS IS THE EDITOR\nread line\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    return project


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with in_thread(AnthropicServer(SCRIPT)) as running:
        yield running
    assert running.violations == []


@contextmanager
def at_the_terminal(
    project: Path, home: Path, *arguments: str, size: tuple[int, int], url: str, key: str = ""
) -> Iterator[Person]:
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "OLLAMA_HOST": "http://127.0.0.1:9",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "PATH": os.pathsep.join((str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
        "SHELL": "/bin/sh",
        **({"ANTHROPIC_API_KEY": key} if key else {}),
    }
    rows, columns = size
    terminal = Terminal(project, home, *arguments, environment=environment, rows=rows, columns=columns)
    try:
        yield Person(terminal)
    finally:
        terminal.close()


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_from_no_key_to_work_done_and_taken_back(
    project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]
) -> None:
    home = tmp_path / "home"
    with at_the_terminal(project, home, size=size, url=server.url) as person:
        _arrives(person)
        _looks_around(person)
        _enters_a_key(person, server.api_key)
        _has_work_done(person, project)
        _marks_words(person)
        _takes_it_back(person, project)
        _begins_anew_and_goes_back(person)
        _uses_the_shell(person)
        _asks_about_the_session(person, project)
        _reads_a_long_answer(person)
        _leaves(person)


def _arrives(person: Person) -> None:
    """What is typed before the first picture is kept; the welcome is whole at once, with the way to a model."""
    person.types("too early")
    person.notes_the_frame()
    person.empties()
    person.sees("For a real model", "/key", "Until then")
    assert "tui-agent" in person.screen.splitlines()[0]
    person.sees("Model ", "Mode ", "Sandbox ", "F1 shows")


def _looks_around(person: Person) -> None:
    """The exact name comes first, whole sentences, help on `?`, modes on Shift+Tab."""
    person.says("/mode", "What may happen without asking", "asked about")
    person.closes("What may happen")
    person.sends("?")
    person.sees("Keys in the prompt")
    person.closes("Keys in the prompt")
    for mode in ("plan", "ask", "auto"):
        person.sends(BACK_TAB)
        person.sees(f"mode {mode}: ")


def _enters_a_key(person: Person, key: str) -> None:
    """A key counts at once, and where no keyring is, the way to keep it is told."""
    person.says("/key", "A key for", "Claude (Anthropic)")
    person.sends(ENTER)
    person.sees("Keys are made at")
    person.sends(f"{key}{ENTER}")
    person.sees("answers from here on", "used until the program ends", "set ANTHROPIC_API_KEY")
    assert key not in person.screen


def _has_work_done(person: Person, project: Path) -> None:
    """A question shows all it asks about and leaves the status bar in view; cards say what was done."""
    person.says("Add tax to the till", "Allow this?", "Esc stops the turn")
    person.sees("│ Ask, or")
    while "PgDn" in person.screen:
        shown = person.screen
        person.sends("\x1b[6~")
        person.terminal.until(lambda: person.screen != shown)  # noqa: B023
    person.sends("1")
    person.sees("The till adds the tax.")
    person.waits_until_ready()
    assert (project / "till.py").read_text() == TAXED
    assert (project / "checked").exists(), person.screen
    if person.terminal.screen.lines >= 40:
        person.sees("Read till.py", "Search TODO", "Edit till.py  +1 -2", "Run cat till.py")


def _marks_words(person: Person) -> None:
    """Marked text can be read, and is copied."""
    row = next(number for number, line in enumerate(person.screen.splitlines(), 1) if "The till adds" in line)
    person.sends(f"\x1b[<0;3;{row}M\x1b[<32;15;{row}M\x1b[<0;15;{row}m")
    cells = person.terminal.screen.buffer[row - 1]

    def marked() -> bool:
        return cells[5].bg != cells[40].bg

    person.terminal.until(marked)
    assert all(cells[column].fg != cells[column].bg for column in range(3, 14))
    person.sends(BREAK)
    person.sees("copied")
    person.terminal.until(lambda: not marked())
    person.goes_back_to_the_prompt()


def _takes_it_back(person: Person, project: Path) -> None:
    """Files and conversation, asked which; what was said stands in the prompt again."""
    person.says("/undo", "Enter both, f files alone")
    person.sends(ENTER)
    person.sees("│ Add tax to the till", "put back")
    assert (project / "till.py").read_text() == TILL
    person.empties()


def _begins_anew_and_goes_back(person: Person) -> None:
    """`/clear` is a new session, `/resume` the list of them; the prompt has the keyboard after it."""
    person.says("Talk", "Line 39")
    person.waits_until_ready()
    person.says("/clear", "A new session", "goes back to the one before")
    person.no_longer_sees("Line 39")
    person.says("/resume", "Sessions: last used", "Ctrl+X deletes", "Add tax to the till")
    person.sends(ENTER)
    person.no_longer_sees("Ctrl+X deletes")
    person.sees("Line 39")
    person.waits_until_ready()


def _uses_the_shell(person: Person) -> None:
    """`!cd` says that it does nothing, and an editor gets the terminal, then gives it back."""
    person.says("!cd ..", "has no effect")
    person.types("!vim notes")
    person.sends(ENTER)
    person.terminal.until(lambda: b"THIS IS THE EDITOR" in person.terminal.raw)
    person.sends(ENTER)
    person.waits_until_ready()
    person.types("back")
    person.empties()


def _asks_about_the_session(person: Person, project: Path) -> None:
    """What it costs, what runs, what is trusted, what each item is; and the conversation for others."""
    person.says("/cost", "The next call sends")
    person.says("/jobs", "Nothing runs in the background")
    person.says("/trust", "nothing that needs trust")
    person.says("/recall adds the tax", "left the window")
    person.says("/recall nowhere", "Nothing of this session")
    person.says("/items", "answer", "tokens")
    person.says("/export told.md", "The conversation is in")
    assert "Line 39 of what" in (project / "told.md").read_text()
    person.sends(PANEL)
    person.sees("Tool definitions", "Next")
    person.closes("Tool definitions")


def _reads_a_long_answer(person: Person) -> None:
    """A badge tells of lines below, the history finds a text, the search counts its hits."""
    person.says("/clear", "goes back to the one before")
    person.says("Talk on", "Line 22 ")
    person.sends("\x1b[5~\x1b[5~")
    person.sees("new line", "End")
    person.waits_until_ready()
    person.sends("\x1b[F")
    person.no_longer_sees("new line")
    person.sends(f"{HISTORY}tax")
    person.sees("Add tax to the till")
    person.sends(ESC)
    person.waits_until_ready()
    person.sends(BREAK)
    person.sees("│ Ask, or / for commands")
    # The frame has its own colour again once nothing lies over it.
    person.terminal.until(lambda: person.frame == person.focused)
    person.sends(TAB)
    person.terminal.until(lambda: person.frame != person.focused)
    person.sends("/")
    person.sees("/│")
    person.sends("Line 1")
    person.sees(" of 1")
    person.closes(" of 1")
    person.goes_back_to_the_prompt()


def _leaves(person: Person) -> None:
    """A key between two Ctrl+C keeps it; twice in a row ends it, and what was half written is kept."""
    person.types("half written")
    person.empties()
    person.types("x")
    person.empties()
    person.types("y")
    person.sends(BREAK * 2)
    assert person.terminal.ends() == 0
    assert "To go on with this conversation: tui-agent -r" in person.terminal.raw.decode(errors="replace")


ANSWERS_S: Final = 2.0
"""Seconds until Esc shows its answer (alone on the machine a tenth of one), and until the program is left."""


def _answer_of(person: Person, keys: str, shows: Callable[[], bool]) -> float:
    """Seconds until the screen answers these keys."""
    began = monotonic()
    person.sends(keys)
    person.terminal.until(shows)
    return monotonic() - began


def test_esc_answers_at_every_moment_and_gives_back_what_was_typed(
    project: Path, tmp_path: Path, server: AnthropicServer
) -> None:
    """Opening, running, asking, and over a dialog; then Ctrl+C twice while a turn runs."""
    taken: dict[str, float] = {}
    home = tmp_path / "home"
    arguments = ("--model", "claude-opus-5-5")
    with at_the_terminal(project, home, *arguments, size=(24, 80), url=server.url, key=server.api_key) as person:
        person.sees("Ask, or")
        person.sends(f"Talk on early{ENTER}")
        person.sees("▌ Talk on early")
        taken["opening"] = _answer_of(person, ESC, lambda: "stopping" in person.status or "ready" in person.status)
        person.waits_until_ready()
        person.sends(BREAK)
        person.sees("│ Ask, or / for commands")
        person.says("Talk on", "Line 1 ")
        taken["running"] = _answer_of(person, ESC, lambda: "stopping" in person.status or "Stopped" in person.screen)
        person.sees("Stopped")
        person.waits_until_ready()
        person.says("Add tax", "Esc stops the turn")
        taken["asking"] = _answer_of(person, ESC, lambda: "Allow this?" not in person.screen)
        person.waits_until_ready()
        person.sends("?")
        person.sees("Keys in the prompt")
        taken["help"] = _answer_of(person, ESC, lambda: "Keys in the prompt" not in person.screen)
        person.says("/clear", "A new session")
        person.says("Talk on", "Line 1 ")
        person.types("half written")
        began = monotonic()
        person.sends(BREAK * 2)
        assert person.terminal.ends() == 0
        taken["quitting"] = monotonic() - began
    print(taken)
    assert all(seconds < ANSWERS_S for seconds in taken.values()), taken
    assert "half written" in (home / "history.jsonl").read_text()
