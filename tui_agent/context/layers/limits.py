"""Limits how much of a tool result, or of a user's text, enters the conversation: all, both ends, or a preview.

Eviction is decided first, on the raw text; other texts are cut to lines, then characters, then UTF-8 bytes. In both
cases the caller stores the full text, and the part that enters says how to read the rest. Successes and errors are
treated alike (docs/context.md, "Layers"). Results that a tool has paged itself are never shortened.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context.budget import Budget
from tui_agent.context.cutting import head, head_bytes, quoted, tail, tail_bytes
from tui_agent.context.effects import SaveText, Steps, expect
from tui_agent.conversation.blocks import Text, text_in
from tui_agent.conversation.entries import Artifact, Message
from tui_agent.settings.schema import OutputSettings

MARKED_LINES = 4
"""The smallest limit in lines with room for both ends and the marker between them."""
NOTICE_LINES = 3
"""Lines that the marker and the notice of a cut result take."""
NOTICE_CHARS = 640
"""Characters, and bytes, of a cut result reserved for its marker and notice."""
STUB_CHARS = 700
"""Characters of the notice with a preview; a text that is barely longer than its preview stays whole."""
PAGE_BYTES_PER_TOKEN = 2
"""Bytes assumed for a token when sizing a page: few enough for any script."""
PROMPT_SHARE = 0.5
"""A user's text that takes more than this share of the history budget enters as a preview."""
_PROMPT_LIMIT = ("half of the room for the conversation",)


class Uncut(msgspec.Struct, frozen=True):
    """The text enters in full."""

    text: str


class Cut(msgspec.Struct, frozen=True):
    """Both ends of the text, or only its head, enter; the caller stores `source`, the full text."""

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


class Evicted(msgspec.Struct, frozen=True):
    """A preview of the text enters; the caller stores `source`, the full text, as an evicted artifact."""

    source: str
    head: str
    tail: str

    def text(self, path: str) -> str:
        """What enters; the whole lies at `path`."""
        data = self.source.encode()
        left_out = len(self.source) - len(self.head) - len(self.tail)
        notice = (
            f"[This result is too large to show: {_lines(self.source):,} lines, {len(self.source):,} characters, "
            f"{len(data):,} bytes, SHA-256 {sha256(data).hexdigest()}. "
            f"read_file(path={quoted(path)}) shows the whole, page by page. Its beginning and end:]"
        )
        if not self.head and not self.tail:
            return notice
        return f"{notice}\n{_ended(self.head)}[... {left_out:,} characters left out ...]\n{self.tail}"


Entering: TypeAlias = Uncut | Cut | Evicted


def shorten(
    text: str, settings: OutputSettings, *, history_budget: int, tokens_of: Callable[[str], int], paged: bool = False
) -> Entering:
    """Decide on a raw result. `history_budget` is in tokens; `text` must be valid Unicode.

    `paged`: the tool returned a page of limited size, which says itself how to get the next one.
    """
    if paged:
        return Uncut(text)
    size, most = settings.preview_chars, eviction_tokens(settings, history_budget)
    if _has_preview(text, settings) and (len(text) > settings.large_output_threshold or tokens_of(text) > most):
        return Evicted(text, head(text, size), tail(text, size))
    return _cut(text, settings)


def fitted(
    said: Message, settings: OutputSettings, budget: Budget, *, name: str, tokens_of: Callable[[str], int]
) -> Steps[Message]:
    """Cut the user's words to what enters the conversation: a text too large for the window goes to a file."""
    text = text_in(said.blocks)
    if not (budget.known and _has_preview(text, settings) and tokens_of(text) > budget.history * PROMPT_SHARE):
        return said
    size, artifact = settings.preview_chars, expect(Artifact, (yield SaveText(name, text)))
    short = Cut(text, head(text, size), tail(text, size), _PROMPT_LIMIT)
    others = tuple(block for block in said.blocks if not isinstance(block, Text))
    return structs.replace(said, blocks=(Text(short.text(artifact.path)), *others), artifact=artifact)


def page_bytes(settings: OutputSettings, history_budget: int) -> int:
    """The most bytes of one page, so that it is never large enough to be evicted."""
    return PAGE_BYTES_PER_TOKEN * eviction_tokens(settings, history_budget)


def eviction_tokens(settings: OutputSettings, history_budget: int) -> int:
    return min(settings.evict_tokens, int(history_budget * settings.evict_share))


def _has_preview(text: str, settings: OutputSettings) -> bool:
    """Whether a preview of the text would be shorter than the text."""
    return len(text) > 2 * settings.preview_chars + STUB_CHARS


def _cut(text: str, settings: OutputSettings) -> Uncut | Cut:
    limits = (
        (settings.max_lines, NOTICE_LINES, "lines", _LINES),
        (settings.max_chars, NOTICE_CHARS, "characters", _CHARACTERS),
        (settings.max_bytes, NOTICE_CHARS, "bytes", _BYTES),
    )
    over = tuple(f"{limit:,} {name}" for limit, _, name, measure in limits if measure.size(text) > limit)
    if not over:
        return Uncut(text)
    both = settings.truncate_mode == "head_tail" and settings.max_lines >= MARKED_LINES
    first, last = text, ""
    for limit, notice, _, measure in limits:
        # What a limit leaves after the notice; one too small for the notice applies to the text alone.
        room = limit - notice if limit > 2 * notice else limit
        if measure.size(first) + measure.size(last) <= room:
            continue
        if not both:
            first = measure.head(first, room)
        elif not last:
            first, last = measure.head(first, room - room // 2), measure.tail(first, room // 2)
        else:
            # Half for each end; what one end does not need goes to the other.
            mine = max(room - room // 2, room - measure.size(last))
            mine = min(mine, measure.size(first))
            first, last = measure.head(first, mine), measure.tail(last, room - mine)
    return Cut(text, first, last, over)


class _Measure(msgspec.Struct, frozen=True):
    """The size of a text, its first `n` and its last `n`."""

    size: Callable[[str], int]
    head: Callable[[str, int], str]
    tail: Callable[[str, int], str]


def _split(text: str) -> list[str]:
    """Lines with their endings; only a newline character ends a line."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _lines(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


_LINES = _Measure(
    _lines, lambda text, n: "".join(_split(text)[:n]), lambda text, n: "".join(_split(text)[-n:] if n else "")
)
_CHARACTERS = _Measure(len, head, tail)
_BYTES = _Measure(lambda text: len(text.encode()), head_bytes, tail_bytes)
