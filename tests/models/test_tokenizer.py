"""The tokenizer whose ranks are on disk."""

import base64
from hashlib import sha1, sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tui_agent.context.counting import Tokenizer
from tui_agent.models.tokenizer import CHUNK_CHARS, VOCABULARIES, Vocabulary, load_tokenizer

PATTERN = VOCABULARIES[0].pattern
URL = "https://ranks.invalid/tiny.tiktoken"


def tiny(folder: Path, *, damaged: bool = False) -> Vocabulary:
    """A vocabulary of all bytes and a few merges, where tiktoken would have cached them."""
    tokens = [bytes([number]) for number in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor"]
    data = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / sha1(URL.encode(), usedforsecurity=False).hexdigest()).write_bytes(
        data[: data[:-1].rindex(b"\n") + 1] if damaged else data
    )
    return Vocabulary("tiny", URL, sha256(data).hexdigest(), PATTERN)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    found = load_tokenizer([tiny(tmp_path)], tmp_path)
    assert found is not None
    return found


def test_ranks_are_found_under_their_names_and_only_if_they_are_what_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert load_tokenizer() is None
    assert list(tmp_path.iterdir()) == []
    ranks = tiny(tmp_path, damaged=True)
    assert load_tokenizer([ranks]) is None
    assert len(list(tmp_path.iterdir())) == 1
    found = load_tokenizer([Vocabulary("missing", "https://ranks.invalid/other", "0", PATTERN), tiny(tmp_path)])
    assert found is not None
    assert found.name == "tiny"
    assert found.count("hello world") == 4
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert load_tokenizer([ranks]) is None


@pytest.mark.parametrize("ranks", VOCABULARIES, ids=lambda ranks: ranks.name)
def test_known_ranks_are_those_of_tiktoken(ranks: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def record(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    public = import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", record)
    made: dict[str, Any] = getattr(public, ranks.name)()
    assert asked == [(ranks.url, ranks.sha256)]
    assert made["pat_str"] == ranks.pattern


def test_long_texts_are_counted_in_bounded_time(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("a" * 100_000) == 100_000
    assert tokenizer.count("é" * CHUNK_CHARS * 3) == 2 * CHUNK_CHARS * 3
    huge = "hello world\n" * 500_000
    assert tokenizer.count(huge) == pytest.approx(5 * 500_000, rel=0.01)
