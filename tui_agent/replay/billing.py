"""Billing a policy: the parts of its prompts, what a provider's prompt cache saves, and the cost.

A prompt is a list of parts with running sums of their sizes, so that simulating a call takes time only for what has
changed since the one before. The cache follows the providers' documentation. Anthropic ("Prompt caching"): an entry is
kept for each marked prefix; a request reads the longest one at a mark or up to 20 blocks before it, which renews its
time to live; nothing shorter than the model's minimum is kept. Gemini ("Context caching"): implicit, for the longest
common prefix with a recent request, above a minimum; there is nothing to mark.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import HOUR_S, ModelProfile
from tui_agent.conversation.request import CacheHours
from tui_agent.models.usage import cost_usd
from tui_agent.replay.script import RecordedMessage

T = TypeVar("T")
PartKind: TypeAlias = Literal[
    "fixed", "user", "answer", "result", "cleared", "preview", "summary", "digest", "instruction"
]

_WRITTEN: Final = frozenset(("summary", "digest"))
"""Parts that a model wrote to replace others."""

LOOKBACK = 20
"""The number of blocks before a mark in which Anthropic looks for an entry."""
WRITING_SPEED: Final = 60
"""Output tokens per second at which summaries are assumed to be written: an assumption, not measured."""
FETCH_OUTPUT = 80
"""Output tokens of the call that fetches something again."""
LARGEST_FETCH = 20_000
"""Tokens of the largest result that is fetched at once; a larger one is read in pages."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptPart:
    """A block of a prompt. `mentions` occur in its text; it says where to fetch each of `fetchable`.

    `recorded` is the message that it shows, in full or in part; `text` is its text if that is not all of `recorded`.
    `depths` says for a summary's mentions through how many summaries each has passed; the default is one.
    """

    kind: PartKind
    tokens: int
    mentions: frozenset[int] = frozenset()
    fetchable: tuple[RecordedMessage, ...] = ()
    recorded: RecordedMessage | None = None
    text: str = ""
    depths: Mapping[int, int] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return self.text or (self.recorded.text if self.recorded is not None else "")

    def depth(self, mention: int) -> int:
        """The number of summaries that a mention in this part has passed through; 0: it is verbatim."""
        return self.depths.get(mention, 1) if self.kind in _WRITTEN else 0


class RequestParts:
    """The parts of the next request. A place in it is the number of parts before it.

    `unchanged` is the number of leading parts that the last request had too, `sent` the number of parts that it had.
    `edges` are the places where the policy marks the end of a prefix for the cache; the end of the system prompt and of
    the request are always marked. `cache_hours` is what the marks ask to keep for an hour.
    """

    def __init__(self, fixed: int) -> None:
        self.parts: list[PromptPart] = [PromptPart("fixed", fixed)]
        self.unchanged = 0
        self.sent = 0
        self.edges: tuple[int, ...] = ()
        self.cache_hours: CacheHours = ""
        self._ends = [fixed]
        self._held = Counter[int]()
        self._verbatim = Counter[int]()
        self._fetchable = Counter[int]()

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def tokens(self) -> int:
        return self._ends[-1]

    def size(self, place: int) -> int:
        return self._ends[place - 1] if place else 0

    def append(self, part: PromptPart) -> None:
        self.parts.append(part)
        self._ends.append(self._ends[-1] + part.tokens)
        self._count(part, 1)

    def splice(self, start: int, stop: int, parts: Sequence[PromptPart]) -> None:
        """Replace the parts from `start` up to `stop`."""
        for part in self.parts[start:stop]:
            self._count(part, -1)
        for part in parts:
            self._count(part, 1)
        self.parts[start:stop] = parts
        self._resize(start)

    def replace(self, changes: dict[int, PromptPart]) -> None:
        for place, part in changes.items():
            self._count(self.parts[place], -1)
            self.parts[place] = part
            self._count(part, 1)
        if changes:
            self._resize(min(changes))

    def show(self, parts: Sequence[PromptPart]) -> None:
        """Replace all parts after the system prompt; equal ones at the start and the end count as unchanged."""
        old, new = self.parts, [self.parts[0], *parts]
        start = common(old, new)
        if start == len(old):
            for part in new[start:]:
                self.append(part)
        else:
            end = common(old[start:][::-1], new[start:][::-1])
            self.splice(start, len(old) - end, new[start : len(new) - end])

    def mark_sent(self) -> None:
        self.unchanged = self.sent = len(self.parts)

    def holds(self, mention: int) -> bool:
        return self._held[mention] > 0

    def depth(self, mention: int) -> int:
        """The least number of summaries that a mention in the prompt has passed through: 0 verbatim, 1 a summary of
        turns.
        """
        if self._verbatim[mention]:
            return 0
        return min((part.depth(mention) for part in self.parts if mention in part.mentions), default=0)

    def leads_to(self, result: RecordedMessage) -> bool:
        """Whether something in the prompt says where to fetch the result."""
        return self._fetchable[result.index] > 0

    def _resize(self, start: int) -> None:
        self.unchanged = min(self.unchanged, start)
        del self._ends[start:]
        total = self._ends[-1] if self._ends else 0
        for part in self.parts[start:]:
            total += part.tokens
            self._ends.append(total)

    def _count(self, part: PromptPart, change: int) -> None:
        for mention in part.mentions:
            self._held[mention] += change
            self._verbatim[mention] += change if part.kind not in _WRITTEN else 0
        for result in part.fetchable:
            self._fetchable[result.index] += change


