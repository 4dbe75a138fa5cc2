"""The standard scripted task: read, look around in parallel, fix a bug, run the test, answer."""

from __future__ import annotations

from pathlib import Path

from tests.servers.script import Call, Script, Step

PROMPT = "The test in test_calc.py fails. Find the bug in calc.py, fix it and run the test."

CALC = '''"""Arithmetic."""


def add(a: int, b: int) -> int:
    return a - b


def double(a: int) -> int:
    return a * 2
'''

FIXED_CALC = CALC.replace("return a - b", "return a + b")

TEST_CALC = """from calc import add, double


def test_add() -> None:
    assert add(2, 3) == 5


def test_double() -> None:
    assert double(4) == 8


if __name__ == "__main__":
    test_add()
    test_double()
    print("2 tests passed")
"""

ANSWER = """## Fixed

`add` in `calc.py` subtracted instead of adding:

```python
def add(a: int, b: int) -> int:
    return a + b
```

- the test **passes** now
- nothing else was changed
"""


def make_coding_workspace(directory: Path) -> Path:
    """Write ``calc.py`` (with the bug) and ``test_calc.py`` into ``directory``, made if needed; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "calc.py").write_text(CALC)
    (directory / "test_calc.py").write_text(TEST_CALC)
    return directory


def coding_task_script(*, command: str = "python test_calc.py", delay: float = 0.0) -> Script:
    """The task's five answers; ``delay`` in seconds before each streamed piece. Works for any prompt."""
    return Script.of(
        Step(
            text="I will read the module first.",
            reasoning="The test names calc.py, so the bug is most likely there.",
            calls=(Call("read_file", {"path": "calc.py"}),),
            delay=delay,
        ),
        Step(
            text="`add` looks wrong. I check who uses it.",
            reasoning="add subtracts. Before changing it, see its callers.",
            calls=(Call("grep", {"pattern": r"add\("}), Call("list_dir", {"path": "."})),
            delay=delay,
        ),
        Step(
            reasoning="Only the test uses it: one edit is enough.",
            calls=(Call("edit_file", {"path": "calc.py", "old": "return a - b", "new": "return a + b"}),),
            delay=delay,
        ),
        Step(text="Now the test.", calls=(Call("run_command", {"command": command}),), delay=delay),
        Step(text=ANSWER, delay=delay),
    )
