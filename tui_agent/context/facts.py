"""What a summary must not lose: exact names and numbers, and what the user demanded in their own words.

No model is asked. What the source mentions and the summary does not is appended to it verbatim, most used and newest
first, up to a limit; how many were left out, and where they are, stands below. A later summary reads the list of the
one before as old mentions, so the list is renewed and never grows past its limit.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from tui_agent.context.mentions import Kind, Mention, count_mentions, mentions
from tui_agent.conversation.sizes import Size, size_of_text

Fact = TypeVar("Fact", str, Mention)
Speaker: TypeAlias = Literal["user", "assistant", "tool", "summary"]

HEADING: Final = "# Facts kept verbatim"
DEMANDS: Final = "The user said:"

_LABELS: Final[dict[Kind, str]] = {
    "path": "Paths",
    "name": "Names",
    "error": "Errors",
    "number": "Numbers",
    "link": "Links",
    "hash": "Hashes",
}
_DEMAND: Final = re.compile(
    r"\b(?:must|never|always|don[’']?t|do not|does not|mustn[’']?t|shouldn[’']?t|should not|can(?:no|[’'])t|only|except"
    r"|unless|without|avoid|forbidden|required|make sure|ensure|keep|please use|instead of|at most|at least"
    r"|no more than|nicht|nie|niemals|immer|nur|muss|müssen|darf|dürfen|kein\w*|bitte|ohne"
    r"|jamais|toujours|seulement|nunca|siempre|solo|mai|sempre)\b",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"\n+|(?<=[.!?。！？])\s+")
_ECHO: Final = re.compile(r"^#{1,6}\s*facts kept verbatim\b.*?(?=^#|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_LINES: Final = re.compile(r"^ *(\d+)[\t→].*(?:\n *\d+[\t→].*)*", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^ *(\d+)[\t→]", re.MULTILINE)
_SMALL_COUNT: Final = re.compile(r"[-+]?\d{1,3}")
_LONGEST_DEMAND: Final = 600
_DEMANDS_PER_TEXT: Final = 12
_SPOKEN_WEIGHT: Final = 4


class Source(NamedTuple):
    """One stretch of what is summarised, and who said it. Sources are given oldest first."""

    speaker: Speaker
    text: str


class Facts(NamedTuple):
    """What was found: the user's demands, newest first, and mentions, most worth keeping first."""

    demands: tuple[str, ...] = ()
    mentions: tuple[Mention, ...] = ()

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.demands) + len(self.mentions)


def collect(sources: Sequence[Source]) -> Facts:
    """The facts of the sources, ranked by how recently and how often they were used.

    A use by the user or the model counts as four in a tool's result: what was taken up is what is needed again. Of what
    only tools said, line numbers and bare whole numbers below 1,000 are no facts: they are many and tell nothing alone.
    """
    uses: dict[Mention, int] = {}
    newest: dict[Mention, int] = {}
    demands: dict[str, None] = {}
    spoken: set[Mention] = set()
    for position, source in enumerate(sources):
        weight = _SPOKEN_WEIGHT if source.speaker in ("user", "assistant") else 1
        counted = count_mentions(_LINES.sub(_without_number, source.text) if source.speaker == "tool" else source.text)
        if source.speaker != "tool":
            spoken.update(counted)
        for mention, times in counted.items():
            uses[mention] = uses.get(mention, 0) + times * weight
        newest.update(dict.fromkeys(counted, position))
        for demand in _demands_of(source):
            demands.pop(demand, None)
            demands[demand] = None

    def worth(mention: Mention) -> tuple[float, str]:
        recency = (newest[mention] + 1) / len(sources)
        kind = 0.5 if mention.kind == "number" else 1.0
        return -kind * math.log2(1 + uses[mention]) * (1 + 3 * recency), mention.text

    telling = (mention for mention in uses if mention in spoken or not _is_small_count(mention))
    return Facts(tuple(reversed(demands)), tuple(sorted(telling, key=worth)))


