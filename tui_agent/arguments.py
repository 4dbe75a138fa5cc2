"""What a command line asked for, apart from settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tui_agent.settings import Override

OutputFormat = Literal["text", "json", "stream-json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """One start of the program, for a front end."""

    prompt: str | None = None
    """The first message; None: wait for the user to type."""
    output_format: OutputFormat = "text"
    """Form of a one-shot answer."""
    one_shot: bool = False
    """Answer once on standard output instead of opening the full-screen app."""
    folder: Path
    """Working folder of the session."""
    home: Path
    """Where all state lives."""
    project: Path
    """Root of the project the folder is in."""
    trusted: bool = False
    """Whether the user trusts the project; its settings, instructions and skills count only then."""
    ask_trust: bool = False
    """Whether to ask: the project is not trusted and brings something that needs trust."""
    continue_last: bool = False
    """Go on with the newest session of this folder."""
    resume: str | None = None
    """Go on with the session of this id; empty: let the user pick one."""
    yolo: bool = False
    """Ask nothing, and show no guard notices."""
    overrides: "tuple[Override, ...]" = ()
    """The settings given on the command line, for loading the settings again once the project is trusted."""
