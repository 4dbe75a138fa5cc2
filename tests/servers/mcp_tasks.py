"""A server over standard input and output, with the SDK's own server: its tool `build` becomes a task (MCP 2026-07-28,
extension ``io.modelcontextprotocol/tasks``), which is kept in the folder named on the command line and so outlives it.

A task works until there is a file ``done`` (or ``failed``) in the folder; with a file ``ask`` it first wants an answer.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, RequestParams, Result
from pydantic import ConfigDict
from typing_extensions import override

FOLDER = Path(sys.argv[-1])


def files() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


class Open(Result):
    """A result with any fields."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task", "complete"] = "complete"


class Named(RequestParams):
    task_id: str


class Answers(Named):
    input_responses: dict[str, Any]


class Tasks(Extension):
    identifier = "io.modelcontextprotocol/tasks"

    @override
    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("tasks/get", Named, self.get),
            MethodBinding("tasks/cancel", Named, self.cancel),
            MethodBinding("tasks/update", Answers, self.update),
        )

    @override
    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        if params.name != "build":
            return await call_next(ctx)
        task = f"t{sum(name.startswith('t') for name in files())}"
        (FOLDER / f"{task}.json").write_text(json.dumps(params.arguments))
        return Open(result_type="task", **self._state(task, "working"))

    async def get(self, ctx: ServerRequestContext[Any, Any], params: Named) -> HandlerResult:
        path = FOLDER / f"{params.task_id}.json"
        if not path.exists():
            raise MCPError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        what = json.loads(path.read_text())["what"]
        asked = FOLDER / "ask"
        if asked.exists():
            schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
            form = {"mode": "form", "message": "Which colour?", "requestedSchema": schema}
            wanted = {"q1": {"method": "elicitation/create", "params": form}}
            return Open(**self._state(params.task_id, "input_required", inputRequests=wanted))
        answer = FOLDER / "answer"
        if (FOLDER / "failed").exists():
            error = {"code": -32603, "message": "no more disk"}
            return Open(**self._state(params.task_id, "failed", error=error))
        if (FOLDER / "done").exists() or answer.exists():
            told = f"built {what}{answer.read_text() if answer.exists() else ''}"
            result = {"content": [{"type": "text", "text": told}], "isError": False}
            return Open(**self._state(params.task_id, "completed", result=result))
        return Open(**self._state(params.task_id, "working", statusMessage="half of it"))

    async def cancel(self, ctx: ServerRequestContext[Any, Any], params: Named) -> HandlerResult:
        (FOLDER / f"{params.task_id}.json").rename(FOLDER / f"{params.task_id}.cancelled")
        return Open()

    async def update(self, ctx: ServerRequestContext[Any, Any], params: Answers) -> HandlerResult:
        (FOLDER / "ask").unlink()
        (FOLDER / "answer").write_text(f" in {params.input_responses['q1']['content']['colour']}")
        return Open()

    def _state(self, task: str, status: str, **more: Any) -> dict[str, Any]:
        when = "2026-11-01T10:00:00Z"
        return {
            "taskId": task, "status": status, "createdAt": when, "lastUpdatedAt": when, "ttlMs": None,
            "pollIntervalMs": 100, **more,
        }  # fmt: skip


server = MCPServer("builder", extensions=[Tasks()])


@server.tool()
def build(what: str) -> str:
    """Build something, which takes long."""
    return what


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Offer one more tool."""
    server.add_tool(build, name="grown")
    await context.notify_tools_changed()
    return "grown"


@server.tool()
def die() -> str:
    """End this server."""
    sys.exit(7)


if __name__ == "__main__":
    server.run("stdio")
