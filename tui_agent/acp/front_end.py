"""The agent's side of the protocol: the open sessions of a connection, and the requests of its client."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    DeleteSessionResponse,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)

from tui_agent.acp.choices import TERMINAL, auth_methods, mode_state
from tui_agent.acp.conversation import EditorConversation, explained
from tui_agent.acp.prompts import PromptBlock
from tui_agent.arguments import Arguments, UsageError
from tui_agent.models.catalogue import Catalogue
from tui_agent.settings import Settings, ToolServer
from tui_agent.storage.sessions import (
    NoSuchSession,
    copy_session,
    delete_session,
    files_folder,
    find_session,
    list_sessions,
    noted_folder,
)
from tui_agent.text import one_line
from tui_agent.version import __version__

Load: TypeAlias = Callable[[Path, Sequence[str]], tuple[Arguments, Settings]]
"""Loads the arguments and settings of a session in a folder; the texts are further folders of its workspace. Raises
`UsageError`.
"""

Server: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

PAGE: Final = 50
"""Sessions on one page of a list."""


class FrontEnd:
    """Serves one client. `close` ends all its open sessions."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._client: Client | None = None
        self._able: ClientCapabilities | None = None
        self._every_model = False
        """Whether to offer all known models, as to a client that does not introduce itself: no user sees its list."""
        self._open: dict[str, EditorConversation] = {}
        self._opening = asyncio.Lock()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def close(self) -> None:
        """End what runs and close all sessions one after the other, even if one of them fails."""
        async with AsyncExitStack() as each:
            for conversation in self._open.values():
                each.push_async_callback(conversation.close)
            self._open = {}

    # What there is

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: object,
    ) -> InitializeResponse:
        self._able = client_capabilities
        # From version 2 on a client must introduce itself, in a field that the library does not read yet.
        self._every_model = client_info is None and protocol_version <= PROTOCOL_VERSION
        return InitializeResponse(
            # The only version that is spoken here, whatever the client asks for: it decides whether to go on.
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="tui-agent", title="tui-agent", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True, acp=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[*auth_methods(Catalogue())],
        )

    async def authenticate(self, method_id: str, **_: object) -> AuthenticateResponse | None:
        provider = Catalogue().provider_named(method_id)
        if method_id == TERMINAL:
            return AuthenticateResponse()
        if provider is None or not provider.keys:
            raise RequestError(-32602, f"There is no way to sign in called {one_line(method_id, 60)!r}.")
        if not await asyncio.to_thread(provider.has_key):
            raise RequestError(-32000, f"{provider.title} has no key: set {' or '.join(provider.keys)}.")
        return AuthenticateResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: object
    ) -> ListSessionsResponse:
        if cursor and not cursor.isdecimal():
            raise RequestError(-32602, "This list has no such page.")
        arguments, _settings = await self._arguments(Path(cwd) if cwd else Path.home(), ())
        async with explained():
            found = [each for each in await list_sessions(arguments.home) if each.messages and each.cwd]
        wanted = [each for each in found if not cwd or each.cwd == noted_folder(Path(cwd))]
        start = int(cursor or 0)
        page = wanted[start : start + PAGE]
        listed = [
            SessionInfo(
                session_id=each.id,
                cwd=each.cwd,
                title=one_line(each.title),
                updated_at=datetime.fromtimestamp(each.updated, UTC).isoformat(),
            )
            for each in page
        ]
        more = str(start + PAGE) if start + PAGE < len(wanted) else None
        return ListSessionsResponse(sessions=listed, next_cursor=more)

    # Sessions

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **_: object,
    ) -> NewSessionResponse:
        opened = await self._opened(None, cwd, additional_directories, mcp_servers)
        chosen = await opened.introduced()
        return NewSessionResponse(session_id=opened.id, modes=mode_state(opened.agent), config_options=[*chosen])

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Server] | None = None,
        additional_directories: list[str] | None = None,
        **_: object,
    ) -> LoadSessionResponse:
        opened = await self._opened(session_id, cwd, additional_directories, mcp_servers)
        await opened.replay()
        chosen = await opened.introduced()
        return LoadSessionResponse(modes=mode_state(opened.agent), config_options=[*chosen])

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **_: object,
    ) -> ResumeSessionResponse:
        opened = await self._opened(session_id, cwd, additional_directories, mcp_servers)
        chosen = await opened.introduced()
        return ResumeSessionResponse(modes=mode_state(opened.agent), config_options=[*chosen])

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Server] | None = None,
        **_: object,
    ) -> ForkSessionResponse:
        arguments, _settings = await self._arguments(Path(cwd), ())
        async with explained():
            copied = await copy_session(arguments.home, await _folder_of(arguments, session_id))
        opened = await self._opened(copied.name, cwd, additional_directories, mcp_servers)
        chosen = await opened.introduced()
        return ForkSessionResponse(session_id=opened.id, modes=mode_state(opened.agent), config_options=[*chosen])

    async def close_session(self, session_id: str, **_: object) -> CloseSessionResponse:
        conversation = self._of(session_id)
        del self._open[session_id]
        async with explained():
            await conversation.close()
        return CloseSessionResponse()

    async def delete_session(self, session_id: str, **_: object) -> DeleteSessionResponse:
        """Delete a session for good, which is closed first if it is open here. One that does not exist counts as
        deleted, as the protocol wants it. Refuses one in which a turn runs, or that another process has open.
        """
        arguments, _settings = await self._arguments(Path.home(), ())
        try:
            folder = await _folder_of(arguments, session_id)
        except NoSuchSession:
            return DeleteSessionResponse()
        async with explained():
            if (conversation := self._open.get(folder.name)) is not None:
                if conversation.is_running:
                    raise RequestError(-32600, f"A turn runs in session {folder.name}: cancel it first.")
                del self._open[folder.name]
                await conversation.close()
            await delete_session(arguments.home, folder.name)
        return DeleteSessionResponse()

    # In a session

    async def prompt(self, session_id: str, prompt: list[PromptBlock], **_: object) -> PromptResponse:
        async with explained():
            return await self._of(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **_: object) -> None:
        self._of(session_id).cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: object) -> SetSessionModeResponse:
        await self._of(session_id).set_mode(mode_id)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: object
    ) -> SetSessionConfigOptionResponse:
        async with explained():
            options = await self._of(session_id).set_option(config_id, str(value))
        return SetSessionConfigOptionResponse(config_options=[*options])

    async def ext_method(self, method: str, params: dict[str, object]) -> dict[str, object]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, object]) -> None:
        """Ignore unknown notifications."""

    # Opening

    async def _opened(
        self, session_id: str | None, cwd: str, folders: Sequence[str] | None, servers: Sequence[Server] | None
    ) -> EditorConversation:
        """The session with this id, opened if necessary, or a new one. Raises `RequestError`."""
        async with self._opening:
            if session_id is not None and session_id in self._open:
                return self._open[session_id]
            folder = Path(cwd)
            if not folder.is_absolute() or not await asyncio.to_thread(folder.is_dir):
                raise RequestError(-32602, f"{one_line(cwd)} is no folder with an absolute path.")
            arguments, settings = await self._arguments(folder, folders or ())
            settings, notices = _with_servers(settings, servers or ())
            if self._client is None:
                raise RequestError(-32603, "There is no client.")
            async with explained():
                if session_id is not None:
                    await _folder_of(arguments, session_id)
                made = await EditorConversation.opened(
                    self._client, settings, arguments._replace(resume=session_id), notices, self._able
                )
                made.every_model |= self._every_model
            self._open[made.id] = made
            return made

    async def _arguments(self, folder: Path, folders: Sequence[str]) -> tuple[Arguments, Settings]:
        try:
            return await asyncio.to_thread(self._load, folder, folders)
        except UsageError as error:
            raise RequestError(-32602, str(error)) from error

    def _of(self, session_id: str) -> EditorConversation:
        try:
            return self._open[session_id]
        except KeyError:
            raise RequestError(
                -32602, f"No session {one_line(session_id, 60)} is open here: load or resume it first."
            ) from None


