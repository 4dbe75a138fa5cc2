"""The tokenizer whose ranks are on disk."""

import base64
from hashlib import sha1, sha256
from importlib import import_module
from pathlib import Path

import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe

from tui_agent.context.counting import Tokenizer
from tui_agent.models.tokens import CHUNK_CHARS, RANKS, Ranks, load_tokenizer

URL = "https://ranks.invalid/tiny.tiktoken"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """An encoding of all bytes and a few merges, known to tiktoken, with its ranks in tiktoken's cache."""
    tokens = [bytes([number]) for number in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor"]
    data = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / sha1(URL.encode(), usedforsecurity=False).hexdigest()).write_bytes(data)
    ranks = Ranks("tiny", URL, sha256(data).hexdigest())
    pattern = r" ?\w+|\s+|[^\s\w]+"

    def made() -> dict[str, object]:
        read = load_tiktoken_bpe(ranks.url, ranks.sha256)
        return {"name": "tiny", "pat_str": pattern, "mergeable_ranks": read, "special_tokens": {}}

    tiktoken.list_encoding_names()  # which finds the others first
    monkeypatch.setitem(import_module("tiktoken.registry").ENCODING_CONSTRUCTORS, "tiny", made)
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    return ranks


@pytest.fixture
def tokenizer(tiny: Ranks) -> Tokenizer:
    found = load_tokenizer([tiny])
    assert found is not None
    return found


def test_ranks_are_found_under_their_names_and_only_if_they_are_what_they_should_be(
    tiny: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_tokenizer() is None
    found = load_tokenizer([Ranks("missing", "https://ranks.invalid/other", "0"), tiny])
    assert found is not None
    assert found.name == "tiny"
    assert found.count("hello world") == 4
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert load_tokenizer([tiny]) is None
    assert list(tmp_path.iterdir()) == [kept]  # left as it was, and nothing downloaded
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert load_tokenizer([tiny]) is None


@pytest.mark.parametrize("ranks", RANKS, ids=lambda ranks: ranks.encoding)
def test_known_ranks_are_those_of_tiktoken(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def record(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    public = import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", record)
    getattr(public, ranks.encoding)()
    assert asked == [(ranks.url, ranks.sha256)]


def test_long_texts_are_counted_in_bounded_time(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("a" * 100_000) == 100_000
    assert tokenizer.count("é" * CHUNK_CHARS * 3) == 2 * CHUNK_CHARS * 3
    huge = "hello world\n" * 500_000
    assert tokenizer.count(huge) == pytest.approx(5 * 500_000, rel=0.01)
