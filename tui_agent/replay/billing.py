"""The bill of a policy: what its prompts are made of, what a provider's cache spares of them, and what that costs.

A prompt is a list of parts with running sizes, so that a call costs what has changed since the one before. The cache
follows what providers document. Anthropic ("Prompt caching"): an entry is kept for each marked prefix; a request reads
the longest one at a mark or up to 20 blocks before it, which renews its time; nothing shorter than the model's minimum
is kept. Gemini ("Context caching"): implicit, the longest common prefix with a recent request, above a minimum; nothing
to mark.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from tui_agent.conversation.entries import Usage
from tui_agent.models.base import ModelProfile
from tui_agent.models.usage import cost_usd
from tui_agent.replay.script import RecordedMessage

T = TypeVar("T")
PartKind: TypeAlias = Literal[
    "fixed", "user", "answer", "result", "cleared", "preview", "summary", "digest", "instruction"
]

_WRITTEN: Final = frozenset(("summary", "digest"))
"""Parts that a model wrote of others."""

LOOKBACK = 20
"""How many blocks before a mark Anthropic looks for an entry."""
REWRITE_TOKENS = 1_000
"""An edit that has at least this much of an earlier request billed again counts as a rewrite."""
WRITING_SPEED: Final = 60
"""Output tokens a second at which a summary is taken to be written: stated, not measured."""
FETCH_OUTPUT = 80
"""Tokens of the answer that asks for something again."""
LARGEST_FETCH = 20_000
"""Tokens of the largest result that is fetched at once; more is paged."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptPart:
    """A block of a prompt. `mentions` can be read in it; the text of each of `fetchable` can be fetched through it.

    `recorded` is what it shows, whole or in part; `text` what it says where that is not of the recording. `depths` are
    those of a summary's mentions: through how many summaries each has passed. One that is missing passed through one.
    """

    kind: PartKind
    tokens: int
    mentions: frozenset[int] = frozenset()
    fetchable: tuple[RecordedMessage, ...] = ()
    recorded: RecordedMessage | None = None
    text: str = ""
    depths: Mapping[int, int] = field(default_factory=dict)

    def depth(self, mention: int) -> int:
        """Through how many summaries a mention in this part has passed; 0: it is read where it was said."""
        return self.depths.get(mention, 1) if self.kind in _WRITTEN else 0


class Prompt:
    """The parts of the next request. A place in it is a number of parts: those before it.

    `unchanged` is how many of its first parts the last request had too, `sent` how many that one had. `edges` are the
    places where the policy marks the end of a prefix for the cache; system prompt and end are always marked.
    """

    def __init__(self, fixed: int) -> None:
        self.parts: list[PromptPart] = [PromptPart("fixed", fixed)]
        self.unchanged = 0
        self.sent = 0
        self.sent_tokens = 0
        self.edges: tuple[int, ...] = ()
        self._ends = [fixed]
        self._held: dict[int, int] = {}
        self._verbatim: dict[int, int] = {}
        self._fetchable: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def tokens(self) -> int:
        """The size of the whole prompt."""
        return self._ends[-1]

    def size(self, place: int) -> int:
        """The size of all before this place."""
        return self._ends[place - 1] if place else 0

    def append(self, part: PromptPart) -> None:
        """Add a part at the end."""
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
        """Put other parts in the places of these."""
        for place, part in changes.items():
            self._count(self.parts[place], -1)
            self.parts[place] = part
            self._count(part, 1)
        if changes:
            self._resize(min(changes))

    def show(self, parts: Sequence[PromptPart]) -> None:
        """Make these the parts after the system prompt; what is the same at both ends counts as unchanged."""
        old, new = self.parts, [self.parts[0], *parts]
        start = common(old, new)
        if start == len(old):
            for part in new[start:]:
                self.append(part)
        else:
            end = common(old[start:][::-1], new[start:][::-1])
            self.splice(start, len(old) - end, new[start : len(new) - end])

    def mark_sent(self) -> None:
        """The request with all this was made."""
        self.unchanged = self.sent = len(self.parts)
        self.sent_tokens = self.tokens

    def holds(self, mention: int) -> bool:
        """Whether a mention can be read in the prompt."""
        return mention in self._held

    def depth(self, mention: int) -> int:
        """Through how few summaries a mention that the prompt holds has passed: 0 verbatim, 1 a summary of turns."""
        if mention in self._verbatim:
            return 0
        return min((part.depth(mention) for part in self.parts if mention in part.mentions), default=0)

    def leads_to(self, result: RecordedMessage) -> bool:
        """Whether something in the prompt says where the result can be found."""
        return result.index in self._fetchable

    def _resize(self, start: int) -> None:
        self.unchanged = min(self.unchanged, start)
        del self._ends[start:]
        total = self._ends[-1] if self._ends else 0
        for part in self.parts[start:]:
            total += part.tokens
            self._ends.append(total)

    def _count(self, part: PromptPart, change: int) -> None:
        _add(self._held, part.mentions, change)
        if part.kind not in _WRITTEN:
            _add(self._verbatim, part.mentions, change)
        _add(self._fetchable, (result.index for result in part.fetchable), change)


