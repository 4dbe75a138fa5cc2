"""A recorded session: what was said, in order, and when."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.entries import Message, Prefix

Format: TypeAlias = Literal["neutral", "claude-code", "session"]


class UnreadableRecording(Exception):
    """What was named is no recorded session; the text says why and what would be one."""


class Problem(NamedTuple):
    """A line that could not be used, by its number from 1, and why."""

    line: int
    why: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. Every tool result follows the message that asked for it.

    `prefix` is the system prompt and tools, None where the format keeps none. `timed`: the messages carry the times at
    which they were said. `model` answered first; empty where it is not told. `problems` are the lines left out.
    """

    name: str
    format: Format
    messages: tuple[Message, ...]
    prefix: Prefix | None = None
    timed: bool = False
    model: str = ""
    problems: tuple[Problem, ...] = ()

    def answers(self) -> Iterator[Message]:
        """The model's messages: each was one call."""
        return (message for message in self.messages if message.role == "assistant")
