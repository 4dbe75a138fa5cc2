"""Running shell commands: `run_command`.

The shell is bash if installed, else sh, as neither a login nor an interactive shell, so that a command means the same
on every machine, whatever shell the user prefers.
"""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta
from typing_extensions import override

from tui_agent.conversation.entries import Outcome
from tui_agent.system.durable import to_completion
from tui_agent.text import how_it_ended
from tui_agent.tools.base import (
    Access,
    CallStopped,
    Effect,
    Preview,
    ToolContext,
    ToolFailure,
    ToolOutput,
    WorkspaceView,
)
from tui_agent.tools.built_in import BuiltIn
from tui_agent.tools.environment import child_environment, sandboxed_environment
from tui_agent.tools.gate.workspace import access_to, folder_gone, shown
from tui_agent.tools.sandbox.denials import (
    CommandBounds,
    denial_note,
    held_note,
    limit_notes,
    refused_note,
    taken_back_note,
)
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.proxy import Ask
from tui_agent.tools.sandbox.sandbox import WITHHELD, Sandbox, ready
from tui_agent.tools.shell.background import BackgroundCommands, Settle
from tui_agent.tools.shell.output import RawStream, answer, what_still_runs
from tui_agent.tools.shell.processes import Ended, RunningCommand
from tui_agent.tools.shell.terminal import STREAM_BYTES, Terminal
from tui_agent.tracing import variables

DEFAULT_TIMEOUT = 120
Seconds: TypeAlias = Annotated[int, Meta(ge=1, le=86_400)]
RAW_STREAM_BYTES = 100_000_000
"""The most bytes of raw output that are stored for one command."""
BACKGROUND_START = 1.0
"""Seconds a background command is watched before the call returns: most mistakes show by then."""
STOPPED = "[interrupted: stopped by the user after "
SENT_BACK = "the user let it go on"

_PROGRESS_INTERVAL = 0.1
_PROGRESS_LINES = 40
_PROGRESS_CHARACTERS = 8_000
_DENIAL_LINES = 200


