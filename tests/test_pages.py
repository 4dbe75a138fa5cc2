"""The pages are whole: links, anchors, pictures and named files are there, no table loses a cell, and the index leads
to every page."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
INDEX = ROOT / "docs" / "index.md"
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
REPOSITORY = re.compile(r"(?:tests|docs|snapshots|tui_agent|styles)/[\w./-]*\w")
"""What reads as a file of this repository."""


def tokens_of(markdown: str) -> Iterator[Token]:
    for token in MarkdownIt().enable("table").parse(markdown):
        yield token
        yield from token.children or ()


def links_in(markdown: str) -> Iterator[str]:
    """Where links and pictures lead that name no other site."""
    for token in tokens_of(markdown):
        target = str(token.attrs.get("href", token.attrs.get("src", "")))
        if target and not re.match(r"[a-z]+:", target):
            yield target


def anchors_in(markdown: str) -> set[str]:
    """The names of the headings, as GitHub and the generator make them."""
    tokens = list(tokens_of(markdown))
    headings = (after for before, after in pairwise(tokens) if before.type == "heading_open")
    said = ("".join(part.content for part in heading.children or ()) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in said}


def torn_rows(markdown: str) -> list[str]:
    """The rows of tables with more or fewer cells than the head: within a cell, `|` is written with a backslash."""
    torn: list[str] = []
    cells = 0
    for line in markdown.splitlines():
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        torn += [line] if cells and found not in (0, cells) else []
        cells = found and (cells or found)
    return torn


def broken(page: Path, markdown: str) -> list[str]:
    """The links of `page` that lead nowhere, and the files of this repository that it names and that are not there."""
    wrong = []
    for link in links_in(markdown):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        text = target.read_text(encoding="utf-8") if name and anchor and target.is_file() else markdown
        if (name and not target.exists()) or (anchor and anchor not in anchors_in(text)):
            wrong.append(link)
    named = {token.content for token in tokens_of(markdown) if token.type == "code_inline"}
    files = [name for name in sorted(named) if REPOSITORY.fullmatch(name) and "NAME" not in name]
    return wrong + [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_leads_somewhere_and_its_tables_lose_no_cell(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (broken(page, text), torn_rows(text)) == ([], [])


def test_the_index_leads_to_every_page_and_the_readme_to_the_index() -> None:
    pages = {path.name for path in INDEX.parent.glob("*.md")} - {INDEX.name}
    listed = list(links_in(INDEX.read_text(encoding="utf-8")))
    assert sorted(link for link in listed if link.endswith(".md")) == sorted(pages)
    assert "docs/index.md" in links_in((ROOT / "README.md").read_text(encoding="utf-8"))


def test_a_page_of_the_generator_stays_within_what_it_reads() -> None:
    """A Markdown file outside `docs/` is no page there: it is named, not linked."""
    for page in INDEX.parent.glob("*.md"):
        outside = [link for link in links_in(page.read_text(encoding="utf-8")) if re.match(r"\.\./.*\.md", link)]
        assert outside == [], page.name


def test_what_leads_nowhere_and_what_is_torn_is_found() -> None:
    found = broken(INDEX.parent / "page.md", "# A `b` (c)\n[up](#a-b-c) [no](#a-b) [x](absent.md) `tests/absent.py`")
    assert found == ["#a-b", "absent.md", "tests/absent.py"]
    assert torn_rows("| a | b |\n|---|---|\n| `x|y` | 1 |\n| `x\\|y` | 1 |\n") == ["| `x|y` | 1 |"]
