"""What the command line writes: reports on standard output, notes on standard error, pages into files; and what it
leaves behind of an unexpected error, instead of showing a traceback.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import get_terminal_size

from tui_agent.arguments import UsageError
from tui_agent.text import printable


def print_text(text: str) -> None:
    for line in text.split("\n"):
        sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line on standard error, with untrusted characters escaped."""
    if sys.stderr is None:
        return
    for line in text.split("\n"):
        sys.stderr.write(f"tui-agent: {printable(line)}\n")
    sys.stderr.flush()


def is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty())


def write_page(path: Path, pieces: Iterable[str]) -> None:
    """Write a page atomically. Raises UsageError if the file cannot be written."""
    from tui_agent.system.durable import write_file

    page = "".join(pieces).encode()
    try:
        write_file(path, page)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    say(f"written: {path} ({len(page):,} bytes)")


def fitted(line: str) -> str:
    """A line cut to the width of the terminal."""
    from rich.cells import cell_len, set_cell_size

    line, width = printable(line), get_terminal_size().columns
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def in_a_line(error: BaseException) -> str:
    """The error's name and the beginning of its message, without API keys."""
    from tui_agent.models.errors import plain

    return f"{type(error).__name__}: {plain(str(error))}"


def write_crash_log(error: BaseException, environ: Mapping[str, str]) -> str:
    """Write the traceback, without API keys, to a private file in `<TUI_AGENT_HOME>/logs`; returns a phrase that says
    where.
    """
    import traceback
    from datetime import UTC, datetime

    from tui_agent.models.errors import redact
    from tui_agent.settings.sources import home_folder
    from tui_agent.version import __version__

    now = datetime.now(UTC)
    path = home_folder(environ) / "logs" / f"crash-{now:%Y%m%dT%H%M%SZ}-{os.getpid()}.txt"
    text = f"tui-agent {__version__}, {now.isoformat()}\n\n{redact(''.join(traceback.format_exception(error)))}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text.encode("utf-8", "backslashreplace").decode())
    except OSError as refused:
        return f"no log could be written to {path.parent} ({refused.strerror}); TUI_AGENT_DEBUG=1 shows the details"
    return f"details are in {path}"
