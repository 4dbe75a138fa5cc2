"""Line filters applied last: plain symbols for terminals that lack others, and `NO_COLOR`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter, Monochrome
from typing_extensions import override

from tui_agent.tui.painting.glyphs import ASCII, Glyphs

if TYPE_CHECKING:
    from textual.app import App

_PAIRS: Final = (
    ("·∙", "-"),
    ("•●◆■▪", "*"), ("…", "~"), ("→▸▶›»❯", ">"), ("←◀‹«", "<"), ("↑▲△", "^"), ("↓▼▾▽", "v"), ("–—−‐‑─━╌╍═▁▔", "-"),
    ("│┃╎╏║▌▐▎▏▕▊▋▍▉┆┇╷╵╻╹", "|"), ("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋", "+"), ("○◌◐◯☐", "o"), ("✗×✘☑✓✔", "x"),
    ("█▇▆▅▄▓", "#"), ("▒░▃▂▀", ":"), ("‘’′‚‛", "'"),
    ("“”″„", '"'), ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "~"), ("≤", "<"), ("≥", ">"), ("≈", "~"),
    ("\u00a0\u2009\u202f", " "),
)  # fmt: skip
_PLAIN: Final = {ord(sign): plain for signs, plain in _PAIRS for sign in signs}
"""An ASCII replacement of the same width for each symbol that the program or Textual draws."""

_DEFAULT: Final = RichColor.default()


def plain_symbols(text: str) -> str:
    """`text` with symbols replaced by ASCII; letters of every language stay."""
    return text if text.isascii() else text.translate(_PLAIN)


def plain_in(encoding: str) -> Callable[[str], str]:
    """The same for a terminal's encoding: other characters it cannot show become question marks, one for each cell."""

    def can_show(character: str) -> bool:
        try:
            character.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def plain(text: str) -> str:
        text = plain_symbols(text)
        if text.isascii():
            return text
        return "".join(sign if can_show(sign) else "?" * cell_len(sign) for sign in text)

    return plain


class PlainSymbols(LineFilter):
    """Replaces symbols in every line."""

    def __init__(self, plain: Callable[[str], str] = plain_symbols) -> None:
        super().__init__()
        self._plain = plain

    @override
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(self._plain(text), style, control) for text, style, control in segments]


class NoColors(LineFilter):
    """Removes all colours (`NO_COLOR`, see no-color.org).

    Text on a background that clearly differs from the screen's is reversed, so that a selection stays visible; slightly
    different backgrounds, such as that of code, are not.
    """

    @override
    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else _without_colors(style, background), control)
            for text, style, control in segments
        ]


NO_COLORS: Final = "-no-colors"
"""The class of an app without colours."""


def marked_style(app: "App[object]") -> str:
    """The style of the marked choice in a list; without colours, bold alone is too weak."""
    return f"$accent bold{' reverse' if app.has_class(NO_COLORS) else ''}"


def _without_colors(style: Style, background: Color) -> Style:
    plain = style + Style.from_color(_DEFAULT, _DEFAULT)
    return plain + Style(reverse=True) if _stands_out(style, background) else plain


def _stands_out(style: Style, background: Color) -> bool:
    if style.bgcolor is None or style.bgcolor.is_default:
        return False
    own = Color.from_rich_color(style.bgcolor)
    return own.ansi is None and abs(own.brightness - background.brightness) > 0.2


def own_filters(glyphs: Glyphs, encoding: str | None, environ: Mapping[str, str]) -> tuple[LineFilter, ...]:
    """The line filters to apply after Textual's: `NO_COLOR` and plain symbols.

    By https://no-color.org, `NO_COLOR` counts if it is not empty, and means no colour at all.
    """
    filters: list[LineFilter] = [NoColors()] if environ.get("NO_COLOR") else []
    if glyphs is ASCII:
        is_unicode = (encoding or "").lower().startswith("utf")
        filters.append(PlainSymbols(plain_symbols if is_unicode else plain_in(encoding or "ascii")))
    return tuple(filters)


def without_greys(filters: Sequence[LineFilter]) -> list[LineFilter]:
    """Textual's filters without its own for `NO_COLOR`, which shows greys."""
    return [each for each in filters if not isinstance(each, Monochrome)]


def terminal_encoding() -> str | None:
    return sys.__stderr__.encoding if sys.__stderr__ is not None else None
