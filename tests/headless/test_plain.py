"""A turn in lines, as they are read aloud one by one; notices as lines and as remarks of an editor."""

import pytest

from tui_agent.acp.updates import _remark
from tui_agent.agent import events
from tui_agent.headless.plain import PlainOutput
from tui_agent.headless.running import in_a_line


def started(call: str, name: str, arguments: str) -> events.ToolStarted:
    return events.ToolStarted(call_id=call, name=name, arguments=arguments)


def finished(call: str, name: str, text: str, summary: str = "", status: str = "ok") -> events.ToolFinished:
    return events.ToolFinished(
        call_id=call, name=name, status=status, text=text, size=len(text), tokens=1, summary=summary
    )


def test_of_several_calls_at_once_each_result_says_what_it_is_of(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = PlainOutput()
    for event in (
        started("a", "read_file", '{"path": "one.py"}'),
        started("b", "read_file", '{"path": "two.py"}'),
        finished("b", "read_file", "no such file", status="error"),
        finished("a", "read_file", "1", "1 line"),
        started("c", "run_command", '{"command": "ls"}'),
        finished("c", "run_command", "one.py", "exit code 0"),
    ):
        output.tell(event)
    said = capfdbinary.readouterr().out.decode().splitlines()
    assert said == [
        "Reading: one.py",
        "Reading: two.py",
        "Failed: Read two.py",
        "  no such file",
        "Result: Read one.py, 1 line",
        "  1",
        "Running a command: ls",
        "Result: exit code 0",
        "  one.py",
    ]


@pytest.mark.parametrize(
    ("text", "hint", "line", "remark"),
    [
        ("", "", "Reached", "**Reached**"),
        ("in time", "", "Reached: in time", "**Reached:** in time"),
        ("", "go on", "Reached: go on", "**Reached:** go on"),
        ("in time", "go on", "Reached: in time; go on", "**Reached:** in time go on"),
        ("two:\na: x\nb: y", "go on", "Reached: two:\na: x\nb: y\ngo on", "**Reached:** two:\na: x\nb: y\n\ngo on"),
    ],
)
def test_nothing_is_announced_that_does_not_follow(text: str, hint: str, line: str, remark: str) -> None:
    notice = events.Notice(level="info", title="Reached", text=text, hint=hint)
    assert in_a_line(notice) == line
    assert _remark(notice) == f"{remark}\n\n"
