"""Jupyter notebooks (nbformat 4) as text made of cells, which is read, searched for `old` and edited like any file.

Each cell begins with a line such as ``=== cell 3 code ===``. What it printed follows behind ``=== output ===``. In an
edited text the number says which cell it was; a cell without a number is new.

The format of the file: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise, product, zip_longest
from typing import Any, Final, cast
from uuid import uuid4

import msgspec
from msgspec import structs

from tui_agent.regex import regex
from tui_agent.text import clean, counted
from tui_agent.tools.base import ToolFailure

MAX_OUTPUT: Final = 4_000
"""Characters of what a cell printed that are shown."""
HOW: Final = (
    "A notebook, shown as cells: edit_file replaces text of this form. A new cell begins with `=== cell code ===` or "
    "`=== cell markdown ===`; deleting a cell's line and text deletes it."
)
"""What the model is told below a notebook."""

_CELL: Final = regex(r"=== cell (?:(\d+) )?(code|markdown|raw) ===")
_OUTPUT: Final = "=== output ==="
_INDENTS: Final = (" ", "  ", "    ", None, "\t", "")
"""Of the layouts in which notebooks are written; None: all on one line."""


class _Part(msgspec.Struct, frozen=True):
    """A cell of a text. number: which it is in the file, from 1; None: a new one. output: None if there is none."""

    number: int | None
    kind: str
    source: str
    output: str | None


class Notebook:
    """A notebook, and its form as `text`."""

    def __init__(self, raw: str, content: dict[str, Any], cells: list[dict[str, Any]]) -> None:
        self._raw, self._content, self._cells = raw, content, cells
        self._spans = _spans_of_cells(raw)
        self._parts = [
            _Part(number, str(cell["cell_type"]), _joined(cell.get("source")), _outputs(cell))
            for number, cell in enumerate(cells, 1)
        ]
        self.text = "".join(map(_written, self._parts))

    @classmethod
    def of(cls, path: str, raw: str) -> "Notebook | None":
        """The notebook in a file; None for anything that has no cells in the form of nbformat 4."""
        if not path.endswith(".ipynb"):
            return None
        try:
            content = json.loads(raw)
            cells = content["cells"]
            notebook = cls(raw, content, cells) if content["nbformat"] == 4 and isinstance(cells, list) else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        # A source with such a line of its own could not be told from a cell's beginning.
        return notebook if notebook is not None and notebook._read(notebook.text) == notebook._parts else None

    def edited(self, text: str) -> str:
        """The whole file for an edited `text`: what a changed cell printed is removed, all else stays as it was.

        Raises ToolFailure if the text has no cells any more, or what a cell printed was edited.
        """
        known = {part.number: part for part in self._parts}
        cells: list[tuple[int | None, dict[str, Any]]] = []
        taken = set()
        for part in self._read(text):
            before = known.get(part.number) if part.number not in taken else None
            if before is None:
                if (part.output or "").strip():
                    raise ToolFailure("What a cell printed cannot be written. Nothing was changed.", "Leave it out.")
                cells.append((None, self._new(part)))
                continue
            taken.add(part.number)
            if part.output not in (None, before.output):
                raise ToolFailure(
                    f"What cell {part.number} printed cannot be edited. Nothing was changed.",
                    "Edit the cell itself, and run it again.",
                )
            cells.append((before.number, self._changed(before, part)))
        return self._as_file(cells)

    def shown(self, text: str) -> str:
        """An edited `text` as it will be read: without what changed cells had printed."""
        known = {part.number: part for part in self._parts}
        return "".join(
            _written(part if known.get(part.number) in (None, part) else structs.replace(part, output=None))
            for part in self._read(text)
        )

    def _read(self, text: str) -> list[_Part]:
        """The cells of a text of this form. Raises ToolFailure for text before the first."""
        parts: list[_Part] = []
        lines: list[str] = []
        header: re.Match[str] | None = None

        def close() -> None:
            if header is not None:
                at = next((index for index, line in enumerate(lines) if line == _OUTPUT + "\n"), len(lines))
                number = int(header[1]) if header[1] else None
                output = "".join(lines[at + 1 :]) if at < len(lines) else None
                parts.append(_Part(number, header[2], "".join(lines[:at]).removesuffix("\n"), output))
            elif any(map(str.strip, lines)):
                raise ToolFailure(
                    "There is text before the first cell. Nothing was changed.",
                    "Begin it with a line `=== cell code ===` or `=== cell markdown ===`.",
                )

        for line in re.findall(r"[^\n]*\n|[^\n]+", text):
            found = _CELL.fullmatch(line.rstrip("\r\n"))
            if found is None:
                lines.append(line)
                continue
            close()
            header, lines = found, []
        close()
        return parts

    def _new(self, part: _Part) -> dict[str, Any]:
        cell: dict[str, Any] = {"cell_type": part.kind}
        if self._content.get("nbformat_minor", 0) >= 5:  # ids came with 4.5
            cell["id"] = uuid4().hex[:8]
        cell |= {"metadata": {}, "source": part.source.splitlines(keepends=True)}
        return cell | _nothing_printed() if part.kind == "code" else cell

    def _changed(self, before: _Part, part: _Part) -> dict[str, Any]:
        cell = dict(self._cells[(before.number or 1) - 1])
        if part.kind != before.kind:
            cell = {name: value for name, value in cell.items() if name not in _nothing_printed()}
            cell["cell_type"] = part.kind
        if part.source != before.source:
            as_lines = isinstance(cell.get("source"), list)
            cell["source"] = part.source.splitlines(keepends=True) if as_lines else part.source
        return cell | _nothing_printed() if part.kind == "code" and part != before else cell

    def _as_file(self, cells: Sequence[tuple[int | None, dict[str, Any]]]) -> str:
        """The file with these cells, each with the number that it had; what stays has the bytes that it has now."""
        raw, spans = self._raw, self._spans
        if not spans:
            whole = {**self._content, "cells": [cell for _, cell in cells]}
            return json.dumps(whole, indent=1, ensure_ascii=False) + "\n" if cells else raw
        written: list[str] = []
        for number, cell in cells:
            model = 0 if number is None else number - 1
            is_same = number is not None and cell == self._cells[model]
            written.append(raw[slice(*spans[model])] if is_same else self._like(model, cell))
        gaps = [raw[before[1] : after[0]] for before, after in pairwise(spans)]
        if len(written) != len(spans):
            lead = raw[: spans[0][0]]
            gaps = [gaps[0] if gaps else f",{lead[len(lead.rstrip()) :]}"] * (len(written) - 1)
        body = "".join(f"{text}{gap}" for text, gap in zip_longest(written, gaps, fillvalue=""))
        return raw[: spans[0][0]] + body + raw[spans[-1][1] :]

    def _like(self, model: int, cell: dict[str, Any]) -> str:
        """A cell as JSON in the layout of another one, or Jupyter's where that has none that is known."""
        end = "\r\n" if "\r\n" in self._raw else "\n"
        as_it_is = self._raw[slice(*self._spans[model])]

        def written(value: dict[str, Any], indent: str | None, *, plain: bool, marks: tuple[str, str] | None) -> str:
            text = json.dumps(value, indent=indent, ensure_ascii=plain, separators=marks)
            return text.replace("\n", f"{end}{2 * (indent or '')}")

        # Before Python 3 a space followed each comma, also at the end of a line.
        for indent, plain, marks in product(_INDENTS, (False, True), (None, (", ", ": "), (",", ":"))):
            if written(self._cells[model], indent, plain=plain, marks=marks) == as_it_is:
                return written(cell, indent, plain=plain, marks=marks)
        return written(cell, " ", plain=False, marks=None)


