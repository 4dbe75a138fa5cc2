"""Shell commands that the user runs: the text the model is shown of one, and how the screen reads it back."""

import re
from typing import Final, NamedTuple

import msgspec

from tui_agent.tools.base import ToolOutput

USER_SHELL: Final = "your shell"
"""The name such a command has in events; no tool of the model has it."""

TIMEOUT_S: Final = 86_400
"""Seconds such a command may take; the user can stop it at any time."""

STOPPED: Final = "[stopped by the user]"

_NOTE: Final = re.compile(r"<user-command>\n(.*?)\n</user-command>\n<output>\n(.*)\n</output>", re.DOTALL)


class UserCommand(NamedTuple):
    """A command line and what it printed; the last line tells the exit code and the time it took."""

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
        """How it ended, taken from its last line; empty where that does not tell."""
        last = self.output.rstrip().rpartition("\n")[2]
        return last.strip("[]") if last.startswith("[") and last.endswith("]") else ""


class _Arguments(msgspec.Struct, frozen=True, omit_defaults=True):
    command: str
    timeout: int = 0


def as_shown(command: str) -> str:
    """The arguments shown on the command's card, as JSON text."""
    return msgspec.json.encode(_Arguments(command)).decode()


def as_arguments(command: str) -> str:
    """The arguments ``run_command`` is called with, as JSON text."""
    return msgspec.json.encode(_Arguments(command, TIMEOUT_S)).decode()


def as_note(run: UserCommand) -> str:
    """The text of the user message that tells the model of the command."""
    return f"<user-command>\n{run.command}\n</user-command>\n<output>\n{run.output}\n</output>"


def read_note(text: str) -> UserCommand | None:
    """The command that a user message tells of; None where the user wrote the text."""
    found = _NOTE.fullmatch(text)
    return UserCommand(found[1], found[2]) if found else None


def is_note(text: str) -> bool:
    """Whether a user message tells of a command; the model does not have to answer it."""
    return read_note(text) is not None


def stopped(shown: str) -> ToolOutput:
    """The output of a command that the user stopped; `shown` is what it had printed."""
    return ToolOutput(f"{shown.rstrip()}\n{STOPPED}".lstrip(), is_error=True, summary=STOPPED.strip("[]"))
