"""The servers of a session: what they offer, which of them run, and what the user decided about each."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.settings import ToolServer
from tui_agent.settings.schema import McpSettings
from tui_agent.text import error_text, one_line
from tui_agent.tools.base import Tool, ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.lsp.lookups import lookup_tools
from tui_agent.tools.lsp.servers import LanguageServers
from tui_agent.tools.mcp.configuration import (
    FOLDER,
    ConfiguredServer,
    ServerPlugin,
    ServerSwitches,
    ServerTimeouts,
    ServerUnavailable,
    configured,
    counts,
)
from tui_agent.tools.mcp.known import KnownServer, KnownTool, ServerListCache, prompt_arguments, tool_name
from tui_agent.tools.mcp.open_tasks import call_key
from tui_agent.tools.mcp.search import Index, SearchableTool
from tui_agent.tools.mcp.server_tool import ServerTool

if TYPE_CHECKING:
    from tui_agent.tools.mcp.connection import Connection

ServerState: TypeAlias = Literal["off", "new", "configured", "known", "starting", "started", "in use", "failed"]

LOGS: Final = "mcp"
"""The folder in the session's own for what servers write to their standard error."""
SIGN_INS: Final = "sign-ins"
"""The private folder, beside the lists, for sign-in tokens."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that can be offered to the model. `always`: from the start, whatever its size."""

    server: str
    definition: ToolDefinition
    always: bool


class ServerStatus(msgspec.Struct, frozen=True):
    """The status of a server.

    ``new`` means a project's server that the user has not decided about. `known`: what it offers, None if that is not
    known yet; `left_out`: the names of tools that its definition leaves out of that; `unmatched`: what its definition
    names and the server does not offer; `calls`: the number of calls in this session.
    """

    name: str
    standing: ServerState
    source: Literal["user", "project"]
    command: str
    known: KnownServer | None
    left_out: tuple[str, ...]
    unmatched: tuple[str, ...]
    calls: int
    error: str
    log: Path
    believed: bool

    @property
    def on(self) -> bool:
        return self.standing not in ("off", "new")


