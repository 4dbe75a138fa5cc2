"""Text for terminals: making untrusted text safe, tool calls on one line, amounts of money.

Text from a model, a tool, a file or a server is made safe in two stages. `clean` (and `StreamCleaner` for text that
arrives in pieces) runs once, when text enters the transcript: it removes terminal escape sequences, control characters,
bidirectional overrides and invisible tag characters, and replaces lone surrogates. `displayed` runs when a line is
painted: it makes the width of the line the sum of the widths of its characters, whatever the terminal thinks of joined
emoji. `printable` is for lines on standard output that programs read too: it removes nothing but escapes.
"""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from tui_agent.regex import regex

TAB_SIZE: Final = 4
MAX_COMBINING: Final = 3
"""The most combining marks on one character; more would paint over the neighbouring lines."""

# ECMA-48 control sequences. An operating system command or device string that is longer than this, or contains a line
# break, is treated as text with a forged introducer: removing it would hide the text that follows.
_MAX_COMMAND: Final = 1000
_BODY = rf"[^\x07\x1b\n\r\x9c]{{0,{_MAX_COMMAND}}}"
_CONTROL = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*"
_COMMAND = rf"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_BODY}"
_COMPLETE = rf"{_CONTROL}[@-~]|{_COMMAND}(?:\x07|\x1b\\|\x9c)"
_UNFINISHED = rf"(?:{_CONTROL}|{_COMMAND}\x1b?|\x1b[ -/]*|\r)\Z"
_SHORT = r"\x1b[ -/]*[0-~]|\x1b"
_LINE_BREAK = r"\r\n|\r|[\x0b\x0c\x85\u2028\u2029]"
_SURROGATE = r"[\ud800-\udfff]"
_REMOVED = (
    r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e0fff]"
)
_UNSAFE: Final = regex(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_TAGS: Final = "\U000e0000"
"""The first of the tag characters, which are unsafe although `str.isprintable` accepts some of them."""
_UNSAFE_ASCII: Final = regex(r"[\x00-\x08\x0b-\x1f\x7f]")
_TOKENS: Final = regex(
    rf"(?P<complete>{_COMPLETE})|(?P<unfinished>{_UNFINISHED})|(?P<short>{_SHORT})"
    rf"|(?P<line>{_LINE_BREAK})|(?P<surrogate>{_SURROGATE})|(?P<removed>{_REMOVED})"
)

# Variation selectors, joiners and skin tones change the width of their neighbours in some terminals and not in others.
_WIDTH_CHANGERS: Final = dict.fromkeys([0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400)])
_COMBINING: Final = "\u0300"
"""The first combining mark; no character below it changes the width of another."""
_MARK = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILED_COMBINING: Final = regex(rf"({_MARK}{{{MAX_COMBINING}}}){_MARK}+")
_ACCENTS: Final = regex("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+")


class StreamCleaner:
    """Cleans text that arrives in pieces; the result does not depend on where it is split."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The clean text so far; an incomplete escape sequence is held back."""
        text = self._held + piece
        self._held = ""
        if not _is_unsafe(text):
            return text
        parts: list[str] = []
        position = 0
        for match in _TOKENS.finditer(text):
            parts.append(text[position : match.start()])
            position = match.end()
            if match.lastgroup == "unfinished":
                self._held = match.group()
                break
            parts.append(_replacement(match))
        parts.append(text[position:])
        return "".join(parts)

    def finish(self) -> str:
        """The text that was held back, cleaned."""
        held, self._held = self._held, ""
        if held == "\r":
            return "\n"
        return clean(held[1:]) if held else ""


def clean(text: str) -> str:
    """`text` without escape sequences, control characters, bidirectional overrides or lone surrogates.

    Line breaks of every kind become a line feed; tabs stay.
    """
    if not _is_unsafe(text):
        return text
    cleaner = StreamCleaner()
    return cleaner.feed(text) + cleaner.finish()


def displayed(line: str, column: int = 0) -> str:
    """One line of clean text for painting: tabs expanded, every character as wide as it is alone.

    `column`: the cell at which it begins, which counts for its tab stops.
    """
    if not line.isascii() and max(line) >= _COMBINING:
        line = _PILED_COMBINING.sub(r"\1", line.translate(_WIDTH_CHANGERS))
    return _with_spaces(line, column) if "\t" in line else line


def _with_spaces(line: str, column: int) -> str:
    """The line with its tabs expanded to the next stop, counted in cells."""
    first, *others = line.split("\t")
    parts, column = [first], column + _cells(first)
    for part in others:
        blank = TAB_SIZE - column % TAB_SIZE
        parts += (" " * blank, part)
        column += blank + _cells(part)
    return "".join(parts)


def _cells(text: str) -> int:
    """How many cells a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(sign) else 1 + (east_asian_width(sign) in "WF") for sign in text)


def one_line(text: str, limit: int = 400) -> str:
    """`text` cleaned and ready for painting, on one line of at most `limit` characters, for labels and summaries."""
    flat = displayed(" ".join(clean(text[: limit * 4]).split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def comparable(text: str) -> str:
    """A text as it is compared: without case and accents."""
    if text.isascii():
        return text.lower()
    from unicodedata import normalize

    return _ACCENTS.sub("", normalize("NFKD", text)).casefold()


def _is_unsafe(text: str) -> bool:
    if text.isascii():
        return _UNSAFE_ASCII.search(text) is not None
    if text.isprintable() and max(text) < _TAGS:
        return False
    return _UNSAFE.search(text) is not None


def _replacement(match: re.Match[str]) -> str:
    if match.lastgroup == "line":
        return "\n"
    return "\ufffd" if match.lastgroup == "surrogate" else ""


_WIDE_SPACES: Final = frozenset("\u00a0\u3000")


def error_text(error: BaseException, limit: int = 1_000) -> str:
    """The error's type and its message, if it has one."""
    try:
        said = str(error)
    except Exception:
        said = ""
    kind = type(error).__name__
    return (f"{kind}: {said}" if said else kind)[:limit]


