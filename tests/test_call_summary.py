"""A call on one line."""

import pytest

from tui_agent.call_summary import call_summary


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ('{"path": "a.py"}', "a.py"),
        ('{"path": "a.py", "offset": 10, "limit": 20}', "a.py offset=10 limit=20"),
        ('{"command": "ls -la", "timeout": 5}', "ls -la timeout=5"),
        ('{"path": "a.py", "old": "x", "new": "y"}', "a.py"),
        ('{"pattern": "TODO", "path": "src"}', "TODO src"),
        ('{"pattern": "TODO", "path": "."}', "TODO"),
        ('{"path": "."}', "."),
        ("{}", ""),
        ("", ""),
        ("[1, 2]", "[1, 2]"),
        ("not json", "not json"),
        ('{"command": "a\\nb \\u001b[31mred"}', "a b red"),
    ],
)
def test_the_telling_arguments_come_first(arguments: str, summary: str) -> None:
    assert call_summary(arguments) == summary


def test_a_long_value_is_cut() -> None:
    assert len(call_summary(f'{{"command": "{"x" * 10_000}"}}')) < 200
