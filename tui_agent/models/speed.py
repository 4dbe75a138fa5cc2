"""The speed of local models, whose requests cost time instead of money."""

import msgspec

from tui_agent.conversation.entries import Usage

NEWEST_WEIGHT = 0.4
"""The newest call's weight in the moving average: speed varies with the machine's load."""
FEWEST_READ, FEWEST_WRITTEN = 64, 8
"""Calls with fewer tokens are not measured: their time is mostly overhead."""
SHORTEST_S = 0.05
"""Shorter times are not measured: such an answer was cached or comes from no real model."""


class Timings(msgspec.Struct, frozen=True):
    """The duration of a call in seconds; 0: unknown. `read` are the prompt tokens the server had to process, because
    they were not in its cache; None: it does not say.
    """

    read_s: float = 0.0
    write_s: float = 0.0
    read: int | None = None


class Speed(msgspec.Struct, frozen=True):
    """Tokens per second; 0: unknown."""

    reading: float = 0.0
    writing: float = 0.0


class Speedometer:
    """Measures the speed of each model, by name."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}

    def of(self, model: str) -> Speed:
        """A model's speed."""
        return self._speeds.get(model, Speed())

    def measure(self, model: str, timings: Timings, usage: Usage, kept: int) -> Speed:
        """Update a model's speed with a call; `kept` are the prompt tokens its server should have had in its cache."""
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
