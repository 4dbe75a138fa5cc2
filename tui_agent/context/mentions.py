"""What can be mentioned exactly: paths, names, numbers, errors, links, hashes and versions found in a text.

Text is cut into words by one pass, and each distinct word is looked at once, so the time grows with the length of the
text (2 MB of source code: about a quarter of a second).
"""

import errno
import re
from collections import Counter
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["path", "name", "error", "number", "link", "hash"]


class Mention(NamedTuple):
    """One exact thing, as it was written."""

    kind: Kind
    text: str


_WORD: Final = re.compile(r"[\w.$~@/:+#%-]+")
_LINK: Final = re.compile(r"https?://[^\s\"'`<>()\[\]{}|\\^]{2,400}")
_WINDOWS_PATH: Final = re.compile(r"(?<!\w)[A-Za-z]:\\[^\s\"'`<>|?*:]{2,200}")
_MEASURE: Final = re.compile(
    r"\d(?<![\w.,]\d)(?:[\d.,]*\d)? (?:ms|µs|s|sec|seconds?|min|minutes?|hours?|days?|[kKMGT]i?B|bytes|tokens|lines"
    r"|rows|files|tests|px|[kMG]?Hz|°C|percent|USD|EUR|retries|workers|threads|connections)\b"
)
_THOUSANDS: Final = re.compile(r"\d(?<!\d\d)\d{0,2}(?:,\d{3})+(?![\d,])")
_DIGIT: Final = re.compile(r"\d")
_LETTER: Final = re.compile(r"[^\W\d_]")
_NUMBER: Final = re.compile(r"[-+$]?\d[\d_.,]*(?:%|[A-Za-zµ]{1,3})?")
_VERSION: Final = re.compile(r"[vV]?\d+\.\d+(?:\.\d+)+(?:[-+.]?[A-Za-z0-9]+)*|[vV]\d+(?:\.\d+)*")
_HASH: Final = re.compile(r"[0-9a-f]{7,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CODE: Final = re.compile(r"[A-Z]{1,6}-?\d{2,6}")
_FAILURE: Final = re.compile(r"(?:[A-Za-z_][\w.]*)?[A-Za-z](?:Error|Exception|Warning|Failure|Fault|Timeout)")
_FILE: Final = re.compile(
    r"[\w@+-][\w@+.-]*\.(?:py|pyi|js|jsx|ts|tsx|go|rs|c|h|cc|cpp|hpp|java|kt|rb|php|cs|swift|sh|bash|zsh|ps1|sql|md|rst"
    r"|txt|json|jsonl|yaml|yml|toml|ini|cfg|conf|env|lock|xml|html|css|tcss|scss|svg|png|jpg|csv|tsv|log|db|sqlite"
    r"|ipynb|proto|tf|gradle|mk|diff|patch|zip|gz|tar|whl|so|dll|exe|pdf)"
)
_DOTTED: Final = re.compile(r"[A-Za-z_$][\w$-]*(?:(?:\.|::)[A-Za-z_$][\w$-]*)+")
_CAMEL: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_ERRNOS: Final = frozenset(errno.errorcode.values())
_ABBREVIATIONS: Final = frozenset({"e.g", "i.e", "a.m", "p.m", "z.B", "d.h", "u.s", "U.S"})

_LONGEST_WORD: Final = 200
_LONGEST_NAME: Final = 80


def count_mentions(text: str) -> Counter[Mention]:
    """Everything in `text` that can be mentioned exactly, and how often it occurs."""
    found: Counter[Mention] = Counter()
    if "://" in text:
        for link in _LINK.findall(text):
            found[Mention("link", link.rstrip(".,;:!?"))] += 1
    if ":\\" in text:
        for path in _WINDOWS_PATH.findall(text):
            found[Mention("path", path.rstrip(".,;!"))] += 1
    for pattern in (_MEASURE, _THOUSANDS):
        for number in pattern.findall(text):
            found[Mention("number", number)] += 1
    for word, times in Counter(_WORD.findall(text)).items():
        for mention in _mentions_of(word):
            found[mention] += times
    return found


def mentions(text: str) -> set[str]:
    """The paths, names, numbers, errors, links and hashes in `text`, as they were written."""
    return {mention.text for mention in count_mentions(text)}


@lru_cache(maxsize=32_768)
def _mentions_of(word: str) -> tuple[Mention, ...]:
    if word.isalpha() and (word.islower() or word.istitle()):
        return ()
    if len(word) > _LONGEST_WORD or "://" in word:
        return ()
    word = word.lstrip(":#+@%").rstrip(".:-+#@/")
    if ":" in word and "::" not in word:
        parts = [part for part in word.split(":") if part]
        if len(parts) > 1 and parts[1][:1].isdigit() and ("/" in parts[0] or "." in parts[0]):
            parts = parts[:1]
        return tuple(mention for part in parts if (mention := _classify(part)))
    mention = _classify(word)
    return (mention,) if mention else ()


def _classify(word: str) -> Mention | None:
    kind = _kind_of(word)
    return Mention(kind, word) if kind else None


def _kind_of(word: str) -> Kind | None:
    if len(word) < 2:
        return None
    digits = _DIGIT.search(word) is not None
    if digits:
        if _VERSION.fullmatch(word):
            return "number"
        if _NUMBER.fullmatch(word):
            return "number" if _tells(word) else None
        if _HASH.fullmatch(word) and not word.isdigit():
            return "hash"
        if _CODE.fullmatch(word):
            return "error"
    if "/" in word:
        return "path" if _is_path(word, digits=digits) else None
    if _FILE.fullmatch(word) or (word.startswith(".") and word[1:2].isalpha() and len(word) <= _LONGEST_NAME):
        return "path"
    if word in _ERRNOS or _FAILURE.fullmatch(word):
        return "error"
    return "name" if _is_name(word, digits=digits) else None


def _tells(number: str) -> bool:
    """Whether a bare number says something by itself: three digits, a fraction, or a unit."""
    bare = number.lstrip("-+")
    return not bare.isdigit() or (len(bare) > 2 and not (len(bare) == 3 and bare[0] == "0"))


def _is_path(word: str, *, digits: bool) -> bool:
    if not _LETTER.search(word) or ("+" in word and len(word) > _LONGEST_NAME // 2):
        return False
    return word[0] in "/~.$" or word.count("/") > 1 or digits or any(character in word for character in "._-")


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
