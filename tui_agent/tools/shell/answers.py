"""How a command's output and its end are told."""

from tui_agent.tools.base import ToolOutput
from tui_agent.tools.shell.processes import Ended
from tui_agent.tools.shell.raw_stream import RawStream
from tui_agent.tools.shell.terminal import Terminal

_SUMMARY_CHARACTERS = 80


def answer(
    terminal: Terminal, raw: RawStream, notes: list[str], *, is_error: bool, nothing: str = "[no output]"
) -> ToolOutput:
    """What the terminal shows (or `nothing`), then the notes; the first note is also the summary."""
    output = terminal.text().rstrip("\n")
    if terminal.dropped_bytes:
        lost = f"[{terminal.dropped_bytes:,} bytes ({terminal.dropped_lines:,} lines) of earlier output are not shown"
        output = f"{lost}; {raw.description}]\n{output}"
    if raw.failure:
        notes.append(f"[the raw output could not be stored: {raw.failure}]")
    last = next((line for line in reversed(output.split("\n")) if line.strip()), "").strip()
    return ToolOutput(
        text="\n".join([output or nothing, *notes]),
        is_error=is_error,
        summary=(f"{notes[0].strip('[]')}" + (f" · {last[:_SUMMARY_CHARACTERS]}" if last else "")),
        raw_path=str(raw.path) if raw.path else "",
    )


def exit_words(ended: Ended) -> str:
    """``exit code 1``, or the signal that ended it."""
    return f"exit code {ended.exit_code}" if ended.exit_code >= 0 else f"ended by signal {-ended.exit_code}"


def left_words(ended: Ended) -> str:
    """What it left running, and what to do instead."""
    held = " and can no longer write to its output" if ended.left_open else ""
    listed = ", ".join(map(str, ended.left[:10]))
    return f"[a process it started is still running{held}: {listed}; use `background` for what should go on]"
