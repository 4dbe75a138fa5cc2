"""The user's own output styles: Markdown files that tell the model how to write its answers."""

from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.agent.extensions.files import Shelf, Source, signature, written

ROOM: Final = "styles"
OFF: Final = "off"
"""The name that turns the style off."""


class OwnStyle(NamedTuple):
    """One of the user's own styles. `problem`: why it cannot be used; empty if it can."""

    name: str
    description: str
    text: str
    file: Path
    source: Source
    problem: str = ""


def own_styles(shelves: tuple[Shelf, ...]) -> tuple[OwnStyle, ...]:
    """All styles. Reads files: call it in a thread. Never raises."""
    return tuple(
        OwnStyle(found.name, found.key("description"), found.text, found.file, found.source, found.problem)
        for found in written(shelves, ROOM)
    )


def style_text(shelves: tuple[Shelf, ...], name: str) -> str:
    """The text of the style of this name; empty if there is none."""
    wanted = (style.text for style in own_styles(shelves) if style.name == name and not style.problem)
    return next(wanted, "") if name else ""


def styles_signature(shelves: tuple[Shelf, ...]) -> tuple[object, ...]:
    """A value that changes whenever a style is added, removed or edited. Cheap: reads no file."""
    return signature(shelves, ROOM)
