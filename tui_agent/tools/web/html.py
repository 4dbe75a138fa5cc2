"""Converting a web page to Markdown: what a reader of the page sees, with absolute links.

justhtml parses the page and writes the Markdown. Elements that it would leave as HTML (tables, pictures) or flatten
(definition lists, figures, layout tables) are rewritten first into ones that it knows.

Each page is converted in its own process (this module, run as a script), so that a page made to be slow can be given
up and blocks nothing meanwhile.
"""

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast
from urllib.parse import urljoin

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.own_process import in_own_process

if TYPE_CHECKING:
    from justhtml import Node

TIMEOUT_S = 30.0
"""Seconds a page may take; 5 MB of an ordinary one take about 3."""
MEMORY = 2_000_000_000
"""The most bytes of address space for the process."""

MAX_TITLE = 300
"""The most characters of a page's title."""

_UNSEEN = regex(
    "script|style|noscript|template|svg|canvas|iframe|object|embed|audio|video|map|select|button|input|textarea|datalist"
)
_AS_BLOCKS = {
    "dt": "p",
    "summary": "p",
    "figcaption": "p",
    "legend": "p",
    **dict.fromkeys(("dl", "dd", "figure", "details", "address", "form", "fieldset", "hgroup", "search"), "div"),
}
_TABLE_PARTS = frozenset(("table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th"))
_HIDDEN = regex(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_ANCHOR_MARKS = frozenset(("", "#", "¶", "§", "🔗"))
_LINKED = frozenset(("http", "https", "mailto"))
_LONGEST_CELL = 2_000

# A "<" that begins no tag is text; many of them take the parser quadratic time.
_STRAY = regex(r"<(?![A-Za-z/!?])")

# Markdown written here goes through the converter as a placeholder word of private-use characters, which are first
# removed from the page's source.
_OPEN, _CLOSE = "\ue000", "\ue001"
_WORD = regex(rf"{_OPEN}(\d+){_CLOSE}")


class WebPage(msgspec.Struct, frozen=True):
    """A page's title (one line, may be empty) and its Markdown."""

    title: str
    text: str


async def convert(source: str, url: str, timeout_s: float = TIMEOUT_S) -> WebPage:
    """Convert a page from `url` in another process, which cancelling ends too. Raises ToolFailure."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await in_own_process("tui_agent.tools.web.html", msgspec.json.encode((url, source)))
    except TimeoutError:
        raise _unfit(f"that took longer than {timeout_s:g} seconds") from None
    except OSError as error:
        raise _unfit(error.strerror or str(error)) from error
    try:
        return msgspec.json.decode(answer, type=WebPage)
    except msgspec.DecodeError as error:
        raise _unfit("its markup is too much for the converter") from error


def to_markdown(source: str, url: str) -> WebPage:
    """Convert a page from `url` in this process.

    Slow: about a second for 2 MB, and quadratic for tags nested thousands deep.
    """
    from justhtml import JustHTML

    source = _STRAY.sub("&lt;", source.translate({ord(_OPEN): None, ord(_CLOSE): None}))
    document = JustHTML(source, sanitize=False)
    title, base = _head(document.root, url)
    rewriting = _Rewriting(base)
    rewriting.apply(document.root)
    return WebPage(title, rewriting.restored(document.to_markdown()))


class _Rewriting:
    """Rewrites a tree for the Markdown writer. Relative links start from `base`."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._page = base.partition("#")[0]
        self._written: list[str] = []

    def apply(self, root: "Node") -> None:
        nodes = list(_walk(root))
        outer = {id(table) for node, table in nodes if node.name == "table" and table is not None}
        # From the leaves up: the content of a link or a table must be rewritten first.
        for node, _ in reversed(nodes):
            if _UNSEEN.fullmatch(node.name) or _is_hidden(node):
                _replace_content(node, "")
            elif node.name in _AS_BLOCKS:
                node.name = _AS_BLOCKS[node.name]
            elif node.name == "img":
                self._picture(node)
            elif node.name == "a":
                self._link(node)
            elif node.name == "table":
                rows = [] if id(node) in outer else _rows(node)
                if _is_data(rows):
                    self._table(node, rows)
                else:
                    _unwrap_table(node)

    def restored(self, markdown: str) -> str:
        """`markdown` with the placeholder words replaced by the Markdown they stand for."""
        for number in range(len(self._written)):
            self._written[number] = self._filled(self._written[number])
        return self._filled(markdown)

    def _filled(self, text: str) -> str:
        return _WORD.sub(lambda match: self._written[int(match[1])], text)

    def _word(self, markdown: str) -> str:
        self._written.append(markdown)
        return f"{_OPEN}{len(self._written) - 1}{_CLOSE}"

    def _picture(self, node: "Node") -> None:
        address = _joined(self._base, _attribute(node, "src"))
        alternative = re.sub(r"[\[\]]", "", " ".join(_attribute(node, "alt").split()))
        node.name = "span"
        shown = f"({_destination(address)})" if address.startswith(("http://", "https://")) else ""
        _replace_content(node, self._word(f"![{alternative}]{shown}") if alternative else "")

    def _link(self, node: "Node") -> None:
        address = _joined(self._base, _attribute(node, "href"))
        if address.partition(":")[0].lower() in _LINKED and address.partition("#")[0] != self._page:
            if node.attrs is not None:
                node.attrs["href"] = address
            return
        node.name = "span"
        inside = "".join(_text(inner) for inner, _ in islice(_walk(node), 1, 4))
        if len(node.children or ()) <= 1 and inside.strip() in _ANCHOR_MARKS:
            _replace_content(node, "")

    def _table(self, node: "Node", rows: "list[list[Node]]") -> None:
        cells = [[" ".join(cell.to_markdown().split()).replace("|", "\\|") for cell in row] for row in rows]
        width = max(map(len, cells))
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in cells]
        lines.insert(1, f"|{' --- |' * width}")
        node.name = "p"
        _replace_content(node, self._word("\n".join(lines)))