async def _folder_of(arguments: Arguments, session_id: str) -> Path:
    """The folder of the session with exactly this id, which is no subtask. Raises `NoSuchSession`."""
    folder = await find_session(arguments.home, session_id)
    if folder.name != session_id or files_folder(folder) != folder:
        raise NoSuchSession(f"There is no session {one_line(session_id, 60)!r}.")
    return folder


def _with_servers(settings: Settings, servers: Iterable[Server]) -> tuple[Settings, list[str]]:
    """The settings with the client's MCP servers added, and notices on those that cannot be used."""
    given: dict[str, ToolServer] = {}
    refused: list[str] = []
    for server in servers:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", server.name).strip("-_")[:40] or f"server-{len(given) + 1}"
        try:
            match server:
                case McpServerStdio():
                    env = {each.name: each.value for each in server.env}
                    given[name] = ToolServer(command=server.command, args=tuple(server.args), env=env)
                case HttpMcpServer() | SseMcpServer():
                    headers = {each.name: each.value for each in server.headers}
                    given[name] = ToolServer(url=server.url, type=server.type, headers=headers)
                case _:
                    raise ValueError(f"its transport ({server.type}) is not supported")  # noqa: TRY301
        except ValueError as error:
            refused.append(f"The server {one_line(server.name, 60)} is left out: {error}.")
    if not given:
        return settings, refused
    mcp = msgspec.structs.replace(settings.mcp, servers={**settings.mcp.servers, **given})
    return msgspec.structs.replace(settings, mcp=mcp), refused
