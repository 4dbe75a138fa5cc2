"""What an edit newly broke, from the project's language servers: said at the end of the edit's result.

Servers are found on PATH or in the trusted project's own environment, never installed. One is started, in the sandbox,
with the first edit of a file that it knows, and ends with the session. The protocol is pygls's
(https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/); without the extra
``tui-agent[lsp]`` nothing of this happens.
"""

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from tui_agent.programs import find_program
from tui_agent.settings import Diagnostics
from tui_agent.text import clean, counted, one_line
from tui_agent.tools.base import Tool, ToolContext, ToolOutput
from tui_agent.tools.built_in import Wrapping
from tui_agent.tools.files.encodings import decode
from tui_agent.tools.gate.workspace import display_path
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import Sandbox, ready
from tui_agent.tools.shell.environment import child_environment, sandboxed_environment
from tui_agent.tools.shell.processes import Child, start_child

if TYPE_CHECKING:
    from cattrs import Converter
    from pygls.client import JsonRPCClient

SHOWN: Final = 10
"""Problems that a result ends with."""
MESSAGE_CHARS: Final = 300
MAX_BYTES: Final = 1_000_000
"""Bytes of the largest file that is looked at."""
STARTING_S: Final = 30.0
"""Seconds a server may take to start, and to look at a file."""
SETTLING_S: Final = 0.4
"""A server that sends problems unasked is believed once it has sent none for so long."""
CLOSING_S: Final = 1.0
OPEN_FILES: Final = 20
"""Files edited last that are looked at again after each edit, since they may import what was changed."""

_LANGUAGES: Final[Mapping[str, str]] = {
    ".py": "python",
    ".pyi": "python",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".js": "javascript",
    ".jsx": "javascriptreact",
    ".go": "go",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
}
"""The language identifier of a file, by its suffix."""


class Program(NamedTuple):
    """A language server: how it is started, and the languages it is asked about."""

    arguments: tuple[str, ...]
    languages: tuple[str, ...]


_SCRIPTS: Final = ("typescript", "typescriptreact", "javascript", "javascriptreact")
PROGRAMS: Final = (
    # Of those that do the same, the first that is found is asked.
    (
        Program(("basedpyright-langserver", "--stdio"), ("python",)),
        Program(("pyright-langserver", "--stdio"), ("python",)),
    ),
    (Program(("ruff", "server"), ("python",)),),
    (Program(("typescript-language-server", "--stdio"), _SCRIPTS),),
    (Program(("gopls",), ("go",)),),
    (Program(("rust-analyzer",), ("rust",)),),
    (Program(("clangd",), ("c", "cpp")),),
)


class Problem(NamedTuple):
    """A problem in a file. line, column: from 1. source: who says so."""

    path: Path
    line: int
    column: int
    message: str
    source: str

    @property
    def what(self) -> tuple[Path, str, str]:
        """What makes it the same problem wherever the lines have moved."""
        return self.path, self.message, self.source


