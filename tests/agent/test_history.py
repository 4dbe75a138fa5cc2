"""A conversation told again after a restart looks as it did while it happened."""

from collections.abc import Iterable
from pathlib import Path

from tests.agent.talking import Person, of, say, talking
from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.session_parts import REMEMBERED_FILE

EACH = [
    "read calc.py",
    "run echo out; exit 3",
    "find def in .",
    "read missing.py",
    'replace "return" with "yield" in calc.py everywhere',
    'write "new" to calc.py',
]
Line = tuple[str, str, str, str]


def shown(told: Iterable[AgentEvent]) -> list[Line]:
    return [(each.name, each.status, each.summary, each.diff) for each in of(events.ToolFinished, told)]


async def test_results_have_the_same_line(tmp_path: Path) -> None:
    live: list[Line] = []
    async with talking(tmp_path) as session:
        for prompt in EACH:
            lines = shown(await say(session, prompt))
            assert any(diff for *_, diff in lines) == prompt.startswith(("replace", "write"))
            live += lines
        # What was stopped and what was declined are no failures.
        told: list[AgentEvent] = []
        async for event in session.agent.run("run echo begun; sleep 60"):
            told.append(event)
            if isinstance(event, events.ToolProgress) and "begun" in event.text:
                session.agent.interrupt()
        live += shown(told)
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=Person(allowed=False), resume=session.id) as session:
        live += shown(await say(session, "run echo never"))
    assert [status for _, status, *_ in live[-2:]] == ["interrupted", "denied"]
    async with talking(tmp_path, resume=session.id) as session:
        assert shown(session.agent.branches.history()) == live


async def test_an_always_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=Person(always=True)) as session:
        (tmp_path / "home" / REMEMBERED_FILE).write_text("{")
        told = await say(session, "run echo once")
    (notice,) = (each for each in of(events.Notice, told) if "remembered" in each.title)
    assert "only for this session" in notice.text
    assert "damaged" in notice.text
