"""The branches of a conversation: moving the head leaves a branch behind, to which the user can return."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Delivered, HeadMoved, Message, typed_in
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


def ends_at(log: Log, head: int, tip: int) -> bool:
    """Whether the branch with this head ends at entry `tip`, apart from later context work and records."""
    if not 1 <= tip <= len(log) or log.fork_point(tip, head) != tip:
        return False
    return not any(entry.seq > tip and isinstance(entry, Message | Delivered) for entry in log.path(head))


def turn_start(log: Log, seq: int) -> tuple[int, Message]:
    """Where a rewind to before the user's message `seq` on this branch goes, and the message. Raises ValueError."""
    on_branch = 1 <= seq <= len(log) and log.fork_point(seq, log.head) == seq
    message = log.message(seq) if on_branch else None
    if message is None or typed_in(message) is None:
        raise ValueError(f"number {seq} is not a message of yours on this branch")
    return log[log.group_start(seq)].parent, message


def prompts(log: Log) -> tuple[Prompt, ...]:
    """The user's messages on the present branch, oldest first."""
    found: list[Prompt] = []
    for place, message in enumerate(reversed(list(_said(log, log.head))), 1):
        if (text := typed_in(message)) is not None:
            found.append(Prompt(message.seq, text, message.time, place))
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
    said = list(_said(log, tip))
    words = [(message.seq, text) for message in said if (text := typed_in(message)) is not None]
    newest = words[-1][1] if words else ""
    text = next((text for seq, text in words if seq > fork), newest)
    answer = next((told for entry in reversed(said) if entry.seq > fork and (told := _answered(entry))), "")
    return Branch(tip, fork, len(said), text, log[tip].time, tip == log.head, answer)


def _answered(message: Message) -> str:
    """The model's text in a message; empty if it has none."""
    if message.role != "assistant":
        return ""
    return "\n".join(block.text for block in message.blocks if isinstance(block, Text)).strip()


def _said(log: Log, tip: int) -> Iterator[Message]:
    """The messages of the user and the model on the branch that ends at `tip`, oldest first."""
    for entry in log.path(tip).of(Message, Delivered):
        message = log.message(entry.seq)
        if message is not None and message.kind in ("", "user_shell"):
            yield message
