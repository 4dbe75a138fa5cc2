"""Emulating what a terminal would show of an output: progress bars collapse to their last frame, colours disappear.

The control functions of ECMA-48 and the VT100 that move the cursor, erase, insert and delete are emulated; everything
else that is not text (colours, titles, links, images, modes) is removed. A line feed also returns to the first column,
as with a terminal's line discipline.

The cost hardly depends on the content. CPU seconds for 50 MB on one core of a cloud server, Python 3.11:

    plain text 0.07 · NUL 0.04 · one line 0.05 · colours 0.2 · progress bars 0.2 · ESC 0.01 · titles 0.06
    one title without end 0.01 · invalid UTF-8 0.4 · combining marks 0.15 · random bytes 0.4
    cursor up and down in turns 0.14 · cursor to random places 0.5 · marks over marks 0.6, the worst that was found
"""

import codecs
import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from tui_agent.tools.shell.screen import OPERATION, Screen

WINDOW_ROWS = 50
WINDOW_COLUMNS = 240
STREAM_BYTES = 262_144

MAX_WORK: Final = 30_000_000
"""The work (see `Screen.work`) after which a stream is no longer emulated: about half a second of CPU time."""
EMULATED_END: Final = 262_144
"""Bytes at the end of a stream that are emulated in any case."""

_STRIDE = 16_384  # bytes between checks of the work, so that the result does not depend on the stream's pieces
_TAIL_BYTES = 4_096
_PER_REMOVED = 10

_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
_IGNORED = bytes(set(_CONTROLS) - set(b"\a\b\v\f\r\x18\x1a\x1b"))
_LINE_FEEDS = bytes.maketrans(b"\v\f", b"\n\n")
_C1 = re.compile("[\x80-\x9f]")

# A longer sequence is none. The limit keeps what is held back between two pieces small.
_AFTER_CSI = "[0-?]{0,64}+[ -/]{0,8}+[@-~]?+"
_AFTER_ESCAPE = rf"\[{_AFTER_CSI}|[ -/]{{0,8}}+[0-~]?+"
_STRING_ENDS = r"\x07\x18\x1a\x1b\x9c\n"
_INSIDE = rf"[^{_STRING_ENDS}]*+(?:[\x07\x18\x1a\x9c]|(?=[\x1b\n])|\Z)"
_TOKEN = re.compile(  # begins with a set of characters, which makes searching fast
    rf"([\x00-\x08\x0b-\x1f\x7f-\x9f](?:(?<=\x1b)(?:[\]PX^_]{_INSIDE}|\x1b*(?=\x1b)|{_AFTER_ESCAPE})|(?<=\x9b){_AFTER_CSI}"
    rf"|(?<=[\x90\x98\x9d-\x9f]){_INSIDE}|(?<=[\x07\x18\x1a])[\x07\x18\x1a]*+|))"
)
_OPEN = re.compile(r"(?:\x1b[ -/]{0,8}|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}|\r)\Z")
_STRING = re.compile(r"\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]")
_STRING_END = re.compile(f"[{_STRING_ENDS}]")
_LIKELY_START = re.compile(b"[\n\r\x1b]")
_LONGEST = 80
"""The most characters of a sequence; only a command string may be longer."""


