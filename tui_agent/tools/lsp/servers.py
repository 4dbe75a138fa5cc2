"""The language servers of one session, and what the model is owed of what they say: what its edits newly broke.

A server is started, in the sandbox, with the first edit of a file that it knows or the first question about one, and
ends with the session. Without the extra ``tui-agent[lsp]`` there is none.

Before and after an edit, the edited file and those that may use it are looked at. What is there after it only, is owed
to the model: it is told at the end of this result, or of a later one, if it is still there.
"""

import asyncio
import contextlib
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tui_agent.settings.schema import DiagnosticsSettings
from tui_agent.system.regular import read_bytes
from tui_agent.text import error_text
from tui_agent.tools.environment import child_environment, sandboxed_environment
from tui_agent.tools.files.encodings import decode
from tui_agent.tools.lsp.client import Diagnostic, LanguageServer
from tui_agent.tools.lsp.disk import Disk
from tui_agent.tools.lsp.programs import LANGUAGES, PROGRAMS, Program, Project
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import Sandbox, ready

MAX_BYTES: Final = 1_000_000
"""Bytes of the largest file that is looked at."""
OTHERS: Final = 20
"""Files looked at besides the edited one, since they may use it."""
LOOKED_FOR: Final = 400
"""Names in the project's folder and those in it that are looked at to see which languages it has."""


