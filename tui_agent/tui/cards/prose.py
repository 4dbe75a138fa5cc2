"""The model's answer, as Markdown chunks, of which only the open ones are painted again while it streams; and its
reasoning: one quiet line, the whole text when opened.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from msgspec import structs
from rich.segment import Segment
from typing_extensions import override

from tui_agent.regex import regex
from tui_agent.text import compact_count
from tui_agent.tui.cards.base import Block, Card, StreamedText
from tui_agent.tui.painting.chunks import Chunk, ChunkScanner, Kind
from tui_agent.tui.painting.code import paint_code
from tui_agent.tui.painting.lines import GUTTER, Line, Run, blank_line, fit, make_line, wrap
from tui_agent.tui.painting.markdown import paint_markdown
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, estimate_lines
from tui_agent.tui.wording import duration

_QUIET_INDENT: Final = 2
_FENCE: Final = regex(
    r"^ *(?:[-*+>]\s+|\d{1,9}[.)]\s+)?(?P<mark>`{3,}|~{3,})[^\n`]*\n"
    r"(?P<code>.*?)(?:^[ >]*(?P=mark)[`~]*[ ]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


class ProseBlock(Block, eq=False, kw_only=True):
    """The model's answer, Markdown; `streaming` until it is whole."""

    content: StreamedText
    streaming: bool = False

    @property
    @override
    def plain_text(self) -> str:
        return str(self.content)

    @property
    @override
    def code(self) -> list[str]:
        return fenced_code(self.plain_text)

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        text = self.plain_text
        return estimate_lines(len(text), text.count("\n"), width)

    @override
    def sections(self) -> list[Section]:
        return ProseSections().update(self.plain_text)

    @override
    def divider(self) -> Callable[[], list[Section]]:
        growing = ProseSections()
        return lambda: growing.update(self.plain_text)


class ProseSections:
    """The sections of a growing text. Those of finished chunks stay the same objects from one update to the next."""

    __slots__ = ("_consumed", "_quiet", "_scanner", "_settled")

    def __init__(self, *, quiet: bool = False) -> None:
        self._scanner = ChunkScanner()
        self._consumed = 0
        self._settled: list[Section] = []
        self._quiet = quiet

    def update(self, text: str) -> list[Section]:
        """The sections of `text`, which must start with the text of the previous update."""
        chunks = self._scanner.feed(text[self._consumed :])
        self._consumed = len(text)
        self._settled.extend(_section(chunk, quiet=self._quiet) for chunk in chunks)
        return self._settled + [_section(chunk, quiet=self._quiet) for chunk in self._scanner.tail()]


class ReasoningBlock(Card, eq=False, kw_only=True):
    """The model's reasoning; `seconds` and `tokens` are set once it is complete."""

    content: StreamedText
    streaming: bool = False
    seconds: float | None = None
    tokens: int | None = None

    @property
    @override
    def plain_text(self) -> str:
        """The reasoning so far; some providers send none."""
        return str(self.content)

    @property
    @override
    def can_open(self) -> bool:
        return bool(self.plain_text)

    @property
    @override
    def code(self) -> list[str]:
        return fenced_code(self.plain_text)

    @override
    def sections(self) -> list[Section]:
        return self._divided(ProseSections(quiet=True))

    @override
    def divider(self) -> Callable[[], list[Section]]:
        growing = ProseSections(quiet=True)
        return lambda: self._divided(growing)

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return 1 + (0 if collapsed else estimate_lines(len(self.plain_text), self.plain_text.count("\n"), width))

    def _divided(self, growing: ProseSections) -> list[Section]:
        header = Section(partial(_draw_header, self))
        return [header] if self.collapsed else [header, *growing.update(self.plain_text)]


def _draw_header(block: ReasoningBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    parts = [f"Thinking{glyphs.ellipsis}" if block.streaming else "Thought"]
    if block.seconds is not None and block.seconds >= 1:
        parts[0] = f"Thought for {duration(block.seconds)}"
    if block.tokens and not block.collapsed:
        parts.append(f"{compact_count(block.tokens)} tokens")
    sign = (glyphs.closed if block.collapsed else glyphs.opened) if block.can_open else glyphs.dot
    label = fit(f" {glyphs.dot} ".join(parts), max(1, width - GUTTER - 2), glyphs.ellipsis)
    gutter = Run(" " * GUTTER, palette.base)
    return [make_line([gutter, Run(f"{sign} ", palette.faint), Run(label, palette.faint)], header=True)]


def _section(chunk: Chunk, *, quiet: bool) -> Section:
    breaks = chunk.text.count("\n") + chunk.gap
    return Section(partial(_draw, chunk, quiet), len(chunk.text), breaks)


def _draw(chunk: Chunk, quiet: bool, width: int, look: Look) -> list[Line]:
    if quiet:
        margin = Segment(" " * _QUIET_INDENT, look.palette.base)
        inner = _draw(chunk, False, max(1, width - _QUIET_INDENT), look.quiet())
        return [
            structs.replace(
                line,
                segments=(margin, *line.segments),
                width=line.width + _QUIET_INDENT,
                gutter=line.gutter + _QUIET_INDENT,
            )
            for line in inner
        ]
    lines = [blank_line(look.palette.base)] if chunk.gap else []
    match chunk.kind:
        case Kind.CODE:
            lines += paint_code(chunk.text, chunk.language, width, look)
        case Kind.MARKDOWN:
            lines += paint_markdown(chunk.text, width, look)
        case Kind.PLAIN:
            before = (Run(" " * GUTTER, look.palette.base),)
            lines += wrap([Run(chunk.text, look.palette.base)], width, first=before, rest=before)
            if chunk.joined:
                lines[-1] = structs.replace(lines[-1], ending="")
        case _:
            assert_never(chunk.kind)
    return lines


def fenced_code(text: str) -> list[str]:
    """The code in each fence of a Markdown text; an unclosed fence reaches to the end."""
    return [_outdented(found["code"].removesuffix("\n")) for found in _FENCE.finditer(text)]


def _outdented(code: str) -> str:
    lines = code.split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)