def printable(line: str) -> str:
    """One line with control, direction and surrogate characters as JSON escapes, so that JSON keeps its meaning."""
    if line.isprintable():
        return line
    from json import dumps

    return "".join(c if c.isprintable() or c in _WIDE_SPACES else dumps(c)[1:-1] for c in line)


_PATHS: Final = ("path", "file_path")
"""What a file is called here, and in sessions of Claude Code."""
_TELLING: Final = ("command", "pattern", *_PATHS, "url", "query", "question", "detail", "agent", "task", "plan")
"""The arguments that best describe a call, most descriptive first."""

_BULKY: Final = frozenset({"content", "old", "new", "old_string", "new_string", "edits", "steps", "choices"})
"""Arguments that are shown only inside the call's card."""

_ARGUMENT_CHARS: Final = 120
"""The most characters shown of one argument."""


def call_summary(arguments: str) -> str:
    """The arguments that best describe a tool call, given as JSON text; the text itself if it is not a JSON object."""
    from json import loads

    try:
        values = loads(arguments or "{}")
        if not isinstance(values, dict):
            return one_line(arguments)
        telling = {name: _argument(values[name]) for name in _TELLING if values.get(name) not in (None, "")}
        if len(telling) > 1 and telling.get("path") == ".":
            del telling["path"]
        others = [f"{name}={_argument(value)}" for name, value in values.items() if name not in {*_TELLING, *_BULKY}]
    except (ValueError, RecursionError):
        return one_line(arguments)
    return one_line("  ".join((*telling.values(), *others)))


def _argument(value: object) -> str:
    from json import dumps

    from tui_agent.visible import visible_line

    text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    shown = visible_line(text[: _ARGUMENT_CHARS + 1])
    return shown if len(shown) <= _ARGUMENT_CHARS else f"{shown[: _ARGUMENT_CHARS - 1]}…"


def code_block(text: str, language: str = "") -> str:
    """A text as a Markdown code block, with a fence that does not occur in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


def first_of(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: at most so many of these names."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def counted(number: int, one: str, many: str = "") -> str:
    """``1 turn``, ``2 turns``; give `many` if the plural is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """The text with a capital first and a full stop or question mark at the end."""
    end = "" if text.endswith("?") else "."
    return f"{text[:1].upper()}{text[1:].rstrip('.')}{end}"


def short_path(path: Path) -> str:
    """The path with ``~`` for the user's home."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)


def expanded(named: str | Path) -> Path:
    """The path with the home for a leading ``~`` or ``~user``; as it is where there is no such user."""
    return Path(os.path.expanduser(named))  # noqa: PTH111 - Path.expanduser raises for an unknown user


def clock_text(moment: float) -> str:
    """A time in seconds since 1970 on the local clock: ``14:30``, with its day if that is another one."""
    there, now = datetime.fromtimestamp(moment), datetime.now()
    return there.strftime("%H:%M" if there.date() == now.date() else "%a %d %b, %H:%M")


def time_text(seconds: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time (seconds since 1970) in the local time zone, formatted by `strftime`."""
    try:
        return datetime.fromtimestamp(seconds).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "at no known time"


def duration_text(milliseconds: float) -> str:
    """A duration: ``340 ms``, ``4.2 s``, ``3 min 20 s``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def spoken_time(seconds: float) -> str:
    """A duration for people: ``45s``, ``4m12s``, ``2h05m``, ``3d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def wait_text(seconds: float) -> str:
    """How long to wait: ``40 s``, ``12 min`` or ``3 h 05 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def how_it_ended(exit_code: int) -> str:
    """``exit code 1``, or the signal that ended the command."""
    return f"exit code {exit_code}" if exit_code >= 0 else f"ended by signal {-exit_code}"


def price_or_time(usd: float | None, seconds: float) -> str:
    """What something costs: seconds if it costs only time, else USD."""
    if not seconds:
        return money_text(usd)
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def compact_count(count: float) -> str:
    """A count in at most five characters: 950, 1.2k, 84k, 1.3M."""
    if count < 1000:
        return f"{count:.0f}"
    if count < 999_500:
        return f"{count / 1000:.1f}k" if count < 9_950 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def percent_text(share: float) -> str:
    """A share in whole percent; one above 0 and below 1% is ``<1%``."""
    return "<1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"


def money_text(usd: float | None) -> str:
    """USD with as many decimals as are significant: ``$0``, ``$0.0042``, ``$0.104``, ``$3.46``; None: ``$?``."""
    if usd is None:
        return "$?"
    if usd == 0:
        return "$0"
    if usd < 0:
        return f"-{money_text(-usd)}"
    if usd < 0.00005:
        return "<$0.0001"
    if usd < 0.01:
        return f"${usd:.4f}"
    return f"${usd:.3f}" if usd < 0.9995 else f"${usd:,.2f}"
