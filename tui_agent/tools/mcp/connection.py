"""The connection to one server, with the official SDK: it starts when first needed, and is restarted if it has ended.

One asyncio task owns a run of the server: it enters and leaves the SDK's client. Calls run in the caller's; cancelling
one notifies the server (notifications/cancelled), which goes on running.
"""

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from tui_agent.conversation.entries import Outcome
from tui_agent.system.durable import in_thread, to_completion
from tui_agent.text import clean, error_text, one_line
from tui_agent.tools.base import CallStopped, ToolContext, ToolOutput
from tui_agent.tools.mcp.configuration import (
    ConfiguredServer,
    ServerTimeouts,
    ServerUnavailable,
    environment_of,
)
from tui_agent.tools.mcp.elicitation import answered
from tui_agent.tools.mcp.http import SIGNING_IN_S, SignIn, Tokens, Unauthorized, listening
from tui_agent.tools.mcp.known import MAX_INSTRUCTIONS, MAX_TOOLS, KnownPrompt, KnownServer, known_tool, unique
from tui_agent.tools.mcp.open_tasks import GOES_ON, OpenTasks, call_key
from tui_agent.tools.mcp.process import TOO_MANY, ErrorLog, running
from tui_agent.tracing import current

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientRequestContext, IncomingMessage, Transport
    from mcp_types import (
        CallToolResult,
        ElicitRequestParams,
        ElicitResult,
        GetPromptResult,
        ListRootsResult,
        LoggingMessageNotificationParams,
        ReadResourceResult,
    )

State: TypeAlias = Literal["stopped", "starting", "running", "failed"]
Result = TypeVar("Result")

