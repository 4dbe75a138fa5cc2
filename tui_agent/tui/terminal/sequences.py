"""What a terminal sends besides text: where a sequence that comes in pieces ends, and which are answers to questions
that somebody else has asked, such as the shell or an editor a moment ago.
"""

import re
from typing import Final

ESC: Final = "\x1b"
REST_S: Final = 1.0
"""Seconds for which the rest of a sequence may be on its way: a slow line cuts where it likes."""

_BEGUN: Final = (
    r"\x1b(?:\[[<=>?]?[0-9;:]*\$?|O"
    r"|\][0-9]*(?:;[^\x07\x1b]*\x1b?)?|P[0-9;]*(?:[!$+>][^\x1b]*\x1b?)?|_(?:G[^\x1b]*\x1b?)?)?\Z"
)
"""What may be the beginning of a key, a report of the mouse or an answer, at the end of a text."""
_ANSWER: Final = (
    r"\x1b(?:\[(?!\?2026;)[=>?][0-9;:]*\$?[A-Za-z]|\[[0-9;:]+[cn]|\[[0-9]+(?:;[0-9:]+){2,}t"
    r"|\][0-9]+;[^\x07\x1b]*(?:\x07|\x1b\\)|P[0-9;]*[!$+>][^\x1b]*\x1b\\|_G[^\x1b]*\x1b\\)"
)
"""What the terminal is, and which modes, colours, sizes and pictures it has; where its cursor stands Textual knows. The
answer that is read is whether it can show a picture at once, mode 2026.
"""
_OTHER_KEY: Final = r"\x1b\[27;([0-9]+);([0-9]+)~"
"""A key with modifiers as xterm and tmux write it: `modifyOtherKeys`."""
_KIND: Final = r"(\x1b\[[0-9:]*;[0-9]*):([0-9]+)"
"""A key of kitty's protocol that says whether it was pressed, is repeated (2) or was let go (3)."""
LET_GO: Final = "3"


def split_begun(text: str) -> tuple[str, str]:
    """A text, and what at its end may be the beginning of a sequence."""
    begun = re.search(_BEGUN, text)
    return (text[: begun.start()], text[begun.start() :]) if begun else (text, "")


def for_the_keyboard(text: str) -> str:
    """A text without the answers in it, and with keys as the program reads them."""
    return re.sub(_OTHER_KEY, rf"{ESC}[\2;\1u", re.sub(_ANSWER, "", text)) if ESC in text else text


def kind_of_key(sequence: str) -> tuple[str, str]:
    """A key of kitty's protocol without the kind of its event, and that."""
    found = re.match(_KIND, sequence)
    return (found[1] + sequence[found.end() :], found[2]) if found else (sequence, "")