def _spans_of_cells(raw: str) -> list[tuple[int, int]]:
    """Where each cell begins and ends in the text of a notebook."""
    decode = json.JSONDecoder().raw_decode

    def after(at: int, passing: str = "") -> int:
        """The place after white space, or after this character and white space around it."""
        while raw[at] in " \t\r\n" or (passing and raw[at] == passing):
            passing = passing if raw[at] in " \t\r\n" else ""
            at += 1
        return at

    at, found = after(0, "{"), list[tuple[int, int]]()
    while raw[at] != "}":
        name, at = decode(raw, at)
        at = after(at, ":")
        if name != "cells" or raw[at] != "[":
            at = after(decode(raw, at)[1], ",")
            continue
        at, found = after(at, "["), []
        while raw[at] != "]":
            start = at
            at = decode(raw, start)[1]
            found.append((start, at))
            at = after(at, ",")
        at = after(after(at, "]"), ",")
    return found


def _nothing_printed() -> dict[str, Any]:
    return {"execution_count": None, "outputs": []}


def _written(part: _Part) -> str:
    output = "" if part.output is None else f"{_OUTPUT}\n{part.output}"
    number = "" if part.number is None else f"{part.number} "
    return f"=== cell {number}{part.kind} ===\n{part.source}\n{output}"


def _joined(text: object) -> str:
    """A text of the format: one string, or its lines."""
    return text if isinstance(text, str) else "".join(cast("list[str]", text or []))


def _outputs(cell: dict[str, Any]) -> str | None:
    """What a cell printed, in whole lines; None if nothing."""
    shown = "".join(_ended(clean(_output(each))) for each in cell.get("outputs") or ())
    if not shown:
        return None
    if len(shown) > MAX_OUTPUT:
        left = len(shown) - MAX_OUTPUT
        shown = f"{_ended(shown[: MAX_OUTPUT // 2])}[… {counted(left, 'character')} …]\n{shown[-MAX_OUTPUT // 2 :]}"
    # Nothing printed looks like the beginning of a cell.
    return re.sub(r"^(?==== )", " ", shown, flags=re.MULTILINE)


def _output(output: dict[str, Any]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        return _joined(output.get("text"))
    if kind == "error":
        return "\n".join(map(str, output.get("traceback") or [f"{output.get('ename')}: {output.get('evalue')}"]))
    data = output.get("data") or {}
    pictures = "".join(f"[A picture: {media}.]\n" for media in data if media.startswith("image/"))
    return _ended(_joined(data.get("text/plain"))) + pictures


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
