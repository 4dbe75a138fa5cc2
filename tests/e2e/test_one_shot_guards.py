"""What a one-shot run says of subtasks, of the cost ceiling, and of a watchdog that has nobody to ask."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.billing import billed
from tests.agent.test_pictures import photograph
from tests.e2e.program import MODELS, Program, events_of
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Script, Step, Turn

SMALL = "gemini:gemini-3.8-flash"
LOOP = ", then ".join(["read calc.py"] * 7)


def delegating(request: ParsedRequest) -> Step:
    if "on behalf of another agent" in request.system:
        reading = Step(calls=(Call("read_file", {"path": "calc.py"}),))
        return Step(text="It subtracts.") if request.position else reading
    asking = Call("agentic_research", {"question": "What does add do?"})
    return Step(text="There is a bug.") if request.position else Step(calls=(asking, asking))


def test_the_report_has_the_models_and_the_cost_of_subtasks(tmp_path: Path) -> None:
    with in_thread(GeminiServer(delegating)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        answer = program.ask("-p", "Find the bug.", "--model", MODELS["gemini"])
        bill = asyncio.run(billed(server))
        assert server.violations == []
        assert answer["exit"] == 0
        assert answer["models"] == sorted(bill, key=lambda name: -bill[name])
        assert set(answer["models"]) == {f"gemini:{MODELS['gemini']}", SMALL}
        assert answer["cost_usd"] == pytest.approx(sum(bill.values()))
        assert answer["turns"] == 2
        stats = program.ask("-p", "/stats", "-c")
        assert (stats["models"], stats["cost_usd"]) == ([], 0.0)
        assert "Of the session, 2 subtasks: 4 calls" in stats["result"]
        assert f"${bill[SMALL]:.4f}" in stats["result"]
        assert "Session: 6 calls" in stats["result"]
        context = program.ask("-p", "/context", "-c")["result"]
        assert "Subtasks:     2 (" in context
        assert SMALL in context
        compacted = program.ask("-p", "/compact", "-c")
        assert compacted["cost_usd"] == pytest.approx(sum(asyncio.run(billed(server)).values()) - sum(bill.values()))
        assert bool(compacted["models"]) == (compacted["cost_usd"] > 0)


@pytest.mark.parametrize(
    ("bound", "repeated"),
    [pytest.param("turn", True, id="turn, flag repeated"), pytest.param("session", False, id="session, flag left out")],
)
def test_a_ceiling_that_was_reached_holds_in_the_next_process_until_it_is_reset(
    bound: str, repeated: bool, tmp_path: Path
) -> None:
    answer = Step(text="A dear answer. " * 200)
    with in_thread(AnthropicServer(lambda _: answer)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        before = program.ask("-p", "hello", "--model", MODELS["anthropic"], f"--max-{bound}-cost-usd", "0.0001")
        assert (before["exit"], before["error"]["kind"], before["error"]["retryable"]) == (1, "cost_ceiling", False)
        assert "input alone" in before["error"]["message"]
        assert f"--max-{bound}-cost-usd" in before["stderr"]
        assert server.model_requests == []
        named = ("--model", MODELS["anthropic"], f"--max-{bound}-cost-usd", "0.02")
        first = program.ask("-p", "hello", *named)
        assert first["error"]["kind"] == "cost_ceiling"
        asked = len(server.model_requests)
        again = program.ask("-c", "-p", "go on", *named)
        assert (again["exit"], again["error"]) == (1, first["error"])
        assert "/continue-spending" in again["stderr"]
        assert len(server.model_requests) == asked
        reset = program.run("-c", "-p", "/continue-spending", *(named if repeated else ()))
        assert reset.returncode == 0
        assert "may cost" in reset.stdout
        assert len(server.model_requests) == asked
        program.ask("-c", "-p", "go on now", *named)
        assert len(server.model_requests) == asked + 1
        told = str(server.model_requests[-1].json)
        assert "go on now" in told
        twice = program.run("-c", "-p", "/continue-spending", *named)
        assert "may cost" in twice.stdout
        assert "nothing was reset" in program.run("-c", "-p", "/continue-spending", *named).stdout
        raised = program.ask("-c", "-p", "go on", f"--max-{bound}-cost-usd", "5")
        assert (raised["exit"], raised["is_error"]) == (0, False)
        assert len(server.model_requests) == asked + 2


def test_a_plan_with_nobody_to_approve_it_is_approved_by_the_next_prompt(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    planned = program.ask("-p", 'plan "mend it"', "--model", "offline", "--ask", "plan")
    assert (planned["exit"], planned["question"]["kind"]) == (3, "plan")
    assert program.run("-c", "-p", "approve", "--model", "offline").returncode == 0
    assert "[ ] mend it" in program.run("-c", "-p", "/todo", "--model", "offline").stdout


def test_several_questions_of_one_step_are_all_reported_and_answered_together(tmp_path: Path) -> None:
    which = Call("ask_user", {"question": "Which one?", "choices": ["this", "that"]})
    many = Call("ask_user", {"question": "How many?", "choices": []})
    making = Call("run_command", {"command": "touch made"})
    asking = Turn((Step(calls=(which, making, many)), Step(text="Thanks.")), when="begin")
    with in_thread(AnthropicServer(Script((asking,)))) as server:
        program = Program.in_folder(tmp_path, server.environment)
        named = ("--model", MODELS["anthropic"], "--ask", "allow")
        answer = program.ask("-p", "begin", *named)
        assert (answer["exit"], answer["error"]["kind"]) == (3, "needs_answer")
        assert [each["text"] for each in answer["questions"]] == ["Which one?", "How many?"]
        asked = {"kind": "question", "tool": "ask_user", "text": "Which one?", "choices": ["this", "that"]}
        assert answer["question"] == answer["questions"][0] == asked
        assert "2 questions wait" in answer["error"]["message"]
        assert "1. this" in answer["stderr"]
        assert "How many?" in answer["stderr"]
        assert program.ask("-c", "-p", "begin: that, two of them", *named)["result"] == "Thanks."
        sent = str(server.model_requests[-1].json)
        assert sent.count("nobody was there to answer") == 2
        assert server.violations == []


def test_a_watchdog_with_nobody_to_ask_says_what_else_it_can_do(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    answer = program.ask("-p", LOOP, "--model", "offline", "--watchdog", "prompt")
    assert answer["exit"] == 3
    assert answer["error"]["kind"] == "needs_approval"
    assert "looks stuck" in answer["error"]["message"]
    assert "--watchdog warn" in answer["stderr"]
    assert "permissions.allow" not in answer["stderr"]
    told = program.run("-p", LOOP, "--model", "offline", "--watchdog", "warn")
    assert told.returncode == 0
    assert "watchdog: read_file was called 5 times in a row" in told.stderr
    events = events_of(program.run("-p", LOOP, "--model", "offline", "--output-format", "stream-json").stdout)
    assert [event["action"] for event in events if event["type"] == "alert"] == ["warn"]


def test_pictures_that_the_prompt_of_a_one_shot_run_mentions(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(lambda _: Step(text="I see."))) as server:
        program = Program.in_folder(tmp_path, server.environment)
        for number in range(20):
            # A large one takes a second to be made smaller; twenty of them are sent by the app's tests.
            made = photograph(number) if number < 2 else photograph(number, (320, 240))
            (program.project / f"{number}.jpg").write_bytes(made)
        (program.project / "none.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(500))
        mentions = " ".join(f"@{number}.jpg" for number in range(20))
        done = program.run("-p", f"What is on {mentions} and @none.png?", "--model", MODELS["anthropic"])
        assert (done.returncode, done.stdout.strip()) == (0, "I see.")
        assert "Not sent as a picture: none.png: it is damaged, or not a picture" in done.stderr
        assert server.model_requests[-1].body.count(b'"type":"image"') == 20
        assert program.ask("-p", "And now?", "-c")["result"] == "I see."
        assert server.violations == []


def test_a_one_shot_run_is_told_of_a_cold_cache(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(lambda _: Step(text="Here."))) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__CONTEXT__COLD_NOTICE_USD": "0.001"})
        assert "cold" not in program.ask("-p", "Hello.", "--model", MODELS["anthropic"])["stderr"]
        assert "cold" not in program.ask("-p", "And now?", "-c")["stderr"]
        told = program.run("-p", "And now?", "-c", "--model", "claude-sonnet-5-5")
        assert (told.returncode, told.stdout.strip()) == (0, "Here.")
        assert "The cache is cold: This call reads" in told.stderr
        assert "another model answers, whose cache is empty" in told.stderr
