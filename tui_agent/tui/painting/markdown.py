"""One chunk of Markdown as painted lines."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.style import Style

from tui_agent.text import clean
from tui_agent.tui.painting.code import paint_code
from tui_agent.tui.painting.lines import GUTTER, Line, Run, blank_line, make_line, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.tables import Cell, paint_table

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MAX_INDENT = 24
_STRIKE = Style(strike=True)
_BOLD = Style(bold=True)
_ITALIC = Style(italic=True)


def paint_markdown(source: str, width: int, look: Look) -> list[Line]:
    """The lines of a chunk at a width. HTML is shown as plain text; a link shows its address."""
    painter = _Painter(width, look)
    painter.paint(_parser().parse(source))
    return painter.lines


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    # Imported here, not when the app starts: it takes as long to import as the whole pane.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable(["reference", "html_block", "html_inline"])


class _Level(Struct):
    """Decoration before the lines inside a list item or a quote: `first` once, then `rest`."""

    first: tuple[Run, ...]
    rest: tuple[Run, ...]
    quote: bool = False
    used: bool = False


class _List(Struct):
    number: int | None

    def marker(self, bullet: str) -> str:
        if self.number is None:
            return f"{bullet} "
        self.number += 1
        return f"{self.number - 1}. "


class _Painter(Struct):
    width: int
    look: Look
    lines: list[Line] = []
    levels: list[_Level] = []
    lists: list[_List] = []
    heading: bool = False
    previous: str = ""

    def paint(self, tokens: "Sequence[Token]") -> None:
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.level == 0 and token.nesting >= 0:
                self._space_before(token.type)
            if token.type == "table_open":
                position = self._table(tokens, position)
                continue
            self._one(token)
            position += 1

    def _one(self, token: "Token") -> None:
        palette, glyphs = self.look.palette, self.look.glyphs
        match token.type:
            case "heading_open":
                self.heading = True
            case "heading_close":
                self.heading = False
            case "inline":
                style = palette.heading if self.heading else palette.quote if self._quoted else palette.base
                for runs in inline_runs(token.children or (), style, self.look):
                    self._emit(_with_checkbox(runs, self.look) if self.lists else runs)
            case "fence" | "code_block":
                self._code(token)
            case "hr":
                self._emit([Run(glyphs.rule * min(24, self._room), palette.faint)])
            case "bullet_list_open":
                self.lists.append(_List(None))
            case "ordered_list_open":
                self.lists.append(_List(int(token.attrs.get("start", 1))))
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
            case "list_item_open":
                marker = self.lists[-1].marker(glyphs.bullet)
                self._open(Run(marker, palette.accent), Run(" " * len(marker), palette.base))
            case "blockquote_open":
                bar = Run(f"{glyphs.quote} ", palette.faint)
                self._open(bar, bar, quote=True)
            case "list_item_close":
                if not self.levels[-1].used:
                    self._emit([Run("", self.look.palette.base)])
                self.levels.pop()
            case "blockquote_close":
                self.levels.pop()

    @property
    def _quoted(self) -> bool:
        return any(level.quote for level in self.levels)

    @property
    def _room(self) -> int:
        taken = sum(len(run.text) for level in self.levels for run in level.rest)
        return max(1, self.width - GUTTER - taken)

    def _open(self, first: Run, rest: Run, *, quote: bool = False) -> None:
        if self._room <= _MAX_INDENT // 2:
            first = rest = Run("", self.look.palette.base)
        self.levels.append(_Level((first,), (rest,), quote))

    def _space_before(self, kind: str) -> None:
        """A blank line between the parts of a chunk, but not between a paragraph and the list it introduces."""
        introduces = self.previous == "paragraph_open" and kind in ("bullet_list_open", "ordered_list_open")
        if kind == "inline":
            return
        if self.lines and not introduces:
            self.lines.append(blank_line(self.look.palette.base))
        self.previous = kind

    def _prefixes(self) -> tuple[list[Run], list[Run]]:
        gutter = Run(" " * GUTTER, self.look.palette.base)
        first, rest = [gutter], [gutter]
        for level in self.levels:
            first.extend(level.rest if level.used else level.first)
            rest.extend(level.rest)
            level.used = True
        return first, rest

    def _emit(self, runs: Sequence[Run]) -> None:
        first, rest = self._prefixes()
        self.lines.extend(wrap(runs, self.width, first=first, rest=rest))

    def _code(self, token: "Token") -> None:
        if any(not level.used for level in self.levels):
            self._emit([Run("", self.look.palette.base)])
        indent = self.width - self._room
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        self.lines.extend(paint_code(token.content.rstrip("\n"), language, self.width, self.look, indent=indent))

    def _table(self, tokens: "Sequence[Token]", position: int) -> int:
        rows: list[list[Cell]] = []
        while tokens[position].type != "table_close":
            token = tokens[position]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                opening = tokens[position - 1]
                style = self.look.palette.strong if opening.type == "th_open" else self.look.palette.base
                runs = next(inline_runs(token.children or (), style, self.look), [])
                rows[-1].append(Cell(tuple(runs), right="right" in str(opening.attrs.get("style", ""))))
            position += 1
        first, rest = self._prefixes()
        for number, row in enumerate(paint_table(rows, self._room, self.look)):
            self.lines.append(make_line([*(rest if number else first), *row]))
        return position + 1


def inline_runs(tokens: "Sequence[Token]", base: Style, look: Look) -> Iterator[list[Run]]:
    """The runs of a paragraph, one list for each line between hard breaks."""
    palette = look.palette
    line: list[Run] = []
    styles = [base]
    links: list[tuple[str, int]] = []
    for token in tokens:
        match token.type:
            case "text":
                line.append(Run(_plain(token.content), styles[-1]))
            case "code_inline":
                line.append(Run(_plain(token.content), palette.inline_code))
            case "softbreak":
                line.append(Run(" ", styles[-1]))
            case "hardbreak":
                yield line
                line = []
            case "strong_open":
                styles.append(styles[-1] + _BOLD)
            case "em_open":
                styles.append(styles[-1] + _ITALIC)
            case "s_open":
                styles.append(styles[-1] + _STRIKE)
            case "link_open":
                links.append((str(token.attrs.get("href", "")), len(line)))
                styles.append(palette.link)
            case "link_close":
                styles.pop()
                target, start = links.pop()
                shown = "".join(run.text for run in line[start:])
                if not _is_address(shown, target):
                    line.append(Run(f" ({_plain(target)})", palette.faint))
            case "strong_close" | "em_close" | "s_close":
                styles.pop()
            case "image":
                line.append(Run(f"[image: {_plain(token.content)}]", palette.muted))
            case _:
                line.append(Run(_plain(token.content), styles[-1]))
    yield line


def _is_address(shown: str, target: str) -> bool:
    """Whether a link's text is its address, apart from the scheme: any other text could name another place."""
    return target.rstrip("/") in {scheme + shown.rstrip("/") for scheme in ("", "https://", "http://", "mailto:")}


def _plain(text: str) -> str:
    """Text decoded from HTML entities, which may hold control characters: clean it again."""
    return clean(text).replace("\n", " ")


def _with_checkbox(runs: list[Run], look: Look) -> list[Run]:
    if not runs:
        return runs
    text, style = runs[0]
    if text.startswith("[ ] "):
        return [Run(f"{look.glyphs.unchecked} {text[4:]}", style), *runs[1:]]
    if text.startswith(("[x] ", "[X] ")):
        return [Run(f"{look.glyphs.checked} {text[4:]}", style), *runs[1:]]
    return runs