def _head(root: "Node", url: str) -> tuple[str, str]:
    """The title, and the base address of relative links."""
    title, base = "", url
    for node, _ in _walk(root):
        if node.name == "title" and not title:
            title = " ".join(node.to_text(separator="", strip=False).split())[:MAX_TITLE]
        elif node.name == "base" and base == url:
            base = _joined(url, _attribute(node, "href")) or url
        elif node.name == "body":
            break
    return title, base


def _walk(root: "Node") -> "Iterator[tuple[Node, Node | None]]":
    """Every node in page order, with the table it is in. Texts are nodes too, with a name and data."""
    stack: list[tuple[Node, Node | None]] = [(root, None)]
    while stack:
        node, table = stack.pop()
        yield node, table
        inside = node if node.name == "table" else table
        stack.extend((cast("Node", child), inside) for child in reversed(node.children or ()))


def _rows(table: "Node") -> "list[list[Node]]":
    rows: list[list[Node]] = []
    for node, _ in _walk(table):
        if node.name == "caption" or node.name == "tr":
            rows.append([node] if node.name == "caption" else [])
        elif node.name in {"td", "th"} and rows:
            rows[-1].append(node)
    return [row for row in rows if row and row[0].name != "caption"]


def _is_data(rows: "list[list[Node]]") -> bool:
    """Whether a table contains data, rather than laying out the page."""
    if len(rows) < 2 or max(map(len, rows)) < 2:
        return False
    return all(_length(cell) <= _LONGEST_CELL for row in rows for cell in row)


def _length(cell: "Node") -> int:
    return sum(len(_text(node)) for node, _ in _walk(cell))


def _text(node: "Node") -> str:
    return node.data if node.name == "#text" and isinstance(node.data, str) else ""


def _unwrap_table(table: "Node") -> None:
    stack = [table]
    while stack:
        node = stack.pop()
        if node.name in _TABLE_PARTS:
            node.name = "div"
            stack.extend(cast("list[Node]", node.children or ()))


def _is_hidden(node: "Node") -> bool:
    if node.name.startswith("#") or not node.attrs:
        return False
    return "hidden" in node.attrs or bool(_HIDDEN.search(_attribute(node, "style")))


def _replace_content(node: "Node", text: str) -> None:
    from justhtml import Template, Text

    if node.children is None:
        return
    node.children.clear()
    if isinstance(node, Template):
        node.template_content = None
    if text:
        node.append_child(Text(text))


def _attribute(node: "Node", name: str) -> str:
    return (node.attrs or {}).get(name) or ""


def _joined(base: str, reference: str) -> str:
    """`reference` made absolute; empty if it is not an address."""
    try:
        return urljoin(base, reference.strip())
    except ValueError:
        return ""


def _destination(address: str) -> str:
    return f"<{address}>" if re.search(r"[\s()]", address) else address


def _unfit(reason: str) -> ToolFailure:
    return ToolFailure(
        f"The page could not be turned into text: {reason}.", "Save it with a command such as curl if it is needed."
    )


def main() -> None:
    """Read an address and a page from standard input, and write the title and the Markdown to standard output."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    url, source = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, str])
    sys.stdout.buffer.write(msgspec.json.encode(to_markdown(source, url)))


if __name__ == "__main__":
    main()
