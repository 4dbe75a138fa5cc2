"""What an edit newly broke, said at the end of its result: by language servers, and by the user's own checks."""

import asyncio
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from tui_agent.text import clean, counted, one_line
from tui_agent.tools.base import Tool, ToolContext, ToolOutput
from tui_agent.tools.built_in import Wrapping
from tui_agent.tools.gate.workspace import display_path
from tui_agent.tools.lsp.client import MESSAGE_CHARS, Diagnostic
from tui_agent.tools.lsp.servers import LanguageServers, text_of
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import ready
from tui_agent.tools.shell.processes import RunningCommand

SHOWN: Final = 10
"""Problems that a result ends with."""
CHECK_BYTES: Final = 1_000_000
CHECK_S: Final = 30.0


class Diagnosing(Wrapping):
    """Wraps a tool that changes one file: its result ends with what the change newly broke."""

    def __init__(self, tool: Tool, servers: LanguageServers, checks: "Checks") -> None:
        super().__init__(tool)
        self._servers, self._checks = servers, checks

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        given: Any = json.loads(arguments)
        path = context.workspace.resolve(str(given.get("path", "")))
        name = display_path(context.workspace, path)
        is_known, checked = self._servers.knows(path), self._checks.command(path, name)
        if not (is_known or checked):
            return await self._tool.run(arguments, context)
        before = await asyncio.to_thread(text_of, path)
        if before is None:
            return await self._tool.run(arguments, context)
        if checked:
            await self._checks.look(path, name, before)
        output = await self._tool.run(arguments, context)
        after = await asyncio.to_thread(text_of, path)
        if output.is_error or not after:
            return output
        found: list[str] = []
        if is_known:
            problems = await self._servers.new_problems(path, before, after)
            found += (problem_text(each, display_path(context.workspace, each.path)) for each in problems)
        if checked:
            found += await self._checks.look(path, name, after)
        return _with(output, found)


class LateDiagnostics(Wrapping):
    """Wraps another tool: its result ends with what earlier edits broke that was not known in time for theirs."""

    def __init__(self, tool: Tool, servers: LanguageServers) -> None:
        super().__init__(tool)
        self._servers = servers

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        output = await self._tool.run(arguments, context)
        late = self._servers.owed()
        found = [problem_text(each, display_path(context.workspace, each.path)) for each in late]
        return _with(output, found, since="the last edit")


def problem_text(problem: Diagnostic, name: str) -> str:
    """A problem on one line. `name`: of its file."""
    return f"{name}:{problem.line}:{problem.column}: {problem.message} ({problem.source})"


def _with(output: ToolOutput, found: list[str], since: str = "this edit") -> ToolOutput:
    if not found:
        return output
    lines = found[:SHOWN]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more")
    heading = f"[{counted(len(found), 'new problem')} since {since}; what was wrong before is left out:]"
    text = "\n".join((output.text, heading, *lines))
    summary = f"{output.summary} · {counted(len(found), 'new problem')}".removeprefix(" · ")
    return structs.replace(output, text=text, summary=summary, outcome=output.outcome.with_notes(len(lines) + 1))


class Checks:
    """The commands that the settings name for files, as PATTERN=COMMAND. request: starts one in the project."""

    def __init__(self, commands: Iterable[str], request: Callable[[str], Request], wait_s: float) -> None:
        self._commands = [each.partition("=") for each in commands]
        self._request, self._wait_s = request, wait_s
        self._reported: dict[Path, tuple[str, Counter[str]]] = {}

    def command(self, path: Path, name: str) -> str:
        """The command for a file; empty if there is none."""
        found = (each for pattern, _, each in self._commands if fnmatch(name, pattern) or fnmatch(path.name, pattern))
        return next(found, "").replace("{file}", shlex.quote(str(path)))

    async def look(self, path: Path, name: str, text: str) -> list[str]:
        """What the command says of a file with this text that it did not say at the last look."""
        before = self._reported.get(path)
        if before is not None and before[0] == text:
            return []
        try:
            async with asyncio.timeout(self._wait_s):
                said = await self._run(self.command(path, name))
        except (OSError, TimeoutError):
            self._reported.pop(path, None)
            return []
        found = dict(_problems_in(said, path.name))
        self._reported[path] = text, Counter(found.values())
        old = Counter(found.values()) if before is None else before[1].copy()
        new = []
        for problem, what in found.items():
            old[what] -= 1
            if old[what] < 0:
                new.append(problem)
        return new

    async def _run(self, command: str) -> str:
        """What the command prints; nothing if it succeeds. Raises OSError."""
        request = await asyncio.to_thread(self._request, command)
        await ready(request)
        said = bytearray()
        running = RunningCommand(request, on_output=lambda data: said.extend(data[: CHECK_BYTES - len(said)]))
        try:
            await running.started()
            ended = await running.ended()
        except BaseException:
            await running.stop()
            raise
        return clean(said.decode(errors="replace")) if ended.exit_code else ""


def _problems_in(said: str, name: str) -> Iterator[tuple[str, str]]:
    """The problems of a file in what a linter or compiler prints, and what makes each the same wherever lines have
    moved.

    They name the file and a place on one line, which may end a headline; or name it once, with each problem on a line
    below.
    """
    place = re.compile(rf"{re.escape(name)}\W{{1,3}}\d")
    for block in re.split(r"\n\s*\n", said):
        lines = [line for line in block.splitlines() if line.strip()]
        placed = [line for line in lines if place.search(line)]
        if len(placed) == 1 and placed[0] is not lines[0]:
            placed = [f"{lines[0].strip()} {placed[0].strip()}"]
        if not placed and lines and name in lines[0]:
            placed = [f"{name}: {line.strip()}" for line in lines[1:]]
        for line in placed:
            shown = one_line(line, MESSAGE_CHARS)
            yield shown, re.sub(r"\d+", "", shown)
