"""A provider's prompt cache: how much of a prompt is read from it, and how much is written.

Anthropic ("Prompt caching"): an entry is kept for each marked prefix; a request reads the longest one at a mark or up
to 20 blocks before it, which renews its time; nothing shorter than the model's minimum is kept. Gemini ("Context
caching"): implicit, the longest common prefix with a recent request, above a minimum; nothing to mark.
"""

from typing import NamedTuple

from tui_agent.replay.prompt import Prompt

LOOKBACK = 20


class CacheUse(NamedTuple):
    """Tokens of one prompt: all, read from the cache, written to it."""

    total: int
    read: int
    written: int


class PromptCache:
    """The entries of one conversation, as numbers of pieces of its prompt, and when each runs out.

    A prompt's first pieces that are not `unchanged` are other bytes, so the entries beyond them are worthless.
    """

    def __init__(self, *, ttl_s: float, minimum: int, marked: bool) -> None:
        self._ttl = ttl_s
        self._minimum = minimum
        self._marked = marked
        self._ends: dict[int, float] = {}
        self._last = float("-inf")

    def is_cold(self, now: float) -> bool:
        """Whether everything has run out."""
        return now - self._last >= self._ttl

    def use(self, prompt: Prompt, now: float) -> CacheUse:
        """Send the prompt at this time; it is then marked as sent."""
        self._forget(prompt.unchanged, now)
        marks = self._marks(prompt)
        hit = self._hit(prompt, marks)
        for place in [*marks, hit] if self._marked else [len(prompt)]:
            if place and prompt.size(place) >= self._minimum and (place <= hit or place in marks):
                self._ends[place] = now + self._ttl
        self._last = now
        read, total = prompt.size(hit), prompt.tokens
        prompt.mark_sent()
        return CacheUse(total, read, total - read if self._marked and total >= self._minimum else 0)

    def _forget(self, unchanged: int, now: float) -> None:
        alive = {place: end for place, end in self._ends.items() if end > now}
        if self._marked:
            self._ends = {place: end for place, end in alive.items() if place <= unchanged}
        else:
            self._ends = {}
            for place, end in alive.items():
                shared = min(place, unchanged)
                self._ends[shared] = max(end, self._ends.get(shared, 0.0))

    def _marks(self, prompt: Prompt) -> set[int]:
        previous = min(prompt.sent, prompt.unchanged)
        return {place for place in (1, prompt.edge, previous, len(prompt)) if 0 < place <= len(prompt)}

    def _hit(self, prompt: Prompt, marks: set[int]) -> int:
        if not self._marked:
            longest = max(self._ends, default=0)
            return longest if prompt.size(longest) >= self._minimum else 0
        near = (place for place in self._ends if any(0 <= mark - place < LOOKBACK for mark in marks))
        return max(near, default=0)
