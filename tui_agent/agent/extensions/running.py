"""Runs a hook: outside the sandbox, with a time limit, and ending every process it started."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.programs import with_search_path
from tui_agent.regular import read_at_most
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import ready
from tui_agent.tools.shell.environment import child_environment
from tui_agent.tools.shell.processes import RunningCommand
from tui_agent.tools.shell.run_command import shell

MOST_BYTES: Final = 262_144
"""The most bytes read of a hook's output."""

_INPUT, _ERRORS = "input.json", "errors.txt"


class HookEnded(NamedTuple):
    """A hook's exit code and output."""

    exit_code: int
    output: str
    errors: str


async def run_hook(command: str, data: bytes, folder: Path, project: Path, *, seconds: float) -> HookEnded:
    """Run a hook's command in `folder`, with `data` on its standard input, for `seconds` at most.

    Raises TimeoutError if it took too long, and OSError, ValueError or ToolFailure if it cannot be run.
    """
    place = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="tui-agent-hook-")
    try:
        inside = Path(place.name)
        await asyncio.to_thread((inside / _INPUT).write_bytes, data)
        environment = with_search_path(child_environment(os.environ)) | {
            "TUI_AGENT_HOOK": place.name,
            "TUI_AGENT_PROJECT": str(project),
            "CLAUDE_PROJECT_DIR": str(project),
        }
        line = f'exec <"$TUI_AGENT_HOOK/{_INPUT}" 2>"$TUI_AGENT_HOOK/{_ERRORS}"\n{command}'
        request = Request([shell(), "-c", line], str(folder), environment)
        exit_code, output = await _run(request, seconds)
        errors = await asyncio.to_thread(_beginning, inside / _ERRORS)
        return HookEnded(exit_code, output, errors)
    finally:
        await asyncio.to_thread(place.cleanup)


async def _run(request: Request, seconds: float) -> tuple[int, str]:
    output = bytearray()

    def take(piece: bytes) -> None:
        output.extend(piece[: MOST_BYTES - len(output)])

    await ready(request)
    running = RunningCommand(request, on_output=take)
    await running.started()
    try:
        async with asyncio.timeout(seconds):
            ended = await running.ended()
    except BaseException:
        await running.stop()
        raise
    running.kill()
    return ended.exit_code, output.decode(errors="replace")


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return read_at_most(stream, MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
