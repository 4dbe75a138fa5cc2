"""What one start of the program was asked for, as a front end is told, and what the process ends with."""

from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tui_agent.settings import Override

OutputFormat = Literal["text", "json", "stream-json"]


class ExitCode(IntEnum):
    """What the process ends with (docs/headless.md, "Exit codes")."""

    DONE = 0
    FAILED = 1
    BAD_USAGE = 2
    NEEDS_APPROVAL = 3
    INTERRUPTED = 130
    NOBODY_READS = 141


class Arguments(NamedTuple):
    """What one start of the program was asked for, settings aside: what a front end and `open_session` are given."""

    folder: Path
    """Working folder of the session."""
    home: Path
    """The folder with all state: sessions, the user's settings, what was allowed and learned."""
    project: Path
    """Root of the project the folder is in."""
    user_home: Path | None = None
    """The user's home folder, where other agents' folders are; None: those are not looked for."""
    prompt: str | None = None
    """The first message; None: wait for the user to type."""
    typed: str = ""
    """What the user typed, if that is not the prompt: a slash command that stands for it."""
    data: str = ""
    """What came on standard input beside the prompt."""
    output_format: OutputFormat = "text"
    """Form of a one-shot answer."""
    json_schema: Path | None = None
    """The file with the JSON Schema of a one-shot answer."""
    one_shot: bool = False
    """Answer once on standard output instead of opening the full-screen app."""
    trusted: bool = False
    """Whether the user trusts the project; its settings, instructions and skills count only then."""
    ask_trust: bool = False
    """Whether to ask: the project is not trusted and brings something that needs trust."""
    new_in_project: tuple[str, ...] = ()
    """What a project runs or sets beyond what the user trusted it with; until they answer, it is not trusted."""
    continue_last: bool = False
    """Go on with the newest session of this folder."""
    resume: str | None = None
    """Go on with the session of this id, or with what another program recorded in this file; empty: let the user pick
    one.
    """
    ledger: Path | None = None
    """What it shares with the other tasks of a batch; None: it is none of a batch."""
    fork: bool = False
    """Begin another branch there, which leaves the present one as it is."""
    unattended: bool = False
    """Nobody is at the other end of the protocol: questions get the model's own first choice."""
    yolo: bool = False
    """Ask nothing, and show no guard notices."""
    demo: bool = False
    """It is the demonstration, which says what to press next."""
    overrides: "tuple[Override, ...]" = ()
    """The settings given on the command line, for loading the settings again once the project is trusted."""


class UsageError(Exception):
    """A command line that cannot be understood; the text is one line that says what to write instead."""
