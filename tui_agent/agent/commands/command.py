"""A slash command in text form: its row in the table, parsing its name, and its reply."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

AT_ONCE: Final = "!"
"""A suffix of a command's name: run it without the preview that the app would show."""


class CommandReply(NamedTuple):
    """The reply to a command. `failed`: nothing was done, and the text says why."""

    title: str
    text: str = ""
    failed: bool = False


def refused(title: str, text: str = "") -> CommandReply:
    """The reply to a command that has done nothing."""
    return CommandReply(title, text, failed=True)


class Command(NamedTuple):
    """A command that is typed as ``/name argument``."""

    name: str
    description: str
    run: Callable[["Agent", str], Awaitable[CommandReply]]
    """The handler. It gets the text after the name, stripped."""
    argument: str = ""
    """The name of the argument in the help; empty: it takes none."""
    aliases: tuple[str, ...] = ()
    previews: Literal["", "compact", "checkpoint", "clear"] = ""
    """The step that the full-screen app previews before it runs the command, unless the name ends with `AT_ONCE`."""
    uses_profile: bool = False
    """Whether its reply depends on facts that the provider reports, such as the window."""
    is_available: Callable[["Agent"], bool] = lambda agent: True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def is_command(text: str) -> bool:
    """Whether a text starts with a command, ``/name``, rather than a path."""
    name = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return name.startswith("/") and "/" not in name[1:] and "\n" not in text.strip()


def command_name(text: str) -> str:
    """The name of the command that a text starts with."""
    return text.strip().partition(" ")[0].removeprefix("/").lower()


def number_of(word: str) -> int | None:
    """Parse the number of an entry, of at most 18 digits; None if it is none."""
    return int(word) if word.isdecimal() and len(word) <= 18 else None
