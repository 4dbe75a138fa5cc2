"""One running language server: the texts it is given, the problems it tells, the questions it answers.

pygls frames the messages (https://microsoft.github.io/language-server-protocol); what they say stays plain JSON, since
servers do not all keep to the letter of the protocol's types.
"""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tui_agent.text import clean, one_line
from tui_agent.tools.lsp.programs import LANGUAGES, TYPESCRIPT, Program, Project
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.shell.processes import Child, start_child

if TYPE_CHECKING:
    from cattrs import Converter
    from pygls.client import JsonRPCClient

ANSWER_S: Final = 30.0
"""Seconds a server may take to start, and to answer."""
SETTLING_S: Final = 0.4
"""A server that sends problems unasked is believed once it has sent none for so long."""
PATIENCE_S: Final = 3.0
"""It may say nothing at all of a text that is as right as the last one."""
CLOSING_S: Final = 1.0
MESSAGE_CHARS: Final = 300
ERROR, WARNING = 1, 2


class Diagnostic(msgspec.Struct, frozen=True):
    """A problem in a file. line, column: from 1. source: who says so; server: the program that was asked."""

    path: Path
    line: int
    column: int
    message: str
    source: str
    is_error: bool = True
    server: str = ""

    @property
    def what(self) -> tuple[Path, str, str]:
        """What makes it the same problem wherever the lines have moved."""
        return self.path, self.message, self.source


