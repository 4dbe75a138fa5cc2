"""Replacing a piece of a file's text: where it is, where it fits but for white space, and advice if it is not there."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.base import ToolFailure

_NAMED = 10
"""Matches that an error lists by line number."""
_MATCHES_COUNTED = 1_000
_LINES_COMPARED = 20_000
_CONTEXT_SHOWN = 12
_WIDTH_COMPARED = 200
_NUMBERED = regex(r"^\s*\d+(?:\+\d+)?\t", re.MULTILINE)


class Replacement(msgspec.Struct, frozen=True):
    """One replacement of several in a file."""

    old: str
    new: str
    replace_all: bool = False


class Replaced(NamedTuple):
    """The new text, and the numbers (from 1) of the lines where `old` began.

    `differed` names what of `old` was not as in the file where it was found all the same; empty: nothing.
    """

    text: str
    lines: list[int]
    differed: str = ""


def replaced(text: str, old: str, new: str, replace_all: bool = False) -> Replaced:
    """Replace `old` with `new`.

    If all lines of the text end in CRLF, newlines in `old` and `new` mean CRLF. If `old` is not there, but whole lines
    at exactly one place differ from it only in white space at their ends, or in a different but consistent
    indentation, these are replaced, and `new` gets the file's indentation and line ends. Raises ToolFailure if `old` is
    not in the text, or occurs more than once (counting overlaps) without `replace_all`.
    """
    if not old:
        raise ToolFailure("`old` is empty.", "Give the exact text to replace, or use write_file to write a whole file.")
    if old == new:
        raise ToolFailure(
            "`old` and `new` are the same: there is nothing to change.", "Give what is to be there instead."
        )
    if _only_crlf(text) or (old not in text and _as_crlf(old) in text):
        old, new = _as_crlf(old), _as_crlf(new)
    places = _places(text, old, overlapping=not replace_all)
    if not places:
        loosely = _replaced_loosely(text, old, new)
        if loosely is not None:
            return loosely
        raise ToolFailure("`old` is not in the file. Nothing was changed.", _not_found(text, old))
    if replace_all:
        return Replaced(text.replace(old, new), _line_numbers(text, places))
    if len(places) > 1:
        raise ToolFailure(
            _ambiguous(_line_numbers(text, places)),
            "Give more of the lines around the one you mean, or set replace_all=true.",
        )
    start = places[0]
    return Replaced(text[:start] + new + text[start + len(old) :], _line_numbers(text, places))


class _Line(msgspec.Struct, frozen=True):
    body: str
    end: str

    @property
    def indentation(self) -> str:
        return self.body[: len(self.body) - len(self.body.lstrip())]


def _replaced_loosely(text: str, old: str, new: str) -> Replaced | None:
    """Replace the only whole lines that are `old` but for white space; None if there are none, or several."""
    lines, wanted = _split(text), _split(old)
    bodies, wanted_bodies = [line.body for line in lines], [line.body for line in wanted]
    closed = bool(wanted) and bool(wanted[-1].end)
    for differed, key in (("line ends", str.rstrip), ("indentation", str.strip)):
        starts = [start for start in _starts(bodies, wanted_bodies, key) if _shifts(lines[start:], wanted) is not None]
        if len(starts) > 1:
            return None
        if starts:
            start = starts[0]
            region = lines[start : start + len(wanted)]
            inside = _fitted(region, wanted, _split(new), closed)
            before, after = lines[:start], lines[start + len(wanted) :]
            rest = [] if closed else [_Line("", region[-1].end)]
            joined = "".join(line.body + line.end for line in (*before, *inside, *rest, *after))
            return Replaced(joined, [start + 1], differed) if joined != text else None
    return None


def _split(text: str) -> list[_Line]:
    lines = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        end = "\r\n" if line.endswith("\r\n") else "\n" if line.endswith("\n") else ""
        lines.append(_Line(line[: len(line) - len(end)], end))
    return lines


def _starts(lines: Iterable[str], wanted: Iterable[str], key: Callable[[str], str]) -> list[int]:
    """Where as many `lines` as `wanted` equal these by `key`."""
    keys, pattern = list(map(key, lines)), list(map(key, wanted))
    if not any(line.strip() for line in pattern):
        return []
    anchor = max(range(len(pattern)), key=lambda index: len(pattern[index]))
    places = (index - anchor for index, line in enumerate(keys) if line == pattern[anchor])
    return [start for start in places if keys[start : start + len(pattern)] == pattern]


def _shifts(lines: list[_Line], wanted: list[_Line]) -> dict[str, str] | None:
    """The file's indentation for each one in `wanted`; None if one stands for several."""
    shifts: dict[str, str] = {}
    for ours, theirs in zip(lines, wanted, strict=False):
        if theirs.body.strip() and shifts.setdefault(theirs.indentation, ours.indentation) != ours.indentation:
            return None
    return shifts