def common(one: list[T], other: list[T]) -> int:
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if one[place] is not other[place])


class PromptCache:
    """The cache entries of one conversation, as places in its prompt, and when each expires.

    Only a prompt's `unchanged` parts have the same bytes, so entries after them are lost.
    """

    def __init__(self, *, ttl_s: float, minimum: int, marked: bool) -> None:
        self._ttl = ttl_s
        self._minimum = minimum
        self._marked = marked
        self._ends: dict[int, float] = {}
        self._lives: dict[int, float] = {}
        self._last, self._last_ttl = float("-inf"), ttl_s

    def seed(self, place: int, now: float) -> None:
        """Add an entry at this place: another conversation has sent the same prefix."""
        self._ends[place] = now + self._ttl

    def is_cold(self, now: float) -> bool:
        return now - self._last >= self._last_ttl

    def use(self, prompt: RequestParts, now: float, output: int = 0) -> Usage:
        """Send the prompt at this time, and mark it as sent. One that was sent beside others may come after them."""
        self._forget(prompt.unchanged, now)
        hit = self._use_marked(prompt, now) if self._marked else self._use_implicit(prompt, now)
        if now >= self._last:
            self._last, self._last_ttl = now, max(self._ttl, HOUR_S) if prompt.cache_hours == "all" else self._ttl
        read, total = prompt.size(hit), prompt.tokens
        written = self.written(total) - read if self._marked else 0
        prefix = prompt.size(1) if prompt.size(1) >= self._minimum else 0
        lasting = {"": 0, "prefix": max(0, prefix - read), "all": written}[prompt.cache_hours]
        prompt.mark_sent()
        return Usage(total, read, written, output, cache_write_hour_tokens=min(written, lasting))

    def written(self, tokens: int) -> int:
        """The tokens that a request of this size writes if nothing of it is in the cache."""
        return tokens if self._marked and tokens >= self._minimum else 0

    def _forget(self, unchanged: int, now: float) -> None:
        alive = {place: end for place, end in self._ends.items() if end > now}
        if self._marked:
            self._ends = {place: end for place, end in alive.items() if place <= unchanged}
        else:
            self._ends = {}
            for place, end in alive.items():
                shared = min(place, unchanged)
                self._ends[shared] = max(end, self._ends.get(shared, 0.0))

    def _use_marked(self, prompt: RequestParts, now: float) -> int:
        marks = {place for place in (1, *prompt.edges, len(prompt)) if 0 < place <= len(prompt)}
        # For each, the longest entry at it or at most `LOOKBACK` blocks before it; 0 if there is none.
        hits = {max((place for place in self._ends if 0 <= mark - place < LOOKBACK), default=0) for mark in marks}
        hit = max(hits)
        for mark in marks:
            if mark > hit and prompt.size(mark) >= self._minimum:
                lasts = prompt.cache_hours == "all" or (prompt.cache_hours == "prefix" and mark == 1)
                self._lives[mark] = max(self._ttl, HOUR_S) if lasts else self._ttl
                self._ends[mark] = now + self._lives[mark]
        for place in hits - {0}:  # a read renews an entry for as long as it was written for
            self._ends[place] = max(self._ends[place], now + self._lives.get(place, self._ttl))
        return hit

    def _use_implicit(self, prompt: RequestParts, now: float) -> int:
        longest = max(self._ends, default=0)
        hit = longest if prompt.size(longest) >= self._minimum else 0
        for place in (hit, len(prompt)):
            if place and prompt.size(place) >= self._minimum:
                self._ends[place] = max(self._ends.get(place, 0.0), now + self._ttl)
        return hit


