"""The pages that a provider's web search found, as they stand at the end of its answer. All of it is untrusted text."""

from collections.abc import Mapping
from typing import Final

from tui_agent.conversation.entries import Hit
from tui_agent.text import clean, one_line

_HEADING: Final = "\n\nSources:\n"


def with_pages(text: str, pages: Mapping[str, str]) -> str:
    """The text with the list of pages: titles by their addresses."""
    found = (f"{one_line(clean(title), 200)}: {one_line(clean(url), 1_000)}" for url, title in pages.items())
    return f"{text}{_HEADING}" + "\n".join(f"{number}. {page}" for number, page in enumerate(found, 1))


def pages_of(text: str) -> tuple[Hit, ...]:
    """The pages in that list: titles and addresses."""
    listed = text.rpartition(_HEADING)[2].splitlines() if _HEADING in text else []
    parts = (line.partition(". ")[2].rpartition(": ") for line in listed)
    return tuple(Hit(title, 0, url) for title, _, url in parts)