class LanguageServers:
    """The language servers of one session. Owns their processes."""

    def __init__(self, settings: DiagnosticsSettings, sandbox: Sandbox, root: Path, *, trusted: bool) -> None:
        """`root`: the project's folder; its own programs are started only if it is `trusted`."""
        self.on_change: Callable[[], None] = lambda: None
        """Told when there may be other problems than before."""
        self._settings, self._sandbox = settings, sandbox
        self._project = Project(root, trusted)
        self._disk = Disk(root)
        self._servers: dict[str, asyncio.Task[LanguageServer]] = {}
        self._known: dict[Path, list[Diagnostic]] = {}
        self._owed: list[Diagnostic] = []
        self._edits: dict[Path, tuple[str, str]] = {}
        self._edited: dict[Path, None] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def are_used(self) -> bool:
        """Whether there can be any. Cheap."""
        return self._settings.enabled and importlib.util.find_spec("pygls") is not None

    def knows(self, path: Path) -> bool:
        """Whether problems of this file can be told at all. Cheap."""
        return path.suffix in LANGUAGES and self.are_used

    @property
    def problems(self) -> tuple[Diagnostic, ...]:
        """What is wrong now, as far as known, in the files edited here and those that use them."""
        found = (problem for path in sorted(self._known) for problem in self._known[path])
        return tuple(problem for problem in found if problem.is_error or self._settings.warnings)

    @property
    def is_looking(self) -> bool:
        """Whether an edit is being looked at just now."""
        return self._looking is not None and not self._looking.done()

    @property
    def states(self) -> Mapping[str, str]:
        """What each server that was started is doing now, in words."""
        return {name: _state(task) for name, task in self._servers.items()}

    async def new_problems(self, path: Path, before: str, after: str) -> list[Diagnostic]:
        """What an edit of this file newly broke, in it and in those that use it, and what earlier edits broke that was
        not known in time. Waits for it as long as the settings say.
        """
        first, _ = self._edits.get(path, (before, ""))
        self._edits[path] = first, after
        self._edited.pop(path, None)
        self._edited[path] = None
        if not self.is_looking:
            self._looking = asyncio.create_task(self._look_at_all(), name="language servers")
        await asyncio.wait(filter(None, (self._looking,)), timeout=self._settings.wait_s)
        return self.owed()

    def owed(self) -> list[Diagnostic]:
        """What edits newly broke and has not been told."""
        owed, self._owed = self._owed, []
        return [problem for problem in owed if problem.is_error or self._settings.warnings]

    async def _look_at_all(self) -> None:
        while self._edits:
            path = next(iter(self._edits))
            before, after = self._edits.pop(path)
            for alike in self._project.programs(path):
                with contextlib.suppress(Exception):  # what a server says may be anything; `states` tells
                    if (server := await self._first(alike)) is not None:
                        await self._look(server, path, before, after)
            self.on_change()

    async def _look(self, server: LanguageServer, path: Path, before: str, after: str) -> None:
        suffixes = server.program.suffixes
        edited = [each for each in reversed(self._edited) if each.suffix in suffixes]
        others = dict.fromkeys([*edited, *await self._disk.users_of(path, suffixes, OTHERS)])
        others.pop(path, None)
        texts = await asyncio.to_thread(_texts, list(others)[:OTHERS])
        changed = await self._disk.changes(suffixes)
        is_stale = server.texts.get(path) != before or any(server.texts.get(each) != texts[each] for each in texts)
        if is_stale or changed.keys() - {path, *texts}:
            # What others changed meanwhile is nothing that this edit broke.
            server.changed(changed)
            for each, text in texts.items():
                server.give(each, text)
            server.give(path, before)
            self._take_in(server, await server.problems([path, *texts]), is_new=False)
        server.give(path, after)
        server.saved(path)
        for each in (path, *texts):  # the edited file first: there may be time for no more
            self._take_in(server, await server.problems([each]), is_new=True)
        server.forget(2 * OTHERS)

    def _take_in(self, server: LanguageServer, found: Mapping[Path, list[Diagnostic]], *, is_new: bool) -> None:
        """Let these be the problems that are known of these files; `is_new`: what was not, is owed."""
        name = server.program.name
        for path, problems in found.items():
            still = Counter(problem.what for problem in problems)
            self._owed = [each for each in self._owed if (each.path, each.server) != (path, name) or still[each.what]]
            before: list[Diagnostic] = []
            others: list[Diagnostic] = []
            for problem in self._known.get(path, ()):
                (before if problem.server == name else others).append(problem)
            self._known[path] = [*others, *problems]
            if is_new:
                old = Counter(problem.what for problem in before)
                for problem in problems:
                    old[problem.what] -= 1
                    if old[problem.what] < 0:
                        self._owed.append(problem)

    def lookups(self) -> bool:
        """Whether a server that knows where names are defined is here for a language of this project. Reads folders."""
        if not self.are_used:
            return False
        suffixes = _suffixes_in(self._project.root)
        known = (each for alike in PROGRAMS for each in alike if each.looks_up and suffixes.intersection(each.suffixes))
        return any(self._project.path_of(each.name) is not None for each in known)

    async def asked(self, path: Path) -> LanguageServer | None:
        """The server to ask about a file, which it sees as it is; None if there is none."""
        for alike in self._project.programs(path) if self.knows(path) else ():
            server = await self._first([each for each in alike if each.looks_up])
            if server is not None:
                server.changed(await self._disk.changes(server.program.suffixes))
                for each, text in (await asyncio.to_thread(_texts, [path, *server.texts])).items():
                    server.give(each, text)
                return server
        return None

    async def _first(self, alike: Iterable[Program]) -> LanguageServer | None:
        """The first of these that can be started, which is tried once a session."""
        for program in alike:
            if program.name not in self._servers:
                self._servers[program.name] = asyncio.create_task(self._started(program))
            with contextlib.suppress(Exception):  # `states` tells it
                return await asyncio.shield(self._servers[program.name])
        return None

    async def _started(self, program: Program) -> LanguageServer:
        arguments = [self._project.path_of(program.name) or "", *program.arguments[1:]]
        request = await asyncio.to_thread(self._request, arguments)
        await ready(request)
        return await LanguageServer.started(program, self._project, request)

    def shell_request(self, command: str) -> Request:
        """What starts a shell command as the servers are started. Reads folders."""
        return self._request(["/bin/sh", "-c", command])

    def _request(self, arguments: Sequence[str]) -> Request:
        if not self._sandbox.confines:
            return Request(list(arguments), str(self._project.root), child_environment(os.environ))
        guard, environment = self._sandbox.guard(confines=False), sandboxed_environment(os.environ)
        return self._sandbox.request(arguments, self._project.root, environment, guard=guard, read_only=True)

    async def close(self) -> None:
        tasks = [*self._servers.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, LanguageServer):
                await found.close()
        self._servers = {}


def _state(task: "asyncio.Task[LanguageServer]") -> str:
    if not task.done():
        return "starting"
    if task.cancelled():
        return "ended"
    if (error := task.exception()) is not None:
        return f"not started: {error_text(error, 300)}"
    return "running" if task.result().runs else "has ended"


def _texts(paths: Iterable[Path]) -> dict[Path, str]:
    found = ((path, text_of(path)) for path in paths)
    return {path: text for path, text in found if text is not None}


def text_of(path: Path) -> str | None:
    """The text of a file, empty if there is none; None if it is too large or no text."""
    try:
        return decode(read_bytes(path, MAX_BYTES))[0]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


def _suffixes_in(root: Path) -> set[str]:
    """The suffixes of files in a folder and in those directly in it."""
    found: set[str] = set()
    left, folders = LOOKED_FOR, [str(root)]
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return found
                if entry.name.startswith(".") or entry.name == "node_modules":
                    continue
                found.add(Path(entry.name).suffix)
                if folder == str(root) and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return found
