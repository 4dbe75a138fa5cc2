"""Hostile lines that a rule lets through run inside the sandbox: nothing outside changes, and nothing guarded does."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import pytest

from tests.tools.gate.shell_lines import HARMFUL, LINES
from tests.tools.gate.test_hostile_lines import hostile_tree
from tests.tools.sandbox.test_ways_out import EACH_KIND, Outside, outside, run
from tests.tools.world import tree
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.sandbox import Kind, Sandbox, SandboxFolders, SandboxMechanism
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.tools.shell.run_command import RunCommand

__all__ = ["outside"]


async def changed_by(lines: Iterable[str], place: Outside, kind: Kind) -> list[str]:
    """What the lines, run inside, changed of what they may not."""
    root = hostile_tree(place.place / "hostile")
    (root / "hard").unlink()  # a name in the project of a file outside: what is done to it is done there
    session = place.state / "session"
    places = SandboxFolders(folders=(root,), project=root, program=place.state, session=session, home=place.home)
    background, sandbox = BackgroundCommands(), Sandbox("auto", places, offered=SandboxMechanism(kind, ""))
    tool = RunCommand(background=background, sandbox=sandbox)

    def state() -> dict[str, object]:
        guarded = {name: (root / name).read_text() for name in ("AGENTS.md", ".git/config")}
        return {**tree(root.parent / "outside"), **place.now(), **tree(root / ".git/hooks"), **guarded}

    before = await asyncio.to_thread(state)
    try:
        for line in lines:
            with suppress(ToolFailure):  # some are no text that a shell could be given
                await run(tool, place, line, workspace=Workspace(root), timeout=5)
    finally:
        await background.close()
        sandbox.close()
    now = await asyncio.to_thread(state)
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


@EACH_KIND
async def test_what_does_harm_outside_does_none_inside(outside: Outside, kind: Kind) -> None:
    assert await changed_by(HARMFUL, outside, kind) == []
    assert (outside.place / "hostile/project/PWNED").exists()  # they really ran


@pytest.mark.soak
@EACH_KIND
@pytest.mark.parametrize("part", range(8))
async def test_the_whole_table_does_none(outside: Outside, kind: Kind, part: int) -> None:
    assert await changed_by(LINES[part::8], outside, kind) == []
    assert outside.heard() == []
