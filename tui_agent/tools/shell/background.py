"""Commands that go on while the conversation does: `command_output` reads what is new, `stop_command` ends one."""

import asyncio
import time
from collections import deque
from typing import Annotated, TypeAlias

from msgspec import Meta

from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.schema import Signature
from tui_agent.tools.shell.answers import answer, exit_words, left_words
from tui_agent.tools.shell.processes import Command
from tui_agent.tools.shell.raw_stream import RawStream
from tui_agent.tools.shell.terminal import STREAM_BYTES, Terminal

MAX_RUNNING = 16
"""Commands that may run in the background at the same time."""
MAX_WAIT = 600
Wait: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WAIT)]

_KEPT = 50
_UNREAD_SHARE = 4  # bytes kept for each byte shown: most of what a colourful program prints is no text
_LINE = 120


class BackgroundCommand:
    """One command left running, and what of its output nobody has read yet: the end of it, where that is very long."""

    def __init__(self, line: str, command: Command, raw: RawStream, terminal: Terminal, stream_bytes: int) -> None:
        """`terminal` has shown what was read so far; nobody else uses it from now on."""
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
        command.on_output = self._receive

    @property
    def runs(self) -> bool:
        return self.command.exit_code is None

    @property
    def described(self) -> str:
        """One line about it."""
        state = (
            f"running for {time.monotonic() - self._started:,.0f} s" if self.runs else f"ended, {self._code_if_known}"
        )
        return f"process {self.command.pid}: {state}, {self._unread:,} bytes unread: {shown(self.line, _LINE)}"

    async def look(self, wait: float, note: str = "") -> ToolOutput:
        """What it has printed since the last look, and its exit code once it has ended; waits for that at most `wait`
        seconds. `note` takes the place of how it goes.
        """
        async with self._looking:
            ended = None
            try:
                async with asyncio.timeout(None if not self.runs else wait):
                    ended = await self.command.ended()
            except TimeoutError:
                pass
            dropped, data = self._dropped, b"".join(self._pieces)
            self._pieces.clear()
            self._unread = self._dropped = 0
            await asyncio.to_thread(self._show, data, ended is not None)
            lasted = f"{time.monotonic() - self._started:,.1f} s"
            notes = [note or (f"[{exit_words(ended)}]" if ended else f"[still running after {lasted}]")]
            if ended and ended.left and not note:
                notes.append(left_words(ended))
            failed = bool(ended and ended.exit_code and not note)
            found = answer(self._terminal, self._raw, notes, is_error=failed, nothing="[no new output]")
            self._terminal.clear()
        if not dropped:
            return found
        lost = f"[{dropped:,} bytes before this were printed since the last look and are not shown]"
        return ToolOutput(f"{lost}\n{found.text}", found.is_error, summary=found.summary, raw_path=found.raw_path)

    async def stop(self) -> None:
        """End it with everything it started."""
        await self.command.stop()

    @property
    def _code_if_known(self) -> str:
        code = self.command.exit_code
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

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

    def _show(self, data: bytes, finished: bool) -> None:
        self._terminal.feed(data)
        if finished:
            self._terminal.finish()
        self._raw.sync()


class BackgroundCommands:
    """The background commands of a session, by the process id of each."""

    def __init__(self, stream_bytes: int = STREAM_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._commands: dict[int, BackgroundCommand] = {}

    def check_room(self) -> None:
        """Raises ToolFailure where as many run as may."""
        running = sum(command.runs for command in self._commands.values())
        if running >= MAX_RUNNING:
            raise ToolFailure(
                f"{running} commands run in the background already, which is the most.",
                f"End one that is no longer needed with stop_command:\n{self.listed()}",
            )

    def adopt(self, line: str, command: Command, raw: RawStream, terminal: Terminal) -> None:
        """Take over a running command whose output up to here has been told."""
        self._commands.pop(command.pid, None)
        self._commands[command.pid] = BackgroundCommand(line, command, raw, terminal, self._stream_bytes)
        for pid in [pid for pid, one in self._commands.items() if not one.runs][: max(len(self._commands) - _KEPT, 0)]:
            del self._commands[pid]

    def get(self, process: int) -> BackgroundCommand:
        """Raises ToolFailure that names those there are."""
        command = self._commands.get(process)
        if command is None:
            raise ToolFailure(
                f"No background command of this session has the process id {process}; those of an earlier run of the "
                "program ended with it.",
                self.listed(),
            )
        return command

    def listed(self) -> str:
        """A line for each, those that have ended and were not forgotten included."""
        lines = [command.described for command in self._commands.values()]
        return "\n".join(lines) or "There are none: run_command with `background` starts one."

    async def close(self) -> None:
        """End all that run."""
        await asyncio.gather(*(command.stop() for command in self._commands.values() if command.runs))


class _Tool:
    """What both tools share: they touch nothing but what `run_command` was allowed to start, so they never ask."""

    effect: Effect = "none"

    def __init__(self, commands: BackgroundCommands, signature: Signature) -> None:
        self._commands = commands
        self._signature = signature
        self.definition = signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        self._signature.parse(arguments)
        return ()


class CommandOutput(_Tool):
    """`command_output`."""

    def __init__(self, commands: BackgroundCommands) -> None:
        super().__init__(commands, Signature.of(self._look, "command_output"))

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview("Read the output of a background command", text=arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._signature.call(self._look, arguments)

    async def _look(self, process: int | None = None, wait: Wait = 0) -> ToolOutput:
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

    def __init__(self, commands: BackgroundCommands) -> None:
        super().__init__(commands, Signature.of(self._stop, "stop_command"))

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview("Stop a background command", text=arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._signature.call(self._stop, arguments)

    async def _stop(self, process: int) -> ToolOutput:
        """End a background command with everything it started; answers with its last output.

        Args:
            process: The process id that run_command told.
        """
        command = self._commands.get(process)
        if not command.runs:
            return await command.look(0)
        await command.stop()
        return await command.look(0, note="[stopped, with everything it had started]")
