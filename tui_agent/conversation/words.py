"""The user's own words, as they stand in a request once summaries cover them: a block after the newest summary."""

from collections.abc import Collection, Sequence
from typing import Final

from tui_agent.conversation.entries import Words

HEADING: Final = "[What the user said, in their own words, oldest first]"


def block_of(words: Sequence[Words], shown: Collection[int] = ()) -> str:
    """The text of the block; empty where there is nothing to say. What is `shown` where it stands is left out."""
    lines = [f"- {_indented(each.text)}" for each in words if each.text and each.seq not in shown]
    return "\n".join((HEADING, *lines)) if lines else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
