"""What a terminal would show of a stream of bytes: progress bars collapse to their last frame, colours disappear.

Understood are the control functions of ECMA-48 and the VT100 that move the cursor, erase, insert and delete;
everything else that is no text (colours, titles, links, images, modes) is taken out. A line feed also returns to the
first column, as a terminal's line discipline has it.
"""

import codecs
import re
from collections.abc import Callable

from tui_agent.tools.shell.screen import Screen

WINDOW_ROWS = 50
WINDOW_COLUMNS = 240
STREAM_BYTES = 262_144

_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])
_C1 = re.compile("[\x80-\x9f]")
# A sequence longer than this is no sequence. Bounded, so that what is held back between two pieces is small.
_CSI = r"(?:\x1b\[|\x9b)(?P<parameters>[0-?]{0,64})[ -/]{0,8}"
_STRING = r"\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]"
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0b-\x1f\x7f-\x9f]+)"
    r"|(?P<colour>(?:\x1b\[[0-9;:]{0,64}m)+)"
    rf"|{_CSI}(?:(?P<final>[@-~])|(?P<open>\Z))?"
    rf"|(?P<string>{_STRING})"
    r"|(?P<begun>\x1b[ -/]{0,8}\Z)|\x1b(?P<escape>[ -/]{0,8}[0-OQ-WYZ\\`-~])"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c\n]")
_LINE_FEEDS = frozenset("\x0b\x0c\x84\x85")
_ALTERNATE = frozenset({"?47", "?1047", "?1049"})


