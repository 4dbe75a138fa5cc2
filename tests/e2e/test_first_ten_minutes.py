"""A person's first ten minutes: the real command in a pseudo-terminal, a real SDK, a server that keeps the protocol."""

import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.person import BACK_TAB, BREAK, DOWN, ENTER, ESC, PAGE_DOWN, SIZES, TAB, UP, Person, at_the_terminal
from tests.servers.anthropic import AnthropicServer
from tests.servers.ollama import OllamaServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, Script, Step, Turn
from tests.tui.app.test_terminal_app import Terminal

HISTORY, PANEL, RENAME, FORK, DELETE = "\x12", "\x1bOQ", "\x12", "\x06", "\x18"
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
        Turn((Step(text="Here is the draft of it."),), when="Write a file AGENTS.md"),
        Turn((Step(text="Nothing is wrong with it."),), when="Review what is changed"),
        Turn(
            (
                Step(
                    text="They run.",
                    calls=(
                        Call("run_command", {"command": "echo listening on 8000; sleep 300", "background": True}),
                        Call("run_command", {"command": "for i in $(seq 30); do echo row $i; done"}),
                        Call("run_command", {"command": "echo it was there; exit 3"}),
                    ),
                ),
                Step(text="One failed."),
            ),
            when="Run them",
        ),
        Turn((Step(text="Yes, and more."),)),
    ),
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
        _uses_the_shell(person)
        _asks_about_the_session(person, project)
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
    person.says("/jobs", "No commands run in the background")
    person.says("/trust", "Nothing in this project needs trust")
    person.says("/recall adds the tax", "left the window")
    person.sends(ENTER)
    person.sees("as it was")
    person.sends(ESC)
    person.says("/recall nowhere", "Nothing like that was said")
    person.says("/items", "answer", "tokens")
    for name in ("told.md", "told.html", "told.json"):
        person.says(f"/export {name}", "Exported to")
        person.terminal.until((project / name).exists)
        assert "Line 39 of what" in (project / name).read_text()
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


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_earlier_sessions(project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]) -> None:
    """The picker at the start, a session that another process holds, and renaming, forking and deleting."""
    home = tmp_path / "home"

    def at(*arguments: str) -> AbstractContextManager[Person]:
        return at_the_terminal(project, home, *arguments, size=size, url=server.url, key=server.api_key)

    with at() as person:
        person.says("Talk", "Line 39")
        person.waits_until_ready()
        person.says("/theme harbour", "is saved for every project")
        person.says("/mode plan", "Mode plan: read only")
        _quits(person)
    with at("-r") as person:
        person.sees("Sessions: last used", "Talk", "Line 0")
        person.sends(ENTER)
        person.no_longer_sees("Sessions: last used")
        person.sees("Line 39", " plan ")
        person.types("the prompt has the keyboard")
        with at("-c") as another:
            another.sees("The session is in use", "A new session here")
            another.sends(ENTER)
            another.no_longer_sees("The session is in use")
            another.sees("Say what you would like done here")
            another.waits_until_ready()
            another.says("Something else", "Yes, and more.")
            another.waits_until_ready()
            person.empties()
            _quits(person)
            _keeps_house(another, home)


def _quits(person: Person) -> None:
    person.sends(BREAK * 2)
    assert person.terminal.ends() == 0


