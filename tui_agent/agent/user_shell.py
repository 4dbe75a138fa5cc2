"""Commands the user runs themselves: what the model is shown of one, and how that is read back for the screen."""

import re
from typing import Final, NamedTuple

import msgspec

from tui_agent.tools.base import ToolOutput

USER_SHELL: Final = "your shell"
"""The name such a command goes by in events; no tool of the model is called so."""

TIMEOUT_S: Final = 86_400
"""Seconds a command of the user's own may take: they can stop it themselves."""

STOPPED: Final = "[stopped by the user]"

_NOTE: Final = re.compile(r"<user-command>\n(.*?)\n</user-command>\n<output>\n(.*)\n</output>", re.DOTALL)


class UserCommand(NamedTuple):
    """A command line and what it printed, its end (exit code, time) included."""

    command: str
    output: str

    @property
    def succeeded(self) -> bool:
        """Whether it ended with exit code 0."""
        return "\n[exit code 0," in f"\n{self.output}"

    @property
    def stopped(self) -> bool:
        """Whether the user stopped it."""
        return self.output.endswith(STOPPED)

    @property
    def ending(self) -> str:
        """How it ended, as it says on its last line; empty: it does not say."""
        last = self.output.rstrip().rpartition("\n")[2]
        return last.strip("[]") if last.startswith("[") and last.endswith("]") else ""


class _Arguments(msgspec.Struct, frozen=True, omit_defaults=True):
    command: str
    timeout: int = 0


def as_shown(command: str) -> str:
    """The arguments that people are shown, as JSON text."""
    return msgspec.json.encode(_Arguments(command)).decode()


def as_arguments(command: str) -> str:
    """The arguments of ``run_command`` for a command of the user's own, as JSON text."""
    return msgspec.json.encode(_Arguments(command, TIMEOUT_S)).decode()


def as_note(run: UserCommand) -> str:
    """The text that joins the conversation as the user's."""
    return f"<user-command>\n{run.command}\n</user-command>\n<output>\n{run.output}\n</output>"


def read_note(text: str) -> UserCommand | None:
    """The command and output that a user's text tells of; None where it is something they wrote."""
    found = _NOTE.fullmatch(text)
    return UserCommand(found[1], found[2]) if found else None


def is_note(text: str) -> bool:
    """Whether a user's text tells of a command they ran, which waits for no answer."""
    return read_note(text) is not None


def stopped(shown: str) -> ToolOutput:
    """The answer of a command that the user stopped, of which `shown` was the last to be seen."""
    return ToolOutput(f"{shown.rstrip()}\n{STOPPED}".lstrip(), is_error=True, summary=STOPPED.strip("[]"))
