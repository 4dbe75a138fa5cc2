"""How many examples a property is tried with: few in the quick run, fifty times as many in the long one."""

from typing import Final

from hypothesis import settings

QUICK: Final = 20
"""Examples of a property that names no number, in the quick run; the long one has 1,000."""


def examples(quick: int) -> int:
    """So many in the quick run, and in the long one as many times more as properties that name no number."""
    profile = settings.default or settings.get_profile("tests")
    return quick * profile.max_examples // QUICK
