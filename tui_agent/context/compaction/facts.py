"""The facts that a summary must not lose: exact names and numbers. Found without a model.

Facts that the source mentions and the summary lacks are appended to it verbatim, most used and newest first, up to a
limit; a line below says how many were left out, and where they are.

A mention is an exact path, name, number, error, link, hash or version. Text is split into words in one pass, and each
distinct word is classified once, so the time is linear in the text (2 MB of source code: about a quarter of a second).
"""

import errno
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from tui_agent.conversation.sizes import TextSize, size_of_text
from tui_agent.regex import regex

Kind: TypeAlias = Literal["path", "name", "error", "number", "link", "hash"]


class Fact(Struct, frozen=True, gc=False):
    """An exact name or number, as it was written. Thousands are cached: the garbage collector need not scan them."""

    kind: Kind
    text: str


Speaker: TypeAlias = Literal["user", "assistant", "tool"]

HEADING: Final = "# Facts kept verbatim"

PIECE_CHARS: Final = 65_536
"""Characters given to one regular expression at a time: it holds the GIL while it runs."""

_LABELS: Final[dict[Kind, str]] = {
    "path": "Paths",
    "name": "Names",
    "error": "Errors",
    "number": "Numbers",
    "link": "Links",
    "hash": "Hashes",
}
_ECHO: Final = regex(r"^#{1,6}\s*facts kept verbatim\b.*?(?=^#|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_LINES: Final = regex(r"^ *(\d+)[\t→].*(?:\n *\d+[\t→].*)*", re.MULTILINE)
_NUMBERED: Final = regex(r"^ *(\d+)[\t→]", re.MULTILINE)
_BARE: Final = regex(r"[-+]?\d{1,3}|[-+]?[\d,]*\.\d+")
_SPOKEN_WEIGHT: Final = 2
_SPOKEN_WORTH: Final[dict[Kind, float]] = {
    "path": 0.8, "name": 1.0, "error": 0.8, "number": 0.5, "link": 0.3, "hash": 0.5
}  # fmt: skip
_REPORTED_WORTH: Final[dict[Kind, float]] = {
    "path": 0.5, "name": 0.8, "error": 0.7, "number": 0.1, "link": 0.1, "hash": 0.1
}  # fmt: skip
"""How likely a fact is needed again, relative to a name that the user or the model has said: as counted on sessions
recorded from four agents.
"""


class Source(msgspec.Struct, frozen=True):
    """A piece of what is summarised, and who said it. Sources are passed oldest first."""

    speaker: Speaker
    text: str


def collect(sources: Sequence[Source]) -> tuple[Fact, ...]:
    """The facts of the sources, ranked by how likely they are needed again for the room they take: by their kind, and
    how recently and how often they were used.

    A use by the user or the model counts as much as two in tool results: what they refer to is likely needed again.
    If only tools mention them, line numbers and, without a unit, fractions and whole numbers below 1,000 are no facts:
    there are many, and alone they mean nothing.
    """
    uses: dict[Fact, int] = {}
    newest: dict[Fact, int] = {}
    spoken: set[Fact] = set()
    for position, source in enumerate(sources):
        weight = _SPOKEN_WEIGHT if source.speaker in ("user", "assistant") else 1
        counted = count_mentions(_LINES.sub(_without_number, source.text) if source.speaker == "tool" else source.text)
        if source.speaker != "tool":
            spoken.update(counted)
        for mention, times in counted.items():
            uses[mention] = uses.get(mention, 0) + times * weight
        newest.update(dict.fromkeys(counted, position))

    def worth(mention: Fact) -> tuple[float, str]:
        recency = (newest[mention] + 1) / len(sources)
        likely = _SPOKEN_WORTH[mention.kind] if mention in spoken else _REPORTED_WORTH[mention.kind]
        room = (len(mention.text) + 3) ** 0.7
        return -likely * math.log2(1 + uses[mention]) * (1 + 3 * recency) / room, mention.text

    meaningful = (
        mention
        for mention in uses
        if mention in spoken or mention.kind != "number" or not _BARE.fullmatch(mention.text)
    )
    return tuple(sorted(meaningful, key=worth))


def missing(facts: Iterable[Fact], summary: str) -> tuple[Fact, ...]:
    """The facts that `summary` lacks."""
    said = mentions(summary)
    return tuple(mention for mention in facts if mention.text not in said)


def listing(facts: Sequence[Fact], *, limit: int, tokens_of: Callable[[TextSize], int], where: str) -> str:
    """The facts as a section for a summary, of at most `limit` tokens; empty if there are none.

    `where`: where to find those left out.
    """
    if not facts:
        return ""
    used = size_of_text(HEADING, *_LABELS.values(), _rest(len(facts), where)).plus(TextSize(ascii=24))
    kept: list[Fact] = []
    passed_over = 0
    for mention in facts:
        larger = used.plus(size_of_text(f"{mention.text}, "))
        if tokens_of(larger) <= limit:
            kept.append(mention)
            used = larger
        else:
            # Skip a fact that is too long, but after many such there is no room for the rest either.
            passed_over += 1
            if passed_over > 20:
                break
    lines = [HEADING]
    for kind, label in _LABELS.items():
        texts = [mention.text for mention in kept if mention.kind == kind]
        if texts:
            lines.append(f"{label}: {', '.join(texts)}")
    left_out = len(facts) - len(kept)
    if left_out:
        lines.append(_rest(left_out, where))
    return "\n".join(lines)


def without_listing(text: str) -> str:
    """A summary without its list of facts, whether we wrote that or a model echoed it."""
    return _ECHO.sub("", text).rstrip()


def _without_number(lines: re.Match[str]) -> str:
    """Lines that each start with a number, without these if they are line numbers, as in a page of a file."""
    numbers = [int(number) for number in _NUMBERED.findall(lines[0])]
    counts = len(numbers) > 1 and all(later == earlier + 1 for earlier, later in pairwise(numbers))
    return _NUMBERED.sub("", lines[0]) if counts else lines[0]


def _rest(count: int, where: str) -> str:
    return f"{count} more in {where}" if where else f"{count} more were left out"


_WORD: Final = regex(r"[\w.$~@/:+#%-]+")
_ESCAPED: Final = regex(r"\\[nrt]")
"""A line break or tab as source code and JSON write it, which is no part of the word behind it."""
_LINK: Final = regex(r"https?://[^\s\"'`<>()\[\]{}|\\^]{2,400}")
_WINDOWS_PATH: Final = regex(r"(?<!\w)[A-Za-z]:\\[^\s\"'`<>|?*:]{2,200}")
_MEASURE: Final = regex(
    r"\d(?<![\w.,]\d)(?:[\d.,]*\d)? (?:[mµn]?s|min|h|[kKMGT]?i?B|[kKMG]?bit|px|[kMGT]?Hz|[mk]?[VW]|[cmk]?m|[mk]?g|°C)\b"
)
_THOUSANDS: Final = regex(r"\d(?<!\d\d)\d{0,2}(?:,\d{3})+(?![\d,])")
_SPECIAL: Final[tuple[tuple[Kind, re.Pattern[str], str, str], ...]] = (
    ("link", _LINK, ".,;:!?", "://"),
    ("path", _WINDOWS_PATH, ".,;!", ":\\"),
    ("number", _MEASURE, "", ""),
    ("number", _THOUSANDS, "", ""),
)
"""Mentions with characters that words lack: what is no part of their end, and what each text with one contains."""
_BREAK: Final = regex(r"[\s\"'`<>|]")
"""Characters that no mention contains, except the space between a number and its unit."""
_DIGIT: Final = regex(r"\d")
_LETTER: Final = regex(r"[^\W\d_]")
_NUMBER: Final = regex(r"[-+$]?\d[\d_.,]*(?:%|[A-Za-zµ]{1,3})?")
_VERSION: Final = regex(r"[vV]?\d+\.\d+(?:\.\d+)+[A-Za-z0-9]*(?:[-+.][A-Za-z0-9]+)*|[vV]\d+(?:\.\d+)*")
_HASH: Final = regex(r"[0-9a-f]{7,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CODE: Final = regex(r"[A-Z]{1,6}-?\d{2,6}")
_FAILURE: Final = regex(r"(?:[A-Za-z_][\w.]*)?[A-Za-z](?:Error|Exception|Warning|Failure|Fault|Timeout)")
_FILE: Final = regex(
    r"[\w@+-][\w@+.-]*\.(?:py|pyi|js|jsx|ts|tsx|go|rs|c|h|cc|cpp|hpp|java|kt|rb|php|cs|swift|sh|bash|zsh|ps1|sql|md|rst"
    r"|txt|json|jsonl|yaml|yml|toml|ini|cfg|conf|env|lock|xml|html|css|tcss|scss|svg|png|jpg|csv|tsv|log|db|sqlite"
    r"|ipynb|proto|tf|gradle|mk|diff|patch|zip|gz|tar|whl|so|dll|exe|pdf)"
)
_DOTTED: Final = regex(r"[A-Za-z_$][\w$-]*(?:(?:\.|::)[A-Za-z_$][\w$-]*)+")
_CAMEL: Final = regex(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_ERRNOS: Final = frozenset(errno.errorcode.values())
_ABBREVIATIONS: Final = frozenset({"e.g", "i.e", "a.m", "p.m", "z.B", "d.h", "u.s", "U.S"})

_LONGEST_WORD: Final = 200
_LONGEST_NAME: Final = 80


def count_mentions(text: str, piece_chars: int = PIECE_CHARS) -> Counter[Fact]:
    """All mentions in `text`, with how often each occurs.

    A long text is read in pieces of about `piece_chars` characters, which does not affect the result.
    """
    found: Counter[Fact] = Counter()
    words: Counter[str] = Counter()
    bounds = tuple(piece_bounds(text, piece_chars))
    for kind, pattern, after, sign in _SPECIAL:
        for start, end in bounds if sign in text else ():
            found.update(Fact(kind, each.rstrip(after)) for each in pattern.findall(text, start, end))
    plain = _ESCAPED.sub("  ", text) if "\\" in text else text
    for start, end in bounds:
        words.update(_WORD.findall(plain, start, end))
    for word, times in words.items():
        for mention in _mentions_of(word):
            found[mention] += times
    return found


def piece_bounds(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of pieces of about `size` characters, each extended to the next place between mentions."""
    start = 0
    while start < len(text):
        end = len(text)
        if start + size < end:
            breaks = _BREAK.finditer(text, start + size - 1)
            end = next((found.end() for found in breaks if not _is_in_measure(text, found.start())), end)
        yield start, end
        start = end


def _is_in_measure(text: str, place: int) -> bool:
    """Whether a space at `place` may separate a number from its unit, as in ``12 ms``."""
    after = text[place + 1 : place + 2]
    return text[place] == " " and text[max(0, place - 1) : place].isdecimal() and (after.isalpha() or after == "°")


def mentions(text: str) -> set[str]:
    """The paths, names, numbers, errors, links and hashes in `text`, as they were written."""
    return {mention.text for mention in count_mentions(text)}


@lru_cache(maxsize=32_768)
def _mentions_of(word: str) -> tuple[Fact, ...]:
    if word.isalpha() and (word.islower() or word.istitle()):
        return ()
    if len(word) > _LONGEST_WORD or "://" in word:
        return ()
    word = word.lstrip(":#+@%").rstrip(".:-+#@/")
    if ":" in word and "::" not in word:
        parts = [part for part in word.split(":") if part]
        if len(parts) > 1 and parts[1][:1].isdigit() and ("/" in parts[0] or "." in parts[0]):
            parts = parts[:1]
        return tuple(Fact(kind, part) for part in parts if (kind := _kind_of(part)))
    kind = _kind_of(word)
    return (Fact(kind, word),) if kind else ()


def _kind_of(word: str) -> Kind | None:
    if len(word) < 2:
        return None
    digits = _DIGIT.search(word) is not None
    if digits:
        if _VERSION.fullmatch(word):
            return "number"
        if _NUMBER.fullmatch(word):
            # A number means something by itself if it has three digits, a fraction, or a unit.
            bare = word.lstrip("-+")
            means = not bare.isdigit() or (len(bare) > 2 and not (len(bare) == 3 and bare[0] == "0"))
            return "number" if means else None
        if _HASH.fullmatch(word) and not word.isdigit():
            return "hash"
        if _CODE.fullmatch(word):
            return "error"
    if "/" in word:
        if not _LETTER.search(word) or ("+" in word and len(word) > _LONGEST_NAME // 2):
            return None
        rooted = word[0] in "/~.$" or word.count("/") > 1
        return "path" if rooted or digits or any(character in word for character in "._-") else None
    if _FILE.fullmatch(word) or (word.startswith(".") and word[1:2].isalpha() and len(word) <= _LONGEST_NAME):
        return "path"
    if word in _ERRNOS or _FAILURE.fullmatch(word):
        return "error"
    return "name" if _is_name(word, digits=digits) else None


def _is_name(word: str, *, digits: bool) -> bool:
    if len(word) > _LONGEST_NAME or word in _ABBREVIATIONS:
        return False
    if word.startswith("--"):
        return word[2:3].isalpha()
    if word.startswith("$"):
        return word[1:2].isalpha()
    if not _LETTER.search(word):
        return False
    inner = word.strip("_")
    return (
        "_" in inner
        or (word != inner and len(inner) > 1)
        or digits
        or "@" in inner
        or bool(_DOTTED.fullmatch(word))
        or bool(_CAMEL.search(word))
    )