BACKOFF_S: Final = 1.0
"""Seconds before starting a server is tried once more."""
MAX_PAGES: Final = 50
"""The most pages of a list that are read."""
RELIST_S: Final = 0.2
"""Seconds in which several changes of a list are read together."""
MAX_PROBLEMS: Final = 50
"""The most sentences about a server's unusable parts that are kept."""
_CLOSING_S: Final = 5.0
LOST_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries to reach a server again that works on a task."""
_SILENT: Final = logging.NullHandler()
_REASON_S: Final = 2.0


class _WillNotStart(ServerUnavailable):
    """It cannot be started, or not in time: another try would fail too."""


class Connection:
    """The connection to one server.

    `changed` is called when its list of tools has been read; `folders` are the roots that it may ask for.
    """

    def __init__(
        self,
        configured: ConfiguredServer,
        limits: ServerTimeouts,
        log: Path,
        changed: Callable[[KnownServer], Awaitable[None]],
        folders: Sequence[Path] = (),
        tokens: Path | None = None,
    ) -> None:
        self.configured = configured
        self.state: State = "stopped"
        self._reason = ""
        self.error = ""
        """What went wrong last, in a sentence; empty where nothing did."""
        self.log = ErrorLog(log)
        self._limits = limits
        self._changed = changed
        self._folders = tuple(folders)
        self.tasks = OpenTasks(log.with_suffix(".tasks"))
        self._tokens = Tokens(tokens or log.with_suffix(".tokens"))
        self._unauthorized = Unauthorized()
        self._sign_in: SignIn | None = None
        self.leaving = False
        """The session ends: the server goes on with its tasks."""
        self._calls: list[ToolContext] = []
        self._starting = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._relist = asyncio.Event()

    @property
    def name(self) -> str:
        return self.configured.name

    async def start(self) -> None:
        """Start it if it is not running. Raises `ServerUnavailable`."""
        await self._running()

    def try_again(self) -> None:
        """Forget that starting failed."""
        if self.state == "failed":
            self.state, self.error = "stopped", ""

    async def sign_in(self, show: Callable[[str], None]) -> None:
        """Let the user sign in if the server asks for that; calls `show` with the address.

        Raises `ServerUnavailable`.
        """
        await self.close()
        granted = await self._tokens.get_tokens() if self._unauthorized.scopes else None
        scopes = f"{(granted and granted.scope) or ''} {self._unauthorized.scopes}"
        self._tokens.forget()
        oauth = self.configured.server.oauth
        async with SignIn(show, scopes, oauth.callback_port if oauth else 0) as self._sign_in:
            try:
                async with self._starting:
                    await self._started(SIGNING_IN_S)
            finally:
                self._sign_in = None

    async def call(self, tool: str, arguments: dict[str, object], context: ToolContext) -> "CallToolResult":
        """Call a tool. `context` receives the server's progress, and its questions to the user.

        A call that the server makes a task of is followed to its end, also over a lost connection; one that an earlier
        run of the session began is taken up. Raises `ServerUnavailable`, and ValueError if the server refuses.
        """

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(_progress_text(progress, total, message))

        seconds = self.configured.server.call_seconds or self._limits.call

        async def asked(client: "Client") -> "CallToolResult":
            with _in_span():
                return await client.call_tool(
                    tool, arguments, read_timeout_seconds=seconds, progress_callback=on_progress
                )

        self._calls.append(context)
        key = call_key(tool, arguments)
        begun = await asyncio.to_thread(self.tasks.find, key)
        with self.tasks.waiting(key):
            try:
                result = None if begun is None else await self._followed(begun, key, context, seconds)
                if result is None:
                    result = await self._ask(f"calling {one_line(tool, 60)}", asked, seconds)
                if isinstance(task := getattr(result, "task_id", None), str):
                    await asyncio.to_thread(self.tasks.keep, key, task)
                    result = await self._followed(task, key, context, seconds)
                    if result is None:
                        raise ValueError("it does not know the task any more that it made of this call")
                return result
            finally:
                self._calls.remove(context)

    async def _followed(self, task: str, key: str, context: ToolContext, seconds: float) -> "CallToolResult | None":
        """The result of a task that the call `key` began; None if the server does not know it. Raises as `call`."""
        from tui_agent.tools.mcp.tasks import TaskFollower

        following = TaskFollower(task, seconds)
        lost = iter(LOST_S)
        try:
            while True:
                try:
                    state = await self._ask("the task of a call", lambda client: following.ask(client.session), seconds)
                except ServerUnavailable as error:
                    pause = next(lost, None)
                    if pause is None or self._unauthorized.asked:
                        raise ServerUnavailable(
                            f"{error} It may still work on it: the same call asks again."
                        ) from error
                    context.progress(f"the server {self.name} cannot be reached; it may work on …")
                    await asyncio.sleep(pause)
                    continue
                if state is None or state.ended:
                    await asyncio.to_thread(self.tasks.forget, key)
                    return None if state is None else state.answer()
                lost = iter(LOST_S)
                context.progress(f"{one_line(state.status_message or 'the server works on it', 200)} …")
                await asyncio.sleep(state.pause)
        except asyncio.CancelledError:
            if self.leaving:
                raise CallStopped(ToolOutput(GOES_ON, is_error=True, outcome=Outcome(notes=1))) from None
            if self._client is not None:
                await to_completion(following.give_up(self._client.session, _REASON_S))
            await in_thread(self.tasks.forget, key)
            raise

    async def read(self, uri: str) -> "ReadResourceResult":
        """Read a resource. Raises as `call`."""
        seconds = self._limits.call
        return await self._ask(f"reading {one_line(uri, 100)}", lambda client: client.read_resource(uri), seconds)

    async def prompt(self, name: str, given: dict[str, str]) -> "GetPromptResult":
        """Get a prompt with these arguments. Raises as `call`."""
        what = f"the prompt {one_line(name, 60)}"
        return await self._ask(what, lambda client: client.get_prompt(name, given), self._limits.call)

    async def close(self) -> None:
        """End it, and everything it has started."""
        owner, self._owner = self._owner, None
        self._client = None
        if owner is not None:
            self._over.set()
            done, _ = await asyncio.wait([owner], timeout=_CLOSING_S)
            if not done:
                owner.cancel()
                await asyncio.wait([owner])
        if self.state != "failed":
            self.state = "stopped"

    # Running

    async def _running(self) -> "Client":
        """The client of the running server; starts it if necessary, with two tries. Raises `ServerUnavailable`."""
        async with self._starting:
            if self._client is not None and not self._over.is_set():
                return self._client
            await self.close()
            try:
                return await self._started()
            except _WillNotStart:
                raise
            except ServerUnavailable:
                await asyncio.sleep(BACKOFF_S)
                return await self._started()

    async def _started(self, within: float | None = None) -> "Client":
        self.state, self.error, self._reason = "starting", "", ""
        self._over = asyncio.Event()
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(ready, self._over), name=f"server {self.name}")
        try:
            async with asyncio.timeout(within or self._limits.start):
                self._client = await asyncio.shield(ready)
        except TimeoutError:
            raise _WillNotStart(await self._failed(f"it did not start within {self._limits.start:g} s")) from None
        except asyncio.CancelledError:
            await to_completion(self._abandon())
            raise
        except Exception as error:
            if self._unauthorized.asked and self.configured.server.url:
                failed = f"{_why(error)}; " if self._sign_in is not None else ""
                raise _WillNotStart(await self._failed(f"{failed}{self._sign_in_wanted}")) from error
            kind = (
                _WillNotStart
                if isinstance(error, ServerUnavailable | FileNotFoundError | PermissionError)
                else ServerUnavailable
            )
            raise kind(await self._failed(self._reason or _why(error))) from error
        self.state = "running"
        self._unauthorized.asked = False
        return self._client

    @property
    def _sign_in_wanted(self) -> str:
        return f"it asks you to sign in: /mcp login {self.name}"

    async def _failed(self, why: str) -> str:
        await self._abandon()
        self.state = "failed"
        last = one_line(self.log.last[-1], 200) if self.log.last else ""
        said = f" It said: {last}" if last and last not in why else ""
        self.error = f"The server {self.name} cannot be used: {why}.{said}"
        return self.error

    async def _abandon(self) -> None:
        owner, self._owner = self._owner, None
        self._client, self.state = None, "stopped"
        if owner is not None:
            owner.cancel()
            await asyncio.wait([owner])

    async def _own(self, ready: "asyncio.Future[Client]", over: asyncio.Event) -> None:
        """One run of the server, from its start to its end."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._connected(over))
                # Do not validate results with the server's own schema: a pattern in it could take for ever and block
                # the event loop.
                client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
                await self._read_lists(client)
                ready.set_result(client)
                watching = asyncio.create_task(self._watch(client))
                try:
                    await over.wait()
                finally:
                    watching.cancel()
                    await asyncio.wait([watching])
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except Exception as error:
            if ready.done():
                self._ended(over, _why(error))
            else:
                ready.set_exception(error)
                ready.exception()

    async def _connected(self, over: asyncio.Event) -> "Client":
        """A client to enter. Raises `ServerUnavailable`."""
        await asyncio.to_thread(importlib.import_module, "mcp")
        # We report errors in our own words; without a handler Python would also print the SDK's tracebacks.
        logging.getLogger("mcp").addHandler(_SILENT)
        from mcp import Client
        from mcp_types import Implementation

        from tui_agent.tools.mcp.repairing import repaired
        from tui_agent.tools.mcp.tasks import TasksExtension
        from tui_agent.version import __version__

        try:
            server = self.configured.resolved(os.environ)
        except KeyError as missing:
            raise ServerUnavailable(f"the variable {missing.args[0]} is not set") from None
        if server.command:
            environment = environment_of(server, os.environ)
            transport: Transport = running(
                server, environment, self.configured.folder, self.log, lambda why: self._ended(over, why)
            )
        else:
            self._unauthorized = Unauthorized()
            transport = listening(server, self._tokens, self._unauthorized, self._sign_in)
        return Client(
            repaired(transport, lambda: self._ended(over, TOO_MANY)),
            client_info=Implementation(name="tui-agent", version=__version__),
            logging_callback=self._take_log,
            message_handler=self._take_message,
            elicitation_callback=self._elicited,
            list_roots_callback=self._roots if self._folders else None,
            cache=None,
            extensions=[TasksExtension()],
        )

    def _ended(self, over: asyncio.Event, why: str) -> None:
        if over.is_set():
            return
        over.set()
        if self._unauthorized.asked and self.configured.server.url:
            why = self._sign_in_wanted
        if over is self._over:
            self._reason = why
        if over is self._over and self.state == "running":
            self.state, self.error = "stopped", f"The server {self.name} ended: {why}."

    # Asking

    async def _ask(self, what: str, ask: Callable[["Client"], Awaitable[Result]], seconds: float) -> Result:
        """Send the server a request. Raises `ServerUnavailable`, and ValueError if it refuses.

        A server that has ended since the last request is started again. If it ends during the request, it is not known
        what it did, so the request is not repeated.
        """
        client = await self._running()
        over = self._over
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT

        try:
            return await ask(client)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                problem = f"The server {self.name} did not answer within {seconds:g} s ({what}); it was told to stop."
                self.error = problem
                raise ServerUnavailable(problem) from error
            if error.code == PARSE_ERROR:
                said = one_line(error.message, 500)
                self.error = f"What the server {self.name} answers cannot be read: {said} ({what})."
                raise ServerUnavailable(self.error) from error
            if error.code != CONNECTION_CLOSED:
                raise ValueError(one_line(error.message, 4_000) or f"error {error.code}") from error
            failure: Exception = error
        except Exception as error:
            failure = error
        with contextlib.suppress(TimeoutError):  # the reason is known a moment later
            async with asyncio.timeout(_REASON_S):
                await over.wait()
        why = self.error or f"The server {self.name} cannot be reached any more: {_why(failure)}."
        self._ended(over, _why(failure))
        raise ServerUnavailable(f"{why} What it did by then ({what}) is not known.") from failure

    async def _read_lists(self, client: "Client") -> None:
        """Read what the server offers, and pass it to `changed`."""
        capabilities = client.server_capabilities
        tools = await _paged(client.list_tools, "tools") if capabilities.tools else []
        prompts = await _paged(client.list_prompts, "prompts") if capabilities.prompts else []
        info = client.server_info
        known = await asyncio.to_thread(
            _known,
            one_line((info.title or info.name) if info else "", 100),
            client.instructions or "",
            tools,
            prompts,
            capabilities.resources is not None,
        )
        await self._changed(known)

    async def _watch(self, client: "Client") -> None:
        """Read the lists again whenever the server reports a change."""
        from mcp.client.subscriptions import ListenNotSupportedError

        listening = asyncio.create_task(self._listen(client))
        try:
            while True:
                await self._relist.wait()
                await asyncio.sleep(RELIST_S)
                self._relist.clear()
                try:
                    await self._read_lists(client)
                except Exception as error:
                    self.error = f"The list of {self.name} could not be read again: {_why(error)}."
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception, ListenNotSupportedError):
                await listening

    async def _listen(self, client: "Client") -> None:
        """Subscribe to changes: since protocol version 2026-07-28 a server reports them only to listeners."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
            async for _ in changes:
                self._relist.set()

    # What the server says unasked

    async def _take_log(self, params: "LoggingMessageNotificationParams") -> None:
        line = f"[{params.level}] {one_line(str(params.data), 2_000)}\n"
        await asyncio.to_thread(self.log.write, line.encode())

    async def _take_message(self, message: "IncomingMessage") -> None:
        from mcp_types import PromptListChangedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self._relist.set()

    async def _elicited(self, context: "ClientRequestContext", params: "ElicitRequestParams") -> "ElicitResult":
        return await answered(self.name, params, self._calls[-1] if self._calls else None)

    async def _roots(self, context: "ClientRequestContext") -> "ListRootsResult":
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri()), name=folder.name) for folder in self._folders])


@contextmanager
def _in_span() -> Iterator[None]:
    """A context in which the SDK tells the server of the current span, in a request's ``_meta``."""
    here = current()
    if here is None:
        yield
        return
    from opentelemetry import context, trace

    span = trace.SpanContext(here.trace, here.span, is_remote=False, trace_flags=trace.TraceFlags(here.flags))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
    try:
        yield
    finally:
        context.detach(token)


