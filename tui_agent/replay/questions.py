"""Questions on a recorded session that its own text answers, built by rule: no model writes them.

A question shows one line of the session with a gap where an exact name, number or path stood, or asks which file a line
is in or which command printed it. It is asked only if there is one answer: the same line never stood there with another
value, the file or the command is the only one, and the question does not hold its own answer. So it works in every
language, and an answer is scored by rule.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.context.compaction.facts import count_mentions
from tui_agent.conversation.blocks import text_in
from tui_agent.replay.billing import PromptPart
from tui_agent.replay.script import RecordedMessage, Script, commands_of
from tui_agent.system.lenient import decoded
from tui_agent.text import clean

About: TypeAlias = Literal["reported", "said", "concluded", "file", "command"]
"""What a question is about: what a tool reported, the user said or the model concluded; where a line is, what printed
it.
"""
ABOUT: Final[tuple[About, ...]] = ("reported", "said", "concluded", "file", "command")
Score: TypeAlias = Literal["right", "unknown", "wrong"]

GAP: Final = "____"
UNKNOWN: Final = "unknown"
SHORTEST_LINE, LONGEST_LINE = 20, 160
LEAST_LETTERS: Final = 12
"""Letters that a line must have beside its gap, so that it can be found."""
LONGEST_ANSWER: Final = 100
ROOM: Final = 120
"""Characters that an answer may have beside what is right in it."""

_NUMBERED: Final = re.compile(r"^\s*\d+\s*[\t→|:]\s?")
_LETTER: Final = re.compile(r"[^\W\d_]")
_QUOTES: Final = " \t\n\"'`*«»“”„.,;"
_PATH: Final = re.compile(r"[^\s\"'`<>|]+")


class Question(msgspec.Struct, frozen=True):
    """A question, its answer, and the line that tells it. `place` is the index of the message that the line is in."""

    about: About
    text: str
    answer: str
    line: str
    place: int


class _Path(msgspec.Struct):
    file_path: str = ""
    path: str = ""
    filename: str = ""
    absolute_path: str = ""


def questions(script: Script) -> list[Question]:
    """All questions that the session answers without doubt, oldest first; its last answer has left no window yet."""
    spoken = [message for call in script.calls for message in (*call.arrived, call.answer)][:-1]
    gaps: dict[str, set[str]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    found: list[Question] = []
    for message in spoken:
        where, printed_by = _path_of(message), next(commands_of(message.call), "") if message.call is not None else ""
        which: dict[About, str] = {"file": where, "command": printed_by}
        about: About = "reported" if message.is_result else "said"
        about = "concluded" if message.message.role == "assistant" else about
        for line in dict.fromkeys(_lines(_said(message))):
            places[line].add(where or printed_by or "")
            for answer in _exact(line):
                left_out = line.replace(answer, GAP)
                gaps[left_out].add(answer)
                asked = f"{_WHO[about]} this line:\n{left_out}\nWhich exact text stands in place of {GAP}?"
                found.append(Question(about, asked, answer, line, message.index))
            for kind, answer in which.items():
                if answer and answer not in line and len(answer) <= LONGEST_ANSWER and "\n" not in answer:
                    found.append(Question(kind, f"{_WHICH[kind]}\n{line}", answer, line, message.index))
    return [each for each in found if _is_sure(each, gaps, places)]


def lines_in(view: Iterable[PromptPart]) -> frozenset[str]:
    """The lines that stand verbatim in this prompt; those of summaries do not count."""
    texts = (part.shown for part in view if part.kind not in ("summary", "digest"))
    return frozenset(line for text in texts for line in _lines(text))


def chosen(found: Sequence[Question], most: int, left: Callable[[Question], int]) -> list[Question]:
    """At most `most` questions: of those that have `left` most prompts, as many of each kind, spread over the session.

    Two questions never have the same line or the same answer.
    """
    kinds: list[list[Question]] = []
    for about in ABOUT:
        here = [(each, left(each)) for each in found if each.about == about]
        reach = max((count for _, count in here), default=0)
        kinds.append(_spread([each for each, count in here if count == reach and reach], most))
    taken: list[Question] = []
    for each in (each for round_ in zip_longest(*kinds) for each in round_ if each is not None):
        if len(taken) < most and not any(each.line == other.line or each.answer == other.answer for other in taken):
            taken.append(each)
    return sorted(taken, key=lambda each: (each.place, each.text))


def _spread(found: Sequence[Question], most: int) -> list[Question]:
    """Questions from all over the session, those farthest apart first."""
    parts = [found[len(found) * part // most : len(found) * (part + 1) // most] for part in range(most)]
    first = [part[0] for part in parts if part]
    order = sorted(range(len(first)), key=lambda place: (f"{place:b}"[::-1], place))
    return [first[place] for place in order]


def score(question: Question, reply: str) -> Score:
    """How an answer is scored: the exact text, alone or in a short sentence."""
    said = " ".join(reply.split()).strip(_QUOTES)
    wanted = " ".join(question.answer.split())
    if question.about == "file" and any(_same_file(word, wanted) for word in _PATH.findall(said)):
        return "right" if len(said) <= len(wanted) + ROOM else "wrong"
    exact = re.compile(rf"(?<![\w.-]){re.escape(wanted.casefold())}(?![\w-]|\.\w)")
    if exact.search(said.casefold()) and len(said) <= len(wanted) + ROOM:
        return "right"
    return "unknown" if said.casefold().startswith(UNKNOWN) or not said else "wrong"


def _same_file(word: str, wanted: str) -> bool:
    """Whether a word names the wanted file, with all of its folders or with the last ones."""
    word = word.strip(_QUOTES + "()[],:")
    return bool(word) and (wanted == word or wanted.endswith(f"/{word}") or word.endswith(f"/{wanted}"))


def _lines(text: str) -> Iterator[str]:
    """The lines of a text that can be asked about, without line numbers."""
    for each in text.splitlines():
        line = _NUMBERED.sub("", each).strip()
        if SHORTEST_LINE <= len(line) <= LONGEST_LINE and clean(line) == line and GAP not in line:
            yield line


def _exact(line: str) -> Iterator[str]:
    """The exact things in a line that can be left out: each stands there once, and enough words stay beside it."""
    for fact in count_mentions(line):
        before, _, after = line.partition(fact.text)
        called = after.startswith("(")  # often guessed from what is passed
        if len(fact.text) < 3 or called or fact.text in after:
            continue
        if len(_LETTER.findall(before + after)) >= LEAST_LETTERS:
            yield fact.text


def _is_sure(question: Question, gaps: dict[str, set[str]], places: dict[str, set[str]]) -> bool:
    if question.answer in question.text:
        return False
    if question.about in ("file", "command"):
        return places[question.line] == {question.answer}
    return gaps[question.line.replace(question.answer, GAP)] == {question.answer}


def _said(message: RecordedMessage) -> str:
    if message.message.role != "assistant":
        return message.text
    return text_in(message.message.blocks, between="\n")


_WHO: Final[Mapping[About, str]] = {
    "reported": "A tool's result has",
    "said": "The user wrote",
    "concluded": "You wrote",
}


_WHICH: Final[Mapping[About, str]] = {
    "file": "Which file has this line (its path)?",
    "command": "Which command that you ran printed this line?",
}


def _path_of(message: RecordedMessage) -> str:
    """The file that a result shows; empty if it is not one."""
    if message.call is None or not any(word in message.call.name.casefold() for word in ("read", "view", "cat")):
        return ""
    given = decoded(message.call.arguments, _Path) or _Path()
    return given.file_path or given.path or given.filename or given.absolute_path
