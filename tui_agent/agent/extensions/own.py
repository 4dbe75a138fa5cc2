"""The extensions of a session: commands, agents and styles, read from their folders on demand."""

from pathlib import Path
from typing import Final

from tui_agent.agent.extensions.agents import OwnAgent, own_agents
from tui_agent.agent.extensions.files import Shelf
from tui_agent.agent.extensions.hooks import Found, Hook, Hooks
from tui_agent.agent.extensions.prompts import OwnPrompt, own_prompts
from tui_agent.agent.extensions.styles import OwnStyle, own_styles
from tui_agent.text import one_line
from tui_agent.tools.gate.workspace import shown

__all__ = ["Extensions", "OwnPrompt", "Shelf"]

SOURCES: Final = {"project": "the project's", "yours": "yours"}


class Extensions:
    """The extensions on a session's shelves: the project's first, if it is trusted, then the user's."""

    def __init__(self, shelves: tuple[Shelf, ...], folder: Path) -> None:
        self.shelves = shelves
        self.folder = folder
        """The working folder, relative to which ``@path`` is resolved."""

    def prompts(self) -> tuple[OwnPrompt, ...]:
        """The slash commands. Reads files: call it in a thread."""
        return own_prompts(self.shelves)

    def agents(self) -> tuple[OwnAgent, ...]:
        """The agents. Reads files: call it in a thread."""
        return own_agents(self.shelves)

    def styles(self) -> tuple[OwnStyle, ...]:
        """The output styles. Reads files: call it in a thread."""
        return own_styles(self.shelves)

    def style(self, name: str) -> OwnStyle | None:
        """The output style of this name. Reads files: call it in a thread."""
        return next((found for found in self.styles() if found.name == name and not found.problem), None)

    def listed(self, hooks: Hooks | None) -> str:
        """A listing of all extensions and their sources, for people. Reads files: call it in a thread."""
        found = hooks.look() if hooks is not None else Found()
        prompts = [
            _line(f"/{each.name} {each.hint}", each.problem or each.description, each) for each in self.prompts()
        ]
        listed = [_line(each.event, each.name.partition(", ")[2], each) for each in found.hooks]
        agents = [_line(each.name, each.problem or each.description, each) for each in self.agents()]
        styles = [_line(each.name, each.problem or each.description, each) for each in self.styles()]
        parts = [("Slash commands", prompts), ("Agents", agents), ("Hooks", listed), ("Output styles", styles)]
        told = ["\n".join((title, *lines)) for title, lines in parts if lines]
        told += [f"Cannot be used: {problem}" for problem in found.problems]
        looked = ", ".join(f"{shown(str(shelf.folder))} ({SOURCES[shelf.source]})" for shelf in self.shelves)
        return "\n\n".join((*told, f"Looked in: {looked}"))

    def prompt(self, name: str) -> OwnPrompt | None:
        """The slash command of this name. Reads files: call it in a thread."""
        return next((found for found in self.prompts() if found.name == name and not found.problem), None)


def _line(name: str, what: str, of: OwnPrompt | OwnAgent | OwnStyle | Hook) -> str:
    return f"  {one_line(name, 60):<24}  {one_line(what, 200)} ({SOURCES[of.source]})"
