"""How fast the installed command starts, in a real pseudo-terminal, against a bare Textual app in the same run."""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pexpect
import psutil
import pyte

from tests.bench.long_session import write_session
from tests.bench.report import Figure
from tests.e2e.program import Program

RUNS = 7
RESUMES = 3
LONG = 5_000
"""Turns of the session that is resumed."""
ROWS, COLUMNS = 40, 120
TIMES: Final = 1.2
"""How much longer than a bare app it may take at most."""
PAINTED: Final = "shows keys"
"""Words of the first picture."""
BARE_PAINTED: Final = "ready to paint"

TYPED_TIMES: Final = 1.3
"""The same of a key that is typed the moment the first picture stands, until it is seen."""
COMPLETE_TIMES: Final = 2.0
"""The same until the gauge stands, against the first picture of a bare app."""

BARE = """
from textual.app import App
from textual.widgets import Input
class Bare(App):
    def compose(self):
        yield Input(placeholder="ready to paint")
Bare().run()
"""


def figures() -> list[Figure]:
    """First paint, `--help`, what the idle app takes, and resuming a long session."""
    with tempfile.TemporaryDirectory() as folder:
        program = Program.in_folder(Path(folder))
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        ours, theirs = [], []
        for _ in range(RUNS):
            theirs.append(_started(program, [sys.executable, str(bare)], BARE_PAINTED))
            ours.append(_started(program, _installed(), PAINTED, complete="ctx "))
        painted, bare_painted = [each.first for each in ours], [each.first for each in theirs]
        typed, bare_typed = [each.typed for each in ours], [each.typed for each in theirs]
        complete = [each.complete for each in ours]
        help_s = statistics.median(_seconds([*_installed(), "--help"], program) for _ in range(RUNS))
        memory, cpu = _idle(program)
        resumed = _resumed(program, bare)
        return [
            Figure("first paint, bare Textual app", statistics.median(each.seconds for each in bare_painted), "s"),
            Figure("first paint, tui-agent", statistics.median(each.seconds for each in painted), "s"),
            *_ratios("first paint", painted, bare_painted, TIMES),
            *_ratios("a key typed then is seen", typed, bare_typed, TYPED_TIMES),
            *_ratios("the gauge, against a bare first paint", complete, bare_painted, COMPLETE_TIMES),
            Figure("--help", help_s, "s", 0.1),
            Figure("idle memory (resident)", memory, "MB", 60),
            Figure("idle CPU over 5 s", cpu, "%", 1),
            *resumed,
        ]


def _resumed(program: Program, bare: Path) -> list[Figure]:
    """A session of `LONG` turns: its first paint, when its end is seen, and what keys do meanwhile."""
    session = asyncio.run(write_session(program.home, LONG, cwd=program.project))
    command = [*_installed(), "-r", session]
    theirs, ours, tails, keys = [], [], [], []
    memory = 0.0
    for _ in range(RESUMES):
        theirs.append(_started(program, [sys.executable, str(bare)], BARE_PAINTED).first.seconds)
        began = time.perf_counter()
        child = _spawn(program, command)
        try:
            _until_painted(child, PAINTED)
            ours.append(time.perf_counter() - began)
            keys += _keys_until(child, "All tests pass.")
            tails.append(time.perf_counter() - began)
            _drain(child, 3)
            memory = max(memory, psutil.Process(child.pid).memory_info().rss / 1e6)
        finally:
            child.close(force=True)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return [
        Figure(f"resuming {LONG:,} turns: first paint", statistics.median(ours), "s"),
        Figure(f"resuming {LONG:,} turns: against a bare Textual app", ratio, "x", 1.5),
        Figure(f"resuming {LONG:,} turns: its end is seen", statistics.median(tails), "s", 0.5),
        Figure(f"resuming {LONG:,} turns: slowest of {len(keys)} keys meanwhile", 1000 * max(keys), "ms"),
        Figure(f"resuming {LONG:,} turns: memory (resident)", memory, "MB", 120),
    ]


def _keys_until(child: "pexpect.spawn[bytes]", sign: str) -> list[float]:
    """Seconds until each of the keys was seen that were pressed until the sign was."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    found: list[float] = []
    pressed: float | None = None
    child.delaybeforesend = None
    while pressed is not None or not any(sign in line for line in screen.display):
        if pressed is None:
            child.send("Q")
            pressed = time.perf_counter()
        data = child.read_nonblocking(65536, timeout=30)
        if b"Q" in data:
            found.append(time.perf_counter() - pressed)
            pressed = None
        stream.feed(data)
    return found


def _installed() -> list[str]:
    """The console script beside this interpreter, as a user starts it; else the module."""
    script = Path(sys.executable).parent / "tui-agent"
    return [str(script)] if script.exists() else [sys.executable, "-m", "tui_agent"]


def _spawn(program: Program, command: list[str]) -> "pexpect.spawn[bytes]":
    environment = {**program.environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return pexpect.spawn(
        command[0], command[1:], cwd=str(program.project), env=environment, dimensions=(ROWS, COLUMNS), timeout=30
    )


def _until_painted(child: "pexpect.spawn[bytes]", sign: str) -> None:
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    while not any(sign in line for line in screen.display):
        stream.feed(child.read_nonblocking(65536, timeout=30))


class Painted(NamedTuple):
    """Seconds from the start to a picture, and those the program was at work."""

    seconds: float
    cpu: float


class Started(NamedTuple):
    """When the first picture was there, when a key was seen that was typed at once, and when all was."""

    first: Painted
    typed: Painted
    complete: Painted


def _started(program: Program, command: list[str], sign: str, *, complete: str = "") -> Started:
    began = time.perf_counter()
    child = _spawn(program, command)
    child.delaybeforesend = None
    printed = bytearray()

    def until(sign: str) -> Painted:
        # No emulator looks meanwhile: the app would get on with what comes after the picture.
        while sign.encode() not in printed:
            printed.extend(child.read_nonblocking(65536, timeout=30))
        return Painted(time.perf_counter() - began, _at_work(child.pid))

    first = until(sign)
    printed.clear()
    child.send("Q")
    started = Started(first, until("Q"), until(complete))
    child.close(force=True)
    return started


def _at_work(pid: int) -> float:
    """CPU seconds of a process, where Linux tells them to the nanosecond; else to a hundredth."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        return float(sum(psutil.Process(pid).cpu_times()[:2]))
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def _ratios(what: str, ours: list[Painted], theirs: list[Painted], target: float) -> Iterator[Figure]:
    for name, one, other in zip(("time", "CPU time"), zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        yield Figure(f"{what}, ratio of the {name}s", statistics.median(one) / statistics.median(other), "x", target)


def _seconds(command: list[str], program: Program) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=program.environment, cwd=program.project, capture_output=True, check=True)
    return time.perf_counter() - began


def _idle(program: Program) -> tuple[float, float]:
    """Resident megabytes and CPU percent of the app 3 s after its first paint."""
    child = _spawn(program, _installed())
    _until_painted(child, "offline")
    process = psutil.Process(child.pid)
    _drain(child, 3)
    before = sum(process.cpu_times()[:2])
    _drain(child, 5)
    cpu = 100 * (sum(process.cpu_times()[:2]) - before) / 5
    memory = process.memory_info().rss / 1e6
    child.close(force=True)
    return memory, cpu


def _drain(child: "pexpect.spawn[bytes]", seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            child.read_nonblocking(65536, timeout=left)
        except pexpect.TIMEOUT:
            return
