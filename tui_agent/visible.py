"""The visible form of a text: nothing of it removed, nothing cut, nothing that acts on a terminal or cannot be seen.

What a person approves is shown in this form everywhere: in the app's question, in an editor's request, in the report
of a run without a screen, on cards. Printable characters stay as they are. A control character becomes its picture
(``␛``, ``␇``), a tab ``␉`` and three spaces, a space at the end of a line ``␠``, and any other character that is
invisible, reorders its neighbours, changes their width or looks like a space becomes ``⟦U+202E⟧``. The signs used for
this are written so too where they occur in the text itself, so that `original` returns exactly the text.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from tui_agent.regex import regex

CONTINUED: Final = "↪ "
"""Stands before each line of a visible text that a wrapped line continues on; never in the text itself."""

TAB: Final = "␉   "
_SPACE: Final = "␠"
_LINE_FEED: Final = "␊"
_DELETE: Final = "␡"
_PICTURES: Final = 0x2400
"""The picture of the control character 0; the others follow in order."""
_MAX_MARKS: Final = 3
"""The most combining marks shown on one character; more would paint over other lines."""

_SUSPECT: Final = regex(r"[^\n\t\x20-\x7e]+")
_SIGN: Final = regex(rf"⟦U\+([0-9A-F]{{4,6}})⟧|({TAB})|([\u2400-\u2421])")
_CODED_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
_CODED: Final = frozenset(
    (
        *map(chr, range(_PICTURES, _PICTURES + 0x27)),
        *"⟦↪",
        # Letters and marks that have no shape of their own; the blank pattern of Braille.
        *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0",
        *map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
        # Skin tones join the character before them, in some terminals.
        *map(chr, range(0x1F3FB, 0x1F400)),
    )
)


def visible(text: str, *, tabs: bool = True) -> str:
    """The visible form of a text, with the same line feeds. Without `tabs`, tabs stay as they are."""
    shown = text if text.isascii() and text.isprintable() else _SUSPECT.sub(_shown, text)
    if " \n" in shown or shown.endswith(" "):
        shown = "\n".join(map(_with_end, shown.split("\n")))
    return shown.replace("\t", TAB) if tabs else shown


def visible_line(text: str) -> str:
    """The visible form of a text on one line: line feeds are shown as ``␊``."""
    return visible(text).replace("\n", _LINE_FEED)


def whole(text: str) -> str:
    """A text with each half of a surrogate pair, as names of files may hold, in its visible form: it can be encoded."""
    return re.sub(r"[\ud800-\udfff]", lambda half: _coded(half[0]), text)


def original(shown: str) -> str:
    """The text of which this is the visible form."""
    return _SIGN.sub(_original, shown)


def _shown(suspects: re.Match[str]) -> str:
    text, at = suspects.string, suspects.start()
    # A mark is shown on the character before it, if there is one on the line.
    marks = 0 if at and text[at - 1] not in "\n\t" else _MAX_MARKS
    shown: list[str] = []
    for character in suspects[0]:
        form = _form(character)
        if form:
            marks = 0
        else:
            form = character if marks < _MAX_MARKS else _coded(character)
            marks += 1
        shown.append(form)
    return "".join(shown)


@lru_cache(maxsize=4_096)
def _form(character: str) -> str:
    """How a character is shown; empty for a combining mark, which depends on what precedes it."""
    if character < "\x20":
        return chr(_PICTURES + ord(character))
    if character == "\x7f":
        return _DELETE
    category = unicodedata.category(character)
    if character in _CODED or category in _CODED_CATEGORIES:
        return _coded(character)
    joins = category.startswith("M") or "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return "" if joins else character


def _coded(character: str) -> str:
    return f"⟦U+{ord(character):04X}⟧"


def _with_end(line: str) -> str:
    bare = line.rstrip(" ")
    return bare + _SPACE * (len(line) - len(bare))


def _original(sign: re.Match[str]) -> str:
    code, tab, picture = sign.groups()
    if code:
        return chr(int(code, 16))
    if tab:
        return "\t"
    return {_SPACE: " ", _DELETE: "\x7f"}.get(picture, chr(ord(picture) - _PICTURES))
