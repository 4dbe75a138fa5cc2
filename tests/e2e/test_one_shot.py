"""One-shot mode as scripts use it: what answers, what is sent, what comes back, how it ends, and where it goes on."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agent.test_wire import pieces
from tests.e2e.program import MODELS, Program, events_of
from tests.e2e.starter import STARTER
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Script, Step
from tests.servers.server import ProtocolServer

SCHEMA = {"type": "object", "properties": {"bugs": {"type": "integer"}}, "required": ["bugs"]}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program.in_folder(tmp_path)


def test_without_a_key_nobody_answers_and_it_says_what_to_set(program: Program) -> None:
    done = program.run("-p", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    for named in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "ollama:NAME", "offline", "--model"):
        assert named in line
    assert not list(program.home.glob("sessions/*"))
    assert program.run("-p", "/help").returncode == 0
    (program.home / "commands").mkdir()
    (program.home / "commands" / "own.md").write_text("read calc.py")
    assert program.run("-p", "/own").returncode == 2, "a command of the user's own is a prompt"
    assert program.run("-p", "/own", "--model", "offline").returncode == 0


def test_the_offline_model_answers_where_it_is_chosen(program: Program) -> None:
    chosen = program.ask("-p", "read calc.py", "--model", "offline")
    assert (chosen["exit"], chosen["stderr"]) == (0, "")
    again = program.run("-c", "-p", "read calc.py")
    assert again.returncode == 0
    assert "The offline model continues this conversation" in again.stderr
    (program.home / "config.json").write_text('{"model": {"id": "offline"}}')
    assert program.run("-p", "read calc.py").returncode == 0


def test_what_is_piped_in_goes_after_the_prompt(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: ParsedRequest) -> Step:
        asked.append(request.prompt)
        return Step(text="Seen.")

    with in_thread(AnthropicServer(answer)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        for arguments, data in (
            (("-p", "Sum", "up."), "a line\n@calc.py\n"),
            (("-p", "Sum up.", "-"), "a line"),
            (("-p", "Sum up."), ""),
            (("-p",), "Sum up."),
            (("-p", "-"), "Sum up."),
        ):
            done = program.run(*arguments, stdin=data)
            assert (done.returncode, done.stderr) == (0, ""), arguments
    assert asked == [
        "Sum up.\n\n<standard_input>\na line\n@calc.py\n</standard_input>",
        "Sum up.\n\n<standard_input>\na line\n</standard_input>",
        *["Sum up."] * 3,
    ]


def test_the_json_has_the_names_that_scripts_know(program: Program) -> None:
    answer = program.ask("-p", "read", "calc.py", "--model", "offline")
    assert (answer["type"], answer["subtype"]) == ("result", "success")
    assert (answer["num_turns"], answer["total_cost_usd"]) == (answer["turns"], answer["cost_usd"])
    assert answer["structured_result"] is None
    assert list(answer["modelUsage"]) == answer["models"]
    (used,) = answer["model_usage"].values()
    assert (used["calls"], used["output_tokens"]) == (answer["turns"], answer["usage"]["output_tokens"])
    stopped = program.ask("-p", "read", "calc.py", "--model", "offline", "--max-turns", "1")
    assert (stopped["exit"], stopped["subtype"], stopped["turns"]) == (1, "error_max_turns", 1)
    failed = program.ask("-p", "run python test_calc.py", "--ask", "ask", "--model", "offline")
    assert (failed["exit"], failed["subtype"], failed["is_error"]) == (3, "error_during_execution", True)
    assert failed["error"]["kind"] == "needs_approval"
    printed = program.run("-c", "-p", "read calc.py", "--output-format", "stream-json").stdout
    streamed = events_of(printed)
    kinds = [event["type"] for event in streamed]
    assert (kinds[0], kinds[-1], len(kinds)) == ("session", "result", len(printed.splitlines()))
    assert {"turn_started", "assistant_message", "tool_started", "tool_finished", "turn_finished"} <= set(kinds)
    assert streamed[-1]["session_id"] == streamed[0]["session_id"] == failed["session_id"]
    assert set(streamed[-1]) == set(answer) - {"exit", "stderr"}


def test_a_result_is_valid_under_the_schema_or_mended_or_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: ParsedRequest) -> Step:
        asked.append(request.prompt)
        if not request.position and len(asked) == 1:
            return Step(calls=(Call("read_file", {"path": "calc.py"}),))
        return Step(text='{"bugs": 2}' if "not valid" in request.prompt else '{"bugs": "two"}')

    with in_thread(GeminiServer(answer)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        (program.project / "schema.json").write_text(json.dumps(SCHEMA))
        given = ("--model", MODELS["gemini"], "--json-schema", "schema.json")
        answered = program.ask("-p", "Count the bugs.", *given)
        assert (answered["exit"], answered["subtype"]) == (0, "success")
        assert answered["structured_result"] == answered["structured_output"] == {"bugs": 2}
        assert answered["num_turns"] == 3
        assert json.dumps(SCHEMA) in asked[0]
        assert "at $.bugs: 'two' is not of type 'integer'" in asked[-1]
        assert program.run("-p", "Count the bugs.", *given).stdout == '{"bugs": 2}\n'
        assert server.violations == []
    given = ("--model", "offline", "--json-schema", "schema.json")
    failed = program.ask("-p", "read calc.py", *given)
    assert (failed["exit"], failed["error"]["kind"]) == (1, "invalid_result")
    assert (failed["subtype"], failed["structured_result"]) == ("error_max_structured_output_retries", None)
    done = program.run("-p", "read calc.py", *given)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not valid under" in done.stderr


def test_a_refusal_and_half_an_answer_are_no_success(tmp_path: Path) -> None:
    reasons = {"refusal": "The model refused to answer.", "max_tokens": "The answer was cut off"}
    with in_thread(AnthropicServer(lambda asked: Step(text="I can", stop_reason=asked.prompt))) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        for reason, said in reasons.items():
            done = program.run("-p", reason)
            assert (done.returncode, done.stdout) == (1, "I can\n")
            assert said in done.stderr
            told = program.ask("-p", reason)
            assert (told["exit"], told["error"]["kind"], told["stop_reason"]) == (1, reason, reason)
            assert (told["is_error"], told["subtype"]) == (True, "error_during_execution")


def test_a_reader_that_leaves_ends_the_run_quietly_and_the_session_is_whole(program: Program) -> None:
    command = shlex.join([*program.command, "-p", "read calc.py", "--model", "offline", "--output-format"])
    # The other side closes after its first line, or at once: nothing may have been said then, and no session is left.
    for form, reader in (("stream-json", "head -n 1 >/dev/null"), ("text", "exec true <&-")):
        done = subprocess.run(
            ["bash", "-c", f"{command} {form} < /dev/null | {reader}; echo ${{PIPESTATUS[0]}}"],
            cwd=program.project,
            env=program.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        assert done.stdout in {"141\n", "0\n"}
    assert done.stdout == "141\n"
    sessions = sorted(folder.name for folder in program.home.glob("sessions/*"))
    assert sessions
    for session in sessions:
        assert program.run("trace", session, "--verify").returncode == 0


def test_a_script_waits_for_a_limit_for_minutes_and_longer_only_if_asked(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(lambda _: Step(text="Here."))) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        server.inject(Fault(kind="rate_limited", times=6, retry_after=0.01))
        waited = program.ask("-p", "Where?")
        assert (waited["exit"], waited["result"]) == (0, "Here.")
        assert "waiting until " in waited["stderr"]
        server.inject(Fault(kind="rate_limited", retry_after=1_800))
        refused = program.ask("-p", "Where?")
        assert (refused["exit"], refused["error"]["kind"]) == (1, "rate_limited")
        assert "It resets at " in refused["error"]["message"]
        assert "--wait-for-reset waits" in refused["stderr"]
        server.inject(Fault(kind="rate_limited", retry_after=1_800))
        asked = program.start("-p", "Where?", "--wait-for-reset")
        try:
            assert "waiting until " in asked.stderr.readline()
        finally:
            asked.send_signal(signal.SIGTERM)
            asked.wait(30)


def test_an_effort_that_the_model_does_not_take_is_said_once_and_the_turn_goes_on(tmp_path: Path) -> None:
    steps = [Step(calls=(Call("read_file", {"path": "calc.py"}),)), Step(text="Read.")]
    with in_thread(AnthropicServer(Script.of(*steps))) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": "claude-haiku-4-5"})
        done = program.run("-p", "read it", "--effort", "high", "--ask", "allow")
        assert (done.returncode, done.stdout) == (0, "Read.\n")
        assert done.stderr.count("claude-haiku-4-5 does not take the effort high") == 1
        refused = program.run("-p", "read it", "--effort", "much")
        assert refused.returncode == 2
        assert "expected default|low|medium|high|xhigh|max" in refused.stderr


def test_without_a_home_folder_one_in_the_temporary_folder_takes_its_place(tmp_path: Path) -> None:
    """As in containers that run as a user nobody knows. The folder must be the user's alone."""
    environ = {"PATH": os.environ["PATH"], "HOME": "nowhere", "TMPDIR": str(tmp_path)}
    made = tmp_path / f"tui-agent-{os.getuid()}"
    for mode, is_used in ((None, True), (0o700, True), (0o755, False)):
        if mode is not None:
            made.chmod(mode)
        words = ("--model", "offline", "-p", "list .")
        done = STARTER.run(words, folder=tmp_path, environ=environ, stdin="", timeout=60)
        assert done.returncode == 0, done.stderr
        assert "you have no home folder" in done.stderr
        assert (f"{made} takes" in done.stderr) == is_used
    assert len(list(made.rglob("checkpoints.sqlite"))) == 2
    assert not (tmp_path / "nowhere").exists()


