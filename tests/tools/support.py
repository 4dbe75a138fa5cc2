"""Calling a tool as a turn does: what it would touch first, then the run."""

import json
from pathlib import Path

from tui_agent.tools.base import (
    Access,
    PermissionAnswer,
    PermissionQuestion,
    SubtaskProgress,
    Tool,
    ToolOutput,
    WorkspaceView,
)
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.gate.workspace import Workspace


class Call:
    """A running call's context over a real workspace."""

    def __init__(self, workspace: WorkspaceView, accesses: tuple[Access, ...], artifacts: Path) -> None:
        self.workspace = workspace
        self.accesses = accesses
        self.artifacts = artifacts
        self.call_id = "call-1"
        self.page_bytes = 1_000_000
        self.deps: object = None
        self.seen: list[str] = []

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        raise NobodyToAsk(question)

    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        self.seen.append(text)


async def call(tool: Tool, where: Path | WorkspaceView, **arguments: object) -> ToolOutput:
    """The output of one call in a workspace, or in a new one with that root."""
    workspace = Workspace(where) if isinstance(where, Path) else where
    text = json.dumps(arguments)
    return await tool.run(text, Call(workspace, tool.access(text, workspace), workspace.root / "artifacts"))
