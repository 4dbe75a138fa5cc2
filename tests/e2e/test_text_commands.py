"""Every steering command in text form, one-shot, over a session on disk."""

import pytest

from tests.e2e.program import Program

ANSWERED = [
    ("/help", "/undo-compact"),
    ("/tools", "read_file"),
    ("/model", "offline:offline, 32,768 tokens, $0 / $0 per million tokens"),
    ("/model offline", "offline:offline answers from here on"),
    ("/stats", "Session: 2 calls, "),
    ("/context", "Thresholds:"),
    ("/items", "messages and results"),
    ("/recall demonstration", "README.md"),
    ("/pin 3", "Pinned"),
    ("/skills", "no skills"),
    ("/memory", "no notes"),
]
REFUSED = [
    ("/nonsense", "There is no command /nonsense /help lists the commands."),
    ("/undo-compat", "Did you mean /undo-compact?"),
    ("/model claude-none", "The model stays offline:offline"),
    ("/escalate", "No larger one can be asked"),
    ("/stats now", "/stats takes nothing after it"),
    ("/undo-compact", "nothing to undo"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A project whose newest session has read its README."""
    program = Program.in_folder(tmp_path_factory.mktemp("commands"))
    (program.project / "README.md").write_text("A demonstration.\n")
    assert program.run("-p", "read README.md", "--model", "offline").returncode == 0
    return program


@pytest.mark.parametrize(("command", "said"), ANSWERED)
def test_a_command_is_answered_on_standard_output(program: Program, command: str, said: str) -> None:
    done = program.run("-c", "-p", command)
    assert said in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("command", "said"), REFUSED)
def test_what_cannot_be_done_is_said_once(program: Program, command: str, said: str) -> None:
    done = program.run("-c", "-p", command)
    assert said in " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (1, "")


def test_a_space_sends_the_text_to_the_model(program: Program) -> None:
    assert "offline model" in program.run("-c", "-p", " /nonsense").stdout