class LanguageServer:
    """A running server. Make it with `started`."""

    def __init__(self, program: Program, project: Project) -> None:
        self.program = program
        self.texts: dict[Path, str] = {}
        """The files it has open, those given last at the end."""
        self._project = project
        self._client: JsonRPCClient
        self._child: Child
        self._reading: asyncio.Task[None]
        self._version = 0
        self._sent: dict[Path, list[Any]] = {}
        self._awaited: tuple[Path | None, int] = (None, 0)
        self._busy: set[object] = set()
        self._arrived = asyncio.Event()
        self._registering = asyncio.Event()
        self._is_settled = False
        self._pulls = False

    @classmethod
    async def started(cls, program: Program, project: Project, request: Request) -> "LanguageServer":
        """Start it, and agree on what it tells. Raises OSError, TimeoutError."""
        server = cls(program, project)
        await server._connect(request)
        try:
            await server._agree()
        except BaseException:
            await server.close()
            raise
        return server

    async def _connect(self, request: Request) -> None:
        from pygls.client import JsonRPCClient
        from pygls.io_ import run_async

        # It would write on the screen.
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
        client = self._client = JsonRPCClient(converter_factory=_as_plain_json)
        asked = {
            "textDocument/publishDiagnostics": self._published,
            "workspace/configuration": self._configured,
            "$/progress": self._progressed,
            "client/registerCapability": self._registered,
            **dict.fromkeys(("window/workDoneProgress/create", "workspace/diagnostic/refresh"), lambda _: None),
        }
        for name, answer in asked.items():
            client.feature(name)(partial(answer))  # it cannot mark a method
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
        client.protocol.set_writer(writer)
        stopped = threading.Event()  # which pygls looks at; the task is cancelled instead
        self._reading = asyncio.create_task(run_async(stop_event=stopped, reader=reader, protocol=client.protocol))

    async def _agree(self) -> None:
        await self._child.started()
        uri = self._project.root.as_uri()
        answer = await self.ask(
            "initialize",
            {
                "processId": None,
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": self._project.root.name}],
                "initializationOptions": self._project.options(self.program),
                "capabilities": {
                    "textDocument": {
                        "publishDiagnostics": {"versionSupport": True},
                        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
                        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
                        "synchronization": {"didSave": True},
                    },
                    "window": {"workDoneProgress": self.program.waits},
                    "workspace": {
                        "configuration": True,
                        "workspaceFolders": True,
                        "didChangeWatchedFiles": {"dynamicRegistration": True},
                    },
                },
            },
        )
        self._pulls = bool(answer["capabilities"].get("diagnosticProvider"))
        self._client.protocol.notify("initialized", {})
        if not self._pulls:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._registering.wait(), SETTLING_S)

    def _configured(self, asked: dict[str, Any]) -> list[object]:
        return [self._project.configuration(str(item.get("section"))) for item in asked["items"]]

    def _registered(self, params: dict[str, Any]) -> None:
        if any(each["method"] == "textDocument/diagnostic" for each in params["registrations"]):
            self._pulls = True
            self._registering.set()

    def _progressed(self, params: dict[str, Any]) -> None:
        kind = params["value"].get("kind")
        (self._busy.add if kind != "end" else self._busy.discard)(str(params["token"]))
        self._arrived.set()

    @property
    def runs(self) -> bool:
        """Whether it answers."""
        return not self._reading.done()

    def give(self, path: Path, text: str) -> None:
        """Let it see this text as the file's, whatever lies on the disk."""
        if self.texts.get(path) == text:
            return
        self._version += 1
        self._awaited = path, self._version
        document = {"uri": path.as_uri(), "version": self._version}
        if path in self.texts:
            self._tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])
        else:
            document |= {"languageId": LANGUAGES[path.suffix], "text": text}
            self._tell("textDocument/didOpen", textDocument=document)
        self.texts.pop(path, None)
        self.texts[path] = text

    def saved(self, path: Path) -> None:
        """Tell it that its text of a file is on the disk."""
        self._tell("textDocument/didSave", textDocument={"uri": path.as_uri()})

    def forget(self, keep: int) -> None:
        """Close all files but those given last."""
        for path in list(self.texts)[:-keep]:
            self._tell("textDocument/didClose", textDocument={"uri": path.as_uri()})
            del self.texts[path]
            self._sent.pop(path, None)

    def changed(self, kinds: Mapping[Path, int]) -> None:
        """Tell it of files that were changed on the disk, with the protocol's numbers of what happened."""
        events = [{"uri": path.as_uri(), "type": kind} for path, kind in kinds.items() if path not in self.texts]
        if events:
            self._tell("workspace/didChangeWatchedFiles", changes=events)

    def _tell(self, method: str, **parameters: object) -> None:
        self._is_settled = False
        self._client.protocol.notify(method, parameters)

    async def problems(self, paths: Iterable[Path]) -> dict[Path, list[Diagnostic]]:
        """What it says of these files, and of others if it does so unasked. Raises TimeoutError, RuntimeError."""
        if self.program.name == TYPESCRIPT:
            found = {path: await self._of_typescript(path) for path in paths}
        elif self._pulls:
            found = {}
            for path in paths:
                answer = await self.ask("textDocument/diagnostic", {"textDocument": {"uri": path.as_uri()}})
                found[path] = answer.get("items") or []
        else:
            async with asyncio.timeout(ANSWER_S):
                await self._settled()
            found = {path: self._sent.get(path, []) for path in {*paths, *self._sent}}
        return {path: [self._problem(path, each) for each in items if _counts(each)] for path, items in found.items()}

    async def _of_typescript(self, path: Path) -> list[Any]:
        """TypeScript's own answer: its language server says unasked what there is, but not that there is nothing."""
        found: list[Any] = []
        for kind in ("syntacticDiagnosticsSync", "semanticDiagnosticsSync"):
            words = [kind, {"file": path.as_uri(), "includeLinePosition": True}]
            asked = {"command": "typescript.tsserverRequest", "arguments": words}
            for each in (await self.ask("workspace/executeCommand", asked)).get("body") or ():
                start = each["startLocation"]
                place = {"line": start["line"] - 1, "character": start["offset"] - 1}
                severity = ERROR if each["category"] == "error" else WARNING
                text, code = each["message"], each.get("code")
                found.append({"message": text, "code": code, "severity": severity, "range": {"start": place}})
        return found

    async def ask(self, method: str, parameters: Mapping[str, object]) -> Any:
        """The answer to a request, {} for none. Raises TimeoutError, and RuntimeError if it has ended or refuses."""
        asked = asyncio.ensure_future(self._client.protocol.send_request_async(method, parameters))
        try:
            await asyncio.wait((asked, self._reading), timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise TimeoutError if self.runs else RuntimeError(f"{self.program.name} has ended")
            return asked.result() or {}
        finally:
            asked.cancel()

    def _published(self, params: dict[str, Any]) -> None:
        path, version = path_of(str(params.get("uri"))), params.get("version") or 0
        awaited, number = self._awaited
        if path == awaited and version < number:
            return  # it is about an earlier text
        self._sent[path] = list(params.get("diagnostics") or ())
        self._awaited = (None if path == awaited else awaited), number
        self._arrived.set()

    async def _settled(self) -> None:
        """Wait until it has said what it has to say of the texts it was given."""
        while self.runs and not self._is_settled:
            self._arrived.clear()
            patience = None if self._busy else SETTLING_S if self._awaited[0] is None else PATIENCE_S
            arriving = asyncio.ensure_future(self._arrived.wait())
            try:
                await asyncio.wait((arriving, self._reading), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                self._is_settled = not arriving.done() and patience is not None
            finally:
                arriving.cancel()

    def _problem(self, path: Path, each: dict[str, Any]) -> Diagnostic:
        code = each.get("code")
        source = f"{each.get('source') or self.program.name} {code if code is not None else ''}"
        place = each.get("range", {}).get("start", {})
        line, column = int(place.get("line", 0)) + 1, int(place.get("character", 0)) + 1
        message = one_line(clean(str(each.get("message", ""))), MESSAGE_CHARS)
        is_error = (each.get("severity") or ERROR) == ERROR
        source = one_line(clean(source.strip()), 60)
        return Diagnostic(path, line, column, message, source, is_error, self.program.name)

    async def close(self) -> None:
        """Ask it to end, and end it."""
        if self.runs:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSING_S):
                    await self.ask("shutdown", {})
                self._client.protocol.notify("exit")
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._child.wait_until_gone()


def _counts(each: dict[str, Any]) -> bool:
    return (each.get("severity") or ERROR) <= WARNING  # none means an error


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _as_plain_json() -> "Converter":
    from lsprotocol import converters
    from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, JsonRPCResponseMessage

    converter = converters.get_converter()
    for kind in (JsonRPCNotification, JsonRPCRequestMessage):
        converter.register_structure_hook(kind, lambda message, kind: kind(**{"params": None, **message}))
    converter.register_structure_hook(JsonRPCResponseMessage, lambda message, kind: kind(**message))
    return converter