def _add(counts: dict[int, int], keys: Iterable[int], change: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + change
        if count:
            counts[key] = count
        else:
            del counts[key]


def common(one: list[T], other: list[T]) -> int:
    """How many of the first parts, or messages, are the same."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(place for place in range(shorter) if one[place] is not other[place])


class CacheUse(NamedTuple):
    """Tokens of one prompt: all, read from the cache, written to it."""

    total: int
    read: int
    written: int


class PromptCache:
    """The entries of one conversation, as places in its prompt, and when each runs out.

    A prompt's parts that are not `unchanged` are other bytes, so the entries beyond them are worthless.
    """

    def __init__(self, *, ttl_s: float, minimum: int, marked: bool) -> None:
        self._ttl = ttl_s
        self._minimum = minimum
        self._marked = marked
        self._ends: dict[int, float] = {}
        self._last = float("-inf")

    def seed(self, place: int, now: float) -> None:
        """Another conversation has sent the parts before this place; they are in the cache already."""
        self._ends[place] = now + self._ttl

    def is_cold(self, now: float) -> bool:
        """Whether everything has run out."""
        return now - self._last >= self._ttl

    def use(self, prompt: Prompt, now: float) -> CacheUse:
        """Send the prompt at this time; it is then marked as sent."""
        self._forget(prompt.unchanged, now)
        hit = self._use_marked(prompt, now) if self._marked else self._use_implicit(prompt, now)
        self._last = now
        read, total = prompt.size(hit), prompt.tokens
        prompt.mark_sent()
        return CacheUse(total, read, self.written(total) - read if self._marked else 0)

    def written(self, tokens: int) -> int:
        """How many tokens a request of so many writes that finds nothing in the cache."""
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

    def _use_marked(self, prompt: Prompt, now: float) -> int:
        marks = {place for place in (1, *prompt.edges, len(prompt)) if 0 < place <= len(prompt)}
        hits = {self._nearest(mark) for mark in marks}
        hit = max(hits)
        new = (mark for mark in marks if mark > hit and prompt.size(mark) >= self._minimum)
        for place in (*(hits - {0}), *new):
            self._ends[place] = now + self._ttl
        return hit

    def _nearest(self, mark: int) -> int:
        """The longest entry at a mark or shortly before it; 0: there is none."""
        return max((place for place in self._ends if 0 <= mark - place < LOOKBACK), default=0)

    def _use_implicit(self, prompt: Prompt, now: float) -> int:
        longest = max(self._ends, default=0)
        hit = longest if prompt.size(longest) >= self._minimum else 0
        for place in (hit, len(prompt)):
            if place and prompt.size(place) >= self._minimum:
                self._ends[place] = now + self._ttl
        return hit


@dataclass(slots=True)
class Bill:
    """Sums over a replay. Costs in USD, everything else in tokens or counts.

    A wait is one step for which a call had to wait until summaries were written; its length is their tokens.
    """

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    summaries: int = 0
    summary_tokens: int = 0
    summary_cost: float = 0.0
    written_beside: int = 0
    waits: int = 0
    waited: int = 0
    longest_wait: int = 0
    fetches: int = 0
    fetched_tokens: int = 0
    fetch_cost: float = 0.0
    rewrites: int = 0
    rewritten_tokens: int = 0
    cold_calls: int = 0
    peak: int = 0
    overflows: int = 0

    @property
    def awaited_tokens(self) -> int:
        """The tokens of summaries until whose writing a call had to wait."""
        return self.summary_tokens - self.written_beside

    @property
    def total(self) -> float:
        """What the session would have cost: its calls, its summaries, and what had to be fetched again."""
        return self.cost + self.summary_cost + self.fetch_cost


class Ledger:
    """Bills one policy on one model, whose cache it owns. `small` is the model that may write summaries in its place.

    `window` is in tokens (0: the model's).
    """

    def __init__(self, profile: ModelProfile, small: ModelProfile | None = None, window: int = 0) -> None:
        self.profile = profile
        self.small = small
        self.window = window or profile.window
        self.bill = Bill()
        self.cache = _cache_of(profile)

    def call(self, prompt: Prompt, output: int, now: float) -> Usage:
        """One of the session's own calls; what it used."""
        bill, cold, earlier = self.bill, self.cache.is_cold(now), prompt.sent_tokens
        edited = prompt.unchanged < prompt.sent
        use = self.cache.use(prompt, now)
        again = min(earlier, use.total) - use.read
        if edited and not cold and again >= REWRITE_TOKENS:
            bill.rewrites += 1
            bill.rewritten_tokens += again
        bill.cold_calls += cold and bill.calls > 0
        bill.calls += 1
        usage = _usage(use, output)
        bill.usage += usage
        bill.cost += cost_usd(usage, self.profile.prices) or 0.0
        bill.peak = max(bill.peak, use.total)
        if self.window and use.total > self.window:
            bill.overflows += 1
        return usage

    def summary(self, prompt: Prompt, output: int, now: float) -> Usage:
        """A summary written by the session's model at the end of the running request, the instruction in `prompt`."""
        return self._summarised(self.profile, _usage(self.cache.use(prompt, now), output))

    def separate(self, profile: ModelProfile, tokens: int, output: int) -> Usage:
        """A summary written by this model on a request of its own, of which no cache holds or keeps anything."""
        return self._summarised(profile, _usage(CacheUse(tokens, 0, 0), output))

    def note_wait(self, tokens: int) -> None:
        """The next call had to wait until so many tokens of summaries were written."""
        if tokens:
            self.bill.waits += 1
            self.bill.waited += tokens
            self.bill.longest_wait = max(self.bill.longest_wait, tokens)

    def fetch(self, results: Sequence[RecordedMessage], prompt: Prompt) -> None:
        """What had left the view is fetched again, all in one step: one more call, and its text is new to the cache."""
        tokens = sum(min(result.tokens, LARGEST_FETCH) for result in results)
        asked = FETCH_OUTPUT * len(results)
        extra = Usage(
            input_tokens=prompt.tokens + tokens + asked,
            cache_read_tokens=prompt.tokens,
            cache_write_tokens=tokens + asked if self.profile.cache == "marked" else 0,
            output_tokens=asked,
        )
        self.bill.fetches += len(results)
        self.bill.fetched_tokens += tokens
        self.bill.fetch_cost += cost_usd(extra, self.profile.prices) or 0.0

    def _summarised(self, profile: ModelProfile, usage: Usage) -> Usage:
        self.bill.summaries += 1
        self.bill.summary_tokens += usage.output_tokens
        self.bill.summary_cost += cost_usd(usage, profile.prices) or 0.0
        return usage


def _cache_of(profile: ModelProfile) -> PromptCache:
    # A local model bills nothing and reports no reads: its cache is as if it kept nothing.
    minimum = profile.cache_minimum if profile.cache != "none" else sys.maxsize
    return PromptCache(ttl_s=profile.cache_ttl_s, minimum=minimum, marked=profile.cache == "marked")


def _usage(use: CacheUse, output: int) -> Usage:
    return Usage(
        input_tokens=use.total, cache_read_tokens=use.read, cache_write_tokens=use.written, output_tokens=output
    )
