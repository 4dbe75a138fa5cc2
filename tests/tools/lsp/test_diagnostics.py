"""What an edit newly broke, by a real language server (ruff's) in a real session."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.settings import GivenValue
from tui_agent.tools.lsp import programs

SETTINGS: dict[str, GivenValue] = {"diagnostics.warnings": True, "diagnostics.wait_s": 60.0}
SAID = "[1 new problem since this edit"


@pytest.fixture(autouse=True)
def ruff_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    # A type checker that may be on this machine would have its own say.
    monkeypatch.setattr(programs, "PROGRAMS", programs.PROGRAMS[1:2])


def texts(seen: list[events.AgentEvent]) -> list[str]:
    return [event.text for event in seen if isinstance(event, events.ToolFinished)]


def servers() -> list[psutil.Process]:
    found = (process for process in psutil.Process().children(recursive=True) if process.is_running())
    return [process for process in found if process.cmdline()[-1:] == ["server"]]


async def test_only_what_an_edit_newly_broke_is_told(tmp_path: Path) -> None:
    async with talking(tmp_path, SETTINGS) as session:
        (tmp_path / "project/one.py").write_text("import os\nx = 1\n")
        (text,) = texts(await say(session, 'replace "x = 1" with "x = y" in one.py'))
        assert SAID in text
        assert "one.py:2:5: Undefined name `y` (Ruff F821)" in text
        assert "F401" not in text, "it was there before"
        (text,) = texts(await say(session, 'replace "x = y" with "\n\nx = y  # moved" in one.py'))
        assert "new problem" not in text, "a problem that has only moved is none"
        (tmp_path / "project/one.py").write_text("x = 1\n")
        (text,) = texts(await say(session, 'replace "x = 1" with "x = z" in one.py'))
        assert SAID in text, "others may change the file meanwhile"
        (text,) = texts(await say(session, 'write "no code" to notes.txt'))
        assert "problem" not in text
    assert servers() == []


@pytest.mark.parametrize(
    ("following", "since"),
    [('write "z = {}" to two.py', "this edit"), ("read one.py", "the last edit"), ("run echo {}", "the last edit")],
)
async def test_what_is_known_late_comes_with_the_next_result(tmp_path: Path, following: str, since: str) -> None:
    settings: dict[str, GivenValue] = SETTINGS | {"diagnostics.wait_s": 0.0, "permissions.mode": "allow"}
    async with talking(tmp_path, settings) as session:
        (text,) = texts(await say(session, 'write "x = y" to one.py'))
        assert "problem" not in text
        async with asyncio.timeout(60):
            for number in range(10_000):
                (text,) = texts(await say(session, following.format(number)))
                if "problem" in text:
                    break
        assert f"[1 new problem since {since};" in text
        assert text.splitlines()[-1].startswith("one.py:1:5: Undefined name `y`")
        (text,) = texts(await say(session, following.format(0)))
        assert "problem" not in text
