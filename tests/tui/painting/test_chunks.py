"""Where Markdown is cut while it arrives: at what can never become another thing, and at sizes."""

import pytest

from tui_agent.tui.painting.chunks import Chunk, ChunkScanner


def _cut(text: str) -> list[Chunk]:
    scanner = ChunkScanner()
    return [*scanner.feed(text), *scanner.tail()]


def _name(chunk: Chunk) -> str:
    """The kind's letter and language, - without a gap before it, + if the next goes on with its line."""
    return f"{chunk.kind.name[0]}{'-' * (not chunk.gap)}{'+' * chunk.joined}{chunk.language}"


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("a\nb\n\nc", ["M-a\nb", "Mc"]),
        ("\n  \na\n\n\nb\n", ["M-a", "Mb"]),
        ("- a\n\n  b\n- c\n\nd", ["M-- a\n\n  b\n- c", "Md"]),
        ("- a\n\n    b\n\n   c", ["M-- a\n\n    b\n\n   c"]),
        ("1. a\n\n   b\n\n  c", ["M-1. a\n\n   b", "M  c"]),
        ("10) a\n\n    b\n\n   c", ["M-10) a\n\n    b", "M   c"]),
        ("- a\n\n- b\n\n\n- c", ["M-- a\n\n- b\n\n\n- c"]),
        ("-     a\n\n  b\n\nc", ["M--     a\n\n  b", "Mc"]),
        ("-    a\n\n     b\n\n    c", ["M--    a\n\n     b\n\n    c"]),
        ("-    a\n\n   b", ["M--    a", "M   b"]),
        ("-\n\n  b", ["M--\n\n  b"]),
        ("- a\nlazy\n# h", ["M-- a\nlazy", "M# h"]),
        ("- a\n***\nb", ["M-- a", "M***\nb"]),
        ("- a\n> q", ["M-- a", "M> q"]),
        ("    code\n\n    more\n\ntext", ["M-    code\n\n    more", "Mtext"]),
        ("    - no item\n\nb", ["M-    - no item", "Mb"]),
        ("a\n```py\nx\n```\nb", ["M-a", "Cpyx", "Mb"]),
        ("~~~\nx\n```\n~~~~\ny", ["C-x\n```", "My"]),
        ("```js  x\n1\n```\n\n```\n2", ["C-js1", "C2"]),
        ("````\n```\n  ````\na", ["C-```", "Ma"]),
        ("```\n```", ["C-"]),
        ("  ```\n    x\n y\n  ```", ["C-  x\ny"]),
        ("```a`b\nx", ["M-```a`b\nx"]),
        ("- a\n  ```\n  x\n\n  y\n  ```\n  b\n\nc", ["M-- a\n  ```\n  x\n\n  y\n  ```\n  b", "Mc"]),
        ("- ```\n  - x\n\n  # y\n  ```\n\n# z", ["M-- ```\n  - x\n\n  # y\n  ```", "M# z"]),
        ("- a\n  ```\n  x\n# h", ["M-- a\n  ```\n  x", "M# h"]),
        ("- a\n```\nx\n```", ["M-- a", "Cx"]),
    ],
)
def test_where_an_answer_is_cut(text: str, chunks: list[str]) -> None:
    assert [_name(chunk) + chunk.text for chunk in _cut(text)] == chunks
    scanner = ChunkScanner()
    letter_by_letter = [chunk for letter in text for chunk in scanner.feed(letter)]
    assert [*letter_by_letter, *scanner.tail()] == [*letter_by_letter, *scanner.tail()] == _cut(text)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (f"{'x' * 99}\n" * 61, ["M-6099"]),
        (f"{'x' * 99}\n" * 62, ["M-6099", "M-99"]),
        (f"{'x' * 199}\n" * 30 + "y", ["M-6001"]),
        (f"{'x' * 199}\n" * 30 + "\ny", ["M-5999", "M1"]),
        (f"- {'x' * 97}\n" * 15 + "- y", ["M-1503"]),
        (f"- {'x' * 97}\n" * 16 + "- y", ["M-1599", "M-3"]),
        (f"- {'x' * 97}\n" * 16 + "  - y\n\n  z", ["M-1610"]),
        (f"- {'x' * 97}\n" * 16 + "- y\n\n  z\n\nend", ["M-1599", "M-8", "M3"]),
        ("|a|\n|-|\n" + f"|{'x' * 97}|\n" * 25, ["M-2507"]),
        ("|a|\n|-|\n" + f"|{'x' * 97}|\n" * 26, ["M-2507", "M107"]),
        ("|a|\n|-\n" + f"|{'x' * 97}|\n" * 26, ["M-2606"]),
        (f"|{'x' * 2_600}|\n|-|\n|y|", [f"M-{2_602 + 8}"]),
        ("x" * 6_000 + "\ny", ["M-6000", "M-1"]),
        ("a\n" + "x" * 6_001 + "\ny", ["M-1", "P+4000", "P-2001", "M1"]),
        ("x" * 8_000, ["P-+4000", "P-4000"]),
        ("```\n" + "1\n" * 81 + "```\na", ["C-79", "C-79", "C-1", "M1"]),
        ("```\n" + "1\n" * 80 + "```", ["C-79", "C-79"]),
        ("```\n" + f"{'x' * 3_000}\n" * 3 + "```", ["C-9002"]),
        ("```\n" + f"{'x' * 3_001}\n" * 3 + "```", ["C-6003", "C-3001"]),
    ],
)  # fmt: skip
def test_what_is_long_is_cut_at_a_size(text: str, sizes: list[str]) -> None:
    assert [f"{_name(chunk)}{len(chunk.text)}" for chunk in _cut(text)] == sizes
