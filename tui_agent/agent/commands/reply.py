"""What a command in text form answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a command; `failed`: nothing was done, and the text says why."""

    title: str
    text: str = ""
    failed: bool = False
