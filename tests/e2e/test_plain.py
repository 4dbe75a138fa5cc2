"""`--plain`: a whole conversation as lines at a pseudo-terminal; a real SDK, a server that keeps the protocol."""

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, Script, Step, Turn
from tests.tui.app.test_terminal_app import Terminal

BREAK, END = "\x03", "\x04"
LONG: Final = "".join(f"Line {number} of what the till is for, and of why it is as it is.\n" for number in range(600))
COMMAND: Final = "touch made && \\\n  touch \u202emade-too"
SCRIPT: Final = Script(
    (
        Turn((Step(text="What it does: \x1b[2Jsums up.\nAnd a tax.", calls=(Call("read_file", {"path": "till.py"}),)),
              Step(text="It sums up.")), when="What does"),
        Turn((Step(calls=(Call("run_command", {"command": COMMAND}),)), Step(text="Both are made.")), when="Make"),
        Turn((Step(calls=(Call("ask_user", {"question": "Which one?", "choices": ["first", "second"]}),)),
              Step(text="So be it.")), when="Ask"),
        Turn((Step(text=LONG, chunk=400),), when="Explain"),
        Turn((Step(text="Talk\n" * 40, chunk=5, fault=Fault(kind="stall", after=12, seconds=30)),), when="Talk"),
        Turn((Step(text="Heard."),)),
    ),
)  # fmt: skip


