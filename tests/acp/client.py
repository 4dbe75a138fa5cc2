"""An editor made of the official client library: it keeps what it is told and answers questions as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)
from acp.stdio import spawn_agent_process

from tests.e2e.program import Program

T = TypeVar("T")


@dataclass
class Editor:
    """`answers` are the options to choose, one a question; without one it never answers."""

    answers: list[str] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: object) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: object) -> None:
        self.told.append((session_id, update))
        self.news.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.told.append((session_id, tool_call))
        self.news.set()
        if not self.answers:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answers.pop(0)))

    def of(self, kind: type[T], session: str = "") -> list[T]:
        """What was told of one kind, by default in any session."""
        return [update for name, update in self.told if isinstance(update, kind) and session in ("", name)]

    def text(self, session: str = "") -> str:
        return "".join(each.content.text for each in self.of(AgentMessageChunk, session))

    async def until(self, kind: type[object], count: int = 1) -> None:
        """Wait until so much was told of one kind."""
        while len(self.of(kind)) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)


@asynccontextmanager
async def editing(
    program: Program, editor: Editor, *arguments: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[ClientSideConnection, asyncio.subprocess.Process]]:
    """The real command at the other end of the connection."""
    environment = {**program.environment, **(environ or {})}
    command = [*program.command, "acp", *arguments]
    async with spawn_agent_process(
        editor,  # type: ignore[arg-type]
        *command,
        env=environment,
        cwd=program.project,
        use_unstable_protocol=True,
        transport_kwargs={"stderr": None},
    ) as (connection, process):
        await connection.initialize(protocol_version=1)
        yield connection, process
