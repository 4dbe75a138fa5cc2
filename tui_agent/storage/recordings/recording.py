"""A recorded session from any program, and the errors of reading one."""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.entries import AnyEntry, Message, Prefix

Format: TypeAlias = Literal["neutral", "claude-code", "codex", "session"]

EXPECTED = (
    "Expected a JSON Lines file (neutral: role, text, tool_calls, tool_call_id; or one of Claude Code or codex), "
    "or the id or folder of a session; `tui-agent sessions` lists them."
)


class UnreadableRecording(Exception):
    """A path or id is not a recorded session; the message says why, and what would be one."""


class Problem(NamedTuple):
    """A line that could not be used: its number, from 1, and the reason."""

    line: int
    why: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded conversation. Every tool result follows the message with its call.

    `log` are the messages, numbered, with the recorded context entries between them. `prefix`: the system prompt and
    tools, None if the format does not record them. `timed`: the messages have their times. `model`: the first one that
    answered; empty if unknown. `cache_ttl_s`: seconds that a cached prefix lived; 0: not recorded. `problems` are the
    lines left out; `abandoned` counts the lines of branches that the user left by going back.
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
