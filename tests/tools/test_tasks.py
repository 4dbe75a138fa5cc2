"""The task list's tool: what it answers, and that no mode stands in its way."""

import json
from pathlib import Path
from typing import get_args

import pytest

from tests.tools.support import call
from tests.tools.world import Person
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.tasks import Todo


@pytest.mark.parametrize(
    ("states", "text", "summary"),
    [
        ([], "Noted: there is no task list any more.", "no items"),
        (["pending", "pending"], "Noted: 0 of 2 done.", "0/2 done"),
        (["done", "in_progress", "pending"], "Noted: 1 of 3 done.", "1/3 done"),
        (["done"] * 50, "Noted: all 50 are done.", "50/50 done"),
    ],
)
async def test_it_says_how_far_the_list_is(tmp_path: Path, states: list[str], text: str, summary: str) -> None:
    output = await call(Todo(), tmp_path, items=[{"text": "a step", "state": state} for state in states])
    assert (output.text, output.summary) == (text, summary)


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_every_mode_lets_it_pass_unasked(tmp_path: Path, mode: Mode) -> None:
    person = Person()
    asked = ToolCall("c", "todo", json.dumps({"items": [{"text": "a", "state": "pending"}]}))
    verdict = await PermissionGate(mode, Workspace(tmp_path)).check(Todo(), asked, person)
    assert verdict.allowed
    assert not person.questions
