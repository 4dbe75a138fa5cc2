"""A long answer and loud tools in a real pseudo-terminal: is text lost, are keys late, is the screen behind?

A local server streams an answer of 20,000 tokens at 500 tokens a second; meanwhile three shell commands of the user's
print 1 MB each, and keys are pressed all the time. A relay between the two notes when each line of the answer came by;
a terminal emulator says when it is seen. At the end the conversation is paged through from its first line.
"""

import asyncio
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pexpect
import psutil
import pyte

from tests.bench.report import Figure, show
from tests.e2e.program import Program
from tests.servers.running import in_process
from tests.servers.script import Script, Step, Turn

ROWS, COLUMNS = 40, 120
TOKENS: Final = 20_000
TOKENS_PER_S: Final = 500
CHARACTERS_PER_TOKEN: Final = 4
LINE: Final = 64
"""Characters of a line of the answer; its number is at the start, in one piece of the stream."""
PIECE: Final = 16
LOUD: Final = "python3 -c \"print('\\n'.join('%07d of a loud command' % n for n in range(40_000)))\""
"""A command that prints 1 MB."""
LOUD_AT: Final = (4.0, 12.0, 20.0)
"""Seconds after the beginning of the turn at which the commands are started."""
PROBE_S: Final = 0.15
KEY: Final = "Q"
"""The key pressed: a letter that stands nowhere else on the screen."""

_NUMBER: Final = re.compile(r"\b(\d{5})\b")
_SENT: Final = re.compile(rb'"text":"[^"]{0,4}(\d{5}) ')
_PRIVATE: Final = re.compile(rb"\x1b\[[<>=?][0-9;]*[uq$][a-z]?")


def answer(lines: int) -> str:
    """Numbered lines of `LINE` characters: lists, code and paragraphs in turn."""
    text: list[str] = []
    number = 0
    while number < lines:
        kind = number // 24 % 3
        if kind == 1:
            text.append(_line("```python"))
        for _ in range(24):
            number += 1
            before = "- " if kind == 0 else ""
            text.append(_line(f"{before}{number:05} has *nothing* new to say about `it`, as ever"))
        text.append(_line("```") if kind == 1 else _line(""))
    return "".join(text) + "That is all."


def _line(text: str) -> str:
    return text.ljust(LINE - 1) + "\n"


@dataclass
class Relay:
    """Passes bytes on to the server, and notes when each line of the answer came back."""

    server: str
    sent: dict[int, float] = field(default_factory=dict)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator["Relay"]:
        stop = asyncio.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(stop),), daemon=True)
        thread.start()
        self._ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            thread.join()
            self._loop.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        await stop.wait()
        listening.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = urlsplit(self.server)
        theirs, ours = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(self._pass(reader, ours, note=False), self._pass(theirs, writer, note=True))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, note: bool) -> None:
        try:
            while data := await reader.read(65_536):
                if note:
                    now = time.perf_counter()
                    for found in _SENT.finditer(data):
                        self.sent.setdefault(int(found[1]), now)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            # Either side may hang up; the other is told by closing.
            return
        finally:
            writer.close()


class Typed(NamedTuple):
    """A line to type, and after how many seconds."""

    at: float
    line: str


@dataclass
class Watch:
    """What the program printed, and when; it is looked at afterwards, so that looking costs the program nothing."""

    child: "pexpect.spawn[bytes]"
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    keys: list[float] = field(default_factory=list)
    _pressed: float | None = None
    _next: float = 0.0

    def read(self, timeout: float = 0.01) -> bytes:
        """Take in what was printed."""
        try:
            data: bytes = self.child.read_nonblocking(262_144, timeout=timeout)
        except pexpect.TIMEOUT:
            return b""
        now = time.perf_counter()
        self.chunks.append((now, data))
        if self._pressed is not None and KEY.encode() in data:
            self.keys.append(now - self._pressed)
            self._pressed, self._next = None, now + PROBE_S
            self.child.send("\x7f")
        return data

    def until(self, words: str, seconds: float = 60, *, press: bool = False, types: Sequence[Typed] = ()) -> None:
        """Read until the words were printed; meanwhile press keys and note when each is seen, and type lines."""
        began = time.monotonic()
        deadline = began + seconds
        tail = b""
        later = list(types)
        while words.encode() not in tail:
            tail = tail[-4096:] + self.read()
            if later and self._pressed is None and time.monotonic() > began + later[0].at:
                self.child.send(f"{later.pop(0).line}\r")
                self._next = time.perf_counter() + 2 * PROBE_S
            if press and self._pressed is None and time.perf_counter() > self._next:
                self._pressed = time.perf_counter()
                self.child.send(KEY)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{words!r} was not seen:\n" + "\n".join(list(self.screens())[-1][1]))

    def screens(self) -> Iterator[tuple[float, list[str]]]:
        """The screen after each piece that was printed, with its time."""
        screen = pyte.Screen(COLUMNS, ROWS)
        stream = pyte.ByteStream(screen)
        for when, data in self.chunks:
            stream.feed(_PRIVATE.sub(b"", data))
            yield when, ["".join(screen.buffer[y][x].data for x in range(COLUMNS)).rstrip() for y in range(ROWS)]


