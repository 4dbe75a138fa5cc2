"""Finding a tool by a description: BM25 over the names, descriptions and argument names of tools.

A package (rank-bm25, bm25s) would pull in numpy for a screenful of code over a few hundred short texts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tui_agent.regex import regex
from tui_agent.system.lenient import decoded
from tui_agent.tools.gate.patterns import words as table
from tui_agent.tools.mcp.known import KnownTool

SATURATION: Final = 1.2
"""BM25's k1: how fast further mentions of a word count less."""
LENGTH: Final = 0.6
"""BM25's b: how much the length of a text lowers its score."""
NAME_WEIGHT: Final = 3
"""How many times a word of the tool's name counts."""
PART_WEIGHT: Final = 2
"""How much a word counts that is only part of a word of the tool's name, such as ``log`` in ``worklog``."""

_PART: Final = 3
_WORD: Final = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "e", "y")
_COMMON: Final = table(
    "a an and are as at be by can do for from get has have how i in into is it its me my of on or our that the their "
    "them there these this to tool tools use used uses using want was we when where who will with you your"
)
_ALIKE: Final = {
    "delete": "remove", "erase": "remove", "drop": "remove", "make": "create", "add": "create", "new": "create",
    "open": "create", "show": "list", "see": "list", "fetch": "read", "retrieve": "read", "view": "read",
    "find": "search", "look": "search", "query": "search", "modify": "update", "change": "update", "edit": "update",
    "folder": "directory", "dir": "directory", "picture": "image", "photo": "image", "mail": "email", "ticket": "issue",
    "pr": "pull", "repo": "repository", "doc": "document", "msg": "message", "post": "send",
    "which": "list", "what": "list", "all": "list", "every": "list",
    "schedule": "calendar",
}  # fmt: skip


class SearchableTool(msgspec.Struct, frozen=True):
    """A tool and its server."""

    server: str
    tool: KnownTool


class Index:
    """A search index of the tools of all servers. A search takes time only for the words of the query."""

    def __init__(self, entries: Iterable[SearchableTool]) -> None:
        self._entries = tuple(entries)
        self._counts = [Counter(_words_of(entry)) for entry in self._entries]
        self._names = ["".join(words(entry.tool.name)) for entry in self._entries]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = max(1.0, sum(self._lengths) / max(1, len(self._lengths)))
        self._holders = Counter(word for counts in self._counts for word in counts)

    def search(self, query: str, limit: int) -> list[SearchableTool]:
        """The best matching tools, best first; none if no word of the query is known."""
        wanted = dict.fromkeys(words(query))
        ranked = sorted(((self._score(place, wanted), -place) for place in range(len(self._entries))), reverse=True)
        return [self._entries[-place] for score, place in ranked[:limit] if score > 0]

    def _score(self, place: int, wanted: Iterable[str]) -> float:
        counts, length = self._counts[place], self._lengths[place]
        score = 0.0
        for word in wanted:
            if count := counts[word] or PART_WEIGHT * (len(word) >= _PART and word in self._names[place]):
                holders = self._holders[word]
                rarity = math.log(1 + (len(self._entries) - holders + 0.5) / (holders + 0.5))
                damped = SATURATION * (1 - LENGTH + LENGTH * length / self._mean)
                score += rarity * count * (SATURATION + 1) / (count + damped)
        return score


def words(text: str) -> list[str]:
    """The stems of a text's words, without common words."""
    found = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word in _COMMON:
            continue
        word = _stem(word)
        found.append(_STEMMED.get(word, word))
    return found


def _words_of(entry: SearchableTool) -> list[str]:
    return [
        *words(entry.server),
        *(words(entry.tool.name) * NAME_WEIGHT),
        *words(entry.tool.description),
        *words(" ".join(_arguments(entry.tool))),
    ]


def _arguments(tool: KnownTool) -> Sequence[str]:
    properties = (decoded(tool.schema, dict[str, object]) or {}).get("properties")
    return [str(name) for name in properties] if isinstance(properties, dict) else ()


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_STEMMED: Final = {_stem(word): _stem(other) for word, other in _ALIKE.items()}
