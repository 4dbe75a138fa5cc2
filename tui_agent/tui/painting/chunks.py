"""Cuts growing Markdown into chunks that no later text can change.

A chunk is a run of lines that renders the same alone as in its place: it ends at a blank line outside fences and lists,
or at the edge of a top-level code fence. So a finished chunk is painted once, and only the open one is painted again
while an answer streams. The rules are those of CommonMark 0.31, sections 3 to 5; link reference definitions are not
supported, because a late one would change what came before it.
"""

from copy import copy
from enum import Enum
from typing import Final

import msgspec

from tui_agent.regex import regex

CODE_LINES: Final = 40
"""Lines of one code chunk; longer fences are cut, so that painting one screen of a long fence stays cheap."""
LIST_CHARACTERS: Final = 1500
"""A list longer than this may be cut before its next top-level item."""
CHUNK_CHARACTERS: Final = 6000
"""A paragraph longer than this is cut at the next line."""
TABLE_CHARACTERS: Final = 2500
"""A table longer than this is cut at the next row; the next part repeats its header."""
PLAIN_CHARACTERS: Final = 4000
"""A single line longer than `CHUNK_CHARACTERS` is not parsed but shown as plain pieces of this size."""

_FENCE = regex(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})[ ]*([^\s`]*)")
_INNER_FENCE = regex(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}|~{3,})")
_TABLE_RULE = regex(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")
_ENDS_LIST = regex(r" {0,3}(?:#{1,6}(?:\s|$)|>|([-*_])(?:[ \t]*\1){2,}[ \t]*$)")
_ITEM = regex(r"\s*(?:[-*+]|\d{1,9}[.)])( +|$)")


class Kind(Enum):
    """How a chunk is painted."""

    MARKDOWN = "markdown"
    CODE = "code"
    PLAIN = "plain"


class Chunk(msgspec.Struct, frozen=True):
    """A piece of an answer. `gap`: a blank line precedes it. `joined`: the next chunk continues its last line."""

    kind: Kind
    text: str
    language: str = ""
    gap: bool = True
    joined: bool = False


class ChunkScanner:
    """Cuts Markdown into chunks as it arrives; the result does not depend on how the text was split into pieces."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._size = 0
        self._after_blank = False
        self._content = 0
        self._inner_fence = ""
        self._fence = ""
        self._language = ""
        self._fence_started = False
        self._fence_indent = 0
        self._gap = False
        self._done: list[Chunk] = []

    def feed(self, text: str) -> list[Chunk]:
        """The chunks that `text` completes."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._take(line)
        done, self._done = self._done, []
        return done

    def tail(self) -> list[Chunk]:
        """The open chunks, as if the text ended here. Does not change the scanner."""
        end = copy(self)
        end._lines, end._done = self._lines.copy(), []
        if end._partial:
            end._take(end._partial)
        if end._fence:
            end._close_code()
        else:
            end._close()
        return end._done

    def _take(self, line: str) -> None:
        if self._fence:
            self._take_code(line)
        elif len(line) > CHUNK_CHARACTERS:
            self._close()
            for start in range(0, len(line), PLAIN_CHARACTERS):
                piece = line[start : start + PLAIN_CHARACTERS]
                joined = start + PLAIN_CHARACTERS < len(line)
                self._done.append(Chunk(Kind.PLAIN, piece, gap=self._gap and not start, joined=joined))
            self._gap = True
        elif not line or line.isspace():
            self._after_blank = bool(self._lines)
            if self._lines:
                self._lines.append("")
        else:
            self._take_text(line)

    def _take_text(self, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        item = _ITEM.match(line) if self._content or indent < 4 else None
        inside = bool(self._content) and indent >= self._content
        if self._content and not inside and not item and (self._inner_fence or _ENDS_LIST.match(line)):
            self._close()
        fence = None if self._inner_fence else _FENCE.match(line)
        if fence and not inside:
            self._close()
            self._fence, self._language, self._fence_started = fence[1], fence[2], False
            self._fence_indent = indent
            return
        if self._lines and not self._inner_fence:
            self._cut_before(indent, goes_on=inside or bool(self._content and item), item=bool(item))
        if item and not inside:
            self._content = item.end() if len(item[1]) <= 4 else item.start(1) + 1
            self._inner_fence = ""
        if self._inner_fence:
            if line.strip() == self._inner_fence:
                self._inner_fence = ""
        elif self._content and (opening := _INNER_FENCE.match(line)):
            self._inner_fence = opening[1]
        self._lines.append(line)
        self._size += len(line) + 1
        self._after_blank = False

    def _cut_before(self, indent: int, *, goes_on: bool, item: bool) -> None:
        if self._after_blank and not goes_on and indent < 4:
            self._close()
        elif (item and indent == 0 and self._size > LIST_CHARACTERS) or self._size > CHUNK_CHARACTERS:
            content = self._content
            self._close(gap_after=False)
            self._content = content
        elif self._size > TABLE_CHARACTERS and len(self._lines) > 2 and _TABLE_RULE.match(self._lines[1]):
            head = self._lines[:2]
            self._close()
            self._lines = head

    def _take_code(self, line: str) -> None:
        stripped = line.strip()
        if len(stripped) >= len(self._fence) and not stripped.strip(self._fence[0]):
            self._close_code()
            self._fence = ""
            return
        outdent = min(self._fence_indent, len(line) - len(line.lstrip(" ")))
        self._lines.append(line[outdent:])
        self._size += len(line)
        if len(self._lines) >= CODE_LINES or self._size > CHUNK_CHARACTERS:
            self._emit_code()

    def _close(self, *, gap_after: bool = True) -> None:
        text = "\n".join(self._lines).rstrip("\n")
        if text:
            self._done.append(Chunk(Kind.MARKDOWN, text, gap=self._gap))
            self._gap = gap_after
        self._lines, self._size = [], 0
        self._after_blank, self._content = False, 0
        self._inner_fence = ""

    def _close_code(self) -> None:
        if self._lines or not self._fence_started:
            self._emit_code()
        self._gap = True

    def _emit_code(self) -> None:
        gap = self._gap and not self._fence_started
        self._done.append(Chunk(Kind.CODE, "\n".join(self._lines), self._language, gap=gap))
        self._lines, self._size = [], 0
        self._fence_started = True