def lags(watch: Watch, sent: dict[int, float]) -> list[float]:
    """At each piece printed: the age, in seconds, of the oldest line that came by and was not yet on the screen."""
    found = [0.0]
    for when, lines in watch.screens():
        seen = [int(number) for line in lines for number in _NUMBER.findall(line)]
        came = sent.get(max(seen) + 1) if seen else None
        if came is not None:
            found.append(max(0.0, when - came))
    return found


def figures() -> list[Figure]:
    """Lost and misplaced lines, key latency, and how far the screen is behind."""
    lines = TOKENS * CHARACTERS_PER_TOKEN // LINE
    delay = PIECE / CHARACTERS_PER_TOKEN / TOKENS_PER_S
    text = answer(lines)
    steps = (Step(text=text, chunk=PIECE, delay=delay),)
    with (
        tempfile.TemporaryDirectory() as place,
        in_process("anthropic", Path(place), Script((Turn(steps),))) as server,
        Relay(server.url).running() as relay,
    ):
        environment = {**server.environment, "ANTHROPIC_BASE_URL": relay.url, "TERM": "xterm-256color"}
        program = Program.in_folder(Path(place), {**environment, "COLORTERM": "truecolor"})
        watch, busy = _flooded(program)
        took = max(relay.sent.values()) - min(relay.sent.values())
        behind = lags(watch, relay.sent)
        found = _paged(watch)
        watch.child.close(force=True)
    wrong = sum(number not in found for number in range(1, lines + 1)) + (found != sorted(found))
    return [
        Figure("lines of the answer", float(len(relay.sent)), ""),
        Figure("rate of the answer", len(text) / CHARACTERS_PER_TOKEN / took, "tok/s"),
        Figure("CPU of the app meanwhile, of one core", 100 * busy, "%"),
        Figure("lines lost or out of order", float(wrong), "", 0),
        Figure(f"key answered, median of {len(watch.keys)}", 1000 * statistics.median(watch.keys), "ms"),
        Figure("key answered, p95", 1000 * _p95(watch.keys), "ms", 50),
        Figure("screen behind the answer, median", 1000 * statistics.median(behind), "ms"),
        Figure("screen behind the answer, most", 1000 * max(behind), "ms", 250),
    ]


def _flooded(program: Program) -> tuple[Watch, float]:
    """What was printed, and the share of one core that the app took; that share is a measure on a busy machine too."""
    child = started(program, "--model", "claude-opus-5-5", "--ask", "allow", "--max-tokens", "60000")
    watch = Watch(child)
    watch.until("claude-opus-5-5")
    process = psutil.Process(child.pid)
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    child.send("begin\r")
    watch.until("Esc stops")
    # The end of the answer may never be seen: what the commands printed takes its place at once.
    watch.until("ready", 240, press=True, types=[Typed(at, f"!{LOUD}") for at in LOUD_AT])
    busy = (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - began)
    while watch.read(1.0):
        pass
    return watch, busy


def started(program: Program, *options: str) -> "pexpect.spawn[bytes]":
    """The app in a pseudo-terminal."""
    command = [*program.command, *options]
    child = pexpect.spawn(
        command[0], command[1:], cwd=str(program.project), env=program.environment, dimensions=(ROWS, COLUMNS)
    )
    child.delaybeforesend = None
    # So long a program may take to die on a busy machine.
    child.ptyproc.delayafterterminate = 0.5
    return child


def _paged(watch: Watch) -> list[int]:
    """The numbers of all lines in the order in which they are seen, from the first page to the last."""
    found: dict[int, None] = {}
    watch.child.setwinsize(ROWS, COLUMNS - 1)
    watch.child.send("\t\x1b[H")
    watch.chunks = []
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    still = 0
    while still < 3:
        while data := watch.read(0.2):
            stream.feed(_PRIVATE.sub(b"", data))
        before = len(found)
        found |= {int(number): None for line in screen.display for number in _NUMBER.findall(line)}
        still = 0 if len(found) > before else still + 1
        watch.child.send("\x1b[6~")
    return list(found)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


if __name__ == "__main__":
    show("Flood: 20,000 tokens at 500 a second, beside three commands of 1 MB each", figures())
