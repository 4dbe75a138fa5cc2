"""How fast a model on a machine of one's own reads and writes: what a request costs there is time."""

from typing import NamedTuple

from tui_agent.conversation.entries import Usage

NEWEST_WEIGHT = 0.4
"""What the newest call weighs in a speed: it changes with what else the machine does."""
FEWEST_READ, FEWEST_WRITTEN = 64, 8
"""Tokens from which on a call tells a speed; below, starting takes longer than reading."""
SHORTEST_S = 0.05
"""Seconds from which on a call tells a speed: what comes at once was kept, or comes from no model."""


class Timings(NamedTuple):
    """What a call took, in seconds; 0: not told. `read` are the tokens it had to read, which its server had not kept;
    None: all that was new to it.
    """

    read_s: float = 0.0
    write_s: float = 0.0
    read: int | None = None


class Speed(NamedTuple):
    """Tokens per second; 0: not known yet."""

    reading: float = 0.0
    writing: float = 0.0


class Speedometer:
    """The speed of each model that was asked, by name."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}

    def of(self, model: str) -> Speed:
        """What is known of a model's speed."""
        return self._speeds.get(model, Speed())

    def measure(self, model: str, timings: Timings, usage: Usage, kept: int) -> Speed:
        """Take in what a call took; `kept` are the tokens of its prompt that its server should still have had."""
        before = self.of(model)
        read = timings.read if timings.read is not None else usage.input_tokens - max(kept, usage.cache_read_tokens)
        now = Speed(
            _mixed(before.reading, read, timings.read_s, FEWEST_READ),
            _mixed(before.writing, usage.output_tokens, timings.write_s, FEWEST_WRITTEN),
        )
        self._speeds[model] = now
        return now


def _mixed(before: float, tokens: int, seconds: float, fewest: int) -> float:
    if tokens < fewest or seconds < SHORTEST_S:
        return before
    newest = tokens / seconds
    return before + NEWEST_WEIGHT * (newest - before) if before else newest
