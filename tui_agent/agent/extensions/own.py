"""What is the user's own in a session: looked up when it is wanted, and again when it has changed."""

from pathlib import Path
from typing import Final

from tui_agent.agent.extensions.files import Shelf
from tui_agent.agent.extensions.prompts import OwnPrompt, own_prompts

__all__ = ["Extensions", "OwnPrompt", "Shelf"]

SOURCES: Final = {"project": "the project's, which you trust", "yours": "yours"}


class Extensions:
    """What lies on the shelves of a session: the project's first, where it is trusted, then the user's own."""

    def __init__(self, shelves: tuple[Shelf, ...], folder: Path) -> None:
        self.shelves = shelves
        self.folder = folder
        """The working folder, from which ``@path`` is looked up."""

    def prompts(self) -> tuple[OwnPrompt, ...]:
        """The slash commands. Reads files: call it off the event loop."""
        return own_prompts(self.shelves)

    def prompt(self, name: str) -> OwnPrompt | None:
        """The slash command of this name. Reads files: call it off the event loop."""
        return next((found for found in self.prompts() if found.name == name and not found.problem), None)
