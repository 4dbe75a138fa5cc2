"""Tasks, an extension of MCP 2026-07-28 (``io.modelcontextprotocol/tasks``): the server answers a call with a task,
works on it by itself, and is asked from time to time how far it is.

This module imports the SDK: import it only where that is loaded already.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final, Literal

from mcp.client import ClientRequestContext, ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    EmptyResult,
    ErrorData,
    InputRequest,
    Request,
    RequestParams,
    Result,
)
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from tui_agent.text import one_line

POLL_S: Final = 1.0
"""Seconds between two questions, unless the server names others."""
_SOONEST_S, _LATEST_S = 0.1, 60.0
_INPUT: Final[TypeAdapter[InputRequest]] = TypeAdapter(InputRequest)


class TaskState(Result):
    """How far a task is. The server's words are untrusted."""

    result_type: str = "complete"
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: int | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def pause(self) -> float:
        """Seconds until it is asked again."""
        wanted = POLL_S if self.poll_interval_ms is None else min(self.poll_interval_ms, _LATEST_S * 1000) / 1000
        return max(wanted, _SOONEST_S)

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "cancelled", "failed")

    def answer(self) -> CallToolResult:
        """The result of the call, once the task has ended. Raises ValueError if it has none."""
        if self.status == "completed":
            try:
                return CallToolResult.model_validate(self.result)
            except ValidationError as error:
                raise ValueError("the task has ended, but its result cannot be read") from error
        said = one_line(str((self.error or {}).get("message") or self.status_message or "no reason is given"), 4_000)
        raise ValueError(f"the task {'failed' if self.status == 'failed' else 'was cancelled there'}: {said}")


class _Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str


class TaskBegun(CallToolResult):
    """The answer to a call whose result is still to come: the task's id."""

    task_id: str


class _Params(RequestParams):
    task_id: str


class _Update(_Params):
    input_responses: dict[str, Any]


class _Get(Request[_Params, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class _Cancel(Request[_Params, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class _Updated(Request[_Update, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Tells servers that calls may become tasks; the SDK's call then returns `TaskBegun`."""

    identifier = "io.modelcontextprotocol/tasks"

    @override
    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=_Created, resolve=_begun),)


async def _begun(created: _Created, _: ClaimContext) -> CallToolResult:
    return TaskBegun(content=[], task_id=created.task_id)


class TaskFollower:
    """Asks after one task. `seconds`: how long one request may take."""

    def __init__(self, task: str, seconds: float) -> None:
        self._params = _Params(task_id=task)
        self._seconds = seconds
        self._answered: set[str] = set()

    async def ask(self, session: ClientSession) -> TaskState | None:
        """How far it is, after answering what it asks; None if the server does not know it. Raises MCPError."""
        try:
            state = await session.send_request(_Get(params=self._params), TaskState, self._seconds)
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                return None
            raise
        if state.status == "input_required":
            await self._give_input(session, state.input_requests or {})
        return state

    async def give_up(self, session: ClientSession, seconds: float) -> None:
        """Tell the server that nobody wants its result any more."""
        with contextlib.suppress(Exception):
            await session.send_request(_Cancel(params=self._params), EmptyResult, seconds)

    async def _give_input(self, session: ClientSession, requests: dict[str, Any]) -> None:
        responses = {}
        for key in requests.keys() - self._answered:
            request = _INPUT.validate_python(requests[key])
            meta = request.params.meta if request.params else None
            here = ClientRequestContext(session=session, request_id=key, meta=meta)
            response = await session.dispatch_input_request(here, request)
            if isinstance(response, ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)
        if responses:
            update = _Update(task_id=self._params.task_id, input_responses=responses)
            await session.send_request(_Updated(params=update), EmptyResult, self._seconds)
            self._answered |= responses.keys()
