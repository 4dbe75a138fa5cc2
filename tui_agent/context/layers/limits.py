"""Limits how much of a tool result, or of a user's text, enters the conversation: all, both ends, or a preview.

Eviction is decided first, on the raw text; other texts are cut to lines, then characters, then UTF-8 bytes. In both
cases the caller stores the full text, and the part that enters says how to read the rest. Successes and errors are
treated alike (docs/context.md, "Layers"). Results that a tool has paged itself are never shortened.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from tui_agent.context.cutting import head, head_bytes, tail, tail_bytes
from tui_agent.settings import Output

MARKED_LINES = 4
"""The smallest limit in lines with room for both ends and the marker between them."""
NOTICE_LINES = 3
"""Lines that the marker and the notice of a cut result take."""
NOTICE_CHARS = 640
"""Characters, and bytes, of a cut result reserved for its marker and notice."""
STUB_CHARS = 700
"""Characters of the notice with a preview; a text that is barely longer than its preview stays whole."""
PROMPT_SHARE = 0.5
"""A user's text that takes more than this share of the history budget enters as a preview."""


class Whole(NamedTuple):
    """The text enters in full."""

    text: str


class Cut(NamedTuple):
    """Both ends of the result, or only its head, enter; the caller stores `source`, the full text."""

    source: str
    head: str
    tail: str
    limits: tuple[str, ...]

    def text(self, path: str) -> str:
        """What enters; the whole lies at `path`."""
        left_out = len(self.source) - len(self.head) - len(self.tail)
        lines = _lines(self.source) - _lines(self.head) - _lines(self.tail)
        notice = (
            f"[Cut at {' and '.join(self.limits)}: {_lines(self.source):,} lines, {len(self.source):,} characters, "
            f"{len(self.source.encode()):,} bytes in all. read_file(path={quoted(path)}) "
            "shows the whole, page by page.]"
        )
        if not self.tail:
            return f"{_ended(self.head)}{notice}"
        marker = f"[... {max(0, lines):,} lines, {left_out:,} characters left out ...]"
        return f"{_ended(self.head)}{marker}\n{_ended(self.tail)}{notice}"


class Evicted(NamedTuple):
    """A preview of the text enters; the caller stores `source`, the full text, as an evicted artifact."""

    source: str
    head: str
    tail: str
    what: str = "result"

    def text(self, path: str) -> str:
        """What enters; the whole lies at `path`."""
        data = self.source.encode()
        left_out = len(self.source) - len(self.head) - len(self.tail)
        notice = (
            f"[This {self.what} is too large to show: {_lines(self.source):,} lines, {len(self.source):,} characters, "
            f"{len(data):,} bytes, SHA-256 {sha256(data).hexdigest()}. "
            f"read_file(path={quoted(path)}) shows the whole, page by page. Its beginning and end:]"
        )
        if not self.head and not self.tail:
            return notice
        return f"{notice}\n{_ended(self.head)}[... {left_out:,} characters left out ...]\n{self.tail}"


Shortened: TypeAlias = Whole | Cut | Evicted


def shorten(
    text: str, settings: Output, *, history_budget: int, tokens_of: Callable[[str], int], paged: bool = False
) -> Shortened:
    """Decide on a raw result. `history_budget` is in tokens; `text` must be valid Unicode.

    `paged`: the tool returned a page of limited size, which says itself how to get the next one.
    """
    if paged:
        return Whole(text)
    if _is_evicted(text, settings, history_budget, tokens_of):
        size = settings.preview_chars
        return Evicted(text, head(text, size), tail(text, size))
    return _cut(text, settings)


def shorten_prompt(
    text: str, settings: Output, *, history_budget: int, tokens_of: Callable[[str], int]
) -> Whole | Evicted:
    """Decide on a user's text: one that would crowd out everything else enters as a preview."""
    size = settings.preview_chars
    if _has_preview(text, settings) and tokens_of(text) > history_budget * PROMPT_SHARE:
        return Evicted(text, head(text, size), tail(text, size), "text")
    return Whole(text)


