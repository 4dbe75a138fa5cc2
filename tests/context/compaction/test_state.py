"""The block of where things are: what it tells, what it leaves out, and that it stays small and the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.talks import Talk
from tests.conversation.logs import logs
from tui_agent.context.compaction.state import HEADING, MOST_TOKENS, RAN, where_things_are
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import (
    NO_OUTCOME,
    Checkpointed,
    HeadMoved,
    Message,
    Outcome,
    Summarized,
    Undone,
    tool_result,
)
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.view import View

PYTEST = """..F
E       assert 2 == 3
=== short test summary info ===
FAILED tests/test_parser.py::test_names - assert 2 == 3
1 failed, 2 passed in 0.12s
[exit code 1, 0.4 s]"""
PASSED = "3 passed in 0.10s\n[exit code 0, 0.4 s]"


class Work(Talk):
    """A conversation in which files are changed and commands run."""

    def begin(self, name: str, arguments: dict[str, object]) -> None:
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, json.dumps(arguments))
        self.add(Message(role="assistant", blocks=(call,)))

    def run(
        self, command: str, printed: str, *, failed: bool = False, outcome: Outcome | None = None, stopped: str = ""
    ) -> None:
        self.begin("run_command", {"command": command})
        self.answer(printed, failed=failed, outcome=outcome or Outcome(exit_code=int(failed)), stopped=stopped)

    def look(self, process: int, printed: str, *, failed: bool = False, outcome: Outcome) -> None:
        self.call("command_output", process=process)
        self.answer(printed, failed=failed, outcome=outcome)

    def answer(self, text: str, *, failed: bool = False, outcome: Outcome = NO_OUTCOME, stopped: str = "") -> None:
        notes = sum(line.startswith("[") and line != "[no output]" for line in text.split("\n"))
        notes += text.startswith("[no output]") and not outcome.timed_out
        result = ToolResult(f"c{self.calls}", text, is_error=failed)
        self.add(tool_result(result, outcome=outcome.with_notes(notes), stop_reason=stopped))

    def plan(self, *items: tuple[str, str]) -> None:
        self.tool("Noted.", "todo", items=[{"text": text, "state": state} for text, state in items])

    def block(self, running: dict[int, str] | None = None) -> list[str]:
        text = where_things_are(self.view, running or {})
        heading, *lines = text.split("\n") if text else [HEADING]
        assert heading == HEADING
        return lines


def test_all_of_it() -> None:
    work = Work()
    work.ask("rename the parser")
    work.plan(("read the parser", "done"), ("rename it", "in_progress"), ("run the tests", "pending"))
    work.tool("Created", "write_file", path="src/names.py", content="x")
    work.tool("Replaced", "edit_file", path="./src/parser.py", old="a", new="b")
    work.tool("Replaced", "edit_file", path="src/names.py", old="a", new="b")
    work.run("pytest -q", PYTEST, failed=True)
    assert work.block({71: "npm run dev", 80: "tail -f log"}) == [
        "Task list, 1 of 3 done:",
        "[x] read the parser",
        "[>] rename it",
        "[ ] run the tests",
        "Files changed since the task began:",
        "- src/names.py",
        "- src/parser.py",
        "Failed and has not succeeded since: `pytest -q`",
        "  === short test summary info ===",
        "  FAILED tests/test_parser.py::test_names - assert 2 == 3",
        "  1 failed, 2 passed in 0.12s",
        "Running in the background:",
        "- process 80: `tail -f log`",
        "- process 71: `npm run dev`",
    ]


def test_a_finished_list_takes_one_line_and_of_a_long_one_what_is_open_stays() -> None:
    work = Work()
    work.plan(("a", "done"), ("b", "done"))
    assert work.block() == ["Task list, 2 of 2 done"]
    done = [(f"step {number} that was done long ago and has a long name", "done") for number in range(30)]
    work.plan(*done, ("rename it", "in_progress"), ("run the tests", "pending"))
    lines = work.block()
    assert lines[0] == "Task list, 30 of 32 done:"
    assert lines[-3:-1] == ["[>] rename it", "[ ] run the tests"]
    shown = [line for line in lines if line.startswith("[x]")]
    assert shown[-1] == "[x] step 29 that was done long ago and has a long name"
    assert 5 < len(shown) < 30
    assert lines[-1] == f"- and {30 - len(shown)} more"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_dir", {"path": "."}),
        ("memory", {"action": "write", "text": "note"}),
        ("write_file", {"path": " "}),
        ("write_file", {"path": 3}),
    ],
)
def test_what_changes_no_file(name: str, arguments: dict[str, object]) -> None:
    work = Work()
    work.begin(name, arguments)
    work.answer("done")
    work.tool("not in the file", "edit_file", failed=True, path="a.py")
    assert work.block() == []


def test_files_read_are_told_until_they_are_changed() -> None:
    work = Work()
    work.tool("1", "read_file", path="src/a.py")
    work.tool("2", "grep", pattern="x", path="src")
    work.tool("1", "read_file", path="src/a.py")
    assert work.block() == ["Read, newest first:", "- src/a.py", "- src"]
    work.tool("done", "edit_file", path="src/a.py", old="1", new="2")
    work.tool("2", "read_file", path="src/a.py")
    assert work.block() == ["Files changed since the task began:", "- src/a.py", "Read, newest first:", "- src"]


def test_a_folder_that_paths_share_is_said_once() -> None:
    work = Work()
    for path in ("/srv/me/src/a.py", "/srv/me/src/b.py", "/tmp/log"):
        work.tool("1", "read_file", path=path)
    assert work.block() == ["Read, in /srv/me/src, newest first:", "- /tmp/log", "- b.py", "- a.py"]


def test_commands_are_told_with_their_exit_codes_likeliest_first() -> None:
    work = Work()
    work.run("make test", "ok", outcome=Outcome(exit_code=0))
    work.run("make test", "1 failed", failed=True, outcome=Outcome(exit_code=2))
    work.run("cd src\nls", "a.py", outcome=Outcome(exit_code=0))
    work.run("echo " + "x" * 400, "x", outcome=Outcome(exit_code=0))
    work.run("mypy", "1 error", failed=True, outcome=Outcome(exit_code=1))
    assert work.block() == [
        "Failed and has not succeeded since: `mypy`",
        "  1 error",
        RAN,
        "- `make test` (exit code 2)",
        "- `cd src ⏎ ls`",
    ]


def test_questions_are_told_with_their_answers() -> None:
    work = Work()
    work.say("Both work.\n\nShall I keep the old name, or use the new one?")
    work.ask("the new one")
    work.tool("The user answered: yes", "ask_user", question="Also in the docs?")
    work.say("Done.")
    assert work.block() == [
        "Asked of the user:",
        "- Also in the docs? → The user answered: yes",
        "- Shall I keep the old name, or use the new one?",
    ]


def test_another_tool_that_shows_a_diff_changed_a_file_and_of_many_the_newest_stay() -> None:
    work = Work()
    work.call("reformat", path="a.py")
    work.add(tool_result(ToolResult("c1", "done"), diff="--- a\n+++ b\n"))
    assert work.block() == ["Files changed since the task began:", "- a.py"]
    for number in range(100):
        work.tool("done", "write_file", path=f"src/a/long/enough/path/module_{number}.py")
    lines = work.block()
    assert lines[1] == "- src/a/long/enough/path/module_99.py"
    assert lines[-1] == f"- and {101 - (len(lines) - 2)} more"


def test_a_failure_is_gone_once_the_same_command_succeeds() -> None:
    work = Work()
    work.run("pytest -q", PYTEST, failed=True)
    work.run("mypy", "a.py:1: error: no\nFound 1 error\n[exit code 1]", failed=True)
    assert work.block() == [
        "Failed and has not succeeded since: `mypy`",
        "  a.py:1: error: no",
        "  Found 1 error",
        RAN,
        "- `pytest -q` (exit code 1)",
    ]
    work.run("mypy", "Success\n[exit code 0]")
    assert work.block()[0] == "Failed and has not succeeded since: `pytest -q`"
    work.run("pytest  -q", PASSED)
    assert work.block() == [RAN, "- `mypy`", "- `pytest -q`"]
    work.run("mypy", "Success\n[exit code 0]")
    work.run("ls", "a.py\n[exit code 0]")
    assert work.block() == [RAN, "- `mypy`", "- `pytest -q`", "- `ls`"]


@pytest.mark.parametrize(
    ("command", "printed", "stopped"),
    [
        ("grep -r nowhere .", "[no output]\n[exit code 1, 0.1 s]", ""),
        ("diff a.txt b.txt", "< one\n> two\n[exit code 1, 0.1 s]", ""),
        ("rm -r build", "You declined this call.", "denied"),
        ("rm -r build", "You declined this call.", "interrupted"),
    ],
)
def test_what_says_nothing_gives_an_answer_or_was_not_done_did_not_fail(
    command: str, printed: str, stopped: str
) -> None:
    work = Work()
    work.say("FAILED")
    assert work.block() == []
    work.run(command, printed, failed=True, stopped=stopped)
    assert work.block() == []
    work.run("cat report.txt", "FAILED (errors=1)\n1 failed, 2 passed in 0.12s\n[exit code 0]")
    assert work.block() == [RAN, "- `cat report.txt`"]


def test_a_timeout_is_told() -> None:
    work = Work()
    note = "[timeout: ended after 120 s with everything it had started]"
    work.run("make", f"[no output]\n{note}", failed=True, outcome=Outcome(timed_out=True))
    assert work.block() == ["Failed and has not succeeded since: `make`", "  [no output]", f"  {note}"]


def test_the_last_lines_of_a_failure_are_shown_in_any_language() -> None:
    work = Work()
    printed = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\n  File "b.py", line 9, in f\n'
        "    raise ValueError(3)\nValueError: 3\n[exit code 1, 0.1 s]"
    )
    work.run("python a.py", printed, failed=True)
    assert work.block()[1:] == ['  File "b.py", line 9, in f', "  raise ValueError(3)", "  ValueError: 3"]


def test_a_result_of_an_earlier_version_says_whether_it_failed_but_not_what_goes_on() -> None:
    work = Work()
    work.begin("run_command", {"command": "make test"})
    work.answer("process 71 goes on")
    work.call("command_output", process=71)
    work.answer("still running", failed=True)
    assert work.block() == []
    work.begin("run_command", {"command": "make"})
    work.answer("Fehler 2\n[exit code 2]", failed=True)
    assert work.block()[0] == "Failed and has not succeeded since: `make`"


def test_a_background_command_is_judged_when_it_has_ended() -> None:
    work = Work()
    work.run("make test", "[it goes on]", outcome=Outcome(left_running=71))
    assert work.block() == []
    work.look(71, "[no new output]\n[still running after 3.0 s]", outcome=Outcome(left_running=71))
    assert work.block() == []
    work.look(71, "make: *** Error 2\n[exit code 2]", failed=True, outcome=Outcome(exit_code=2))
    assert work.block() == ["Failed and has not succeeded since: `make test`", "  make: *** Error 2"]
    work.run("make test", "[it goes on]", outcome=Outcome(left_running=72))
    assert len(work.block()) == 2
    work.look(72, "ok\n[exit code 0]", outcome=Outcome(exit_code=0))
    assert work.block() == [RAN, "- `make test`"]


def test_a_checkpoint_ends_the_task_and_undoing_it_brings_the_task_back() -> None:
    work = Work()
    work.ask("first task")
    work.tool("done", "write_file", path="old.py")
    work.run("pytest -q", PYTEST, failed=True)
    work.say("done")
    record = work.add(Checkpointed(first=2, last=len(work.view.log), text="[Completed task]"))
    assert work.block() == []
    work.tool("done", "write_file", path="new.py")
    assert work.block() == ["Files changed since the task began:", "- new.py"]
    work.add(Undone(target=record))
    assert work.block()[:3] == ["Files changed since the task began:", "- new.py", "- old.py"]


def test_a_summary_hides_nothing_of_it_and_a_rewind_takes_it_back() -> None:
    work = Work()
    work.ask("go")
    begin = len(work.view.log)
    work.plan(("rename it", "in_progress"))
    work.tool("done", "write_file", path="a.py")
    work.run("pytest -q", PYTEST, failed=True)
    before = work.block()
    work.add(Summarized(first=2, last=len(work.view.log), text="[Previous conversation summary]"))
    assert work.block() == before
    work.add(HeadMoved(to=begin, reason="rewind"))
    assert work.block() == []


def test_terminal_escapes_and_line_breaks_do_not_get_through() -> None:
    work = Work()
    work.plan(("one\x1b[31m\ntwo\u202e", "pending"))
    work.tool("done", "write_file", path="a\x1b]0;x\x07\nb.py")
    work.run("echo '\x1b[2J'\nfalse", "bad\x1b[1m line\u2028\n[exit code 1]", failed=True)
    text = where_things_are(work.view, {1: "sleep\n1\x1b[0m"})
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.split("\n")[1:] == [
        "Task list, 0 of 1 done:",
        "[ ] one two",
        "Files changed since the task began:",
        "- a b.py",
        "Failed and has not succeeded since: `echo '' false`",
        "  bad line",
        "Running in the background:",
        "- process 1: `sleep 1`",
    ]


WORDS = st.text(alphabet=st.sampled_from("ab é漢😀\n\x1b[]`"), max_size=400) | st.just("漢" * 400) | st.just("x" * 400)


@given(
    items=st.lists(st.tuples(WORDS, st.sampled_from(["pending", "in_progress", "done"])), max_size=50),
    paths=st.lists(WORDS, max_size=30),
    commands=st.lists(st.tuples(WORDS, WORDS), max_size=4),
    running=st.dictionaries(st.integers(1, 99_999), WORDS, max_size=16),
)
def test_it_is_small_whatever_there_is_and_the_same_after_a_reload(
    items: list[tuple[str, str]], paths: list[str], commands: list[tuple[str, str]], running: dict[int, str]
) -> None:
    work = Work()
    work.plan(*items)
    for path in paths:
        work.tool("done", "write_file", path=path)
    for command, printed in commands:
        work.run(command, printed, failed=True)
    text = where_things_are(work.view, running)
    assert estimate(size_of_text(text)) <= MOST_TOKENS
    again = View(list(work.view.log))
    assert where_things_are(again, dict(reversed(running.items()))) == text


@given(logs())
def test_any_log_has_one(view: View) -> None:
    assert where_things_are(view, {}).startswith(HEADING) or not where_things_are(view, {})
