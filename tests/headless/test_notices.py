"""Notices as lines and as remarks of an editor."""

import pytest

from tui_agent.acp.updates import _remark
from tui_agent.agent.events import Notice
from tui_agent.headless.running import in_a_line


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
    notice = Notice(level="info", title="Reached", text=text, hint=hint)
    assert in_a_line(notice) == line
    assert _remark(notice) == f"{remark}\n\n"
