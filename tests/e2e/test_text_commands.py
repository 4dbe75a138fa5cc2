"""Every steering command in text form, one-shot, over a session on disk."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest
from typing_extensions import override

from tests.e2e.program import MODELS, Program
from tests.e2e.test_hangup import until
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.recording import RecordedRequest
from tests.servers.running import in_thread
from tests.servers.script import Fault, ParsedRequest, Script, Step
from tests.servers.wire import Exchange, Request

ANSWERED = [
    ("/help", "/undo-step"),
    ("/model", "offline:offline, 32,768 tokens, $0 / $0 per million tokens"),
    ("/stats", "Session: 2 calls, "),
    ("/cost", "The next call sends about"),
    ("/recall demonstration", "README.md"),
    ("/pin 4", "Pinned"),
]
REFUSED = [
    ("/settings", "/config lists every setting."),
    ("/nonsense", "There is no command /nonsense /help lists the commands."),
    ("/theme", "/theme is a command of the full-screen app"),
    ("/undo-compat", "Did you mean /undo-compact?"),
    ("/escalate", "No larger model is available"),
    ("/stats now", "/stats takes no argument"),
    ("/stats!", "There is no command /stats!"),
    ("/pin " + "9" * 5_000, "Name messages by their numbers"),
    ("/undo-compact " + "9" * 5_000, "takes the number of a step"),
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


def test_a_summary_is_written_in_one_go_with_or_without_the_mark(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path, {"TUI_AGENT_OFFLINE_DELAY_S": "0"})
    (program.project / "notes.txt").write_text("A line of notes.\n" * 400)
    written = ("/compact", "/summarize! calc", "/done", "/done! all", "/checkpoint!")
    for number, command in enumerate(written):
        for turn in range(4):
            more = ["-c"] if number or turn else []
            assert program.run("-p", "read notes.txt", "--model", "offline", *more).returncode == 0
        done = program.ask("-c", "-p", command)
        assert done["result"].startswith("Compacted: " if number < 2 else "Checkpoint written: "), done
        assert (done["exit"], done["stop_reason"]) == (0, "command")
        assert (done["context"]["compactions"], done["context"]["checkpoints"]) == (
            min(number + 1, 2),
            max(number - 1, 0),
        )


def test_figures_are_those_of_the_provider(tmp_path: Path) -> None:
    model = MODELS["gemini"]
    with in_thread(GeminiServer(Script.of(Step(text="A long answer. " * 2_000)), windows={model: 123_456})) as server:
        program = Program.in_folder(tmp_path, server.environment)
        for more in ([], ["-c"]):
            assert program.run("-p", "hello " * 3_000, "--model", model, *more).returncode == 0
        context = program.run("-c", "-p", "/context")
        assert (context.returncode, context.stderr) == (0, "")
        assert " of 123,456 tokens (" in context.stdout
        assert "catalogue" not in context.stdout
        assert f"{model}, frontier, 123,456 tokens, $" in program.run("-c", "-p", "/model").stdout
        assert "Each call after it" in program.run("-c", "-p", "/preview").stdout
        assert program.ask("-c", "-p", "/items")["context"]["window"] == 123_456
        assert server.violations == []


def test_a_provider_that_cannot_be_reached_leaves_the_figures_of_the_catalogue(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        program = Program.in_folder(tmp_path, {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": address})
        context = program.run("-p", "/context", "--model", MODELS["anthropic"])
        assert (context.returncode, context.stderr) == (0, "")
        assert " of 1,000,000 tokens (" in context.stdout
        assert "its window and prices are from the catalogue" in context.stdout
        known = program.run("-p", "/context", "--model", MODELS["anthropic"], "--context-window", "50000").stdout
        assert " of 50,000 tokens (" in known
        assert "catalogue" not in known
        other = program.run("-p", "/model", "--model", "claude-unheard-of")
        assert "Neither the provider nor the catalogue knows the window" in other.stdout


class Mute(AnthropicServer):
    """Takes every question about a model, and never answers it."""

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if request.method == "GET":
            await asyncio.Event().wait()
        await super().route(request, recorded, exchange)


def test_a_provider_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    with in_thread(Mute(Script())) as server:
        program = Program.in_folder(tmp_path, server.environment)
        context = program.run("-p", "/context", "--model", MODELS["anthropic"], timeout=60)
    assert (context.returncode, context.stderr) == (0, "")
    assert "its window and prices are from the catalogue" in context.stdout


def test_a_command_that_is_interrupted_ends_in_order(tmp_path: Path) -> None:
    stalled = Fault(kind="stall", times=99, seconds=600)

    def script(request: ParsedRequest) -> Step:
        return Step(text="Words. " * 800) if "hello" in request.prompt[:9] else Step(text="A summary.", fault=stalled)

    with in_thread(AnthropicServer(script)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        for more in ([], ["-c"], ["-c"]):
            assert program.run("-p", "hello " * 3_000, "--model", MODELS["anthropic"], *more).returncode == 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asked = len(server.model_requests)
            running = program.start("-c", "-p", "/compact", "--output-format", "json")
            until(lambda before=asked: len(server.model_requests) > before)  # type: ignore[misc]
            running.send_signal(number)
            told, complaint = running.communicate(timeout=60)
            assert (running.returncode, complaint) == (130, "")
            answer = json.loads(told)
            assert (answer["stop_reason"], answer["is_error"]) == ("interrupted", False)
    assert "unchanged" in program.run("trace", answer["session_id"], "--verify").stdout


def test_what_asks_the_model_is_sent_as_what_it_stands_for(program: Program) -> None:
    done = program.run("-p", "/review the tests", "--model", "offline")
    assert done.returncode == 0
    found = program.run("-p", "/recall colleague who will have to maintain it", "-c", "--model", "offline")
    assert "above all: the tests" in found.stdout
