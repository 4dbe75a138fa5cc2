"""What counts as an exact mention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.context.mentions import Kind, Mention, count_mentions, mentions


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("see src/app/main.py:120: here", "path", "src/app/main.py"),
        ("in `pyproject.toml`, and", "path", "pyproject.toml"),
        ("read /etc/hosts.", "path", "/etc/hosts"),
        ("under ~/.config/x", "path", "~/.config/x"),
        (r"open C:\Users\me\notes.txt now", "path", r"C:\Users\me\notes.txt"),
        ("call parse_header(x)", "name", "parse_header"),
        ("class HttpServer:", "name", "HttpServer"),
        ("tui_agent.context.facts says", "name", "tui_agent.context.facts"),
        ("std::vector<int>", "name", "std::vector"),
        ("pass --no-compact", "name", "--no-compact"),
        ("set $HOME first", "name", "$HOME"),
        ("ticket a-42 is", "name", "a-42"),
        ("raises KeyError: 'x'", "error", "KeyError"),
        ("ruff says E501 there", "error", "E501"),
        ("got ENOENT", "error", "ENOENT"),
        ("waits 250 ms then", "number", "250 ms"),
        ("a cache of 512 MB.", "number", "512 MB"),
        ("about 1,048,576 of", "number", "1,048,576"),
        ("at 85% now", "number", "85%"),
        ("port 8080", "number", "8080"),
        ("needs textual 8.2.8.", "number", "8.2.8"),
        ("see https://example.org/a?b=c#d.", "link", "https://example.org/a?b=c#d"),
        ("commit 61cab27 broke", "hash", "61cab27"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "hash", "550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_finds(text: str, kind: Kind, found: str) -> None:
    assert Mention(kind, found) in count_mentions(text)


@pytest.mark.parametrize(
    "text", ["plain English and/or prose, e.g. this.", "1. first\n2. second", "well-known", "--- ... ::"]
)
def test_prose_mentions_nothing(text: str) -> None:
    assert mentions(text) == set()


def test_counts_every_use() -> None:
    assert count_mentions("foo_bar, (foo_bar) and foo_bar.")[Mention("name", "foo_bar")] == 3


@given(st.text())
def test_any_text_is_read_the_same_twice_and_each_mention_stands_in_it(text: str) -> None:
    found = mentions(text)
    assert found == mentions(text)
    assert all(mention in text for mention in found)
