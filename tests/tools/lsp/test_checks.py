"""What a configured check newly says after an edit, in the forms in which linters print."""

from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.settings import GivenValue
from tui_agent.tools.lsp.diagnosing import _problems_in

RUFF = """F821 Undefined name `y`
 --> project/one.py:1:5
  |
1 | x = y
  |     ^
  |

F401 [*] `os` imported but unused
 --> project/one.py:2:8
  |
2 | import os
  |        ^^
  |
help: Remove unused import: `os`

Found 2 errors.
"""
FLAKE8 = "./one.py:1:5: F821 undefined name 'y'\n./one.py:2:1: F401 'os' imported but unused\n"
TSC = "src/one.py(1,5): error TS2304: Cannot find name 'y'.\nsrc/other.py(9,1): error TS1: No.\n"
ESLINT = "\n/srv/one.py\n  1:5  error  'y' is not defined  no-undef\n  2:1  error  unused  no-unused\n\n✖ 2 problems\n"


@pytest.mark.parametrize(
    ("said", "problems"),
    [
        (
            RUFF,
            [
                "F821 Undefined name `y` --> project/one.py:1:5",
                "F401 [*] `os` imported but unused --> project/one.py:2:8",
            ],
        ),
        (FLAKE8, FLAKE8.splitlines()),
        (TSC, TSC.splitlines()[:1]),
        (ESLINT, ["one.py: 1:5 error 'y' is not defined no-undef", "one.py: 2:1 error unused no-unused"]),
        ("All good.\n", []),
        ("other.py\n  1:5  error  'y' is not defined\n", []),
        ("one.py: all is well\n", []),
    ],
)
def test_problems_are_found_in_what_linters_print(said: str, problems: list[str]) -> None:
    assert [shown for shown, _ in _problems_in(said, "one.py")] == problems


async def test_only_what_is_new_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    settings: dict[str, GivenValue] = {
        "model.id": "offline",
        "diagnostics.enabled": False,
        "diagnostics.wait_s": 30.0,
        "diagnostics.checks": {"*.txt": "! grep -Hn 'bad' {file}"},
    }
    async with talking(tmp_path, settings) as session:
        (tmp_path / "project/a b.txt").write_text("bad one\nfine\n")

        async def said(prompt: str) -> str:
            seen = await say(session, prompt)
            return "".join(event.text for event in seen if isinstance(event, events.ToolFinished))

        text = await said('replace "fine" with "a bad two" in "a b.txt"')
        assert "[1 new problem" in text
        assert "a b.txt:2:a bad two" in text
        assert "problem" not in await said('replace "bad one" with "x\ny\nbad one" in "a b.txt"'), "they moved"
        assert "problem" not in await said('replace "a bad two" with "" in "a b.txt"')
        assert "a bad two" in await said('replace "x\n" with "a bad two\n" in "a b.txt"')
        assert "problem" not in await said('write "bad" to other.md')