class RunCommand(BuiltIn):
    """Runs a command in the workspace's folder; returns its output as a terminal would show it.

    `keep_variables` are names of environment variables that commands may see although they look like secrets. The last
    `stream_bytes` bytes of the output as shown are kept, and the first `raw_stream_bytes` of the raw output.
    `background` takes over commands that are left running. Commands run in the `sandbox`, if there is one, unless they
    were allowed outside it (`Access.outside`). While `only_reads` returns True, the sandbox lets them write nothing.
    `asking` makes a function that asks about the domains that a command in the sandbox wants to reach. `changed` says
    what a line that nothing confines runs first and was changed since it was allowed.
    """

    name = "run_command"
    effect: Effect = "run"

    def __init__(
        self,
        *,
        keep_variables: Iterable[str] = (),
        stream_bytes: int = STREAM_BYTES,
        raw_stream_bytes: int = RAW_STREAM_BYTES,
        background: BackgroundCommands | None = None,
        sandbox: Sandbox | None = None,
        only_reads: Callable[[], bool] = lambda: False,
        asking: Callable[[ToolContext, str], Ask] | None = None,
        changed: Callable[[str], str] = lambda _: "",
    ) -> None:
        super().__init__()
        self._keep = tuple(keep_variables)
        self._stream_bytes = stream_bytes
        self._raw_stream_bytes = raw_stream_bytes
        self._background = background or BackgroundCommands(stream_bytes)
        self._sandbox = sandbox
        self._only_reads = only_reads
        self._asking = asking
        self._changed = changed

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        given = self._signature.parse(arguments)
        sandbox = self._sandbox
        if sandbox is not None and sandbox.choice == "required" and not sandbox.confines:
            raise ToolFailure(
                f"Commands may run in a sandbox only (permissions.sandbox), and here is none: {sandbox.trouble}.",
                "Go on with the other tools, or tell the user.",
            )
        confines = sandbox is not None and sandbox.confines
        outside = bool(given.get("outside")) and confines
        reads = _reads(given) if confines and not outside else ()
        run = Access(effect="run", target=str(given["command"]), outside=outside)
        return (run, *(access_to(workspace, path, "read") for path in reads))

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = self._signature.parse(arguments)
        sandbox, title = self._sandbox, "Run a command"
        if sandbox is not None and sandbox.confines:
            title += " outside the sandbox" if given.get("outside") else ""
        elif sandbox is not None and sandbox.trouble:
            title += ", with no sandbox"
        reads = ", ".join(map(shown, _reads(given)))
        return Preview(title=f"{title} that reads {reads}" if reads else title, command=str(given["command"]))

    @override
    async def _do(
        self,
        context: ToolContext,
        /,
        command: str,
        timeout: Seconds = DEFAULT_TIMEOUT,
        background: bool = False,
        outside: bool = False,
        reads: Sequence[str] = (),
    ) -> ToolOutput:
        """Run a shell command in the workspace folder and return its output and exit code.

        Each call is a new shell: no `cd` or variable lasts. There is no terminal and no input: pass flags such as
        `--yes`, avoid editors and pagers. Output and errors come together; very long output keeps its end. Prefer the
        file tools for reading, searching and editing files.

        Where the system offers a sandbox, commands read only the workspace and what is installed, write only in the
        workspace and $TMPDIR, have a home of their own, and reach the network only by HTTP, through a proxy (package
        managers know it), after the user is asked about the domain. What fails for that reason says so.

        Args:
            command: What the shell is to run.
            timeout: Seconds after which it is ended with all it started.
            background: Leave it running (a server, a long build) without a timeout, until this program ends; answers
                after a second with its process id, for command_output and stop_command.
            outside: Run it outside the sandbox: only where it failed because of it. The user is asked.
            reads: Paths outside the workspace that it has to read: only where it did not find them. The user is asked.
        """
        if not command.strip():
            raise ToolFailure("run_command: `command` is empty.", "Say what the shell is to run.")
        if background:
            self._background.check_room()
        raw = RawStream(context.artifacts / "raw", context.call_id, limit=self._raw_stream_bytes)
        terminal = Terminal(limit=self._stream_bytes)
        progress = _Progress(terminal, context.progress)

        def on_output(data: bytes) -> None:
            if data:
                raw.write(data)
                terminal.feed(data)
                progress.changed()

        preparing = asyncio.ensure_future(asyncio.to_thread(self._prepare, command, context, outside=outside))
        try:
            prepared = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            await to_completion(_given_up(preparing))
            raise
        settled = prepared.settle
        try:
            ask = self._asking(context, command) if self._asking else None
            running = await self._start(prepared, ask, on_output)
        except BaseException as error:
            progress.stop()
            raw.close()
            await to_completion(asyncio.to_thread(settled))
            if isinstance(error, asyncio.CancelledError) and terminal.tail(1):
                # It had printed before it was known to have started.
                result = await _finished(terminal, raw, [f"{STOPPED}0 s]"], Outcome(), is_error=True)
                raise CallStopped(result) from None
            raise
        started = time.monotonic()
        if background:
            raw.open()
        leave, left, stopped = asyncio.Event(), False, False
        self._background.awaited.add(leave)
        try:
            ended, timed_out = await _wait(
                running, BACKGROUND_START if background else timeout, leave, background=background
            )
            left = ended is None
        except asyncio.CancelledError:
            if running.exit_code is None:
                raise
            ended, timed_out, stopped = Ended(running.exit_code), False, True
        finally:
            self._background.awaited.discard(leave)
            progress.stop()
            if not left:
                raw.close()
                if running.exit_code is not None:
                    taken_back = await to_completion(asyncio.to_thread(settled))
        if ended is None:
            raw.open()
            why = "still running" if background else SENT_BACK
            return await self._adopted(command, running, terminal, raw, settled, why)
        seconds = time.monotonic() - started
        last = f"{STOPPED}{seconds:.1f} s]" if stopped else _last_line(ended, timed_out, timeout, seconds)
        if background and not stopped:
            last = f"[the background command has already ended, {how_it_ended(ended.exit_code)}]"
        notes = [last, *taken_back]
        if ended.left and not timed_out:
            notes.append(what_still_runs(ended, running.pid))
            self._background.look_after(running, settled)
        failed = stopped or timed_out or ended.exit_code != 0
        outcome = Outcome(exit_code=ended.exit_code, timed_out=timed_out)
        told = partial(self._told, prepared, terminal, failed=failed)
        output = await _finished(terminal, raw, notes, outcome, is_error=failed, told=told)
        if stopped:
            raise CallStopped(output)
        return output

    async def _start(
        self, prepared: "_Prepared", ask: Ask | None, on_output: Callable[[bytes], None]
    ) -> RunningCommand:
        """Start a command, and wait until it runs. Raises ToolFailure."""
        request = prepared.request
        try:
            if self._sandbox is not None and prepared.bounds:
                await self._sandbox.ready(request, ask)
            await ready(request)
            if prepared.bounds is None and (changed := await asyncio.to_thread(self._changed, request.arguments[-1])):
                raise ToolFailure(f"Nothing was run. {changed}", "Run it again, and the change is shown first.")
            running = RunningCommand(request, on_output=on_output)
            await running.started()
            return running
        except OSError as error:
            if not await asyncio.to_thread(os.path.isdir, request.folder):
                raise folder_gone(request.folder) from error
            raise ToolFailure(f"The command could not be started: {error.strerror}.", _advice(error)) from error
        except ValueError as error:
            raise ToolFailure("The command holds a NUL or an invalid character.", "Write it as plain text.") from error

    def _told(self, prepared: "_Prepared", terminal: Terminal, *, failed: bool) -> list[str]:
        """What the sandbox has to say about a command that has ended. Looks at files."""
        if self._sandbox is None or prepared.bounds is None:
            return []
        end = terminal.tail(_DENIAL_LINES)
        notes = prepared.limits or denial_note(end, prepared.bounds, failed=failed)
        return [*notes, *refused_note(self._sandbox.proxy.take_refused())]

    def _prepare(self, command: str, context: ToolContext, *, outside: bool) -> "_Prepared":
        """Prepare to run a command, inside the sandbox or outside. Reads files. Raises ToolFailure."""
        arguments, folder = [shell(), "-c", command], context.workspace.root
        sandbox = self._sandbox
        leaves = outside or any(access.outside for access in context.accesses)
        if sandbox is None or leaves or not sandbox.confines:
            request = Request(arguments, str(folder), child_environment(os.environ, self._keep) | variables())
            if sandbox is None or not sandbox.confines:
                return _Prepared(request, list)
            return _Prepared(request, partial(sandbox.accept, sandbox.guard(confines=False)))
        guard, withheld = sandbox.guard(), sandbox.places.session / WITHHELD
        environment = sandboxed_environment(os.environ, self._keep) | variables()
        added = [Path(access.target) for access in context.accesses if access.effect == "read"]
        try:
            request = sandbox.request(
                arguments, folder, environment, guard=guard, read_only=self._only_reads(), added=added
            )
        except BaseException:
            sandbox.take_back(guard)
            raise
        bounds = CommandBounds(sandbox.rules, request, sandbox.places.home)

        def settle() -> list[str]:
            changed, held = sandbox.take_back(guard)
            return [*taken_back_note(changed, withheld), *held_note(held)]

        limited = {path: limit for path, limit in guard.limited.items() if Path(path) not in added}
        return _Prepared(request, settle, bounds, limit_notes(command, limited))

    async def _adopted(
        self, line: str, running: RunningCommand, terminal: Terminal, raw: RawStream, settled: Settle, why: str
    ) -> ToolOutput:
        """Leave a running command to the background; its output so far, and how the model gets at the rest."""
        self._background.adopt(line, running, raw, terminal, settled)
        pid = running.pid
        note = (
            f"[{why} in the background as process {pid}: command_output(process={pid}) reads what it prints from here "
            f"on, stop_command(process={pid}) ends it; all of its output goes to {shown(str(raw.path))}]"
        )
        result = await asyncio.to_thread(answer, terminal, raw, [note], Outcome(left_running=pid), is_error=False)
        terminal.clear()
        return result


