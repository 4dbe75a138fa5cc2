"""Exact replacement in a text, and what to say when it cannot be done: pure functions."""

import difflib
import re

from tui_agent.tools.base import ToolFailure

_NAMED = 10
"""Matches named by line number in a refusal."""
_MATCHES_COUNTED = 1_000
_LINES_COMPARED = 20_000
_CONTEXT_SHOWN = 12
_WIDTH_COMPARED = 200
_NUMBERED = re.compile(r"^\s*\d+(?:\+\d+)?\t", re.MULTILINE)


def replaced(text: str, old: str, new: str, replace_all: bool) -> tuple[str, list[int]]:
    """`text` with `old` replaced by `new`, and the line numbers (from 1) where that was.

    In a text whose lines all end in CRLF, newlines in `old` and `new` mean CRLF. Raises ToolFailure when `old` is not
    there, or is there more than once (overlapping included) and `replace_all` was not asked for.
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
        raise ToolFailure("`old` is not in the file. Nothing was changed.", _not_found(text, old))
    if replace_all:
        return text.replace(old, new), _line_numbers(text, places)
    if len(places) > 1:
        raise ToolFailure(
            _ambiguous(_line_numbers(text, places)),
            "Give more of the lines around the one you mean, or set replace_all=true.",
        )
    start = places[0]
    return text[:start] + new + text[start + len(old) :], _line_numbers(text, places)


def _only_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def _as_crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _places(text: str, old: str, overlapping: bool) -> list[int]:
    """Where `old` starts in `text`: every place a replacement would change, or the first matches, overlapping."""
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
    """What may help to find it."""
    bare = _NUMBERED.sub("", old)
    if bare != old and bare in text:
        return "Leave out the line numbers and tabs that read_file puts in front of each line."
    lines = text.split("\n")
    wanted = old.strip("\r\n").split("\n")
    loose = _loosely_equal(lines, wanted)
    if loose is not None:
        return f"It differs only in white space from these lines:\n{_region(lines, loose, len(wanted))}"
    near = _nearest(lines, wanted)
    if near is None:
        return "Read it again: it may have changed."
    return f"The nearest lines are:\n{_region(lines, near, len(wanted))}\nCopy `old` from the file exactly."


def _loosely_equal(lines: list[str], wanted: list[str]) -> int | None:
    """The index where lines stand that equal `wanted` but for white space."""
    pattern = ["".join(line.split()) for line in wanted]
    if not any(pattern):
        return None
    squeezed = ["".join(line.split()) for line in lines[:_LINES_COMPARED]]
    anchor = max(range(len(pattern)), key=lambda index: len(pattern[index]))
    for index, line in enumerate(squeezed):
        start = index - anchor
        if line == pattern[anchor] and start >= 0 and squeezed[start : start + len(pattern)] == pattern:
            return start
    return None


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """The index of the line from which on `lines` looks most like `wanted`, judged by its longest line."""
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
    """Some lines as read_file shows them."""
    region = lines[start : start + min(count, _CONTEXT_SHOWN)]
    return "\n".join(f"{start + 1 + index}\t{line[:500]}" for index, line in enumerate(region))
