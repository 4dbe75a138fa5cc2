"""Hooks in front matter, as people write them there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.settings.brought import MAX_FRONT_HOOKS, hooks_in_text

HOOK = {"type": "command", "command": "./check.sh"}
WRITTEN: dict[str, tuple[str, Any]] = {
    "as documented": (
        """
  PreToolUse:
    - matcher: "Bash|Edit"
      hooks:
        - type: command
          command: "./check.sh"
""",
        {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [HOOK]}]},
    ),
    "lists as far left as their keys, comments, empty lines": (
        """  # what it guards

  Stop:   # at the end
  - matcher: .*

    hooks:
    - {type: command, command: ./check.sh}   # in braces
  PostToolUse: []
""",
        {"Stop": [{"matcher": ".*", "hooks": [HOOK]}], "PostToolUse": []},
    ),
    "texts of several lines": (
        """
  literal: |
    if [ ! -f x ]; then
      echo "no: x" >&2

    fi
  stripped: >-
    Check whether
    it is done.

    Return {"ok": true}
  kept: |+
    x

  plain: echo a
    b c
""",
        {
            "literal": 'if [ ! -f x ]; then\n  echo "no: x" >&2\n\nfi\n',
            "stripped": 'Check whether it is done.\nReturn {"ok": true}',
            "kept": "x\n\n",
            "plain": "echo a b c",
        },
    ),
    "in one line": (
        """ {Stop: [{hooks: [{type: command, "command": 'x, y', once: true,
      timeout: 2}]}], "b c": null}
""",
        {"Stop": [{"hooks": [{"type": "command", "command": "x, y", "once": True, "timeout": 2}]}], "b c": None},
    ),
    "nothing": ("\n", None),
}


@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_is_written_is_read(case: str, newline: str) -> None:
    text, value = WRITTEN[case]
    whole = f"\ufeff---\nname: x\nHooks:{text}model: opus\n---\nhooks:\n  Stop: 1\n"
    assert hooks_in_text(whole.replace("\n", newline)) == value


@pytest.mark.parametrize("text", ["hooks:\n  Stop: 1\n", "---\nhooks:\n  Stop: 1\n", "", "---\n---\nhooks: 1\n"])
def test_without_front_matter_there_is_nothing(text: str) -> None:
    assert hooks_in_text(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n\tStop: 1", "cannot start any token"),
        (" &a x", "anchors, aliases and tags"),
        ("\n  Stop: *a", "anchors, aliases and tags"),
        ("\n  Stop: !!python/object:os.system {}", "anchors, aliases and tags"),
        ("\n  Stop\n  x: 1", "line 3 of it"),
        (" [a, b", "expected ',' or ']'"),
        ('\n  a: "b', "unexpected end of stream"),
        (f" {'[' * 500}{']' * 500}", "nested too deeply"),
        ("\n  Stop: \x07", "special characters"),
        (f"\n  Stop: {'x' * MAX_FRONT_HOOKS}", "longer than 50,000 characters"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hooks_in_text(f"---\nhooks:{text}\n---\n")


@given(st.text(alphabet=" \n-:|>\"'[]{},#&a1\\", max_size=60))
def test_nothing_else_is_raised(text: str) -> None:
    try:
        hooks_in_text(f"---\nhooks:{text}\n---\n")
    except ValueError as error:
        assert str(error)  # noqa: PT017
