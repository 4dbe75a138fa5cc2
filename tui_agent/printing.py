"""What the command line writes: reports on standard output, notes on standard error, pages into files."""

import sys
from collections.abc import Iterable
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