class ToolServers:
    """The servers of a session. Create it with `opened`; `close` ends all that run."""

    def __init__(
        self,
        settings: McpSettings,
        servers: Sequence[ConfiguredServer],
        home: Path,
        session: Path,
        folders: Sequence[Path],
        problems: Sequence[str] = (),
        languages: LanguageServers | None = None,
    ) -> None:
        """`home` is the program's folder, `session` the session's; `folders` are those the session works in, which
        servers may ask for; the tools of `languages` are found like those of servers. Reads files.
        """
        self.home = home
        self.folder = folders[0]
        self.problems = tuple(problems)
        self.version = 0
        """Goes up whenever what is offered changes."""
        self.on_change: Callable[[], None] = lambda: None
        """Told then."""
        self._folders = tuple(folders)
        self._session = session
        self._choices = ServerSwitches(home)
        self._lists = ServerListCache(home)
        self._sign_ins = home / FOLDER / SIGN_INS
        self._limits = ServerTimeouts(settings.start_seconds, settings.call_seconds)
        self._servers: dict[str, ConfiguredServer] = {}
        self.on: tuple[str, ...] = ()
        """The names of the servers that were turned on when what is offered was last put together."""
        self._connections: dict[str, Connection] = {}
        self._known: dict[str, KnownServer] = {}
        self._calls: dict[str, int] = {}
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._signing_in: dict[str, asyncio.Task[None]] = {}
        self._tools: dict[str, ServerTool] = {}
        self.own: Mapping[str, Tool] = {each.definition.name: each for each in lookup_tools(languages)}
        """Tools of the program that the model has to find."""
        self._index = Index(())
        for server in servers:
            self._add(server)
        self._arrange()

    @classmethod
    def opened(
        cls,
        settings: McpSettings,
        home: Path,
        session: Path,
        folders: Sequence[Path],
        project: Path | None,
        languages: LanguageServers | None = None,
        plugins: Sequence[ServerPlugin] = (),
    ) -> "ToolServers":
        """The servers of the settings, of `plugins` and of a trusted `project`. Reads files: call it off the loop."""
        servers, problems = configured(settings.servers, folders[0], project if settings.project else None, plugins)
        return cls(settings, servers, home, session, folders, problems, languages)

    # What they offer

    def __bool__(self) -> bool:
        return bool(self._servers)

    def is_on(self, name: str) -> bool:
        """Whether the server of this name is turned on; one that runs stays so when its files change. Reads files if it
        does not run.
        """
        server = self._servers.get(name)
        return self.runs(name) or (server is not None and self._choices.is_on(server))

    def runs(self, name: str) -> bool:
        """Whether the server of this name is connected."""
        connection = self._connections.get(name)
        return connection is not None and connection.state == "running"

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of those whose tools are not known yet."""
        return tuple(name for name in self._servers if name not in self._known and self.is_on(name))

    @property
    def new(self) -> tuple[ConfiguredServer, ...]:
        """The project's servers that the user has not decided about yet."""
        return tuple(server for server in self._servers.values() if self._choices.is_new(server))

    def known(self, name: str) -> KnownServer | None:
        """What a server offers, as far as known, without the tools that its definition leaves out."""
        known = self._known.get(name)
        server = self._servers[name].server
        if known is None or (server.include_tools is None and not server.exclude_tools):
            return known
        return msgspec.structs.replace(known, tools=tuple(tool for tool in known.tools if counts(server, tool.name)))

    def offers(self) -> tuple[OfferedTool, ...]:
        """All tools, in a fixed order."""
        found = []
        for name in sorted(self._tools):
            tool = self._tools[name]
            always = self._servers[tool.server].server.always_load
            wanted = always if isinstance(always, bool) else tool.known.name in always
            found.append(OfferedTool(tool.server, tool.definition, wanted))
        return tuple(found)

    def tool(self, name: str) -> Tool | None:
        """A tool by the name that the model uses. Raises ToolFailure for one of a server that no longer exists."""
        tool = self.own.get(name) or self._tools.get(name)
        if tool is None:
            self._explain(name)
        return tool

    async def search(self, query: str, limit: int) -> list[Tool]:
        """The tools that best match a description, best first. Asks servers first whose tools are not known yet."""
        await self.learn()
        found = self._index.search(query, limit)
        return [self.own.get(each.tool.name) or self._tools[tool_name(each.server, each.tool.name)] for each in found]

    # Using them

    async def learn(self) -> None:
        """Ask the servers whose tools are not known yet; those that fail are left out."""
        self.begin_learning()
        if self._learning:
            await asyncio.wait(self._learning.values())

    def begin_learning(self) -> None:
        """As `learn`, in the background."""
        for name in self.unknown:
            if name not in self._learning and self._connections[name].state in ("stopped", "running"):
                task = asyncio.create_task(self._learn(name), name=f"learning {name}")
                self._learning[name] = task
                task.add_done_callback(partial(self._learned, name))

    async def call(self, name: str, tool: str, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        """Call a server's tool. Raises ToolFailure."""
        from tui_agent.tools.mcp.results import output_of

        if not self.is_on(name):
            changed = name in self._servers and self._choices.is_new(self._servers[name])
            why = "has to be turned on again: the files it starts have changed" if changed else "is turned off"
            raise ToolFailure(f"The server {name} {why}.", "Go on without it, or ask the user to turn it on.")
        connection = self._connections[name]
        if connection.state != "running":
            context.progress(f"starting the server {name} …")
        self._calls[name] = self._calls.get(name, 0) + 1
        again = "Try it once more if that can do no harm, or go on without it."
        with _explained(again, f"The server {name} refuses the call", "Call it as its schema says."):
            result = await connection.call(tool, arguments, context)
        return await asyncio.to_thread(output_of, result)

    async def read(self, name: str, uri: str) -> str:
        """The text of a server's resource. Raises ToolFailure."""
        from tui_agent.tools.mcp.results import text_of_resource

        if not self.is_on(name):
            raise ToolFailure(
                f"There is no server {one_line(name, 60)} that is turned on.",
                "The user lists them and turns one on with /mcp.",
            )
        refused = f"The server {name} refuses {one_line(uri, 300)}"
        with _explained(f"/mcp {name} says more.", refused, "Name it as the server does."):
            return await asyncio.to_thread(text_of_resource, await self._connections[name].read(uri))

    async def prompt(self, name: str, prompt: str, argument: str) -> str:
        """The text of a server's prompt, with the arguments typed after its name. Raises ToolFailure."""
        from tui_agent.tools.mcp.results import text_of_prompt

        known = next((each for each in self._known.get(name, KnownServer()).prompts if each.name == prompt), None)
        if known is None or not self.is_on(name):
            raise ToolFailure(f"The server {name} has no prompt {one_line(prompt, 60)}.", f"/mcp {name} lists them.")
        names = [each.rstrip("?") for each in known.arguments]
        given = prompt_arguments(names, argument)
        missing = [each for each in known.arguments if not each.endswith("?") and each not in given]
        if missing:
            raise ToolFailure(
                f"/{name}:{prompt} needs {', '.join(missing)}.",
                f'Give in this order: {" ".join(names)}; or by name, as in {missing[0]}="some words".',
            )
        refused = f"The server {name} refuses it"
        with _explained(f"/mcp {name} says more.", refused, "Give what the prompt asks for."):
            return await asyncio.to_thread(text_of_prompt, await self._connections[name].prompt(prompt, given))

    async def turn(self, name: str, *, on: bool) -> None:
        """Turn a server on or off, for later sessions too. Raises KeyError, and OSError if that cannot be stored."""
        server = self._servers[name]
        try:
            await asyncio.to_thread(lambda: self._choices.turn(server, on=on))
        finally:
            if not on:
                await self._connections[name].close()
            self._arrange()
        if on:
            self._connections[name].try_again()
            await self.learn()

    async def add(self, servers: Mapping[str, ToolServer]) -> None:
        """Add servers of the user's, and ask them what they offer."""
        for name, server in servers.items():
            if name not in self._servers:
                await asyncio.to_thread(self._add, ConfiguredServer(name, server, "user", self.folder))
        self._arrange()
        await self.learn()

    async def sign_in(self, name: str) -> str:
        """Begin a sign-in, which continues in the background; returns the address to open, or an empty text if the
        server does not ask for one.

        Raises KeyError, and ToolFailure if the server cannot be reached.
        """
        connection = self._connections[name]
        shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def show(address: str) -> None:
            if not shown.done():
                shown.set_result(address)

        if (before := self._signing_in.pop(name, None)) is not None:
            before.cancel()
        task = asyncio.create_task(connection.sign_in(show), name=f"signing in at {name}")
        self._signing_in[name] = task
        task.add_done_callback(_seen)
        waiting: list[asyncio.Future[Any]] = [task, shown]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if shown.done():
            return shown.result()
        if (error := task.exception()) is not None:
            raise ToolFailure(str(error), f"/mcp {name} says more.")
        return ""

    def leave(self) -> None:
        """The session ends: what is stopped from now on, servers go on with where they made a task of it."""
        for connection in self._connections.values():
            connection.leaving = True

    def goes_on(self, name: str, tool: str, arguments: dict[str, object]) -> bool:
        """Whether a server still works on such a call, as a task. Reads a file."""
        return self._connections[name].tasks.find(call_key(tool, arguments)) is not None

    async def close(self) -> None:
        """End all servers, and everything they have started."""
        tasks = [*self._learning.values(), *self._signing_in.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    def statuses(self) -> tuple[ServerStatus, ...]:
        """The status of every server, sorted by name."""
        return tuple(self._status(name) for name in self._servers)

    def _add(self, server: ConfiguredServer) -> None:
        # Imported only if there is a server.
        from tui_agent.tools.mcp.connection import Connection

        log = self._session / LOGS / f"{server.name}.log"
        noting = partial(self._note, server.name)
        tokens = self._sign_ins / f"{server.name}-{server.digest}.json"
        self._servers[server.name] = server
        self._connections[server.name] = Connection(server, self._limits, log, noting, self._folders, tokens)
        if (known := self._lists.load(server)) is not None:
            self._known[server.name] = known

    def _status(self, name: str) -> ServerStatus:
        server, connection = self._servers[name], self._connections[name]
        offered = tuple(tool.name for tool in self._known.get(name, KnownServer()).tools)
        named = (*(server.server.include_tools or ()), *server.server.exclude_tools)
        return ServerStatus(
            name,
            self._standing(name),
            server.source,
            server.shown,
            self.known(name),
            tuple(tool for tool in offered if not counts(server.server, tool)),
            tuple(
                each for each in named if name in self._known and not any(fnmatchcase(tool, each) for tool in offered)
            ),
            self._calls.get(name, 0),
            connection.error,
            connection.log.path,
            server.server.believe_hints,
        )

    def _standing(self, name: str) -> ServerState:
        if not self.is_on(name):
            return "new" if self._choices.is_new(self._servers[name]) else "off"
        match self._connections[name].state:
            case "starting":
                return "starting"
            case "failed":
                return "failed"
            case "running":
                return "in use" if self._calls.get(name) else "started"
            case "stopped":
                return "known" if name in self._known else "configured"

    async def _learn(self, name: str) -> None:
        try:
            await self._connections[name].start()
        except ServerUnavailable:
            return  # its status shows the error
        except Exception as error:
            self._connections[name].error = f"The server {name} cannot be used: {one_line(error_text(error), 300)}."

    def _learned(self, name: str, done: asyncio.Task[None]) -> None:
        self._learning.pop(name, None)
        _seen(done)

    async def _note(self, name: str, known: KnownServer) -> None:
        """Store what a server offers."""
        if self._known.get(name) == known:
            return
        self._known[name] = known
        self._put_together()
        try:
            await asyncio.to_thread(self._lists.save, self._servers[name], known)
        except OSError as error:
            self._connections[name].error = f"What {name} offers cannot be kept: {error.strerror}."

    def _arrange(self) -> None:
        """Put together what the servers offer that are turned on now. Reads files."""
        self.on = tuple(filter(self.is_on, self._servers))
        self._put_together()

    def _put_together(self) -> None:
        self._tools = {}
        given = (each.definition for each in self.own.values())
        entries = [SearchableTool("", KnownTool(each.name, each.description, each.schema)) for each in given]
        for name in self.on:
            for tool in (self.known(name) or KnownServer()).tools:
                believed = self._servers[name].server.believe_hints
                self._tools[tool_name(name, tool.name)] = ServerTool(self, name, tool, believed=believed)
                entries.append(SearchableTool(name, tool))
        self._index = Index(entries)
        self.version += 1
        self.on_change()

    def _explain(self, name: str) -> None:
        """Raises ToolFailure if this is the name of a tool that no longer exists."""
        for server in self._servers:
            if not name.startswith(tool_name(server, "")):
                continue
            if not self.is_on(server):
                raise ToolFailure(f"The server {server} is turned off.", "Go on without it.")
            if server not in self._known:
                error = self._connections[server].error or f"It is not known yet what the server {server} offers."
                raise ToolFailure(error, "Look for the tool with find_tool.")
            if any(name == tool_name(server, tool.name) for tool in self._known[server].tools):
                raise ToolFailure(f"The definition of the server {server} leaves this tool out.", "Go on without it.")
            raise ToolFailure(f"The server {server} offers no such tool (any more).", "Look for it with find_tool.")


@contextmanager
def _explained(unavailable: str, refused: str, instead: str) -> Iterator[None]:
    """Turn what a connection raises into a ToolFailure: advice if it is unavailable, why and advice if it refuses."""
    try:
        yield
    except ServerUnavailable as error:
        raise ToolFailure(str(error), unavailable) from error
    except ValueError as error:
        raise ToolFailure(f"{refused}: {error}", instead) from error


def _seen(done: asyncio.Task[None]) -> None:
    """Retrieve the task's exception: the server's status shows it."""
    if not done.cancelled():
        done.exception()
