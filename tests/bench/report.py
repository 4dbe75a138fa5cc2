"""Figures beside their targets."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `target` is its upper bound, None where it is only for information."""

    name: str
    value: float
    unit: str
    target: float | None = None

    @property
    def met(self) -> bool:
        """Whether it is within its target; without a target it is."""
        return self.target is None or self.value <= self.target

    @property
    def line(self) -> str:
        if self.target is None:
            return f"  {self.name:<58} {self.value:>9.3g} {self.unit:<5}"
        verdict = "ok" if self.met else "ABOVE"
        return f"  {self.name:<58} {self.value:>9.3g} {self.unit:<5} target {self.target:>6g}  {verdict}"


def show(title: str, figures: Iterable[Figure]) -> None:
    """Print one table."""
    print(f"\n{title}")
    for figure in figures:
        print(figure.line, flush=True)
