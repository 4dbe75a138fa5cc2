"""A recorded session, whoever recorded it, and what is wrong with one that cannot be read."""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.entries import AnyEntry, Message, Prefix

Format: TypeAlias = Literal["neutral", "claude-code", "codex", "session"]

EXPECTED = (
    "Expected a JSON Lines file (neutral: role, text, tool_calls, tool_call_id; or one of Claude Code or codex), "
    "or the id or folder of a session; `tui-agent sessions` lists them."
)


class UnreadableRecording(Exception):
    """What was named is no recorded session; the text says why and what would be one."""


class Problem(NamedTuple):
    """A line that could not be used, by its number from 1, and why."""

    line: int
    why: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. Every tool result follows the message that asked for it.

    `log` is what was said as it was sent: the messages with their numbers in it, and the recorded context entries
    between them. `prefix` is the system prompt and tools, None where the format keeps none. `timed`: the messages carry
    the times at which they were said. `model` answered first; empty where it is not told. An answer's `usage` is what
    its call used, where that is recorded. `cache_ttl_s` is how long a cached prefix lived, in seconds; 0: not recorded.
    `problems` are the lines left out; `abandoned` counts those of branches that the user went back from.
    """

    name: str
    format: Format
    messages: tuple[Message, ...]
    log: tuple[AnyEntry, ...] = ()
    prefix: Prefix | None = None
    timed: bool = False
    model: str = ""
    cache_ttl_s: int = 0
    problems: tuple[Problem, ...] = ()
    abandoned: int = 0

    @property
    def metered(self) -> tuple[Message, ...]:
        """The answers of `model` whose usage is recorded."""
        return tuple(message for message in self.messages if is_metered(message, self.model))


def is_metered(message: Message, model: str) -> bool:
    """Whether the usage of this answer is recorded and it is this model's (empty: any)."""
    return message.usage is not None and (not model or message.model in ("", model))
