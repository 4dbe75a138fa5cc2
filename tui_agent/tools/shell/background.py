"""Background commands: `command_output` reads their new output, `stop_command` ends one."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Annotated, TypeAlias

from msgspec import Meta
from msgspec.structs import replace
from typing_extensions import override

from tui_agent.conversation.entries import Outcome
from tui_agent.text import how_it_ended
from tui_agent.tools.base import ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.built_in import BuiltIn
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.shell.output import RawStream, answer, what_still_runs
from tui_agent.tools.shell.processes import RunningCommand
from tui_agent.tools.shell.terminal import STREAM_BYTES, Terminal

MAX_RUNNING = 16
"""The most commands that may run in the background at once."""
MAX_WAIT = 600
Settle: TypeAlias = Callable[[], list[str]]
"""Called in a thread once all processes of a command have ended; returns notes for the model."""
Wait: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WAIT)]
"""Seconds to wait for the end of a command."""

TAIL_BYTES = 64 * 1024
"""Bytes read from the end of an output for its newest lines."""
_KEPT = 50
_UNREAD_SHARE = 4  # raw bytes kept for each byte shown: much of a colourful output is escape sequences
_LINE = 120


class BackgroundCommand:
    """A command that was left running, and its output since the last look (only the end of it if it is long)."""

    def __init__(
        self,
        line: str,
        command: RunningCommand,
        raw: RawStream,
        terminal: Terminal,
        stream_bytes: int,
        settle: Settle = list,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over `command` and its further output. `line` is the command as it was written."""
        self.line = line
        self.command = command
        self._raw = raw
        self._terminal = terminal
        self._most = _UNREAD_SHARE * stream_bytes
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._dropped = 0
        self._looking = asyncio.Lock()
        self._started = time.monotonic()
        self._settle = asyncio.create_task(_settled(command, settle))
        self._settle.add_done_callback(lambda _: on_end())
        self._is_settled = False
        command.on_output = self._receive

    @property
    def is_running(self) -> bool:
        return self.command.exit_code is None

    @property
    def description(self) -> str:
        """One line that describes it."""
        code = self.command.exit_code
        if code is None:
            state = f"running for {time.monotonic() - self._started:,.0f} s"
        else:
            state = f"ended, signal {-code}" if code < 0 else f"ended, exit code {code}"
        return f"process {self.command.pid}: {state}, {self._unread:,} bytes unread: {shown(self.line, _LINE)}"

    def newest_output(self, lines: int) -> str:
        """The last lines of its output, with escape sequences; `look` still returns them later.

        Reads a file: call it in a thread.
        """
        return self._raw.tail(TAIL_BYTES, lines)

    async def look(self, wait: float, note: str = "") -> ToolOutput:
        """Its output since the last look, and its exit code once it has ended.

        Waits at most `wait` seconds for the end. `note` replaces the line about its state.
        """
        async with self._looking:
            ended = None
            try:
                async with asyncio.timeout(wait if self.is_running else None):
                    ended = await self.command.ended()
            except TimeoutError:
                pass
            dropped, data = self._dropped, b"".join(self._pieces)
            self._pieces.clear()
            self._unread = self._dropped = 0
            lasted = f"{time.monotonic() - self._started:,.1f} s"
            notes = [note or (f"[{how_it_ended(ended.exit_code)}]" if ended else f"[still running after {lasted}]")]
            if ended and ended.left and not note and not self._settle.done():
                notes.append(what_still_runs(ended, self.command.pid))
            if ended and not self._is_settled and (self._settle.done() or not ended.left):
                notes += await asyncio.shield(self._settle)
                self._is_settled = True

            def show() -> ToolOutput:
                self._terminal.feed(data)
                if ended:
                    self._terminal.finish()
                failed = bool(ended and ended.exit_code and not note)
                outcome = Outcome(ended.exit_code) if ended else Outcome(left_running=self.command.pid)
                shown = answer(self._terminal, self._raw, notes, outcome, is_error=failed, nothing="[no new output]")
                self._terminal.clear()
                return shown

            shown = await asyncio.to_thread(show)
        if not dropped:
            return shown
        lost = f"[{dropped:,} bytes before this were printed since the last look and are not shown]"
        return replace(shown, text=f"{lost}\n{shown.text}")

    async def stop(self) -> None:
        """End it, with everything it started."""
        await self.command.stop()
        await asyncio.shield(self._settle)

    def _receive(self, data: bytes) -> None:
        if not data:
            self._raw.close()
            return
        self._raw.write(data)
        self._pieces.append(data)
        self._unread += len(data)
        while self._unread - len(self._pieces[0]) > self._most:
            lost = len(self._pieces.popleft())
            self._unread -= lost
            self._dropped += lost


