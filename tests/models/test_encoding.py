"""The pieces requests are made of."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.models.encoding import is_object, read_arguments, read_opaque, safe_id, safe_name, write_opaque


@pytest.mark.parametrize(
    ("written", "arguments", "malformed"),
    [
        ("", "{}", ""),
        (' {"a": 1} ', '{"a": 1}', ""),
        ('{"a": 1', "{}", '{"a": 1'),
        ("[1]", "{}", "[1]"),
        ('"text"', "{}", '"text"'),
        ('{"a": NaN}', "{}", '{"a": NaN}'),
        ('{"a": "\\ud800"}', '{"a":"�"}', ""),
    ],
)
def test_arguments(written: str, arguments: str, malformed: str) -> None:
    assert read_arguments(written) == (arguments, malformed)


def test_arguments_nested_beyond_reason() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    assert read_arguments(deep) == ("{}", deep)


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_written_arguments_are_one_object(written: str) -> None:
    arguments, malformed = read_arguments(written)
    assert is_object(arguments)
    assert isinstance(json.loads(arguments.encode()), dict)
    malformed.encode()


@given(st.text(st.characters(exclude_categories=())))
def test_names_and_ids_are_safe_and_stable(text: str) -> None:
    for safe in (safe_name, safe_id):
        assert 1 <= len(safe(text)) <= 128
        assert safe(text).isascii()
        assert safe(safe(text)) == safe(text)


def test_opaque_of_others_is_nothing() -> None:
    assert read_opaque(write_opaque(signature="s")) == {"signature": "s"}
    for foreign in ("", "nonsense", "[1]", '{"a": 1}', "\ud800"):
        assert read_opaque(foreign) == {}


def test_another_process_writes_the_same_bytes() -> None:
    code = """
import sys
from tests.models.talking import PNG, assistant, request, user
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.models.anthropic import request as anthropic_request
from tui_agent.models.gemini import request as gemini_request
call = ToolCall("a", "grep", '{"b": 1, "a": 2}')
asked = request(user("go", PNG), assistant("I look", call), user(ToolResult("a", "r")))
options = anthropic_request.Options("claude-opus-5-5", "adaptive", True)
sys.stdout.buffer.write(anthropic_request.RequestEncoder().encode(asked, options))
sys.stdout.buffer.write(gemini_request.RequestEncoder("gemini-3.8-flash").encode(asked))
"""
    root = str(Path(__file__).parents[2])
    written = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert written[0] == written[1]
    assert b"claude-opus-5-5" in written[0]