def answering(request: ParsedRequest) -> Step:
    return Step(reasoning="I think.", text=f"Answer to: {request.prompt[-40:]}")


def requests(server: ProtocolServer) -> list[list[bytes]]:
    return [pieces(request.json) for request in server.model_requests if request.json]


def branches(program: Program) -> list[tuple[bool, int]]:
    """Whether it is the present one, and where it ends."""
    told = program.run("-c", "-p", "/tree")
    assert told.returncode == 0, told.stderr
    return [(mark == "*", int(tip)) for mark, tip in re.findall(r"^([ *]) +(\d+)  ", told.stdout, re.MULTILINE)]


def test_a_forked_session_goes_on_leaves_the_other_branch_and_takes_messages_back(tmp_path: Path) -> None:
    with in_thread(GeminiServer(answering)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        first = program.ask("-p", "one", "--model", MODELS["gemini"])
        program.ask("-c", "-p", "two")
        forked = program.ask("-r", first["session_id"], "--fork", "-p", "three, elsewhere")
        assert (forked["exit"], forked["session_id"]) == (0, first["session_id"])
        one, two, three = requests(server)
        assert two[: len(one)] == one
        assert three[: len(two)] == two
        (present, _), (other, tip) = branches(program)
        assert (present, other) == (True, False)
        back = program.run("-c", "-p", f"/tree {tip}")
        assert back.returncode == 0
        assert program.ask("-c", "-p", "four, as if nothing had been")["exit"] == 0
        four = requests(server)[-1]
        assert four[: len(two)] == two
        assert "elsewhere" not in str(four)
        listed = program.run("-c", "-p", "/rewind")
        number = re.search(r"(\d+)[^\n]*four", listed.stdout + listed.stderr)
        assert number is not None, listed
        taken = program.run("-c", "-p", f"/rewind {number[1]}")
        assert taken.returncode == 0
        assert "four" in taken.stdout
        assert program.ask("-c", "-p", "four and a half")["exit"] == 0
        again = requests(server)[-1]
        assert again[:-1] == four[:-1]
        assert "four and a half" in str(again[-1])
        assert server.violations == []
