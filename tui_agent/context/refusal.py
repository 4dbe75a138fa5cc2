"""Why a context step does not happen."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Nothing is done, and `reason` is one sentence that tells people why."""

    reason: str
