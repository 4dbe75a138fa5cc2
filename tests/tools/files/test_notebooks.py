"""Notebooks through read_file and edit_file, on files in the forms that Jupyter and editors write."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.tools.support import call
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.editing import EditFile
from tui_agent.tools.files.notebooks import Notebook
from tui_agent.tools.files.reading import ReadFile
from tui_agent.tools.gate.workspace import Workspace

PLOT = {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": ["<Figure>"]}, "metadata": {}}
CELLS: list[dict[str, object]] = [
    {"cell_type": "markdown", "id": "a1", "metadata": {"tags": ["x"]}, "source": ["# Überschrift\n", "| a | b |"]},
    {
        "cell_type": "code",
        "execution_count": 3,
        "id": "b2",
        "metadata": {},
        "outputs": [{"name": "stdout", "output_type": "stream", "text": ["=== cell 9 code ===\n", "2\n"]}, PLOT],
        "source": ["x = 1\n", "print(x + 1)"],
    },
    {"cell_type": "code", "execution_count": None, "id": "c3", "metadata": {}, "outputs": [], "source": []},
]


def notebook(cells: list[dict[str, object]] = CELLS, minor: int = 5) -> dict[str, object]:
    return {"cells": cells, "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": minor}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "study.ipynb"
    file.write_text(json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n")
    return file


def edit(path: Path, **arguments: object) -> list[dict[str, object]]:
    """Edit the notebook, which must be there in the layout that it had; its cells."""
    asyncio.run(call(EditFile(), path.parent, path=path.name, **arguments))
    raw = path.read_text()
    content = json.loads(raw)
    assert raw == json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    cells: list[dict[str, object]] = content["cells"]
    assert content == notebook(cells)
    return cells


def test_it_is_read_as_cells(path: Path) -> None:
    text = asyncio.run(call(ReadFile(), path.parent, path=path.name)).text
    assert "1\t=== cell 1 markdown ===\n2\t# Überschrift\n" in text
    assert "\t=== output ===\n8\t === cell 9 code ===\n9\t2\n10\t<Figure>\n11\t[A picture: image/png.]\n" in text
    assert "aGk=" not in text
    assert "edit_file" in text


def test_a_changed_cell_loses_what_it_printed_and_nothing_else_changes(path: Path) -> None:
    first, second, third = edit(path, old="print(x + 1)", new="print(x + 2)")
    assert (first, third) == (CELLS[0], CELLS[2])
    assert second == CELLS[1] | {"source": ["x = 1\n", "print(x + 2)"], "outputs": [], "execution_count": None}


def test_cells_are_added_moved_retyped_and_deleted(path: Path) -> None:
    cells = edit(path, old="=== cell 2 code ===", new="=== cell code ===\nimport os\n=== cell 2 code ===")
    assert cells[0] == CELLS[0]
    assert cells[2:] == CELLS[1:]
    assert cells[1]["id"] not in {"a1", "b2", "c3"}
    assert cells[1] == CELLS[2] | {"source": ["import os"], "id": cells[1]["id"]}
    cells = edit(path, old="=== cell 4 code ===\n\n", new="")
    assert [cell.get("id") for cell in cells][::2] == ["a1", "b2"]
    cells = edit(path, old="=== cell 2 code ===\nimport os", new="=== cell 2 markdown ===\nimport os")
    assert (cells[1]["cell_type"], "outputs" in cells[1]) == ("markdown", False)
    cells = edit(path, old="=== cell 2 markdown ===", new="=== cell 2 markdown ===\nfirst\n=== cell 2 markdown ===")
    assert [cell["source"] for cell in cells[1:3]] == [["first"], ["import os"]]
    assert len({str(cell["id"]) for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<Figure>", "<Picture>", "printed"),
        ("=== cell 1 markdown ===", "", "before the first cell"),
        ("no", "y", "not in"),
        ("=== cell 3", "=== cell code ===\n1\n=== output ===\n1\n=== cell 3", "What a cell printed cannot be written"),
    ],
)
def test_what_cannot_be_edited_is_refused_and_the_file_stays(path: Path, old: str, new: str, words: str) -> None:
    before = path.read_bytes()
    arguments = json.dumps({"path": path.name, "old": old, "new": new})
    assert words in EditFile().preview(arguments, Workspace(path.parent)).failure[0]
    with pytest.raises(ToolFailure, match=words):
        asyncio.run(call(EditFile(), path.parent, path=path.name, old=old, new=new))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ({"traceback": ["\x1b[31mline 1", "ValueError: no"]}, "line 1\nValueError: no\n"),
        ({"ename": "ValueError", "evalue": "no"}, "ValueError: no\n"),
    ],
)
def test_an_error_that_a_cell_ended_with_is_shown(printed: dict[str, object], shown: str) -> None:
    cell = {**CELLS[1], "outputs": [{"output_type": "error", **printed}]}
    found = Notebook.of("a.ipynb", json.dumps(notebook([cell])))
    assert found is not None
    assert found.text.endswith(f"=== output ===\n{shown}")


def test_a_notebook_without_cells_gets_its_first_one() -> None:
    raw = json.dumps(notebook([], minor=4))
    found = Notebook.of("a.ipynb", raw)
    assert found is not None
    assert found.edited(found.text) == raw
    written = found.edited("=== cell markdown ===\nfirst\n")
    first: dict[str, object] = {"cell_type": "markdown", "metadata": {}, "source": ["first"]}
    assert written == json.dumps(notebook([first], minor=4), indent=1) + "\n"


ODD = json.dumps(notebook(), indent=1).replace('"nbformat"', ' "nbformat"').replace('"tags": [', '"tags":[', 1)


LAYOUTS = [
    *(json.dumps(notebook(), indent=indent) for indent in (None, 1, 3, 4)),
    json.dumps(notebook(), indent=2, ensure_ascii=False) + "\n",
    json.dumps(notebook(), indent=1, separators=(", ", ": ")),
    json.dumps(notebook(), separators=(",", ":")) + "\n",
    ODD,
    ODD.replace("\n", "\r\n") + "\r\n\r\n",
]


@pytest.mark.parametrize("raw", LAYOUTS)
def test_in_any_layout_all_but_the_changed_cell_stays_byte_for_byte(raw: str) -> None:
    found = Notebook.of("a.ipynb", raw)
    assert found is not None
    assert found.edited(found.text) == raw
    changed = found.edited(found.text.replace("print(x + 1)", "print(x + 2)"))
    before, after = raw.index("| a | b |"), raw.index("c3")
    assert changed[:before] == raw[:before]
    assert changed.endswith(raw[after:])
    assert json.loads(changed)["cells"][1]["source"] == ["x = 1\n", "print(x + 2)"]
    end = found.text.index("=== cell 2")
    for text, kept in (
        (found.text[end:], CELLS[1:]),
        (found.text[end:] + found.text[:end], [*CELLS[1:], CELLS[0]]),
        (found.text[:end], CELLS[:1]),
        ("", []),
    ):
        assert json.loads(found.edited(text)) == notebook(kept)
    more = found.edited(found.text[:end] + "=== cell code ===\n1\n")
    assert [cell["source"] for cell in json.loads(more)["cells"]] == [CELLS[0]["source"], ["1"]]
    assert ("\r\n" in raw) == ("\r\n" in more)
    assert more.replace("\r\n", "").count("\n") in (0, more.count("\n"))


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "[]",
        "{",
        '{"nbformat": 3, "worksheets": []}',
        '{"nbformat": 4, "cells": 7}',
        '{"nbformat": 4, "cells": {}}',
        '{"nbformat": 4, "cells": [{}]}',
        json.dumps(notebook([CELLS[2] | {"source": "=== cell raw ==="}])),
    ],
)
def test_anything_else_is_read_as_what_it_is(raw: str) -> None:
    assert Notebook.of("a.ipynb", raw) is None