def _keeps_house(person: Person, home: Path) -> None:
    """In the list of sessions one gets a name, another branch and an end, the last after a question."""
    person.says("/sessions", "Sessions: last used", "Something else", "Talk")
    person.sends("Talk")
    person.no_longer_sees("Something else  ")
    person.sends(RENAME)
    person.sees("Rename the session")
    person.sends(f"\x15The till{ENTER}")
    person.sees("Sessions: last used", "The till")
    person.sends("The till")
    person.no_longer_sees("Something else  ")
    person.sends(FORK)
    person.no_longer_sees("Sessions: last used")
    person.sees("Line 39")
    person.waits_until_ready()
    before = set((home / "sessions").iterdir())
    person.says("/sessions", "Sessions: last used", "Something else", "The till  ")
    person.sends("Something")
    person.no_longer_sees("The till  ")
    person.sends(DELETE)
    person.sees("Delete this session?", "Keep it")
    person.sends(DOWN + ENTER)
    person.sees("Sessions: last used")
    person.terminal.until(lambda: len(before - set((home / "sessions").iterdir())) == 1)
    person.closes("Sessions: last used")


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_what_a_project_brings(project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]) -> None:
    """The question names files and what they would do; the answer is kept, told, and can be changed."""
    home = tmp_path / "home"
    (project / "AGENTS.md").write_text("Be brief.\n")
    (project / ".agents").mkdir()
    (project / ".agents" / "config.json").write_text('{"model": {"id": "claude-haiku-4-5"}}')
    with at_the_terminal(project, home, size=size, url=server.url, key=server.api_key) as person:
        person.sees("Trust this project?", "AGENTS.md", "config.json", "/trust changes it")
        # An Enter in the moment it opens would end a line for the prompt: a person reads first.
        person.sends(DOWN + UP + ENTER)
        person.no_longer_sees("Trust this project?")
        person.sees("Not trusted, so ignored", "AGENTS.md")
        _quits(person)
    with at_the_terminal(project, home, size=size, url=server.url, key=server.api_key) as person:
        person.sees("Not trusted, so ignored")
        assert b"Trust this project?" not in person.terminal.raw
        person.waits_until_ready()
        person.says("/trust", "Trust this project?")
        person.sends(DOWN + ENTER)
        person.no_longer_sees("Trust this project?")
        person.sees("claude-haiku-4-5")
        person.waits_until_ready()
        person.no_longer_sees("Not trusted, so ignored")
        _quits(person)


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_a_service_that_refuses(project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]) -> None:
    """A key that is not accepted leads to `/key`; a page of somebody else's is never shown; both are mended by hand."""
    with at_the_terminal(project, tmp_path / "home", size=size, url=server.url, key=server.api_key) as person:
        person.sees("Say what you would like done here")
        person.waits_until_ready()
        person.says("With a wrong key", "does not accept the key", "Enter another key with /key")
        person.says("To a wrong address", "is not Anthropic", "ANTHROPIC_BASE_URL")
        person.waits_until_ready()
        assert "<" not in person.screen.removesuffix(person.status)
        person.says("Once more", "Yes, and more.")


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_a_model_of_this_machine_is_offered(project: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    with in_thread(OllamaServer(SCRIPT)) as local:
        environment = {"OLLAMA_HOST": local.url, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        rows, columns = size
        terminal = Terminal(project, tmp_path / "home", environment=environment, rows=rows, columns=columns)
        person = Person(terminal)
        try:
            person.sees("To use a real model", "a model on this machine", "/model ollama:")
            name = person.screen.partition("/model ollama:")[2].split()[0]
            person.waits_until_ready()
            person.says(f"/model ollama:{name}", "answers from here on")
            person.says("Hello", "Yes, and more.")
        finally:
            terminal.close()


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_commands_that_run_and_commands_about_the_session(
    project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]
) -> None:
    arguments = ("--model", "claude-opus-5-5", "--yolo")
    home = tmp_path / "home"
    with at_the_terminal(project, home, *arguments, size=size, url=server.url, key=server.api_key) as person:
        person.sees("Say what you would like done here")
        person.waits_until_ready()
        person.notes_the_frame()
        _has_commands_run(person)
        _looks_after_jobs(person)
        _reads_about_the_session(person)
        _sends_errands(person, project)
        _compacts(person)


def _has_commands_run(person: Person) -> None:
    """Each card shows its newest lines and how many are left out; one that failed says so."""
    person.says("Run them", "One failed.")
    person.waits_until_ready()
    person.sees("row 30", "… +27 lines", "failed · exit code 3", "it was there")
    if person.terminal.screen.columns > 60:
        person.sees("1 job")
    assert "row 27" not in person.screen.split()


def _looks_after_jobs(person: Person) -> None:
    """The newest output of a command in the background, and its end."""
    person.says("/jobs", "Commands in the background", "running")
    person.sends(ENTER)
    person.sees("Show its newest output", "Stop it")
    person.sends(ENTER)
    person.sees("listening on 8000", "Esc closes")
    person.closes("Esc closes")
    person.says("/jobs", "Commands in the background")
    person.sends(ENTER)
    person.sees("Stop it")
    person.sends(DOWN + ENTER)
    person.sees("Stopped: echo listening")
    person.no_longer_sees("1 job")


def _reads_about_the_session(person: Person) -> None:
    """What is set and by whom, who else could answer and for how much; an item is pinned by what it says."""
    person.says("/config", "Settings", "model.id", "(--model)")
    person.closes("Settings")
    person.says("/model", "Model: $ per million", "claude-opus-5-5", "Claude (Anthropic)", "$4")
    person.closes("Model: $ per million")
    person.says("/pin", "Pin or unpin", "answer", "One failed.")
    person.sends(ENTER)
    person.sees("Pinned (step ")
    person.says("/pin 99999", "no message 99999")
    person.sends("/co")
    person.sees("/compact", "/config", "/cost")
    person.sends(BREAK)
    person.sees("│ Ask, or / for commands")
    person.sends(PANEL)
    person.sees("Next")
    person.closes("Next")


def _sends_errands(person: Person, project: Path) -> None:
    """`/init` and `/review` ask the model; a file that is there is not written over unasked."""
    person.says("/init", "Here is the draft of it.")
    person.waits_until_ready()
    person.says("/review", "Nothing is wrong with it.")
    person.waits_until_ready()
    (project / "AGENTS.md").write_text("Be brief.\n")
    person.says("/init", "AGENTS.md exists already", "Update it", "Start over")
    person.closes("Update it")


def _compacts(person: Person) -> None:
    """What it would free, and when that pays, is said in figures before anything is done."""
    person.says("/compact", "Summarise the older turns?", "Frees", "Paid back")
    person.closes("Summarise the older turns?")
