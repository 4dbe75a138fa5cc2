"""From any text to expressions of sqlite's full-text search (sqlite.org/fts5.html) that cannot be misread."""

import re
from collections.abc import Sequence

_GRAM = 3
_MOST_GRAMS = 24
_MOST_WORDS = 32
_WORD_LENGTH = 64
_WORD = re.compile(r"[^\W_]\w*")
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")


def variants(query: str) -> list[str]:
    """What may have been meant by `query`, most literal first: itself, without space around it, without quotes."""
    bare = query.strip()
    found = [query, bare]
    if len(bare) > 2 and any(bare[0] == pair[0] and bare[-1] == pair[1] for pair in _QUOTES):
        found.append(bare[1:-1])
    return [text for text in dict.fromkeys(found) if text]


def grams_expression(text: str) -> str:
    """What every text holds that holds `text`, for a trigram index without positions; empty: nothing can be said."""
    grams = list(dict.fromkeys(text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1)))
    # An expression ends at a NUL, whatever is quoted.
    usable = [gram for gram in grams if "\0" not in gram]
    step = max(len(usable) / _MOST_GRAMS, 1)
    chosen = [usable[int(index * step)] for index in range(min(len(usable), _MOST_GRAMS))]
    return " AND ".join(_quoted(gram) for gram in chosen)


def words_of(query: str) -> list[str]:
    """The distinct words of `query`, each cut to a length it can still be found by; at most the first 32."""
    words = (word[:_WORD_LENGTH] for word in _WORD.findall(query))
    return list({word.casefold(): word for word in words}.values())[:_MOST_WORDS]


def words_expression(words: Sequence[str], operator: str) -> str:
    """Words joined by ``AND`` or ``OR``; each also stands for longer ones it begins."""
    return f" {operator} ".join(f"{_quoted(word)} *" if len(word) >= _GRAM else _quoted(word) for word in words)


def words_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Where one of the words begins."""
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
