"""Source code as painted lines: highlighted, on a tinted ground, without a frame."""

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import structs
from rich.segment import Segment
from rich.style import Style

from tui_agent.tui.painting.lines import GUTTER, Line, Run, wrap
from tui_agent.tui.painting.palette import Look, Palette

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

_HIGHLIGHTED_CHARACTERS = 20_000
"""A longer piece of code is shown without colours: a lexer may take seconds on a hostile line."""
_PYTHON_NAME: Final = r"[^\x00-@[-^`{-\x7f][^\x00-/:-@[-^`{-\x7f]*"
"""A letter, an underscore or a character beyond ASCII, then the same or digits."""


def paint_code(code: str, language: str, width: int, look: Look, *, indent: int = GUTTER) -> list[Line]:
    """Highlighted lines of `code`, `indent` cells in, each filled to `width`."""
    palette = look.palette
    before = (Run(" " * indent, palette.base), Run(" ", palette.code))
    painted: list[Line] = []
    for runs in highlight(code, language, palette):
        for line in wrap(runs, width, first=before, rest=before):
            fill = Segment(" " * (width - line.width), palette.code)
            segments = (*line.segments, fill) if fill.text else line.segments
            painted.append(structs.replace(line, segments=segments, width=max(width, line.width)))
    return painted


def highlight(code: str, language: str, palette: Palette) -> list[list[Run]]:
    """The lines of `code` as styled runs; plain when the language is unknown."""
    lexer = _lexer(language) if language and len(code) <= _HIGHLIGHTED_CHARACTERS else None
    if lexer is None:
        return [[Run(line, palette.code)] for line in code.split("\n")]
    lines: list[list[Run]] = [[]]
    for token, value in lexer.get_tokens(code):
        style: Style = getattr(palette, _role(token))
        first, *others = value.split("\n")
        _extend(lines[-1], first, style)
        for text in others:
            lines.append([])
            _extend(lines[-1], text, style)
    # Lexers add a line break at the end.
    return lines[: code.count("\n") + 1]


@lru_cache(maxsize=64)
def language_of(file: str) -> str:
    """The language of a file by its name; empty if unknown."""
    if not file:
        return ""
    from pygments.lexers import find_lexer_class_for_filename

    found = find_lexer_class_for_filename(file)
    return found.aliases[0] if found is not None and found.aliases else ""


def _extend(line: list[Run], text: str, style: Style) -> None:
    if not text:
        return
    if line and line[-1].style is style:
        line[-1] = Run(line[-1].text + text, style)
    else:
        line.append(Run(text, style))


@lru_cache(maxsize=64)
def _lexer(language: str) -> "Lexer | None":
    # Imported here, so that the app starts without Pygments.
    from pygments.lexers import find_lexer_class_by_name
    from pygments.util import ClassNotFound

    try:
        kind = find_lexer_class_by_name(language.lower())
    except ClassNotFound:
        return None
    return (_python() if kind.name == "Python" else kind)(stripnl=False)


@lru_cache(maxsize=1)
def _python() -> "type[Lexer]":
    """Pygments' lexer for Python, except that a name may contain any character beyond ASCII, as it may for Python's own
    tokenizer.

    Pygments lists every letter there is, and these lists take 14 of the 23 ms that compiling the lexer takes.
    """
    from pygments.lexers.python import PythonLexer

    def plainer(rule: object) -> object:
        match rule:
            case (str(expression), *others):
                return expression.replace(PythonLexer.uni_name, _PYTHON_NAME), *others
            case _:
                return rule

    class Python(PythonLexer):
        tokens: ClassVar = {state: [plainer(rule) for rule in rules] for state, rules in PythonLexer.tokens.items()}

    return Python


@lru_cache(maxsize=512)
def _role(token: "_TokenType") -> str:
    """The name of the palette's style for a kind of token."""
    from pygments.token import Token, is_token_subtype

    roles = (
        (Token.Comment, "comment"),
        (Token.Keyword, "keyword"),
        (Token.Literal.String, "string"),
        (Token.Literal.Number, "number"),
        (Token.Name.Function, "name"),
        (Token.Name.Class, "name"),
        (Token.Name.Tag, "keyword"),
        (Token.Name.Decorator, "name"),
        (Token.Generic.Inserted, "added"),
        (Token.Generic.Deleted, "removed"),
    )
    return next((role for kind, role in roles if is_token_subtype(token, kind)), "code")
