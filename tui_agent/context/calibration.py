"""What a model really counts, against what was estimated: one ratio per model, shape and content class.

A ratio is the median of the newest samples, so a single odd call does not move it. Samples come from growth of a single
class between two calls of which the second was not preceded by an edit (README, reference: token budget); one that lies
outside what any tokenizer does is not taken.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from tui_agent.context.counting import CONTENT_CLASSES, ContentClass

SAMPLES = 9
"""How many samples of a class count."""
LOWEST, HIGHEST = 1 / 3, 3.0
"""A sample outside these is no matter of tokenizers: the provider added or left out something."""
SMALLEST = 200
"""Estimated tokens a sample must have at least."""
RULE_START = 1.0
TOKENIZER_START = 1.25
"""Before anything was measured: the ranks on disk are of another vendor's models and count too few tokens for most."""


class Ratios:
    """Measured tokens over estimated ones. Owns the samples of all models."""

    def __init__(self, known: Mapping[str, Sequence[float]] | None = None) -> None:
        self._samples: dict[str, tuple[float, ...]] = {}
        for key, samples in (known or {}).items():
            taken = tuple(float(sample) for sample in samples if _is_plausible(sample))[-SAMPLES:]
            if taken:
                self._samples[key] = taken

    def learn(self, model: str, shape: str, content: ContentClass, *, measured: float, estimated: float) -> bool:
        """Take a sample in; whether it was one."""
        if estimated < SMALLEST or not _is_plausible(measured / estimated):
            return False
        key = _key(model, shape, content)
        self._samples[key] = (*self._samples.get(key, ()), measured / estimated)[-SAMPLES:]
        return True

    def ratio(self, model: str, shape: str, content: ContentClass) -> float:
        """What an estimate of this class is multiplied by: its own ratio, else the middle of the model's others."""
        own = self._samples.get(_key(model, shape, content))
        if own:
            return median(own)
        others = [
            median(samples) for each in CONTENT_CLASSES if (samples := self._samples.get(_key(model, shape, each)))
        ]
        if others:
            return median(others)
        return RULE_START if shape == "rule" else TOKENIZER_START

    def export(self) -> dict[str, list[float]]:
        """All samples, as plain data to be kept and given to the next `Ratios`."""
        return {key: list(samples) for key, samples in self._samples.items()}


def _key(model: str, shape: str, content: ContentClass) -> str:
    return f"{model}|{shape}|{content}"


def _is_plausible(ratio: object) -> bool:
    return isinstance(ratio, float | int) and LOWEST <= ratio <= HIGHEST
