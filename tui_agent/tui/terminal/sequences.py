"""Parses what a terminal sends besides text: sequences that arrive in pieces, and answers to queries that another
program, such as the shell or an editor, has just made.
"""

import re
from typing import Final

ESC: Final = "\x1b"
REST_S: Final = 1.0
"""Seconds to wait for the rest of a sequence: a slow line may split it anywhere."""

_BEGUN: Final = (
    r"\x1b(?:\[[<=>?]?[0-9;:]*\$?|O"
    r"|\][0-9]*(?:;[^\x07\x1b]*\x1b?)?|P[0-9;]*(?:[!$+>][^\x1b]*\x1b?)?|_(?:G[^\x1b]*\x1b?)?)?\Z"
)
"""Matches the possible beginning of a key, a mouse report or an answer at the end of a text."""
_ANSWER: Final = (
    r"\x1b(?:\[(?!\?2026;)[=>?][0-9;:]*\$?[A-Za-z]|\[[0-9;:]+[cn]|\[[0-9]+(?:;[0-9:]+){2,}t"
    r"|\][0-9]+;[^\x07\x1b]*(?:\x07|\x1b\\)|P[0-9;]*[!$+>][^\x1b]*\x1b\\|_G[^\x1b]*\x1b\\)"
)
"""Matches answers on the terminal's identity, modes, colours, sizes and graphics, which are dropped. Not dropped are
the cursor position, which Textual handles, and the answer on mode 2026 (synchronised output).
"""
_OTHER_KEY: Final = r"\x1b\[27;([0-9]+);([0-9]+)~"
"""A key with modifiers in the `modifyOtherKeys` format of xterm and tmux."""
_KIND: Final = r"(\x1b\[[0-9:]*;[0-9]*):([0-9]+)"
"""A key of kitty's protocol with its event type: pressed (1), repeated (2) or released (3)."""
RELEASED: Final = "3"
_MOUSE: Final = r"\[<[0-9]+;[0-9]+;[0-9]+[Mm]"
"""A report of the mouse behind its Esc."""


def through_tmux(sequence: str) -> str:
    """A control sequence that tmux passes on to the terminal it is shown in, where `allow-passthrough` is on."""
    return f"\x1bPtmux;{sequence.replace(ESC, ESC + ESC)}{ESC}\\"


def split_begun(text: str) -> tuple[str, str]:
    """Split off an incomplete sequence at the end of a text."""
    begun = re.search(_BEGUN, text)
    return (text[: begun.start()], text[begun.start() :]) if begun else (text, "")


def ends_with_mouse(text: str) -> bool:
    """Whether the last of a text is a report of the mouse: an Esc behind that is likely to begin another one."""
    return re.search(rf"{_MOUSE}\Z", text[-40:]) is not None


def without_rest_of_mouse(text: str) -> str:
    """A text without the rest of a report that it begins with; its Esc came so long before that it was taken as one."""
    return re.sub(rf"\A{_MOUSE}", "", text)


def for_the_keyboard(text: str) -> str:
    """A text without answers, and with `modifyOtherKeys` converted to the format that the program reads."""
    return re.sub(_OTHER_KEY, rf"{ESC}[\2;\1u", re.sub(_ANSWER, "", text)) if ESC in text else text


def kind_of_key(sequence: str) -> tuple[str, str]:
    """Split a key of kitty's protocol into the key and its event type."""
    found = re.match(_KIND, sequence)
    return (found[1] + sequence[found.end() :], found[2]) if found else (sequence, "")