class Lines:
    """A person who reads what is printed, line by line, and types lines."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._seen = 0

    def hears(self, *words: str) -> None:
        """Wait for these words, in this order, after what was heard before."""
        deadline = time.monotonic() + 40
        for each in words:
            while (place := self.said.find(each, self._seen)) < 0:
                assert self.terminal.read(looks=False), self.said
                assert time.monotonic() < deadline, self.said
            self._seen = place + len(each)

    def types(self, line: str) -> None:
        self.terminal.process.send(f"{line}\n")

    @property
    def said(self) -> str:
        return self.terminal.raw.decode(errors="replace").replace("\r\n", "\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "till.py").write_text("TOTAL = 1  # \x1b[31mred\n")
    return project


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with in_thread(AnthropicServer(SCRIPT)) as server:
        yield server


@contextmanager
def talking(server: AnthropicServer, project: Path, *arguments: str, **environ: str) -> Iterator[Lines]:
    environment = {**server.environment, "TERM": "xterm-256color", **environ}
    given = ("--model", "claude-opus-5-5", "--set", "permissions.unasked=known", *arguments)
    with closing(Terminal(project, project.parent / "home", *given, environment=environment)) as terminal:
        lines = Lines(terminal)
        yield lines
        assert b"\x1b" not in terminal.raw
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", lines.said.replace("^C", "").replace("\x08", ""))


def test_a_whole_conversation(server: AnthropicServer, project: Path) -> None:
    with talking(server, project, "--plain") as person:
        person.hears("Plain mode. Model", "You: ")
        person.types("What does it do?")
        person.hears("Agent: What it does: sums up.\nAnd a tax.\n", "Reading: till.py", "TOTAL = 1")
        person.hears("Agent: It sums up.", "Done.", "You: ")
        _is_asked(person, project)
        _chooses(person)
        _compacts(person)
        person.types("/undo-step")
        person.hears("Undone", "You: ")
        person.types("/undo")
        person.hears("is taken back", "You: ")
        person.types("/theme")
        person.hears("/theme is a command of the full-screen app", "You: ")
        person.types("!echo $((6*7))")
        person.hears("You ran: ", "42", "You: ")
        person.types("/exit")
        assert person.terminal.ends() == 0
        person.hears("To go on with this conversation: tui-agent --plain -r ")
        name = person.said.split()[-1]
    with talking(server, project, "--plain", "-r", name) as person:
        person.hears("The conversation so far ends with:", "You: Explain", "Line 599", "You: ")
        person.terminal.process.send(END)
        assert person.terminal.ends() == 0
    assert server.violations == []


def _is_asked(person: Lines, project: Path) -> None:
    """What was typed before the question answers nothing, and all of the command is shown in its visible form."""
    person.types("Make them")
    person.hears("Permission needed:", "It is 2 lines:", "touch made && \\\n  touch ⟦U+202E⟧made-too", "Allow it? ")
    person.types("perhaps")
    person.hears("That is none of the answers.", "Allow it? ")
    assert not (project / "made").exists()
    person.types("y")
    person.hears("Result: exit code 0", "Agent: Both are made.", "You: ")
    assert (project / "made").exists()


def _chooses(person: Lines) -> None:
    person.types("Ask me")
    person.hears("The agent asks:", "Which one?", "1. first", "2. second", "A number, or your own words: ")
    person.types("7")
    person.hears("There is no such number.", "A number, or your own words: ")
    person.types("2")
    person.hears("second", "Agent: So be it.", "You: ")


def _compacts(person: Lines) -> None:
    person.types("Explain")
    person.hears("Line 599", "You: ")
    person.types("And more")
    person.hears("Heard.", "You: ")
    person.types("/compact")
    person.hears("What /compact would do", "Tokens after", "Do it? yes or no: ")
    person.types("no")
    person.hears("Nothing was changed.", "You: ")
    person.types("/compact")
    person.hears("Do it? yes or no: ")
    person.types("yes")
    person.hears("Compacted: ", "You: ")


def test_ctrl_c_stops_a_turn_and_a_question_but_not_the_program(server: AnthropicServer, project: Path) -> None:
    with talking(server, project, "Talk", TERM="dumb") as person:
        person.hears("a terminal of the type dumb cannot show the full screen", "Plain mode.")
        person.hears("You: Talk", "Agent: Talk")
        person.terminal.process.send(BREAK)
        person.hears("Stopped.", "You: ")
        person.terminal.process.send(BREAK)
        person.hears("Nothing is running.", "You: ")
        person.types("Make them")
        person.hears("Allow it? ")
        # The end of input is no answer, and so it is a no.
        person.terminal.process.send(END)
        person.hears("Not done", "Both are made.", "You: ")
        person.types("Make them again")
        person.hears("Allow it? ")
        person.terminal.process.send(BREAK)
        person.hears("Stopped.", "You: ")
        assert not (project / "made").exists()
        person.types("/exit")
        assert person.terminal.ends() == 0


def test_what_was_typed_before_a_question_answers_nothing(project: Path) -> None:
    goes_on = Event()
    looks = Step(text="I look.", calls=(Call("read_file", {"path": "till.py"}),))
    makes = Step(calls=(Call("run_command", {"command": COMMAND}),), held=goes_on)
    script = Script((Turn((looks, makes, Step(text="No, then.")), when="Make"), Turn((Step(text="Heard."),))))
    with in_thread(AnthropicServer(script)) as server, talking(server, project, "--plain", "Make") as person:
        person.hears("Result: ")
        person.types("y")
        person.terminal.process.send("ye")
        person.hears("ye")
        goes_on.set()
        person.hears("Typed before the question, so no answer to it: y", "Allow it? ")
        person.types("no, do not")
        person.hears("Not done", "Agent: No, then.", "You: ")
        person.terminal.process.send("One line\nand another\n")
        person.hears("Sent as one message of 2 lines.", "Heard.", "You: ")
        assert "One line\\nand another" in str(server.model_requests[-1].json)
        person.terminal.process.send(END)
        assert person.terminal.ends() == 0
        assert server.violations == []


def test_a_plan_is_sent_back_and_then_approved(project: Path) -> None:
    steps = [
        Step(calls=(Call("submit_plan", {"plan": f"{number}. Do it\x1b[2J", "steps": ["do it"]}),)) for number in (1, 2)
    ]
    with (
        in_thread(AnthropicServer(Script.of(*steps, Step(text="As you wish.")))) as server,
        talking(server, project, "--plain", "--ask", "plan", "Plan it") as person,
    ):
        person.hears("A plan, which waits for your approval:", "1. Do it␛[2J", "1. Approve; mode ", "what to change: ")
        person.types("shorter")
        person.hears("2. Do it", "1. Approve; mode ", "what to change: ")
        assert "shorter" in str(server.model_requests[-1].json)
        person.types("1")
        person.hears("Agent: As you wish.", "You: ")
        person.types("/exit")
        assert person.terminal.ends() == 0


def test_without_a_key_the_offline_model_answers(project: Path) -> None:
    with closing(Terminal(project, project.parent / "home", "--plain")) as terminal:
        person = Lines(terminal)
        person.hears("Model offline", "No API key is set, so the offline model answers", "ANTHROPIC_API_KEY", "You: ")
        person.types("read till.py")
        person.hears("Reading: till.py", "TOTAL = 1", "Done.", "You: ")
        person.types("/review")
        person.hears("This needs a real model", "You: ")
        person.types("/exit")
        assert terminal.ends() == 0
    with closing(Terminal(project, project.parent / "home", "--plain", "--model", "claude-opus-5-5")) as terminal:
        person = Lines(terminal)
        person.hears("There is no key for", "ANTHROPIC_API_KEY", "/model offline", "You: ")
        person.types("/model offline")
        person.hears("offline answers from here on", "You: ")
        person.types("read till.py")
        person.hears("TOTAL = 1", "Done.", "You: ")


def test_a_project_is_trusted_only_if_it_is_said(server: AnthropicServer, project: Path) -> None:
    (project / "AGENTS.md").write_text("Speak of the sea.\n")
    with talking(server, project, "--plain") as person:
        person.hears("AGENTS.md: instructions that the model follows", "Trust this project?")
        person.types("no")
        person.hears("Not trusted, so ignored: AGENTS.md", "You: ")
        person.types("/exit")
        assert person.terminal.ends() == 0
    with talking(server, project, "--plain", "Hello") as person:
        person.hears("Plain mode.", "Heard.", "You: ")
        assert "Trust this project?" not in person.said
        assert "Speak of the sea" not in str(server.model_requests[-1].json)
