"""Output styles of the user's own: Markdown files that say how answers are to be written."""

from pathlib import Path
from typing import Final, NamedTuple

from tui_agent.agent.extensions.files import Shelf, Source, signature, written

ROOM: Final = "styles"
OFF: Final = "off"
"""What is written for no style."""


class OwnStyle(NamedTuple):
    """One such style. `problem` says why it cannot be used, if so."""

    name: str
    description: str
    text: str
    file: Path
    source: Source
    problem: str = ""


def own_styles(shelves: tuple[Shelf, ...]) -> tuple[OwnStyle, ...]:
    """The styles there are. Reads files: call it off the event loop. Raises nothing."""
    return tuple(
        OwnStyle(found.name, found.key("description"), found.text, found.file, found.source, found.problem)
        for found in written(shelves, ROOM)
    )


def style_text(shelves: tuple[Shelf, ...], name: str) -> str:
    """What the style of this name says; empty where there is none."""
    wanted = (style.text for style in own_styles(shelves) if style.name == name and not style.problem)
    return next(wanted, "") if name else ""


def styles_signature(shelves: tuple[Shelf, ...]) -> tuple[object, ...]:
    """A value that changes when a style is added, removed or edited. Cheap: no file is read."""
    return signature(shelves, ROOM)