async def _paged(read: Callable[..., Awaitable[object]], what: str) -> list[object]:
    """All items of a paged list, up to one more than `MAX_TOOLS`."""
    found: list[object] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await read(cursor=cursor)
        found += getattr(page, what)
        cursor = getattr(page, "next_cursor", None)
        if not cursor or len(found) > MAX_TOOLS:
            break
    return found


def _known(
    title: str, instructions: str, tools: Sequence[object], prompts: Sequence[object], resources: bool
) -> KnownServer:
    """What the server offers, cleaned. Slow for long lists: call it off the event loop."""
    from mcp_types import Prompt, Tool

    problems = []
    found = []
    for tool in tools:
        if isinstance(tool, Tool):
            reads = bool(tool.annotations and tool.annotations.read_only_hint)
            known, problem = known_tool(tool.name, tool.description or tool.title or "", tool.input_schema, reads=reads)
            found.append(known)
            problems += [problem] if problem else []
    if len(tools) > MAX_TOOLS:
        problems.append(f"it lists more than {MAX_TOOLS:,} tools; the others are left out.")
    offered = tuple(
        KnownPrompt(
            one_line(prompt.name, 100),
            one_line(prompt.description or prompt.title or "", 300),
            tuple(one_line(each.name, 60) + "?" * (not each.required) for each in prompt.arguments or ()),
        )
        for prompt in prompts[:MAX_TOOLS]
        if isinstance(prompt, Prompt)
    )
    text = clean(instructions).strip()[:MAX_INSTRUCTIONS]
    return KnownServer(title, text, unique(found), offered, resources, tuple(problems[:MAX_PROBLEMS]))


async def _unchecked(name: str, result: "CallToolResult") -> None:
    """Replaces the SDK's validation of a result."""


def _progress_text(done: float, total: float | None, message: str | None) -> str:
    part = f"{done:g} of {total:g}" if total else f"{done:g}"
    return f"{one_line(message, 200)} ({part})" if message else part


def _why(error: BaseException) -> str:
    """What went wrong, without a full stop; for an exception group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerUnavailable):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return one_line(error.strerror, 500)
    return one_line(error_text(error), 500).rstrip(".")