def missing(facts: Facts, summary: str) -> Facts:
    """The facts that `summary` does not say."""
    said = mentions(summary)
    flat = " ".join(summary.split())
    return Facts(
        tuple(demand for demand in facts.demands if " ".join(demand.split()) not in flat),
        tuple(mention for mention in facts.mentions if mention.text not in said),
    )


def listing(facts: Facts, *, limit: int, tokens_of: Callable[[Size], int], where: str) -> str:
    """The facts as a section for a summary, of at most `limit` tokens; empty when there are none.

    Demands take at most half of it while there are mentions. `where` says where those left out can be found.
    """
    if not facts.total:
        return ""
    frame = size_of_text(HEADING, DEMANDS, *_LABELS.values(), _rest(facts.total, where)).plus(Size(ascii=24))
    room = _Room(limit, tokens_of, frame)
    demands = room.fill(facts.demands, lambda demand: f"- {demand}\n", share=0.5 if facts.mentions else 1.0)
    kept = room.fill(facts.mentions, lambda mention: f"{mention.text}, ")
    lines = [HEADING]
    if demands:
        lines += [DEMANDS, *(f"- {demand}" for demand in demands)]
    for kind, label in _LABELS.items():
        texts = [mention.text for mention in kept if mention.kind == kind]
        if texts:
            lines.append(f"{label}: {', '.join(texts)}")
    left_out = facts.total - len(demands) - len(kept)
    if left_out:
        lines.append(_rest(left_out, where))
    return "\n".join(lines)


def without_listing(text: str) -> str:
    """A summary without its list of facts, written by us or echoed by a model."""
    return _ECHO.sub("", text).rstrip()


def _without_number(lines: re.Match[str]) -> str:
    """Lines that begin with a number each, without these where they count the lines, as the page of a file does."""
    numbers = [int(number) for number in _NUMBERED.findall(lines[0])]
    counts = len(numbers) > 1 and all(later == earlier + 1 for earlier, later in pairwise(numbers))
    return _NUMBERED.sub("", lines[0]) if counts else lines[0]


def _is_small_count(mention: Mention) -> bool:
    return mention.kind == "number" and _SMALL_COUNT.fullmatch(mention.text) is not None


class _Room:
    """The tokens that are left of a limit."""

    def __init__(self, limit: int, tokens_of: Callable[[Size], int], used: Size) -> None:
        self._limit = limit
        self._tokens_of = tokens_of
        self._used = used

    def fill(self, items: Iterable[Fact], written: Callable[[Fact], str], *, share: float = 1.0) -> list[Fact]:
        """As many items as fit into `share` of the limit, in order; one that is too large is passed over."""
        taken: list[Fact] = []
        passed_over = 0
        for item in items:
            used = self._used.plus(size_of_text(written(item)))
            if self._tokens_of(used) <= self._limit * share:
                taken.append(item)
                self._used = used
            else:
                passed_over += 1
                if passed_over > 20:
                    break
        return taken


def _rest(count: int, where: str) -> str:
    return f"{count} more in {where}" if where else f"{count} more were left out"


def _demands_of(source: Source) -> list[str]:
    if source.speaker == "summary":
        return _listed_demands(source.text)
    if source.speaker != "user":
        return []
    found = []
    for sentence in _SENTENCE_END.split(source.text):
        sentence = sentence.strip().lstrip("-*> ").strip()
        if len(sentence) >= 8 and _DEMAND.search(sentence[:_LONGEST_DEMAND]):
            found.append(sentence if len(sentence) <= _LONGEST_DEMAND else sentence[:_LONGEST_DEMAND] + "…")
            if len(found) == _DEMANDS_PER_TEXT:
                break
    return found


def _listed_demands(text: str) -> list[str]:
    _, found, listed = text.partition(HEADING)
    lines = listed.splitlines()
    if not found or DEMANDS not in lines:
        return []
    demands = []
    for line in lines[lines.index(DEMANDS) + 1 :]:
        if not line.startswith("- "):
            break
        demands.append(line[2:])
    demands.reverse()
    return demands
