"""A person's first ten minutes: the real command in a pseudo-terminal, a real SDK, a server that keeps the protocol."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.person import BACK_TAB, BREAK, ENTER, ESC, PAGE_DOWN, SIZES, TAB, Person, at_the_terminal
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, Script, Step, Turn

HISTORY, PANEL = "\x12", "\x1bOQ"
TILL: Final = "def total(prices):\n    # TODO: tax\n    return sum(prices)\n"
TAXED: Final = "def total(prices):\n    return sum(prices) * 1.2\n"
TALK: Final = "".join(f"Line {number} of what the till is for.\n\n" for number in range(40))
CHECK: Final = "cat till.py && touch checked"
SCRIPT: Final = Script(
    (
        # What was not answered is asked again with what follows.
        Turn((Step(text="Yes, and more."),), when="Once more"),
        Turn((Step(fault=Fault(kind="html")),), when="a wrong address"),
        Turn((Step(fault=Fault(kind="unauthorized")),), when="a wrong key"),
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
        Turn((Step(text=TALK, chunk=36, fault=Fault(kind="stall", after=30, seconds=8)),), when="Talk on"),
        Turn((Step(text=TALK),), when="Talk"),
        Turn((Step(text="Yes, and more."),)),
    )
)


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
        _reads_a_long_answer(person)
        _leaves(person)


def _arrives(person: Person) -> None:
    """What is typed before the first picture is kept; the welcome is whole at once, with the way to a model."""
    person.types("too early")
    person.notes_the_frame()
    person.empties()
    person.sees("To use a real model", "/key", "Until then")
    assert "tui-agent" in person.screen.splitlines()[0]
    person.sees("Model ", "Mode ", "Sandbox ", "F1 shows")


def _looks_around(person: Person) -> None:
    """The exact name comes first, whole sentences, help on `?`, modes on Shift+Tab."""
    person.says("/mode", "Mode: what needs your approval", "asks before")
    person.closes("what needs your approval")
    person.sends("?")
    person.sees("Keys in the prompt")
    person.closes("Keys in the prompt")
    for mode in ("plan", "ask", "auto"):
        person.sends(BACK_TAB)
        person.sees(f"mode {mode}: ")


def _enters_a_key(person: Person, key: str) -> None:
    """A key counts at once, and where no keyring is, the way to keep it is told."""
    person.says("/key", "Which provider is the key for?", "Claude (Anthropic)")
    person.sends(ENTER)
    person.sees("Keys are made at")
    person.sends(f"{key}{ENTER}")
    person.sees("answers from here on", "used until the program ends", "set ANTHROPIC_API_KEY")
    assert key not in person.screen


def _has_work_done(person: Person, project: Path) -> None:
    """A question shows all it asks about and leaves the status bar in view; cards say what was done."""
    # In the sandbox only this mode asks before it changes the project.
    for mode in ("plan", "ask"):
        person.sends(BACK_TAB)
        person.sees(f"mode {mode}: ")
    person.says("Add tax to the till", "Allow this?", "│ Ask, or")
    if person.terminal.screen.columns > 60:
        person.sees("Esc stops the turn")
    for asked in ("till.py", "touch checked"):
        person.sees("Allow this?", asked)
        # It takes the keyboard a moment after the last key.
        person.terminal.until(lambda: person.frame != person.focused)
        while "PgDn" in person.screen:
            shown = person.screen
            person.sends(PAGE_DOWN)
            person.terminal.until(lambda: person.screen != shown)  # noqa: B023
        person.sends("1")
        person.no_longer_sees("Allow this?")
    person.sees("The till adds the tax.")
    person.waits_until_ready()
    person.sends(BACK_TAB)
    person.sees("mode auto: ")
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
    person.sees("sent to the terminal to copy")
    person.terminal.until(lambda: not marked())
    person.goes_back_to_the_prompt()


def _takes_it_back(person: Person, project: Path) -> None:
    """Files and conversation, asked which; what was said stands in the prompt again."""
    person.says("/undo", "Enter takes both back, f the files")
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


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_a_service_that_refuses(project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]) -> None:
    """A key that is not accepted leads to `/key`; a page of somebody else's is never shown; both are mended by hand."""
    with at_the_terminal(project, tmp_path / "home", size=size, url=server.url, key=server.api_key) as person:
        person.sees("Say what you would like done here")
        person.waits_until_ready()
        person.says("With a wrong key", "does not accept the key", "Enter a valid key with /key")
        person.says("To a wrong address", "is not Anthropic", "ANTHROPIC_BASE_URL")
        person.waits_until_ready()
        assert "<" not in person.screen.removesuffix(person.status)
        person.says("Once more", "Yes, and more.")
