"""Shell commands run by the user: the message that shows one to the model, and parsing it for the screen."""

import re
from typing import Final, NamedTuple

import msgspec

from tui_agent.tools.base import ToolOutput

USER_SHELL: Final = "your shell"
"""The name of such a command in events; no tool of the model has this name."""

TIMEOUT_S: Final = 86_400
"""The time limit in seconds; the user can stop the command at any time."""

STOPPED: Final = "[stopped by the user]"

_NOTE: Final = re.compile(r"<user-command>\n(.*?)\n</user-command>\n<output>\n(.*)\n</output>", re.DOTALL)


class UserCommand(NamedTuple):
    """A command line and its output; the last line has the exit code and the duration."""

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
        """How it ended, from its last line; empty if that does not say."""
        last = self.output.rstrip().rpartition("\n")[2]
        return last.strip("[]") if last.startswith("[") and last.endswith("]") else ""


class _Arguments(msgspec.Struct, frozen=True, omit_defaults=True):
    command: str
    timeout: int = 0


def as_shown(command: str) -> str:
    """The JSON arguments to show on the command's card."""
    return msgspec.json.encode(_Arguments(command)).decode()


def as_arguments(command: str) -> str:
    """The JSON arguments for ``run_command``."""
    return msgspec.json.encode(_Arguments(command, TIMEOUT_S)).decode()


def as_note(run: UserCommand) -> str:
    """The text of the user message that shows the command to the model."""
    return f"<user-command>\n{run.command}\n</user-command>\n<output>\n{run.output}\n</output>"


def read_note(text: str) -> UserCommand | None:
    """The command in such a user message; None if the user wrote the text themselves."""
    found = _NOTE.fullmatch(text)
    return UserCommand(found[1], found[2]) if found else None


def is_note(text: str) -> bool:
    """Whether a user message shows a command; the model need not answer it."""
    return read_note(text) is not None


def stopped(shown: str) -> ToolOutput:
    """The output of a command that the user stopped; `shown`: what it had printed."""
    return ToolOutput(f"{shown.rstrip()}\n{STOPPED}".lstrip(), is_error=True, summary=STOPPED.strip("[]"))