@dataclass(slots=True)
class Bill:
    """The sums of a replay. Costs are in USD, everything else in tokens or counts.

    A wait is one step before which a call had to wait for summaries; its length is their tokens.
    """

    usage: Usage = field(default_factory=Usage)
    call_cost_usd: float = 0.0
    summary_cost_usd: float = 0.0
    fetch_cost_usd: float = 0.0
    calls: int = 0
    cold_calls: int = 0
    peak_tokens: int = 0
    calls_over_window: int = 0
    summaries: int = 0
    summary_tokens: int = 0
    written_meanwhile: int = 0
    waits: int = 0
    waited: int = 0
    longest_wait: int = 0
    fetches: int = 0

    @property
    def awaited_tokens(self) -> int:
        return self.summary_tokens - self.written_meanwhile

    @property
    def total(self) -> float:
        """The cost of the session in USD: its calls, its summaries, and fetching results again."""
        return self.call_cost_usd + self.summary_cost_usd + self.fetch_cost_usd


class Billing:
    """Bills one policy on one model, and owns the cache. `small` is the model that may write summaries instead.

    `window` is the context window in tokens (0: the model's).
    """

    def __init__(self, profile: ModelProfile, small: ModelProfile | None = None, window: int = 0) -> None:
        self.profile = profile
        self.small = small
        self.window = window or profile.window
        self.bill = Bill()
        # A local model bills nothing and reports no cache reads: simulate no cache.
        minimum = profile.cache_minimum if profile.cache != "none" else sys.maxsize
        self.cache = PromptCache(ttl_s=profile.cache_ttl_s, minimum=minimum, marked=profile.cache == "marked")

    def call(self, prompt: RequestParts, output: int, now: float) -> Usage:
        """Bill one of the session's own calls; returns its usage."""
        bill = self.bill
        bill.cold_calls += bill.calls > 0 and self.cache.is_cold(now)
        usage = self.cache.use(prompt, now, output)
        bill.calls += 1
        bill.usage += usage
        bill.call_cost_usd += cost_usd(usage, self.profile.prices) or 0.0
        bill.peak_tokens = max(bill.peak_tokens, usage.input_tokens)
        if self.window and usage.input_tokens > self.window:
            bill.calls_over_window += 1
        return usage

    def summary(self, prompt: RequestParts, output: int, now: float) -> Usage:
        """Bill a summary that the session's model writes continuing `prompt`, which includes the instruction."""
        return self._summarised(self.profile, self.cache.use(prompt, now, output))

    def separate(self, profile: ModelProfile, tokens: int, output: int) -> Usage:
        """Bill a summary that this model writes for a separate request, without any caching."""
        return self._summarised(profile, Usage(tokens, output_tokens=output))

    def note_wait(self, tokens: int) -> None:
        """Record that the next call had to wait for this many tokens of summaries."""
        if tokens:
            self.bill.waits += 1
            self.bill.waited += tokens
            self.bill.longest_wait = max(self.bill.longest_wait, tokens)

    def fetch(self, results: Sequence[RecordedMessage], prompt: RequestParts) -> None:
        """Bill fetching results that had left the view, all in one step: one more call, and uncached tokens of text."""
        tokens = sum(min(result.tokens, LARGEST_FETCH) for result in results)
        asked = FETCH_OUTPUT * len(results)
        extra = Usage(
            input_tokens=prompt.tokens + tokens + asked,
            cache_read_tokens=prompt.tokens,
            cache_write_tokens=tokens + asked if self.profile.cache == "marked" else 0,
            output_tokens=asked,
        )
        self.bill.fetches += len(results)
        self.bill.fetch_cost_usd += cost_usd(extra, self.profile.prices) or 0.0

    def _summarised(self, profile: ModelProfile, usage: Usage) -> Usage:
        self.bill.summaries += 1
        self.bill.summary_tokens += usage.output_tokens
        self.bill.summary_cost_usd += cost_usd(usage, profile.prices) or 0.0
        return usage