class _Prepared(msgspec.Struct, frozen=True):
    """A command to start, what to call when it has ended, and, if it runs in the sandbox, its bounds there and notes on
    the user's rules about what it names.
    """

    request: Request
    settle: Settle
    bounds: CommandBounds | None = None
    limits: Sequence[str] = ()


def _reads(given: Mapping[str, object]) -> tuple[str, ...]:
    reads = given.get("reads")
    return tuple(map(str, reads)) if isinstance(reads, Sequence) else ()


async def _given_up(preparing: "asyncio.Future[_Prepared]") -> None:
    """Settle a command that is not started, or it would count as running for ever."""
    with suppress(OSError, ToolFailure):
        await asyncio.to_thread((await preparing).settle)


def shell() -> str:
    """The path of the shell that commands run in. Raises ToolFailure if there is none."""
    for path in ("/bin/bash", "/usr/bin/bash", "bash", "/bin/sh", "sh"):
        if found := shutil.which(path):
            return found
    raise ToolFailure(
        "There is no shell (bash or sh) on this machine, so commands cannot run.", "Go on with the other tools."
    )


async def _wait(
    running: RunningCommand, seconds: float, leave: asyncio.Event, *, background: bool
) -> tuple[Ended | None, bool]:
    """Wait for the end of the command; returns how it ended, and whether by the timeout. Cancelled, ends it first.

    None: it goes on, since `leave` was set, or it is for the `background` and did not end at once.
    """
    ending, leaving = asyncio.ensure_future(running.ended()), asyncio.ensure_future(leave.wait())
    try:
        done, _ = await asyncio.wait((ending, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ending not in done and (background or leaving in done):
            return None, False
        if not done:
            await running.stop()
        return await ending, not done
    except BaseException:
        await running.stop()
        raise
    finally:
        ending.cancel()
        leaving.cancel()


async def _finished(
    terminal: Terminal,
    raw: RawStream,
    notes: list[str],
    outcome: Outcome,
    *,
    is_error: bool,
    told: Callable[[], list[str]] = list,
) -> ToolOutput:
    """The result of a command that has ended, with these notes and those that are `told`, in a thread."""

    def finish() -> ToolOutput:
        more = told()
        terminal.finish()
        return answer(terminal, raw, [*notes, *more], outcome, is_error=is_error)

    return await asyncio.to_thread(finish)


def _last_line(ended: Ended, timed_out: bool, timeout: int, seconds: float) -> str:
    if timed_out:
        return f"[timeout: ended after {timeout} s with everything it had started; raise `timeout` or use `background`]"
    return f"[{how_it_ended(ended.exit_code)}, {seconds:.1f} s]"


def _advice(error: OSError) -> str:
    if error.errno == errno.E2BIG:
        return "Put what is so long into a file and run that."
    if error.errno == errno.ENOSYS:
        return "Go on with the other tools, and tell the user."
    return "Try again, or tell the user: the machine may be out of memory or of processes."


class _Progress:
    """Shows the end of the output while it grows, at most every `_PROGRESS_INTERVAL` seconds."""

    def __init__(self, terminal: Terminal, show: Callable[[str, int], None]) -> None:
        self._terminal = terminal
        self._show = show
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self._stopped = False

    def changed(self) -> None:
        if self._timer is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._last + _PROGRESS_INTERVAL), self._emit)

    def stop(self) -> None:
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    def _emit(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        tail = self._terminal.tail(_PROGRESS_LINES)[-_PROGRESS_CHARACTERS:]
        self._show(tail, max(0, self._terminal.line_breaks - tail.count("\n")))
