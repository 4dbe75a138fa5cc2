"""A screen as SVG text that is the same in every run, as plain text, and compared with the one that was kept."""

import re
from collections.abc import Iterator
from difflib import unified_diff
from html import unescape
from pathlib import Path
from typing import Final

from rich.cells import cell_len

SNAPSHOTS: Final = Path(__file__).parents[2] / "snapshots"

_IDENTITY: Final = re.compile(r"terminal-\d+-")
_SPINNER: Final = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
_TEXT: Final = re.compile(r'<text class="terminal-r\d+" x="([\d.]+)"[^>]*-line-(\d+)\)">(.*?)</text>')
_ROW: Final = re.compile(r"-line-(\d+)\"")
_SCREEN: Final = re.compile(r'(clip-terminal">\s*<rect [^>]*height=")([\d.]+)(")')
_DESCENDERS: Final = 6
_CELL: Final = 12.2
"""Units of width that Rich gives a cell in its SVG."""


def still(text: str) -> str:
    """A text with the spinner at one picture of its round."""
    return _SPINNER.sub("⠹", text)


def stable(svg: str, frame: str, title: str) -> str:
    """An exported screen without what Rich makes of a hash, with the spinner at one picture of its round.

    The last row is not cut through the letters that reach below it, and the window around the screen gets the colours
    of the theme, which Rich does not know.
    """
    svg = _SCREEN.sub(lambda found: f"{found[1]}{float(found[2]) + _DESCENDERS}{found[3]}", svg, count=1)
    svg = still(_IDENTITY.sub("terminal-", svg))
    return svg.replace('<rect fill="#292929"', f'<rect fill="{frame}"', 1).replace(
        '<text class="terminal-title" fill="#c5c8c6"', f'<text class="terminal-title" fill="{title}"', 1
    )


def screen_text(svg: str) -> str:
    """The characters on an exported screen, one line for each row."""
    rows: dict[int, str] = {int(number): "" for number in _ROW.findall(svg)}
    for x, number, text in _TEXT.findall(svg):
        row = rows.get(int(number), "")
        column = round(float(x) / _CELL)
        rows[int(number)] = row + " " * (column - cell_len(row)) + unescape(text).replace("\xa0", " ")
    return "\n".join(rows[number].rstrip() for number in sorted(rows)) + "\n"


def difference(kept: str, taken: str) -> str:
    """What changed from one picture to another, for people to read; empty when nothing did."""
    if kept == taken:
        return ""
    return "\n".join(_text_difference(kept, taken)) or "\n".join(_style_difference(kept, taken))


def _text_difference(kept: str, taken: str) -> Iterator[str]:
    return unified_diff(screen_text(kept).split("\n"), screen_text(taken).split("\n"), "kept", "now", lineterm="", n=1)


def _style_difference(kept: str, taken: str) -> Iterator[str]:
    yield "The text is the same; its colours or styles are not:"
    lines = list(unified_diff(kept.split("\n"), taken.split("\n"), lineterm="", n=0))[2:]
    yield from (line[:200] for line in lines[:20])