class BackgroundCommands:
    """The background commands of a session, by process id."""

    def __init__(self, stream_bytes: int = STREAM_BYTES) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when a command has come to those that run, or has ended."""
        self.awaited: set[asyncio.Event] = set()
        """One for each command that a call waits for; set, it lets the command go on in the background."""
        self._stream_bytes = stream_bytes
        self._commands: dict[int, BackgroundCommand] = {}
        self._leftovers: dict[RunningCommand, asyncio.Task[list[str]]] = {}

    def check_room(self) -> None:
        """Raises ToolFailure if the maximum number of commands is running."""
        running = sum(command.is_running for command in self._commands.values())
        if running >= MAX_RUNNING:
            raise ToolFailure(
                f"{running} commands run in the background already, which is the most.",
                f"End one that is no longer needed with stop_command:\n{self.listed()}",
            )

    def adopt(
        self, line: str, command: RunningCommand, raw: RawStream, terminal: Terminal, settle: Settle = list
    ) -> None:
        """Take over a running command. Its further output goes to `terminal` only at the next look."""
        self._commands.pop(command.pid, None)
        self._commands[command.pid] = BackgroundCommand(
            line, command, raw, terminal, self._stream_bytes, settle, self._changed
        )
        self.on_change()
        ended = [pid for pid, one in self._commands.items() if not one.is_running]
        for pid in ended[: max(len(self._commands) - _KEPT, 0)]:
            del self._commands[pid]

    def send_back(self) -> bool:
        """Send the commands that calls wait for to the background; False if there are none. Raises ToolFailure."""
        self.check_room()
        for leave in self.awaited:
            leave.set()
        return bool(self.awaited)

    def look_after(self, command: RunningCommand, settle: Settle) -> None:
        """Call `settle` for a command that has ended but left processes running, once those have ended too."""
        task = asyncio.create_task(_settled(command, settle))
        self._leftovers[command] = task
        task.add_done_callback(lambda _: self._leftovers.pop(command, None))

    def leftover(self, process: int) -> RunningCommand | None:
        """A command that has ended but left processes running, by its process id."""
        return next((command for command in self._leftovers if command.pid == process), None)

    def get(self, process: int) -> BackgroundCommand:
        """The command with this process id. Raises ToolFailure that lists the existing ones."""
        command = self._commands.get(process)
        if command is None:
            raise ToolFailure(
                f"No background command of this session has the process id {process}; those of an earlier run of the "
                "program ended with it.",
                self.listed(),
            )
        return command

    def all(self) -> dict[int, BackgroundCommand]:
        """Running and ended commands by process id, newest first."""
        return dict(reversed(self._commands.items()))

    def listed(self) -> str:
        """A line for each command, including the most recent that have ended."""
        lines = [command.description for command in self._commands.values()]
        return "\n".join(lines) or "There are none: run_command with `background` starts one."

    @property
    def running(self) -> dict[int, str]:
        """The command lines of running commands, by process id."""
        return {pid: one.line for pid, one in list(self._commands.items()) if one.is_running}

    def _changed(self) -> None:
        self.on_change()

    async def close(self) -> None:
        """End all running commands."""
        await asyncio.gather(*(command.stop() for command in self._commands.values() if command.is_running))
        leftovers = dict(self._leftovers)
        await asyncio.gather(*(command.stop() for command in leftovers))
        await asyncio.gather(*leftovers.values())


async def _settled(command: RunningCommand, settle: Settle) -> list[str]:
    await command.wait_until_gone()
    return await asyncio.to_thread(settle)


class _Tool(BuiltIn):
    """The base of both tools. They only touch what `run_command` was allowed to start, so they need no permission."""

    def __init__(self, commands: BackgroundCommands) -> None:
        super().__init__()
        self._commands = commands


class CommandOutput(_Tool):
    """`command_output`."""

    name = "command_output"

    @override
    async def _do(self, _context: ToolContext, /, process: int | None = None, wait: Wait = 0) -> ToolOutput:
        """Read what a background command has printed since you last looked, and its exit code once it has ended.

        Args:
            process: The process id that run_command told; left out: list the background commands.
            wait: Seconds to wait at most for the command to end. Rather wait than look again and again.
        """
        if process is None:
            return ToolOutput(self._commands.listed())
        return await self._commands.get(process).look(wait)


class StopCommand(_Tool):
    """`stop_command`."""

    name = "stop_command"

    @override
    async def _do(self, _context: ToolContext, /, process: int) -> ToolOutput:
        """End a background command with everything it started; answers with its last output.

        Args:
            process: The process id that run_command told.
        """
        if leftover := self._commands.leftover(process):
            await leftover.stop()
            return ToolOutput("[what the command had left running is stopped]")
        command = self._commands.get(process)
        was_running = command.is_running
        await command.stop()
        return await command.look(0, note="[stopped, with everything it had started]" if was_running else "")
