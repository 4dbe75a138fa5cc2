"""A turn in lines, as they are read aloud one by one."""

import pytest

from tui_agent.agent import events
from tui_agent.headless.plain import PlainOutput


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
