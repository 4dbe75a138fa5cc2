"""A command of a conversation in text form: its row, what is typed of it, and what it answers."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

AT_ONCE: Final = "!"
"""Behind the name of a command that the app shows a preview of: do it without one."""


class Reply(NamedTuple):
    """The answer to a command; `failed`: nothing was done, and the text says why."""

    title: str
    text: str = ""
    failed: bool = False


class Command(NamedTuple):
    """A command that is typed as ``/name argument``."""

    name: str
    description: str
    run: Callable[["Agent", str], Awaitable[Reply]]
    """Gets what follows the name, without the space around it."""
    argument: str = ""
    """How what follows is called in the help; empty: nothing may follow."""
    aliases: tuple[str, ...] = ()
    previews: Literal["", "compact", "checkpoint", "clear"] = ""
    """The step of which the full-screen app shows first what it would do, except with `AT_ONCE` behind the name."""
    uses_profile: bool = False
    """Its answer depends on what the provider tells of the model, such as the window."""
    is_available: Callable[["Agent"], bool] = lambda agent: True

    @property
    def previewed(self) -> bool:
        """Whether `AT_ONCE` may follow its name."""
        return bool(self.previews)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.name, *self.aliases)


def is_command(text: str) -> bool:
    """Whether a text asks for a command: ``/name``, and not a path."""
    name = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return name.startswith("/") and "/" not in name[1:] and "\n" not in text.strip()


def command_name(text: str) -> str:
    """The name of the command that a text asks for."""
    return text.strip().partition(" ")[0].removeprefix("/").lower()


def number_of(word: str) -> int | None:
    """The number of an entry; no log has one of more than 18 digits."""
    return int(word) if word.isdecimal() and len(word) <= 18 else None
