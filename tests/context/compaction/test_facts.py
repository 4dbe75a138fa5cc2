"""What a summary must not lose."""

import re
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tui_agent.context.compaction.facts import (
    HEADING,
    PIECE_CHARS,
    Fact,
    Kind,
    Source,
    Speaker,
    collect,
    count_mentions,
    listing,
    mentions,
    missing,
    piece_bounds,
    without_listing,
)
from tui_agent.context.counting import estimate
from tui_agent.conversation.sizes import size_of_text

WHERE = "conversation_history/main.md"
SPEAKERS: list[Speaker] = ["user", "assistant", "tool"]


def written(sources: list[Source], summary: str = "", limit: int = 4_000) -> str:
    return listing(missing(collect(sources), summary), limit=limit, tokens_of=estimate, where=WHERE)


def test_what_the_summary_says_is_not_said_again() -> None:
    sources = [Source("tool", "src/a.py and src/b.py"), Source("user", "Never delete src/b.py.")]
    text = written(sources, "We looked at src/a.py. Never delete\nsrc/b.py. It stays.")
    assert text == ""


def test_what_was_used_often_and_lately_comes_first() -> None:
    sources = [
        Source("tool", "old_name seldom_name"),
        Source("assistant", "used_name"),
        Source("tool", "used_name new_name"),
    ]
    ranked = [mention.text for mention in collect(sources)]
    assert ranked == ["used_name", "new_name", "old_name", "seldom_name"]


def test_the_limit_holds_and_what_is_left_out_is_counted() -> None:
    sources = [Source("tool", " ".join(f"name_{number}" for number in range(5_000)))]
    text = written(sources, limit=500)
    assert estimate(size_of_text(text)) <= 500
    kept = len(re.findall(r"name_\d+", text))
    assert kept > 50
    assert text.endswith(f"{5_000 - kept} more in {WHERE}")


def test_a_list_is_taken_out_of_a_summary_and_what_follows_stays() -> None:
    text = f"# Current state\nfine\n\n{HEADING}\nNames: a_b\n\n# Exact next steps\n1. go"
    assert without_listing(text) == "# Current state\nfine\n\n# Exact next steps\n1. go"


@given(st.lists(st.tuples(st.sampled_from(SPEAKERS), st.text(max_size=80)), max_size=6), st.integers(0, 400))
@settings(deadline=None, max_examples=examples(10))
def test_every_fact_is_listed_or_counted(said: list[tuple[Speaker, str]], limit: int) -> None:
    sources = [Source(speaker, f"{text} planted_{number} must stay") for number, (speaker, text) in enumerate(said)]
    facts = collect(sources)
    text = listing(facts, limit=limit, tokens_of=estimate, where=WHERE)
    more = re.search(rf"^(\d+) more in {re.escape(WHERE)}\Z", text, re.MULTILINE)
    left_out = [mention.text for mention in facts if mention.text not in text]
    assert len(left_out) <= (int(more[1]) if more else 0)
    assert text == listing(collect(sources), limit=limit, tokens_of=estimate, where=WHERE)


def test_line_numbers_of_a_page_are_no_facts() -> None:
    page = "\n".join(f"{number}\tdef func_{number - 9_000}():" for number in range(9_100, 9_106))
    found = {mention.text for mention in collect([Source("tool", page)])}
    assert found == {f"func_{number}" for number in range(100, 106)}


def test_ids_at_the_beginning_of_lines_are_facts() -> None:
    rows = "8213\tone\n8377\ttwo\n9999\tthree"
    found = {mention.text for mention in collect([Source("tool", rows)])}
    assert found == {"8213", "8377", "9999"}


def test_a_small_bare_number_is_a_fact_only_where_it_was_taken_up() -> None:
    result = Source("tool", "103 122 4096 250 ms 1.2.3 85% a-42 KeyError")
    alone = {mention.text for mention in collect([result])}
    assert alone == {"4096", "250 ms", "1.2.3", "85%", "a-42", "KeyError"}
    taken_up = {mention.text for mention in collect([result, Source("assistant", "So it is 122.")])}
    assert taken_up == alone | {"122"}


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
    assert Fact(kind, found) in count_mentions(text)


@pytest.mark.parametrize(
    "text", ["plain English and/or prose, e.g. this.", "1. first\n2. second", "well-known", "--- ... ::"]
)
def test_prose_mentions_nothing(text: str) -> None:
    assert mentions(text) == set()


def test_counts_every_use() -> None:
    assert count_mentions("foo_bar, (foo_bar) and foo_bar.")[Fact("name", "foo_bar")] == 3


@given(st.text())
def test_any_text_is_read_the_same_twice_and_each_mention_stands_in_it(text: str) -> None:
    found = mentions(text)
    assert found == mentions(text)
    assert all(mention in text for mention in found)


_PARTS = (
    *("12", "1,048", "v1.2", "files", "ms", "°C", "a_b", "KeyError", "61cab27", "é", "漢", "٣"),
    *("12 ms", "1,048 files", "a_b 7 °C", "https://a.b/c?d", "C:\\Users\\me", "src/a.py:12", "~/x"),
    *(" ", "\n", "\t", "\xa0", "\u2028", "'", '"', "|", "<", "(", ".", ",", "%"),
)
_LIKELY = st.lists(st.sampled_from(_PARTS), max_size=60).map("".join)


@given(_LIKELY | st.text(), st.integers(1, 40))
@settings(max_examples=examples(200))
def test_pieces_of_a_text_mention_what_the_whole_does(text: str, size: int) -> None:
    whole = count_mentions(text, len(text) + 1)
    assert list(count_mentions(text, size).items()) == list(whole.items())


def test_a_long_text_is_read_in_pieces_that_end_where_no_mention_does() -> None:
    text = 'it took 12 ms, "a_b" ' * 20_000 + "x" * 200_000 + "'" + "y\n" * 100
    bounds = list(piece_bounds(text, PIECE_CHARS))
    assert "".join(text[start:end] for start, end in bounds) == text
    sizes = [end - start for start, end in bounds]
    assert max(sizes[:5]) <= PIECE_CHARS + 20
    assert len(sizes) >= 7
    assert not any(text[end - 3 : end] == "12 " for _, end in bounds)


def test_a_long_word_that_begins_as_a_version_is_judged_at_once() -> None:
    """The time must not double with each character: such words stand in lock files, and none is a version."""
    began = process_time()
    assert mentions("1.2.3-rc1+a1b2 and 1.2.3" + "a1" * 90 + "_") == {"1.2.3-rc1+a1b2"}
    assert process_time() - began < 1
