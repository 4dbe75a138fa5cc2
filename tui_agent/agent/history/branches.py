"""The branches of a conversation: moving the head leaves a branch behind, to which the user can return."""

from collections.abc import Iterable
from typing import NamedTuple

from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Delivered, HeadMoved, Message, Queued
from tui_agent.conversation.log import Log


class Branch(NamedTuple):
    """A branch, from the conversation's first entry to the entry `tip`, with `messages` of the user and the model.

    fork: the last entry it shares with the present branch; 0: none. text: to recognise it by, the user's first words
    after the fork, else their newest; answer: the model's last words after that; both untrusted. time: of its newest
    entry, in seconds since the epoch.
    """

    tip: int
    fork: int
    messages: int
    text: str
    time: float
    present: bool
    answer: str = ""


class Prompt(NamedTuple):
    """A message of the user's: number, untrusted text, and time in seconds since the epoch.

    messages: how many messages a rewind to it would take back, including itself.
    """

    seq: int
    text: str
    time: float
    messages: int


def branches(log: Log) -> tuple[Branch, ...]:
    """Every branch, the present one first, then the newest."""
    moves = list(log.entries().of(HeadMoved))
    kept = _kept(moves)
    ends = {entry.parent for entry in moves if entry.parent} | kept
    tips = {
        end
        for end in ends - {log.head, 0}
        # An end from which the conversation continued is no end any more, unless a fork there kept it as one.
        if end in kept or not any(other > end and log.fork_point(end, other) == end for other in (*ends, log.head))
    }
    found = [_branch(log, tip, log.fork_point(tip, log.head)) for tip in tips]
    others = sorted((branch for branch in found if branch.messages), key=lambda branch: branch.time, reverse=True)
    alone = max((branch.fork for branch in others), default=0)
    return (*([_branch(log, log.head, alone)._replace(fork=0)] if log.head else []), *others)


def is_end_of_present(log: Log, tip: int) -> bool:
    """Whether the present branch ends at entry `tip`, apart from later context work."""
    if not 1 <= tip <= len(log) or log.fork_point(tip, log.head) != tip:
        return False
    return not any(entry.seq > tip and isinstance(entry, Message | Delivered) for entry in log.path())


def turn_start(log: Log, seq: int) -> tuple[int, str]:
    """The number of the entry before the user's message `seq` on this branch, and its text. Raises ValueError."""
    entry = log[seq] if 1 <= seq <= len(log) else None
    if entry is None or log.fork_point(seq, log.head) != seq or (text := _said_by_user(entry, log)) is None:
        raise ValueError(f"number {seq} is not a message of yours on this branch")
    return entry.parent, text


def prompts(log: Log) -> tuple[Prompt, ...]:
    """The user's messages on the present branch, oldest first."""
    found: list[Prompt] = []
    messages = 0
    for entry in reversed(log.path()):
        messages += isinstance(entry, Delivered) or _is_said(entry)
        if (text := _said_by_user(entry, log)) is not None:
            found.append(Prompt(entry.seq, text, entry.time, messages))
    return tuple(reversed(found))


def _kept(moves: Iterable[HeadMoved]) -> set[int]:
    """The branch ends that a fork kept, and to which the conversation has not returned since."""
    kept: set[int] = set()
    for move in moves:
        if move.reason == "fork" and move.to == move.parent:
            kept.add(move.to)
        elif move.reason == "switch":
            kept.discard(move.to)
    return kept


def _branch(log: Log, tip: int, fork: int) -> Branch:
    said = [entry for entry in log.path(tip) if isinstance(entry, Delivered) or _is_said(entry)]
    words = [(entry.seq, text) for entry in said if (text := _said_by_user(entry, log)) is not None]
    newest = words[-1][1] if words else ""
    text = next((text for seq, text in words if seq > fork), newest)
    answer = next((told for entry in reversed(said) if entry.seq > fork and (told := _answered(entry))), "")
    return Branch(tip, fork, len(said), text, log[tip].time, tip == log.head, answer)


def _answered(entry: AnyEntry) -> str:
    """The model's text in an entry; empty if it has none."""
    if not isinstance(entry, Message) or entry.role != "assistant":
        return ""
    return "\n".join(block.text for block in entry.blocks if isinstance(block, Text)).strip()


def _is_said(entry: AnyEntry) -> bool:
    return isinstance(entry, Message) and not entry.kind


def _said_by_user(entry: AnyEntry, log: Log) -> str | None:
    """The user's words in an entry; None if it has none."""
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
