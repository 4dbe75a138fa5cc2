"""What a terminal would show of an output: progress bars collapse to their last frame, colours disappear.

Text is taken as it is, however much there is. ``pyte`` emulates what moves the cursor: a line that is written over, or,
once the cursor has left its line, the last rows until as many have come without another movement. All other control
functions (colours, titles, links, modes) are removed.
"""

import codecs
import re
from typing import TYPE_CHECKING, Final

from tui_agent.regex import regex

if TYPE_CHECKING:
    from tui_agent.tools.shell.emulation import Emulation

ROWS: Final = 50
"""The rows that the cursor can reach."""
COLUMNS: Final = 4_096
"""Columns of a row that can be written over; longer rows are broken."""
STREAM_BYTES: Final = 262_144

MOST_WORK: Final = 1_000_000
"""The characters that are emulated, with `_WORK` for each movement and more for some: a few seconds of CPU time. Of
what comes then, only the last `EMULATED_END` characters are."""
EMULATED_END: Final = 65_536
_WORK: Final = 20
_BEGINNING: Final = 300
_PIECE: Final = 16_384
"""Bytes after which the work is looked at."""
_TAIL_CHARACTERS: Final = 4_096

_IN_STRING = r"[^\x07\x18\x1a\x1b\x9c\n]*"
_SEQUENCE = regex(  # ECMA-48; a line break ends a command string (a title, a link, an image) that has no end
    rf"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_IN_STRING}(?:[\x07\x18\x1a\x9c]|\x1b\\)?"
    r"|(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])?|\x1b[ -/]*([0-~])?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_CONTROL = regex("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OPEN = regex(rf"(?:\x1b[ -/]*|(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_IN_STRING}\x1b?|\r)\Z")
"""Matches a sequence at the end of a piece that the next one may continue."""
_LONGEST_OPEN: Final = 4_096
_ALONG_THE_LINE, _OVER_ROWS = frozenset("CDGKPX@a"), frozenset("ABEFHJLMdef")
_OTHER_SCREEN: Final = "\x1b!"
"""Stands for a change to a screen of its own or back. What was shown stays, and no movement can reach it any more."""
_OTHER_SCREENS: Final = frozenset({"?47", "?1047", "?1049"})
_LINE_FEEDS = str.maketrans("\v\f\x84\x85", "\n\n\n\n")
_MOVEMENT = regex(r"[\r\b]|\x1b(?:\[[0-9;]*[@-~]|[DEM78])")
_LEAVES_LINE = regex(rf"\x1b(?:\[[0-9;]*[{''.join(sorted(_OVER_ROWS))}]|[DEM78])")


class Terminal:
    """Takes bytes in any pieces. `limit`: UTF-8 bytes of text to keep."""

    def __init__(self, *, rows: int = ROWS, columns: int = COLUMNS, limit: int = STREAM_BYTES) -> None:
        self._rows, self._columns, self._limit = rows, columns, limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        """The beginning of a sequence at the end of the last piece."""
        self._text = _Kept(limit)
        """What no movement can reach any more, or might only after a text without one."""
        self._emulation: Emulation | None = None
        """The end of the text, while it is emulated: one row, or `rows` of them."""
        self._fresh = False
        """Whether no movement can reach the text, on a screen of its own."""
        self._quiet = 0
        """Lines since the last movement."""
        self.work = 0
        """How much was emulated, see `MOST_WORK`."""
        self._unread: _Kept | None = None
        """What is not emulated any more."""
        self.line_breaks = 0
        """All line breaks that came, whatever is seen of them."""
        self.dropped_bytes = self.dropped_lines = 0
        """What is missing in front of what `text` returned last, in UTF-8 bytes and in lines."""

    def feed(self, data: bytes) -> None:
        """Process output. Plain text costs little more than copying it."""
        self.line_breaks += data.count(b"\n")
        for start in range(0, len(data), _PIECE):
            self._take(self._decoder.decode(data[start : start + _PIECE]))

    def finish(self) -> None:
        """End the stream: handle a character or sequence that was cut off."""
        self._take(self._decoder.decode(b"", final=True), final=True)

    def text(self) -> str:
        """The whole text as shown now, without the oldest lines if it is larger than `limit`."""
        self._read_end()
        text = _Kept(self._limit)
        text.take_over(self._text)
        text.append(self._shown())
        kept = text.cut()
        self.dropped_bytes, self.dropped_lines = text.dropped_bytes, text.dropped_lines
        return kept

    def clear(self) -> None:
        """Begin with an empty screen; an unfinished sequence is kept."""
        self._text, self._emulation, self._unread, self.work = _Kept(self._limit), None, None, 0

    def tail(self, lines: int) -> str:
        """The last `lines` lines as shown now. Cheap."""
        shown = self._text.end(_TAIL_CHARACTERS) + self._shown()
        if self._unread is not None:
            end = Terminal(rows=self._rows, columns=self._columns)
            end._show(self._unread.end(_TAIL_CHARACTERS))
            shown = end._text.end(_TAIL_CHARACTERS) + end._shown()
        text = shown.rstrip("\n")
        return "\n".join(text.split("\n")[-lines:]) + ("\n" if text != shown else "")

    @property
    def held(self) -> int:
        """Characters in memory."""
        unread = self._unread.size if self._unread is not None else 0
        return len(self._held) + self._text.size + unread + len(self._shown())

    def _shown(self) -> str:
        return self._emulation.text() if self._emulation is not None else ""

    def _take(self, text: str, *, final: bool = False) -> None:
        text, self._held = self._held + text, ""
        if not final and (cut_off := _OPEN.search(text, max(0, len(text) - _LONGEST_OPEN))):
            self._held = cut_off[0]
            text = text[: cut_off.start()]
        if _CONTROL.search(text):
            text = _SEQUENCE.sub(_movement, text.translate(_LINE_FEEDS).replace("\r\n", "\n"))
        if self._unread is not None:
            self._unread.append(text)
            return
        self._show(text)
        if self.work > MOST_WORK:
            self._leave()
            self._unread = _Kept(EMULATED_END)

    def _read_end(self) -> None:
        """Emulate the end of what was left unread, below a line that says how much is missing."""
        if (unread := self._unread) is None:
            return
        end = unread.cut()
        if unread.dropped_bytes:
            begun = self._text.end(1) not in ("", "\n")
            notice = f"[{unread.dropped_bytes:,} bytes are left out here: too many control sequences to follow]\n"
            self._text.append("\n" * begun + notice)
        self._unread, self.work = None, 0
        self._show(end)

    def _show(self, text: str) -> None:
        """Take in text with movements only."""
        for number, part in enumerate(text.split(_OTHER_SCREEN)):
            if number:
                self._leave()
                self._text.append("\n" * (self._text.end(1) not in ("", "\n")))
                self._fresh = True
            self._show_part(part)

    def _show_part(self, text: str) -> None:
        while text:
            emulation = self._emulation
            if emulation is None:
                found = _MOVEMENT.search(text)
                if found is None:
                    self._text.append(text)
                    return
                begin = text.rfind("\n", 0, found.start()) + 1
                self._text.append(text[:begin])
                text = text[begin:]
                rows = self._rows if self._fresh else 1
                emulation = self._emulate(rows, self._text.take_end(1, self._columns))
            line, line_break, text = text.partition("\n")
            if emulation.lines == 1 and _LEAVES_LINE.search(line):
                column = emulation.cursor.x
                self._leave()
                emulation = self._emulate(self._rows, self._text.take_end(self._rows, self._columns))
                emulation.cursor.x = column
            self._emulate_line(emulation, line, line_break)

    def _emulate(self, rows: int, begun: str) -> "Emulation":
        """Begin to emulate, with the last rows of the text as they are."""
        from tui_agent.tools.shell.emulation import Emulation

        self.work += _BEGINNING + len(begun)
        self._emulation, self._quiet, self._fresh = Emulation(self._columns, rows), 0, False
        self._emulation.feed(begun)
        return self._emulation

    def _emulate_line(self, emulation: "Emulation", line: str, line_break: str) -> None:
        movements = _MOVEMENT.findall(line)
        self.work += len(line) + _WORK * (len(movements) + len(line_break))
        alone = emulation.lines == 1
        emulation.feed(line if alone else line + line_break)
        if emulation.scrolled:
            self._text.append("\n".join(emulation.scrolled) + "\n")
            emulation.scrolled.clear()
        if line_break and alone:
            self._leave()
            self._text.append("\n")
            return
        self._quiet = 0 if movements else self._quiet + len(line_break)
        if self._quiet > self._rows:
            self._leave()

    def _leave(self) -> None:
        """What is emulated becomes text."""
        self._text.append(self._shown())
        self._emulation = None


def _movement(found: re.Match[str]) -> str:
    """A sequence if it moves the cursor, as pyte knows it; else nothing."""
    parameters, final, escaped = found.groups()
    if parameters in _OTHER_SCREENS and final and final in "hl":
        return _OTHER_SCREEN
    if final is not None:
        moves = final in _ALONG_THE_LINE or final in _OVER_ROWS
        return f"\x1b[{parameters}{final}" if moves and not re.search("[:<-?]", parameters) else ""
    if escaped is not None:
        return f"\x1b{escaped}" if escaped in "DEM78" else ""
    return found[0] if found[0] in "\r\b" else ""


class _Kept:
    """The end of a text: at least the last `limit` UTF-8 bytes of it, from the start of a line if it has several."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self.size = 0
        self.dropped_bytes = self.dropped_lines = 0

    def append(self, text: str) -> None:
        if not text:
            return
        self._pieces.append(text)
        self.size += len(text)
        if self.size > 4 * self._limit:
            self.cut()

    def take_over(self, other: "_Kept") -> None:
        """Begin with what another one has kept."""
        self.dropped_bytes, self.dropped_lines = other.dropped_bytes, other.dropped_lines
        self.append("".join(other._pieces))

    def cut(self) -> str:
        """Keep no more than the last `limit` bytes, and return them."""
        text = "".join(self._pieces)
        kept = text
        if len(text) * 4 > self._limit and len(encoded := text.encode()) > self._limit:
            kept = encoded[-self._limit :].decode(errors="ignore")
        if self.dropped_bytes or kept is not text:
            _, line_break, rest = kept.partition("\n")
            kept = rest if line_break and rest else kept
        lost = text[: len(text) - len(kept)]
        self.dropped_bytes += len(lost.encode())
        self.dropped_lines += lost.count("\n")
        self._pieces, self.size = [kept], len(kept)
        return kept

    def end(self, size: int) -> str:
        """The last `size` characters."""
        found: list[str] = []
        for piece in reversed(self._pieces):
            found.append(piece[-size:])
            size -= len(found[-1])
            if size <= 0:
                break
        return "".join(reversed(found))

    def take_end(self, lines: int, width: int) -> str:
        """Take away the last lines, up to `lines` of them, of which none is wider. A wider last line gets an end."""
        end = ""
        while self._pieces and end.count("\n") < lines and len(end) <= lines * width:
            end = self._pieces.pop() + end
        begin = end.rfind("\n") + 1
        if len(end) - begin > width:
            end += "\n"
            begin = len(end)
        for _ in range(lines - 1):
            start = end.rfind("\n", 0, max(0, begin - 1)) + 1
            if begin - start - 1 > width:
                break
            begin = start
        self.size -= len(end)
        self.append(end[:begin])
        return end[begin:]
