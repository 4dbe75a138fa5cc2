"""Unified diffs for people to read: complete for what is approved, shortened for enormous results, and never slow."""

import difflib

from tui_agent.text import counted
from tui_agent.visible import visible_line

MAX_LINES = 2_000
"""Lines of a result's diff that are kept."""
MAX_WIDTH = 1_000
"""Characters of a line that are kept."""
_COMPARED = 4_000
"""Lines on either side that are compared; a larger changed part is shown as replaced as a whole."""
_CONTEXT = 3


def unified(old: str, new: str, name: str, *, complete: bool = False) -> str:
    """The unified diff from `old` to `new`, at most `MAX_LINES` lines and a note; empty if they are equal.

    With `complete`, nothing is cut: applied to `old`, it gives exactly `new`. Otherwise long lines are cut, and a
    carriage return at the end of a line is left out unless the change adds or removes it. Only newlines end a line. A
    changed part of more than a few thousand lines is not compared line by line.
    """
    before, after = _lines(old), _lines(new)
    if before == after:
        return ""
    name = visible_line(name)
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    first = max(start - _CONTEXT, 0)
    last = max(end - _CONTEXT, 0)
    removed, added = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(removed), len(added)) > _COMPARED:
        body = [
            _range(first, len(removed), len(added)),
            *(f"-{line}" for line in removed),
            *(f"+{line}" for line in added),
        ]
    else:
        body = [_moved(line, first) for line in difflib.unified_diff(removed, added, n=_CONTEXT, lineterm="")][2:]
    if complete:
        return "\n".join((f"--- {name}", f"+++ {name}", *body))
    ending = "" if old and ("\r\n" in old) != ("\r\n" in new) else "\r"
    shown = [f"--- {name}", f"+++ {name}", *(_clipped(line, ending) for line in body[:MAX_LINES])]
    if len(body) > MAX_LINES:
        shown.append(f"… {counted(len(body) - MAX_LINES, 'more line')}")
    return "\n".join(shown)


def _lines(text: str) -> list[str]:
    """The lines without their endings; a last line without one gets the usual note."""
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _common(one: list[str], other: list[str]) -> int:
    """How many lines both start with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _range(first: int, removed: int, added: int) -> str:
    return f"@@ -{first + 1},{removed} +{first + 1},{added} @@"


def _moved(line: str, by: int) -> str:
    """A line of a diff; in a hunk's header, the line numbers are raised by `by`."""
    if not line.startswith("@@ "):
        return line
    _, old, new, _ = line.split(" ")
    return f"@@ -{_shift(old[1:], by)} +{_shift(new[1:], by)} @@"


def _shift(span: str, by: int) -> str:
    start, comma, count = span.partition(",")
    return f"{int(start) + by}{comma}{count}"


def _clipped(line: str, ending: str) -> str:
    text, newline, note = line.partition("\n")
    text = text.removesuffix(ending)
    return (text if len(text) <= MAX_WIDTH else f"{text[:MAX_WIDTH]}…") + newline + note