class LanguageServers:
    """The language servers of one session. Owns their processes."""

    def __init__(self, settings: Diagnostics, sandbox: Sandbox, root: Path, *, trusted: bool) -> None:
        """`root`: the project's folder; its own programs are started only if it is `trusted`."""
        self._settings, self._sandbox, self._root, self._trusted = settings, sandbox, root, trusted
        self._servers: dict[tuple[str, ...], asyncio.Task[_Server | None]] = {}
        self._known: dict[Path, list[Problem]] = {}
        self._texts: dict[Path, str] = {}
        self._late: list[asyncio.Task[list[Problem]]] = []
        self._looking = asyncio.Lock()

    def knows(self, path: Path) -> bool:
        """Whether problems of this file can be told at all. Cheap."""
        return self._settings.enabled and path.suffix in _LANGUAGES and importlib.util.find_spec("pygls") is not None

    async def new_problems(self, path: Path, before: str, after: str) -> list[Problem]:
        """What is wrong after an edit and was not before it, in this file and those edited last; and what an earlier
        edit broke that was not known in time.
        """
        self._late.append(asyncio.create_task(self._compare(path, before, after)))
        await asyncio.wait(self._late, timeout=self._settings.wait_s)
        done = [task for task in self._late if task.done()]
        self._late = [task for task in self._late if not task.done()]
        return [
            problem for task in done if not task.cancelled() and task.exception() is None for problem in task.result()
        ]

    async def _compare(self, path: Path, before: str, after: str) -> list[Problem]:
        async with self._looking:
            servers = [server for program in self._programs(path) if (server := await self._started(program))]
            if not servers:
                return []
            if self._texts.get(path) != before:
                self._known[path] = await _problems(servers, path, before)
            self._texts[path] = after
            found = {path: await _problems(servers, path, after)}
            for other in [
                each for each in list(self._known)[-OPEN_FILES:] if each != path and each.suffix == path.suffix
            ]:
                found[other] = await _problems(servers, other, None)
            old = Counter(problem.what for each in found for problem in self._known.get(each, ()))
            new: list[Problem] = []
            for problem in (problem for each in found.values() for problem in each):
                if old[problem.what]:
                    old[problem.what] -= 1
                else:
                    new.append(problem)
            self._known |= found
            return new

    def _programs(self, path: Path) -> list[Program]:
        language = _LANGUAGES[path.suffix]
        found = []
        for alike in PROGRAMS:
            known = [each for each in alike if language in each.languages]
            found += next(([each] for each in known if self._path_of(each.arguments[0]) is not None), [])
        return found

    def _path_of(self, name: str) -> str | None:
        own = (self._root / ".venv/bin", self._root / "node_modules/.bin") if self._trusted else ()
        in_project = (shutil.which(name, path=str(folder)) for folder in own)
        return next(filter(None, in_project), None) or find_program(name)

    async def _started(self, program: Program) -> "_Server | None":
        """The running server; None if it cannot be started, which is tried once."""
        if program.arguments not in self._servers:
            self._servers[program.arguments] = asyncio.create_task(self._start(program))
        try:
            return await asyncio.shield(self._servers[program.arguments])
        except (OSError, TimeoutError, ValueError):
            return None

    async def _start(self, program: Program) -> "_Server | None":
        arguments = [self._path_of(program.arguments[0]) or "", *program.arguments[1:]]
        request = await asyncio.to_thread(self._request, arguments)
        await ready(request)
        server = _Server(program, self._root)
        try:
            async with asyncio.timeout(STARTING_S):
                await server.start(request, warnings=self._settings.warnings)
        except BaseException:
            await server.close()
            raise
        return server

    def _request(self, arguments: Sequence[str]) -> Request:
        if not self._sandbox.confines:
            return Request(list(arguments), str(self._root), child_environment(os.environ))
        guard, environment = self._sandbox.guard(), sandboxed_environment(os.environ)
        return self._sandbox.request(arguments, self._root, environment, guard=guard, read_only=True)

    async def close(self) -> None:
        """End the servers."""
        for late in self._late:
            late.cancel()
        for task in self._servers.values():
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None and (server := task.result()) is not None:
                await server.close()
        await asyncio.gather(*self._late, *self._servers.values(), return_exceptions=True)
        self._servers, self._late = {}, []


async def _problems(servers: Sequence["_Server"], path: Path, text: str | None) -> list[Problem]:
    """What the servers say of a file with this text; None: with the text it has."""
    found: list[Problem] = []
    for server in servers:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            async with asyncio.timeout(STARTING_S):
                found += await server.problems(path, text)
    return found