class Terminal:
    """Takes bytes in any pieces; the result depends on the bytes alone. `limit`: UTF-8 bytes of text to keep.

    A program can print cursor movements faster than they can be emulated. So a stream is emulated up to `MAX_WORK`;
    after that only its end is kept, and emulated when it is asked for.
    """

    def __init__(self, *, rows: int = WINDOW_ROWS, columns: int = WINDOW_COLUMNS, limit: int = STREAM_BYTES) -> None:
        self._rows, self._columns, self._limit = rows, columns, limit
        self._screen = self._new_screen()
        self._main: Screen | None = None  # the ordinary screen, while a full-screen program shows its own
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a sequence at the end of the last piece
        self._in_string = False
        self._position = 0
        self._removed = 0
        self._unread: _Unread | None = None  # the part of the stream that is not emulated
        self._before = ""  # the text before that part, once its end has been emulated
        self._dropped_before = (0, 0)
        self.dropped_bytes = 0
        """UTF-8 bytes of text in front of what `text` returned last."""
        self.dropped_lines = 0
        """Lines in front of what `text` returned last."""
        self.line_breaks = 0
        """All line breaks that came, whatever is seen of them."""

    def feed(self, data: bytes) -> None:
        """Process output. Plain text costs little more than copying it."""
        self.line_breaks += data.count(b"\n")
        start = 0
        while start < len(data):
            piece = data[start : start + _STRIDE - self._position % _STRIDE]
            start += len(piece)
            self._position += len(piece)
            if self._unread is not None:
                self._unread.append(piece)
                continue
            self._emulate(piece)
            if self._position % _STRIDE == 0 and self._screen.work + _PER_REMOVED * self._removed > MAX_WORK:
                self._unread = _Unread()

    def finish(self) -> None:
        """End the stream: handle a character or sequence that was cut off."""
        self._emulate_end()
        self._process(self._held + self._decoder.decode(b"", final=True), final=True)

    def text(self) -> str:
        """The whole text as shown now, without the oldest lines if it is larger than `limit`.

        Takes up to 0.2 s if the stream is no longer emulated.
        """
        self._emulate_end()
        first, last = (self._main, self._screen) if self._main else (None, self._screen)
        text = self._before + (f"{first.text()}\n" if first else "") + last.text()
        self.dropped_bytes = self._dropped_before[0] + last.dropped_bytes + (first.dropped_bytes if first else 0)
        self.dropped_lines = self._dropped_before[1] + last.dropped_lines + (first.dropped_lines if first else 0)
        kept = _end_of(text, self._limit, whole=not self.dropped_bytes)
        lost = text[: len(text) - len(kept)]
        self.dropped_bytes += len(lost.encode())
        self.dropped_lines += lost.count("\n")
        return kept

    def clear(self) -> None:
        """Begin with an empty screen; an unfinished sequence is kept."""
        self._emulate_end()
        self._begin("", (0, 0))

    def tail(self, lines: int) -> str:
        """The last `lines` lines as shown now. Cheap."""
        if self._unread is None:
            return self._screen.tail(lines)
        end = Terminal(rows=self._rows, columns=self._columns)
        end._emulate(self._unread.end(_TAIL_BYTES))
        return end.tail(lines)

    def _new_screen(self) -> Screen:
        return Screen(height=self._rows, columns=self._columns, limit=max(self._limit, self._columns))

    def _begin(self, before: str, dropped: tuple[int, int]) -> None:
        self._screen, self._main = self._new_screen(), None
        self._removed = 0
        self._before, self._dropped_before = before, dropped
        self.dropped_bytes, self.dropped_lines = dropped

    def _emulate_end(self) -> None:
        """Emulate what was left unread, or its end on a new screen, below a line that says how much is missing."""
        if self._unread is None:
            return
        unread, self._unread = self._unread, None
        end = unread.end(EMULATED_END)
        left_out = unread.size - len(end)
        if left_out:
            before = self.text()
            line_break = "" if not before or before.endswith("\n") else "\n"
            notice = f"[{left_out:,} bytes are left out here: too many control sequences to follow]\n"
            self._begin(before + line_break + notice, (self.dropped_bytes, self.dropped_lines))
            self._decoder.reset()
            self._held = ""
            self._in_string = False
        self._emulate(end)

    def _emulate(self, data: bytes) -> None:
        is_plain = len(data.translate(None, _CONTROLS)) == len(data)
        text = self._decoder.decode(data if is_plain else data.translate(_LINE_FEEDS, _IGNORED))
        if not text.isascii() and _C1.search(text):
            is_plain = False
            text = text.replace("\x84", "\n").replace("\x85", "\n")
        if is_plain and not self._held and not self._in_string:
            self._screen.write(text)
        else:
            self._process(self._held + text)

    def _process(self, text: str, *, final: bool = False) -> None:
        self._held = ""
        if self._in_string:
            # A line break ends an unclosed command string (a title, a link, an image).
            end = _STRING_END.search(text)
            start = len(text) if end is None else end.start() if end[0] in "\x1b\n" else end.end()
            self._removed += start
            if end is None:
                return
            text = text[start:]
        if not final and (cut_off := _OPEN.search(text, max(len(text) - _LONGEST, 0))):
            self._held = cut_off[0]
            text = text[: cut_off.start()]
        parts = _TOKEN.split(text.replace("\r\n", "\n"))
        texts, tokens = parts[::2], parts[1::2]
        self._removed += len(text) - sum(map(len, texts))
        self._in_string = bool(tokens) and not texts[-1] and _is_open_string(tokens[-1])
        operations = {token: _operation(token) for token in set(tokens) if len(token) <= _LONGEST}
        if not any(operations.values()):
            self._screen.write("".join(texts))
            return
        written: list[str] = []
        for plain, token in zip(texts, tokens, strict=False):
            if plain:
                written.append(plain)
            if operation := operations.get(token):
                if written:
                    self._screen.write("".join(written))
                    written.clear()
                self._screen.work += OPERATION
                operation(self)
        written.append(texts[-1])
        self._screen.write("".join(written))

    def _switch(self, *, alternate: bool) -> None:
        work = self._screen.work
        if alternate and self._main is None:
            self._main, self._screen = self._screen, self._new_screen()
        elif not alternate and self._main is not None:
            self._screen, self._main = self._main, None
        self._screen.work = work + OPERATION