class Terminal:
    """Feed it bytes in any pieces; the result depends on the bytes alone. `limit`: UTF-8 bytes of text kept."""

    def __init__(self, *, rows: int = WINDOW_ROWS, columns: int = WINDOW_COLUMNS, limit: int = STREAM_BYTES) -> None:
        self._rows, self._columns, self._limit = rows, columns, limit
        self._screen = self._new_screen()
        self._main: Screen | None = None  # the ordinary screen, while a full-screen program shows its own
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_string = False
        self.dropped_bytes = 0
        """UTF-8 bytes of text in front of what `text` returned last."""
        self.dropped_lines = 0
        """Lines in front of what `text` returned last."""

    def feed(self, data: bytes) -> None:
        """Process output. Costs little more than copying where it is plain text."""
        decoded = self._decoder.decode(data)
        plain = len(data.translate(None, _CONTROLS)) == len(data) and (data.isascii() or not _C1.search(decoded))
        if plain and not self._held and not self._in_string:
            self._screen.write(decoded)
        else:
            self._process(self._held + decoded)

    def finish(self) -> None:
        """The stream has ended: a character or sequence that was cut off there is settled."""
        self._process(self._held + self._decoder.decode(b"", final=True))
        self._held = ""

    def text(self) -> str:
        """The whole as it should be read now, its oldest lines cut off where it is larger than `limit`."""
        first, last = (self._main, self._screen) if self._main else (None, self._screen)
        text = f"{first.text()}\n{last.text()}" if first else last.text()
        self.dropped_bytes = last.dropped_bytes + (first.dropped_bytes if first else 0)
        self.dropped_lines = last.dropped_lines + (first.dropped_lines if first else 0)
        kept = _end_of(text, self._limit, whole=not self.dropped_bytes)
        lost = text[: len(text) - len(kept)]
        self.dropped_bytes += len(lost.encode())
        self.dropped_lines += lost.count("\n")
        return kept

    def clear(self) -> None:
        """Begin with an empty screen; what is still open at the end of the stream goes on."""
        self._screen, self._main = self._new_screen(), None
        self.dropped_bytes = self.dropped_lines = 0

    def tail(self, lines: int) -> str:
        """The last `lines` lines as they should be seen now. Cheap."""
        return self._screen.tail(lines)

    def _new_screen(self) -> Screen:
        return Screen(height=self._rows, columns=self._columns, limit=max(self._limit, self._columns))

    def _process(self, text: str) -> None:
        self._held = ""
        position = 0
        written: list[str] = []
        while position < len(text):
            if self._in_string:
                position = self._skip_string(text, position)
                continue
            token = _TOKEN.match(text, position)
            if token is None:  # never: the pattern matches any character
                return
            position = token.end()
            kind = token.lastgroup
            if kind == "text":
                written.append(token[0])
            elif kind in {"open", "begun"}:
                self._held = token[0]
            elif kind != "colour":
                if written:
                    self._screen.write("".join(written))
                    written.clear()
                self._control(token, kind)
        if written:
            self._screen.write("".join(written))

    def _skip_string(self, text: str, position: int) -> int:
        """Where the command string (a title, a link, an image) ends; a line break ends one that was never closed."""
        end = _STRING_END.search(text, position)
        if end is None:
            return len(text)
        self._in_string = False
        return end.start() if end[0] in "\x1b\n" else end.end()

    def _control(self, token: re.Match[str], kind: str | None) -> None:
        if kind == "string":
            self._in_string = True
        elif kind == "final":
            self._sequence(token["final"], token["parameters"])
        elif kind == "escape":
            self._escape(token["escape"])
        elif kind == "control":
            self._character(token[0])

    def _character(self, character: str) -> None:
        if character == "\r":
            self._screen.carriage_return()
        elif character == "\b":
            self._screen.back(1)
        elif character in _LINE_FEEDS:
            self._screen.line_feed()
        elif character == "\x8d":
            self._screen.reverse_line_feed()

    def _escape(self, code: str) -> None:
        match code:
            case "7":
                self._screen.save_cursor()
            case "8":
                self._screen.restore_cursor()
            case "D" | "E":
                self._screen.line_feed()
            case "M":
                self._screen.reverse_line_feed()
            case "c":
                self._screen.erase_in_window(2)
                self._screen.move_to(0, 0)

    def _sequence(self, final: str, parameters: str) -> None:
        if final in "hl":
            if parameters in _ALTERNATE:
                self._switch(alternate=final == "h")
            return
        if parameters[:1] in {"?", "<", "=", ">"}:
            return
        numbers = [int(number[:6]) if number.isdigit() else 0 for number in parameters.split(";")]
        first = numbers[0]
        count = first or 1
        screen = self._screen
        moves: dict[str, Callable[[int], None]] = {
            "A": screen.up,
            "B": screen.down,
            "e": screen.down,
            "C": screen.forward,
            "a": screen.forward,
            "D": screen.back,
            "L": screen.insert_rows,
            "M": screen.delete_rows,
            "P": screen.delete_cells,
            "@": screen.insert_cells,
            "X": screen.erase_cells,
        }
        if final in moves:
            moves[final](count)
            return
        match final:
            case "E" | "F":
                (screen.down if final == "E" else screen.up)(count)
                screen.carriage_return()
            case "G" | "`":
                screen.move_to_column(count - 1)
            case "d":
                screen.move_to_row(count - 1)
            case "H" | "f":
                screen.move_to(count - 1, max(numbers[1] if len(numbers) > 1 else 1, 1) - 1)
            case "J":
                screen.erase_in_window(first)
            case "K":
                screen.erase_in_row(first)
            case "s":
                screen.save_cursor()
            case "u":
                screen.restore_cursor()

    def _switch(self, *, alternate: bool) -> None:
        if alternate and self._main is None:
            self._main, self._screen = self._screen, self._new_screen()
        elif not alternate and self._main is not None:
            self._screen, self._main = self._main, None


def _end_of(text: str, limit: int, *, whole: bool) -> str:
    """The last `limit` UTF-8 bytes of `text`, from the start of a line on. `whole`: nothing in front is missing yet."""
    encoded = b"" if len(text) * 4 <= limit else text.encode()
    if len(encoded) > limit:
        text = encoded[-limit:].decode(errors="ignore")
    elif whole:
        return text
    _, line_break, rest = text.partition("\n")
    return rest if line_break and rest else text