def _fitted(region: list[_Line], wanted: list[_Line], new: list[_Line], closed: bool) -> list[_Line]:
    """The lines of `new` as the file would have them; those that `wanted` has too stay as they are in `region`."""
    shifts = _shifts(region, wanted) or {}
    end = next((line.end for line in region if line.end), "\n")
    fitted: list[_Line] = []
    matcher = difflib.SequenceMatcher(a=[line.body for line in wanted], b=[line.body for line in new], autojunk=False)
    for tag, first, last, start, stop in matcher.get_opcodes():
        if tag == "equal":
            fitted += [_Line(line.body, line.end or end) for line in region[first:last]]
        elif tag in ("replace", "insert"):
            for line in new[start:stop]:
                rest = line.body[len(line.indentation) :]
                fitted.append(_Line(_shifted(line.indentation, shifts) + rest if rest else "", end))
    if fitted:
        ends = region[-1].end if closed and new[-1].end else ""
        fitted[-1] = _Line(fitted[-1].body, ends)
    return fitted


def _shifted(indentation: str, shifts: dict[str, str]) -> str:
    """The file's form of an indentation that is not among the known ones, by the nearest of these."""
    if indentation in shifts:
        return shifts[indentation]
    known = {"": "", **shifts}
    if known[""]:  # all is shifted by as much
        return known[""] + indentation
    nearest = max((each for each in known if indentation.startswith(each)), key=len)
    unit, step = min(((each, shift) for each, shift in known.items() if each and shift), default=("", ""))
    rest = indentation[len(nearest) :]
    if unit and not rest.replace(unit, ""):
        rest = rest.count(unit) * step
    return known[nearest] + rest


def _only_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def _as_crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _places(text: str, old: str, overlapping: bool) -> list[int]:
    """Where `old` starts in `text`: all matches without overlaps, or the first `_MATCHES_COUNTED` with overlaps."""
    places: list[int] = []
    start = text.find(old)
    while start >= 0 and not (overlapping and len(places) == _MATCHES_COUNTED):
        places.append(start)
        start = text.find(old, start + (1 if overlapping else len(old)))
    return places


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers, line, before = [], 1, 0
    for place in places:
        line += text.count("\n", before, place)
        before = place
        numbers.append(line)
    return numbers


def _ambiguous(lines: list[int]) -> str:
    named = ", ".join(map(str, lines[:_NAMED])) + (", …" if len(lines) > _NAMED else "")
    count = f"{len(lines)}" if len(lines) < _MATCHES_COUNTED else f"at least {len(lines)}"
    return f"`old` is there {count} times (starting in lines {named}). Nothing was changed."


def _not_found(text: str, old: str) -> str:
    """Advice if `old` is not in the file: where the most similar text is."""
    bare = _NUMBERED.sub("", old)
    if bare != old and bare in text:
        return "Leave out the line numbers and tabs that read_file puts in front of each line."
    lines = text.split("\n")
    wanted = old.strip("\r\n").split("\n")
    if loose := _starts(lines[:_LINES_COMPARED], wanted, lambda line: "".join(line.split())):
        return f"It differs only in white space from these lines:\n{_region(lines, loose[0], len(wanted))}"
    near = _nearest(lines, wanted)
    if near is None:
        return "Read it again: it may have changed."
    return f"The nearest lines are:\n{_region(lines, near, len(wanted))}\nCopy `old` from the file exactly."


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """The index where `lines` is most similar to `wanted`, judged by the longest line of `wanted`."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor].strip()[:_WIDTH_COMPARED])
    best, found = 0.6, None
    for index, line in enumerate(lines[:_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:_WIDTH_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, found = matcher.ratio(), max(index - anchor, 0)
    return found


def _region(lines: list[str], start: int, count: int) -> str:
    """Some lines, as read_file shows them."""
    region = lines[start : start + min(count, _CONTEXT_SHOWN)]
    return "\n".join(f"{start + 1 + index}\t{line[:500]}" for index, line in enumerate(region))
