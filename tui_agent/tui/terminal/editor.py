"""Hands the terminal to another program: the user's editor for a draft, or a command of the user's."""

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final, TypeVar

from textual.app import App, SuspendNotSupported

from tui_agent.system.programs import find_program, is_written, with_search_path
from tui_agent.tools.environment import child_environment

FALLBACKS: Final = ("nano", "vim", "vi")
"""Editors tried in this order if neither VISUAL nor EDITOR is set."""

MAX_DRAFT_BYTES: Final = 16 * 1024 * 1024
GRACE_S: Final = 0.3
"""Seconds for a program to end by itself when ours ends."""

Done = TypeVar("Done")


class EditorFailure(Exception):
    """The draft was not edited; the message says why."""


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """The words of the editor's command line, without the file. Raises EditorFailure."""
    chosen = environ.get("VISUAL") or environ.get("EDITOR") or ""
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise EditorFailure(f"EDITOR cannot be read ({error}): {chosen}") from error
    if words:
        found = find_program(words[0], environ.get("PATH"))
        if found is None and is_written(shutil.which(words[0]) or ""):
            raise EditorFailure(f"{words[0]} lies where commands may write, so it is not started: name another")
        return [found or words[0], *words[1:]]
    found = next((path for name in FALLBACKS if (path := find_program(name))), None)
    if found is None:
        raise EditorFailure("There is no editor: set EDITOR to one, such as nano")
    return [found]


async def edited(
    draft: str, command: list[str], environ: Mapping[str, str], keep: Callable[[str], None] = lambda _text: None
) -> str:
    """Let the user edit a draft in their editor, which has the terminal meanwhile; returns the edited text.

    The file is in a temporary folder that only the user can enter. Raises EditorFailure if the editor cannot be started
    or exits with an error; the draft then stays as it was. On failure or cancellation, `keep` is called with the file's
    text if it differs from the draft.
    """
    try:
        with TemporaryDirectory(prefix="tui-agent-draft-") as place:
            path = Path(place) / "prompt.md"
            path.touch(mode=0o600)
            path.write_text(draft, encoding="utf-8")
            try:
                await _run([*command, str(path)], environ)
            except (EditorFailure, asyncio.CancelledError):
                with suppress(EditorFailure, OSError):
                    if (left := _written(path, draft)) != draft:
                        keep(left)
                raise
            return _written(path, draft)
    except OSError as error:
        raise EditorFailure(f"its file in {gettempdir()} cannot be used: {error.strerror or error}") from error


async def edited_outside(app: App[object], draft: str, keep: Callable[[str], None] = lambda _text: None) -> str:
    """The same as `edited`, with the editor from this process's environment and the terminal of `app`."""
    command = editor_command(os.environ)
    return await _with_terminal(app, "an editor", partial(edited, draft, command, os.environ, keep))


async def run_outside(app: App[object], command: str, folder: Path) -> int:
    """Run a command line of the user's in the terminal; returns its exit code. Raises EditorFailure."""
    return await _with_terminal(app, "a program", partial(_exit_code, ["/bin/sh", "-c", command], os.environ, folder))


async def _with_terminal(app: App[object], whom: str, work: Callable[[], Awaitable[Done]]) -> Done:
    try:
        with app.suspend(), app.batch_update():
            try:
                return await work()
            except EditorFailure as error:
                # Raised inside `suspend`, it would keep Textual from taking the terminal back.
                failure = error
    except SuspendNotSupported as error:
        raise EditorFailure(f"This terminal cannot be handed to {whom}") from error
    raise failure


def _written(path: Path, draft: str) -> str:
    if path.stat().st_size > MAX_DRAFT_BYTES:
        raise EditorFailure(f"the text is longer than {MAX_DRAFT_BYTES // 1024**2} MiB")
    text = path.read_text(encoding="utf-8", errors="replace")
    return text.removesuffix("\n") if not draft.endswith("\n") else text


async def _run(command: list[str], environ: Mapping[str, str]) -> None:
    status = await _exit_code(command, with_search_path(environ))
    if status != 0:
        raise EditorFailure(f"{command[0]} ended with {status}")


async def _exit_code(command: list[str], environ: Mapping[str, str], folder: Path | None = None) -> int:
    # It needs the user's terminal settings, but must not get API keys.
    kept = child_environment(environ, keep=("COLORTERM",))
    own = {name: value for name, value in environ.items() if name in kept}
    try:
        with _interrupts_for_the_editor(), _in_front_again():
            process = await asyncio.create_subprocess_exec(*command, env=own, cwd=folder)
            return await _ended(process)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EditorFailure(f"{command[0]} cannot be started: {reason}") from error


async def _ended(process: asyncio.subprocess.Process) -> int:
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with suppress(TimeoutError, ProcessLookupError):  # it may have ended meanwhile
            process.terminate()
            await asyncio.wait_for(process.wait(), GRACE_S)
        raise
    finally:
        if process.returncode is None:
            process.kill()


@contextmanager
def _interrupts_for_the_editor() -> Iterator[None]:
    """Ignore Ctrl+C here while the editor runs: the terminal sends the signal to both processes."""
    # A handler rather than SIG_IGN, which the editor would inherit.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _in_front_again() -> Iterator[None]:
    """Take the terminal back from a program that took it for itself and was killed, as an interactive shell does."""
    terminal = 0
    try:
        was_in_front = os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        was_in_front = False
    try:
        yield
    finally:
        if was_in_front:
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with suppress(OSError):
                os.tcsetpgrp(terminal, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)