class _Unread:
    """The end of a stream that is no longer emulated. `size`: bytes of all that was appended."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._kept = self.size = 0

    def append(self, data: bytes) -> None:
        self._pieces.append(data)
        self._kept += len(data)
        self.size += len(data)
        while self._kept - len(self._pieces[0]) >= EMULATED_END:
            self._kept -= len(self._pieces.popleft())

    def end(self, size: int) -> bytes:
        """The last `size` bytes; fewer if they would begin within a sequence."""
        data = b"".join(self._pieces)
        if self.size <= size:
            return data
        data = data[-size:]
        start = _LIKELY_START.search(data)
        return data[start.start() :] if start else data


def _is_open_string(token: str) -> bool:
    return _STRING.match(token) is not None and token[-1] not in "\x07\x18\x1a\x9c"


_PLAIN: Final[Mapping[str, Callable[[Screen], None]]] = {
    "\b": lambda screen: screen.back(1),
    "\r": Screen.carriage_return,
    "\x1bD": Screen.line_feed,
    "\x1bE": Screen.line_feed,
    "\x1bM": Screen.reverse_line_feed,
    "\x8d": Screen.reverse_line_feed,
    "\x1b7": Screen.save_cursor,
    "\x1b8": Screen.restore_cursor,
}
_COUNTED: Final[Mapping[str, Callable[[Screen, int], None]]] = {
    "A": Screen.up,
    "B": Screen.down,
    "e": Screen.down,
    "C": Screen.forward,
    "a": Screen.forward,
    "D": Screen.back,
    "L": Screen.insert_rows,
    "M": Screen.delete_rows,
    "P": Screen.delete_cells,
    "@": Screen.insert_cells,
    "X": Screen.erase_cells,
}
_ALTERNATE = frozenset({"?47", "?1047", "?1049"})


@lru_cache(maxsize=8192)
def _operation(token: str) -> Callable[[Terminal], None] | None:
    """The operation of a token of the stream; None if the token is removed."""
    if plain := _PLAIN.get(token):
        return lambda terminal: plain(terminal._screen)
    if token[1:] == "c" and token[0] == "\x1b":
        return _reset
    sequence = re.fullmatch(r"(?:\x1b\[|\x9b)([0-?]*)([@-~])", token)
    if sequence is None:
        return None
    parameters, final = sequence.groups()
    if parameters in _ALTERNATE and final in "hl":
        return lambda terminal: terminal._switch(alternate=final == "h")
    if re.search("[<-?]", parameters):
        return None
    return _sequence(parameters, final)


def _sequence(parameters: str, final: str) -> Callable[[Terminal], None] | None:
    """The operation of a control sequence (ECMA-48, 8.3; `s` and `u` as on the SCO console)."""
    numbers = [int(number[:6]) if number.isdigit() else 0 for number in parameters.split(";")]
    first = numbers[0]
    count = first or 1
    if counted := _COUNTED.get(final):
        return lambda terminal: counted(terminal._screen, count)
    match final:
        case "E":
            return lambda terminal: _to_row_start(terminal._screen, count)
        case "F":
            return lambda terminal: _to_row_start(terminal._screen, -count)
        case "G" | "`":
            return lambda terminal: terminal._screen.move_to_column(count - 1)
        case "d":
            return lambda terminal: terminal._screen.move_to_row(count - 1)
        case "H" | "f":
            column = max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
            return lambda terminal: terminal._screen.move_to(count - 1, column)
        case "J":
            return lambda terminal: terminal._screen.erase_in_window(first)
        case "K":
            return lambda terminal: terminal._screen.erase_in_row(first)
        case "s":
            return lambda terminal: terminal._screen.save_cursor()
        case "u":
            return lambda terminal: terminal._screen.restore_cursor()
        case _:
            return None


def _to_row_start(screen: Screen, rows: int) -> None:
    if rows > 0:
        screen.down(rows)
    else:
        screen.up(-rows)
    screen.carriage_return()


def _reset(terminal: Terminal) -> None:
    terminal._screen.erase_in_window(2)
    terminal._screen.move_to(0, 0)


def _end_of(text: str, limit: int, *, whole: bool) -> str:
    """The last `limit` UTF-8 bytes of `text`, starting with a full line. `whole`: nothing was cut from it before."""
    encoded = b"" if len(text) * 4 <= limit else text.encode()
    if len(encoded) > limit:
        text = encoded[-limit:].decode(errors="ignore")
    elif whole:
        return text
    _, line_break, rest = text.partition("\n")
    return rest if line_break and rest else text