def eviction_tokens(settings: Output, history_budget: int) -> int:
    """The size in tokens above which a result is evicted."""
    return min(settings.evict_tokens, int(history_budget * settings.evict_share))


def _is_evicted(text: str, settings: Output, history_budget: int, tokens_of: Callable[[str], int]) -> bool:
    if not _has_preview(text, settings):
        return False
    return len(text) > settings.large_output_threshold or tokens_of(text) > eviction_tokens(settings, history_budget)


def _has_preview(text: str, settings: Output) -> bool:
    """Whether a preview of the text would be shorter than the text."""
    return len(text) > 2 * settings.preview_chars + STUB_CHARS


def _cut(text: str, settings: Output) -> Whole | Cut:
    over = _limits_passed(text, settings)
    if not over:
        return Whole(text)
    both = settings.truncate_mode == "head_tail" and settings.max_lines >= MARKED_LINES
    ends = _Ends(text, "", whole=True)
    ends = ends.to_lines(_room(settings.max_lines, NOTICE_LINES), both)
    ends = ends.to_characters(_room(settings.max_chars, NOTICE_CHARS), both)
    ends = ends.to_bytes(_room(settings.max_bytes, NOTICE_CHARS), both)
    return Cut(text, ends.head, ends.tail, over)


def _limits_passed(text: str, settings: Output) -> tuple[str, ...]:
    passed: list[str] = []
    if _lines(text) > settings.max_lines:
        passed.append(f"{settings.max_lines:,} lines")
    if len(text) > settings.max_chars:
        passed.append(f"{settings.max_chars:,} characters")
    if len(text) > settings.max_bytes or len(text.encode()) > settings.max_bytes:
        passed.append(f"{settings.max_bytes:,} bytes")
    return tuple(passed)


def _room(limit: int, notice: int) -> int:
    """What a limit leaves after the notice; a limit too small for the notice applies to the text alone."""
    return limit - notice if limit > 2 * notice else limit


class _Ends(NamedTuple):
    """The remaining part of a text: all of it in `head` while it is `whole`, else its two ends."""

    head: str
    tail: str
    whole: bool

    def to_lines(self, limit: int, both: bool) -> "_Ends":
        lines = _split(self.head)
        if len(lines) <= limit:
            return self
        if not both:
            return _Ends("".join(lines[:limit]), "", whole=False)
        first = limit - limit // 2
        return _Ends("".join(lines[:first]), "".join(lines[len(lines) - limit // 2 :]), whole=False)

    def to_characters(self, limit: int, both: bool) -> "_Ends":
        if len(self.head) + len(self.tail) <= limit:
            return self
        if not both:
            return _Ends(head(self.head, limit), "", whole=False)
        if self.whole:
            return _Ends(head(self.head, limit - limit // 2), tail(self.head, limit // 2), whole=False)
        first, last = _split_room(limit, len(self.head), len(self.tail))
        return _Ends(head(self.head, first), tail(self.tail, last), whole=False)

    def to_bytes(self, limit: int, both: bool) -> "_Ends":
        sizes = len(self.head.encode()), len(self.tail.encode())
        if sum(sizes) <= limit:
            return self
        if not both:
            return _Ends(head_bytes(self.head, limit), "", whole=False)
        if self.whole:
            return _Ends(head_bytes(self.head, limit - limit // 2), tail_bytes(self.head, limit // 2), whole=False)
        first, last = _split_room(limit, *sizes)
        return _Ends(head_bytes(self.head, first), tail_bytes(self.tail, last), whole=False)


def _split_room(limit: int, first: int, last: int) -> tuple[int, int]:
    """Divide a limit in half for each end; what one end does not need goes to the other."""
    half = limit // 2
    if first <= limit - half:
        return first, limit - first
    if last <= half:
        return limit - last, last
    return limit - half, half


def _split(text: str) -> list[str]:
    """Lines with their endings; only a newline character ends a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _lines(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def quoted(path: str) -> str:
    """A path quoted as an argument of a call."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