class _Server:
    """One running server. pygls frames the messages; what they say stays plain JSON, since servers do not all keep to
    the letter of the protocol's types.
    """

    def __init__(self, program: Program, root: Path) -> None:
        self._program, self._root = program, root
        self._client: JsonRPCClient | None = None
        self._child: Child | None = None
        self._reading: asyncio.Task[None] | None = None
        self._versions: dict[str, int] = {}
        self._sent: dict[str, list[Any]] = {}
        self._arrived = asyncio.Event()
        self._pulls = self._warnings = False

    async def start(self, request: Request, *, warnings: bool) -> None:
        """Start it, and agree on what it tells. Raises OSError."""
        from pygls.client import JsonRPCClient
        from pygls.io_ import run_async

        # It would write on the screen.
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
        self._warnings = warnings
        client = self._client = JsonRPCClient(converter_factory=_as_plain_json)
        ours, theirs = socket.socketpair()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._child = start_child(request, theirs.fileno(), nowhere)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(nowhere)
        reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
        await self._child.started()
        client.protocol.set_writer(writer)
        client.feature("textDocument/publishDiagnostics")(partial(self._published))
        client.feature("workspace/configuration")(lambda asked: [None for _ in asked["items"]])
        for name in ("client/registerCapability", "window/workDoneProgress/create"):
            client.feature(name)(lambda _: None)
        stopped = threading.Event()  # which pygls looks at; the task is cancelled instead
        self._reading = asyncio.create_task(run_async(stop_event=stopped, reader=reader, protocol=client.protocol))
        uri = self._root.as_uri()
        agreed = await self._request(
            "initialize",
            {
                "processId": None,
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": self._root.name}],
                "capabilities": {
                    "textDocument": {"publishDiagnostics": {}, "diagnostic": {}},
                    "workspace": {"configuration": True, "workspaceFolders": True},
                },
            },
        )
        self._pulls = bool(agreed.get("capabilities", {}).get("diagnosticProvider"))
        client.protocol.notify("initialized", {})

    async def problems(self, path: Path, text: str | None) -> list[Problem]:
        """What it says of a file, which is given this text first; None: as it was given last."""
        client, uri = self._client, path.as_uri()
        if client is None or self._reading is None or self._reading.done():
            return []
        if text is not None:
            version = self._versions[uri] = self._versions.get(uri, 0) + 1
            self._sent.pop(uri, None)
            if version == 1:
                known = {"uri": uri, "languageId": _LANGUAGES[path.suffix], "version": version, "text": text}
                client.protocol.notify("textDocument/didOpen", {"textDocument": known})
            else:
                changed = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}
                client.protocol.notify("textDocument/didChange", changed)
        if self._pulls:
            answer = await self._request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
            told = answer.get("items") or []
        else:
            if text is not None:
                await self._settled(uri)
            told = self._sent.get(uri, [])
        return [self._problem(path, each) for each in told if self._counts(each)]

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._client is None:
            return {}
        answer = await self._client.protocol.send_request_async(method, params)
        return answer if isinstance(answer, dict) else {}

    def _published(self, told: dict[str, Any]) -> None:
        self._sent[str(told.get("uri"))] = list(told.get("diagnostics") or ())
        self._arrived.set()

    async def _settled(self, uri: str) -> None:
        """Wait until it has said what it has to say of a file."""
        while uri not in self._sent:
            self._arrived.clear()
            await self._arrived.wait()
        with contextlib.suppress(TimeoutError):
            while True:
                self._arrived.clear()
                await asyncio.wait_for(self._arrived.wait(), SETTLING_S)

    def _counts(self, each: dict[str, Any]) -> bool:
        severity = each.get("severity") or 1  # none means an error
        return severity == 1 or (severity == 2 and self._warnings)

    def _problem(self, path: Path, each: dict[str, Any]) -> Problem:
        code = each.get("code")
        source = f"{each.get('source') or self._program.arguments[0]} {code if code is not None else ''}"
        place = each.get("range", {}).get("start", {})
        line, column = int(place.get("line", 0)) + 1, int(place.get("character", 0)) + 1
        message = one_line(clean(str(each.get("message", ""))), MESSAGE_CHARS)
        return Problem(path, line, column, message, one_line(clean(source.strip()), 60))

    async def close(self) -> None:
        """Ask it to end, and end it."""
        if self._client is not None and self._reading is not None and not self._reading.done():
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSING_S):
                    await self._client.protocol.send_request_async("shutdown")
                self._client.protocol.notify("exit")
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await self._child.wait_until_gone()


def _as_plain_json() -> "Converter":
    from lsprotocol import converters
    from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage

    converter = converters.get_converter()
    for kind in (JsonRPCNotification, JsonRPCRequestMessage):
        converter.register_structure_hook(kind, lambda message, kind: kind(**{"params": None, **message}))
    converter.register_structure_hook(JsonRPCResponseMessage, lambda message, kind: kind(**message))
    return converter


class Diagnosing(Wrapping):
    """Wraps a tool that changes one file: its result ends with what the change newly broke."""

    def __init__(self, tool: Tool, servers: LanguageServers) -> None:
        super().__init__(tool)
        self._servers = servers

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        given: Any = json.loads(arguments)
        path = context.workspace.resolve(str(given.get("path", "")))
        if not self._servers.knows(path):
            return await self._tool.run(arguments, context)
        before = await asyncio.to_thread(_text, path)
        output = await self._tool.run(arguments, context)
        after = await asyncio.to_thread(_text, path)
        if output.is_error or before is None or not after:
            return output
        found = await self._servers.new_problems(path, before, after)
        return _with(output, found, lambda problem: display_path(context.workspace, problem.path))


def _text(path: Path) -> str | None:
    """The text of a file, empty if there is none; None if it is too large or no text."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return decode(path.read_bytes())[0]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def _with(output: ToolOutput, found: Sequence[Problem], name: Callable[[Problem], str]) -> ToolOutput:
    if not found:
        return output
    lines = [f"{name(each)}:{each.line}:{each.column}: {each.message} ({each.source})" for each in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more")
    told = f"[{counted(len(found), 'new problem')} since this edit; what was wrong before is left out:]"
    text = "\n".join((output.text, told, *lines))
    summary = f"{output.summary}, {counted(len(found), 'new problem')}".lstrip(", ")
    return structs.replace(output, text=text, summary=summary, outcome=output.outcome.with_notes(len(lines) + 1))
