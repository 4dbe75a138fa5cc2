"""Statements in the user's sentences: how binding each one is, and whether a later one replaces it. No model is asked.

A statement has a subject (its significant words, with synonyms unified) and values (an amount, a date, a name, a code,
…). If a later statement has the same subject and another value of the same kind, the earlier value is out of date. If
it is uncertain that the subject is the same, both are kept: a reader sees their order, while a rule that was struck out
by mistake would be lost.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

REPLACED: Final = "[replaced later]"
"""The text in place of a value that is out of date."""

MAX_COMPARED: Final = 200
"""With how many of the newest earlier statements a new one is compared, for each kind of value."""

MAX_SENTENCE_CHARS: Final = 600
"""Characters of a sentence that are analysed."""


class Weight(IntEnum):
    """How binding a sentence is; the lowest are dropped first when room runs out."""

    CHATTER = 0
    DETAIL = 1
    STANDING = 2
    STATED = 3
    RULE = 4


class Value(NamedTuple):
    """An exact value in a sentence, from character `start` to `end` of the whole text."""

    kind: str
    text: str
    start: int
    end: int


class Statement(NamedTuple):
    """A sentence of a text, at character `start`.

    labelled: it names its own kind, as in ``Rule: …``. update: it says that something has changed.
    """

    text: str
    start: int
    weight: Weight
    labelled: bool
    subject: frozenset[str]
    values: tuple[Value, ...]
    update: bool


class _Standing(NamedTuple):
    """A statement of text number `place` that holds so far: its values of one kind, and these as they are compared."""

    place: int
    statement: Statement
    values: list[Value]
    exact: frozenset[str]


_SENTENCE_END: Final = re.compile(r"\n+|(?<=[.!?。！？;])\s+")
_LABEL: Final = re.compile(
    r"\s*[-*>#]*\s*(?:(?:safety|security|hard|soft|project|user|house|standing|coding|goal|style)\s+)?"
    r"(?:rules?|constraints?|requirements?|facts?|goals?|goal state|state|preferences?|polic(?:y|ies)|limits?|note|"
    r"important|remember|decision|convention)\s*:\s*",
    re.IGNORECASE,
)
_MILD_LABEL: Final = re.compile(r"\W*(?:\w+\s+)?(?:facts?|goals?|state|preferences?|note|decision)\b", re.IGNORECASE)
_RULE: Final = re.compile(
    r"\b(?:must|never|always|don[’']?t|do not|does not|mustn[’']?t|shouldn[’']?t|should not|can(?:no|[’'])t|forbidden"
    r"|required|requires|under no circumstances|at all times|at most|at least|no more than|make sure|ensure|nobody"
    r"|no longer|nicht|nie|niemals|immer|nur|muss|müssen|darf|dürfen|kein\w*"
    r"|jamais|toujours|nunca|siempre|mai|sempre)\b",
    re.IGNORECASE,
)
_STANDING: Final = re.compile(
    r"\b(?:only|unless|without|prefers?|preferred|rather|wants?|would like|i like|please|keep|avoid|instead of|except"
    r"|use|goal|task"
    r"|next steps?|next up|we are (?:working|in|calling)|working on|deadline|budget|cap|limit|ceiling|owner|owns|branch"
    r"|based on|codename|called|production|from now on|until|awaiting|open question|decided|bitte|ohne)\b",
    re.IGNORECASE,
)
_UPDATE: Final = re.compile(
    r"\b(?:now|update[ds]?|changed?|changes|moved?|new|newly|rotated|rotation|rebased|switch(?:ed)?|no longer|instead"
    r"|from now on|rather|actually|correction|renamed|replaced|retired|raised|lowered|jetzt|neu|ab sofort|geändert)\b",
    re.IGNORECASE,
)

_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_WORDED: Final = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)"
    r"(?:[\s-](?:hundred|thousand|million))?"
)
_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("link", re.compile(r"https?://[^\s\"'`<>()]+[\w/]")),
    ("money", re.compile(r"[$€£]\s?\d[\d.,]*\d|[$€£]\s?\d|\b\d[\d.,]*\s?(?:dollars|euros?|usd|eur)\b", re.IGNORECASE)),
    ("money", re.compile(rf"\b{_WORDED}\s+(?:dollars|euros|bucks)\b", re.IGNORECASE)),
    (
        "date",
        re.compile(rf"\b\d{{4}}-\d\d-\d\d\b|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?\b|\b\d\d-\d\d\b", re.IGNORECASE),
    ),
    ("weekday", re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)),
    (
        "time zone",
        re.compile(
            r"\b(?:utc|gmt|cet|cest|est|edt|pst|pdt|pacific|eastern|central european|mountain)(?:\s+time)?\b"
            r"|\b(?:america|europe|asia|africa|australia|pacific|zone|etc)/\w+\b",
            re.IGNORECASE,
        ),
    ),
    ("units", re.compile(r"\b(?:metric|imperial)\b", re.IGNORECASE)),
    (
        "tone",
        re.compile(
            r"\b(?:terse|brief|concise|succinct|playful|warm|chatty|verbose|detailed|formal|casual)\b", re.IGNORECASE
        ),
    ),
    ("branch", re.compile(r"\b(?:[a-z][\w.-]*/)+[\w.-]*\w\b")),
    ("region", re.compile(r"\b(?:eu|us|ap|sa|ca|me|af)-(?:north|south|east|west|central)\w*-\d\b")),
    ("code", re.compile(r"\b[A-Za-z]{2,}-\d{2,}\b|\b(?=[\w-]*\d)[A-Z][A-Z0-9]{2,}(?:-\w+)*\b")),
    ("commit", re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b")),
    ("person", re.compile(r"\b[A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20})+\b")),
    ("number", re.compile(r"(?<![\w.-])\d+(?:[.,]\d+)*(?:\s*of\s*\d+)?%?(?![\w-])")),
)
_EXCLUSIVE: Final = frozenset(("time zone", "units", "tone"))
"""Kinds with only one valid value at a time for the same subject, whatever else the sentence says."""

_MEASURES: Final = frozenset(("money", "date", "weekday"))
"""Kinds of limits: for the same subject the later value is valid, even if it is not called an update."""

_ALIKE: Final = {
    name: concept
    for concept, names in {
        "<limit>": "budget cap capped caps spend spending spent cost costs expense expenses ceiling limit limits",
        "<date>": "deadline date timing due scheduled ship ships shipping moved moves",
        "<name>": "codename codenamed called calling designated label labelled labeled named name refer",
        "<owner>": "owner owns rotation belongs handling handles duty charge",
        "oncall": "on-call oncall pager",
        "time": "times timezone clock clocks timestamp timestamps zone",
        "answer": "answers reply replies response responses style",
        "unit": "units measurement measurements",
        "branch": "branches rebased rebase branched",
        "internal": "internally",
        "language": "languages",
        "report": "reports reported reporting",
    }.items()
    for name in names.split()
}
_EMPTY: Final = frozenset(
    re.findall(
        r"\w+",
        " a an the this that these those it its is are was were be been being am do does did done has have had"
        " having will would shall should can could may might must of in on at to for from by with within without"
        " into onto over under below above about as and or but not no nor so if then than too very just also only"
        " even still yet again once i me my we us our you your he she they them their who whom which what when"
        " where why how all any each every some now new newly update updated updates quick changed change changes"
        " rotated rotation rather actually please make sure keep kept stay stays use used uses using run runs"
        " running hosted lives live want wants wanted like get show shows put say says said told tell need needs"
        " needed current currently total never always exceed explicit explicitly approval approve user users"
        " disclose reveal share shared send today tomorrow week day one ones old active parked target here there"
        " out up down off before after until while because since prefers prefer preferred fix look see check read"
        " open write edit add remove delete implement test try continue go start stop create build review merge"
        " push find work explain",
    )
)
"""Words without significance for what a sentence is about."""
_WORD: Final = re.compile(r"[^\W\d_][\w'-]*")


def statements(text: str) -> list[Statement]:
    """The sentences of `text`, in order."""
    return [_statement(sentence, start) for start, sentence in _sentences(text)]


def struck_out(texts: Sequence[str], told: Sequence[Sequence[Statement]]) -> list[str]:
    """The texts, oldest first, with `REPLACED` for every value that a later statement replaced.

    `told`: the statements of each. A text that differs from a later one only in such values is removed.
    """
    standing: dict[str, deque[_Standing]] = {}
    gone: list[list[Value]] = [[] for _ in texts]
    repeated: set[int] = set()
    for place, found in enumerate(told):
        for statement in found:
            if statement.text.rstrip().endswith("?"):
                continue
            for kind in {value.kind for value in statement.values}:
                values = [value for value in statement.values if value.kind == kind]
                now = _Standing(place, statement, values, frozenset(value.text.casefold() for value in values))
                earlier = standing.setdefault(kind, deque(maxlen=MAX_COMPARED))
                for before in _replaced(earlier, now, kind):
                    earlier.remove(before)
                    gone[before.place] += before.values
                    if _masked(texts[before.place], told[before.place]) == _masked(texts[place], found):
                        repeated.add(before.place)
                earlier.append(now)
    return [
        "" if place in repeated else _without(text, values)
        for place, (text, values) in enumerate(zip(texts, gone, strict=True))
    ]


def weight_of(told: Iterable[Statement]) -> Weight:
    """The weight of the most binding of these statements; one with a replaced value does not bind."""
    return max((each.weight for each in told if REPLACED not in each.text), default=Weight.CHATTER)


def binding(text: str) -> str:
    """The binding sentences of a text; all of it if none is, or if it is labelled as a whole."""
    found = statements(text)
    if not found or found[0].labelled:
        return text
    return " … ".join(one.text.strip() for one in found if one.weight >= Weight.STANDING) or text


def _masked(text: str, found: Sequence[Statement]) -> str:
    """A text without its values."""
    return " ".join(_without(text, [value for statement in found for value in statement.values]).casefold().split())


def _replaced(earlier: Iterable[_Standing], now: _Standing, kind: str) -> list[_Standing]:
    """Those of the earlier statements whose values of `kind` no longer hold."""
    if not _may_replace(now.statement, kind, Weight.RULE):
        # Most statements: comparing each with hundreds of others would take seconds for thousands of messages.
        return []
    return [
        before
        for before in earlier
        if before.exact.isdisjoint(now.exact) and _same_subject(before.statement, now.statement, kind)
    ]


def _may_replace(after: Statement, kind: str, weight: Weight) -> bool:
    """Whether `after` may take the place of an earlier statement of this weight, if both speak of the same thing."""
    if after.update or kind in _MEASURES or kind in _EXCLUSIVE:
        return True
    # Two consecutive requests that name different things are both valid.
    return kind != "number" and min(weight, after.weight) >= Weight.STATED


def _same_subject(before: Statement, after: Statement, kind: str) -> bool:
    shared = before.subject & after.subject
    if kind in _EXCLUSIVE:
        return bool(shared)
    if kind == "branch" and "branch" not in shared:
        return False
    if not _may_replace(after, kind, before.weight):
        return False
    if before.subject == after.subject and shared:
        return True
    if kind == "number":
        return False
    nested = before.subject <= after.subject or after.subject <= before.subject
    return (nested and len(shared) >= (1 if after.update else 2)) or (after.update and len(shared) >= 2)


@lru_cache(maxsize=4_096)
def _statement(sentence: str, start: int) -> Statement:
    looked_at = sentence[:MAX_SENTENCE_CHARS]
    label = _LABEL.match(looked_at)
    body = looked_at[label.end() :] if label else looked_at
    offset = label.end() if label else 0
    values: list[Value] = []
    rest = body
    for kind, pattern in _KINDS:
        matches = list(pattern.finditer(rest))
        for found in matches:
            if kind == "person" and found[0].split()[0].casefold() in _EMPTY:
                continue
            values.append(Value(kind, found[0], start + offset + found.start(), start + offset + found.end()))
        if matches and kind != "person":
            rest = pattern.sub(lambda found: " " * len(found[0]), rest)
    for value in values:
        if value.kind == "person":
            rest = rest.replace(value.text, " " * len(value.text))
    return Statement(
        sentence,
        start,
        _weight(looked_at, bool(label), bool(values)),
        bool(label),
        _subject(rest),
        tuple(values),
        bool(_UPDATE.search(body)),
    )


def _weight(sentence: str, labelled: bool, exact: bool) -> Weight:
    if labelled:
        return Weight.STATED if _MILD_LABEL.match(sentence) else Weight.RULE
    if len(sentence) >= 8 and _RULE.search(sentence):
        return Weight.RULE
    if _STANDING.search(sentence) or (exact and _UPDATE.search(sentence)):
        return Weight.STANDING
    return Weight.DETAIL if exact else Weight.CHATTER


def _subject(text: str) -> frozenset[str]:
    found = set()
    for word in _WORD.findall(text.casefold()):
        word = word.removesuffix("'s").removesuffix("’s")
        for part in (word,) if word in _ALIKE else word.split("-"):
            if len(part) > 1 and part not in _EMPTY:
                found.add(_ALIKE.get(part, part))
    return frozenset(found)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if text[start : end.start()].strip():
            yield start, text[start : end.start()]
        start = end.end()
    if text[start:].strip():
        yield start, text[start:]


def _without(text: str, values: Sequence[Value]) -> str:
    for value in sorted(set(values), key=lambda value: value.start, reverse=True):
        text = f"{text[: value.start]}{REPLACED}{text[value.end :]}"
    return text
