"""The branches of a conversation: where the head was moved, each way it once went can be gone again."""

from typing import NamedTuple

from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Delivered, HeadMoved, Message, Queued
from tui_agent.conversation.log import Log


class Branch(NamedTuple):
    """One way the conversation went, from its beginning to the entry `tip`.

    It left the present branch after entry `fork` (0: at the beginning); `messages` counts what was said after that,
    `text` is the user's first word there, untrusted, and `time` when its newest entry was made (seconds).
    """

    tip: int
    fork: int
    messages: int
    text: str
    time: float
    present: bool


def branches(log: Log) -> tuple[Branch, ...]:
    """Every branch, the present one first, then the newest."""
    tips = {entry.parent for entry in log if isinstance(entry, HeadMoved) and entry.parent}
    for tip in sorted(tips, reverse=True):
        # A tip from which the conversation went on is no end any more, unless it was kept as one by a fork there.
        if tip == log.head or any(other > tip and log.fork_point(tip, other) == tip for other in (*tips, log.head)):
            tips.discard(tip)
    others = sorted((_branch(log, tip) for tip in tips), key=lambda branch: branch.time, reverse=True)
    present = [_branch(log, log.head)] if log.head else []
    return (*present, *(branch for branch in others if branch.messages))


def turn_start(log: Log, seq: int) -> tuple[int, str]:
    """The entry before the user's message `seq` of the present branch, and its text. Raises ValueError."""
    entry = log[seq] if 1 <= seq <= len(log) else None
    if entry is None or log.fork_point(seq, log.head) != seq or (text := _said_by_user(entry, log)) is None:
        raise ValueError(f"entry {seq} is no message of the user on this branch")
    return entry.parent, text


def _branch(log: Log, tip: int) -> Branch:
    present = tip == log.head
    fork = 0 if present else log.fork_point(tip, log.head)
    entries = [entry for entry in log.path(tip) if entry.seq > fork]
    said = [entry for entry in entries if isinstance(entry, Message | Delivered)]
    words = (text for entry in said if (text := _said_by_user(entry, log)) is not None)
    return Branch(tip, fork, len(said), next(words, ""), log[tip].time, present)


def _said_by_user(entry: AnyEntry, log: Log) -> str | None:
    """The user's words in an entry; None where it has none."""
    match entry:
        case Message(role="user", kind=""):
            blocks = entry.blocks
        case Delivered():
            queued = log[entry.queued]
            if not isinstance(queued, Queued):
                return None
            blocks = queued.blocks
        case _:
            return None
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text))
