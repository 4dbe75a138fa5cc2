"""The branches of one conversation: its past, and moving to another place in it.

Moving the head leaves a branch behind, to which the user can return.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.history.as_events import newest, replay
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.agent.turn.turns import AgentBusy, Turns
from tui_agent.conversation.blocks import text_in
from tui_agent.conversation.entries import Delivered, HeadMoved, Message, typed_in
from tui_agent.conversation.log import Log, because_of
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Texts

History = Iterator[events.AgentEvent]


class Branch(msgspec.Struct, frozen=True):
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


class EarlierPrompt(msgspec.Struct, frozen=True):
    """A message of the user's: number, untrusted text, and time in seconds since the epoch.

    messages: how many messages a rewind to it would take back, including itself.
    """

    seq: int
    text: str
    time: float
    messages: int


class Branches:
    """The branches of one conversation. The log keeps the branch that is left.

    What moves the head raises `AgentBusy`, `StorageError` and ValueError.
    """

    def __init__(self, parts: TurnParts, turns: Turns, texts: Texts) -> None:
        self._record, self._active, self._steps = parts.record, parts.active, parts.steps
        self._planning = parts.planning
        self._turns = turns
        self._texts = texts

    def all(self) -> tuple[Branch, ...]:
        """Every branch of the conversation, the present one first, then the newest."""
        log = self._record.view.log
        found = [_branch(log, tip, log.fork_point(tip, log.head)) for tip in self._tips()]
        others = sorted((branch for branch in found if branch.messages), key=lambda branch: branch.time, reverse=True)
        alone = max((branch.fork for branch in others), default=0)
        return (*([structs.replace(_branch(log, log.head, alone), fork=0)] if log.head else []), *others)

    def _tips(self) -> set[int]:
        log = self._record.view.log
        ends: set[int] = set()
        # The branch ends that a fork kept, and to which the conversation has not returned since.
        kept: set[int] = set()
        for move in log.entries().of(HeadMoved):
            ends.add(move.parent)
            if move.reason == "fork" and move.to == move.parent:
                kept.add(move.to)
            elif move.reason == "switch":
                kept.discard(move.to)
        ends |= kept
        return {
            end
            for end in ends - {log.head, 0}
            # An end from which the conversation continued is no end any more, unless a fork there kept it as one.
            if end in kept or not any(other > end and log.fork_point(end, other) == end for other in (*ends, log.head))
        }

    def prompts(self) -> tuple[EarlierPrompt, ...]:
        """The user's messages on the present branch, oldest first."""
        log = self._record.view.log
        found: list[EarlierPrompt] = []
        said = log.said(log.head)
        for place, seq in enumerate(said):
            if (text := _typed(log, seq)) is not None:
                found.append(EarlierPrompt(seq, text, log[seq].time, len(said) - place))
        return tuple(found)

    def newest_prompt(self) -> int:
        """The number of the user's newest message on the present branch; 0: there is none."""
        log = self._record.view.log
        return next((seq for seq in reversed(log.said(log.head)) if _typed(log, seq) is not None), 0)

    def prompt(self, seq: int) -> str:
        """What the user typed in message `seq`. Raises ValueError if it is no message of theirs on this branch."""
        return typed_in(self._turn_start(seq)[1]) or ""

    def history(self) -> History:
        """The conversation so far, as the events with which it was first shown."""
        return replay(self._record.view.log.path())

    def history_in_parts(self, least: int) -> tuple[History, History]:
        """`history` in two parts: the earlier one, and the newest with at least `least` entries."""
        entries = self._record.view.log.path()
        start = newest(entries, least)
        return replay(entries[:start]), replay(entries[start:])

    def history_around(self, first: int, last: int) -> tuple[History, History]:
        """The history before entry `first`, and after entry `last`. Raises ValueError if the branch lacks either."""
        entries = self._record.view.log.path()
        return replay(entries[: entries.numbers.index(first)]), replay(entries[entries.numbers.index(last) + 1 :])

    async def rewind(self, seq: int) -> str:
        """Go back to before the user's message `seq`, with all that came because of it; returns what they typed.

        Texts that still waited to be delivered come back as well: they follow, each after a blank line. What followed
        becomes another branch. The permission mode is again that of the time. Raises ValueError if `seq` is no message
        of the user's on this branch.
        """
        async with self._turns.held():
            to, message = self._turn_start(seq)
            text = message.typed or typed_in(message) or ""
            if message.artifact is not None and not message.typed:
                # It entered as a preview.
                with suppress(StorageError):
                    text = await self._texts.read(message.artifact)
            waited = self._turns.queued()
            await self._move(to, "rewind")
            still = self._turns.queued()
            return "\n\n".join((text, *(other for number, other in waited if (number, other) not in still)))

    async def fork(self, seq: int | None = None) -> int:
        """Start another branch after message `seq` (None: the newest); the present branch stays as it is.

        Returns the number of the entry after which the new branch continues.
        """
        async with self._turns.held():
            log = self._record.view.log
            to = self._record.view.end_of(seq) if seq is not None else log.head
            if to and (prompt := because_of(log[to])) > to:
                # Without the message that it came because of, it does not stand.
                to = log[log.group_start(prompt)].parent
            if not to:
                missing = "no message yet" if seq is None else f"no message {seq} on this branch"
                raise ValueError(f"there is {missing}")
            await self._move(to, "fork")
            return to

    async def switch(self, tip: int) -> None:
        """Switch to the branch that ends at entry `tip`; see `all`. Raises ValueError if none does.

        What was only recorded at its end since it was listed does not matter.
        """
        async with self._turns.held():
            log = self._record.view.log
            ends = [log.head, *await asyncio.to_thread(self._tips)]
            end = tip if tip in ends else next((each for each in ends if _ends_at(log, each, tip)), None)
            if end is None:
                raise ValueError(f"no branch ends at entry {tip}")
            if end != log.head:
                await self._move(end, "switch")

    def _turn_start(self, seq: int) -> tuple[int, Message]:
        """Where a rewind to before the user's message `seq` on this branch goes, and the message. Raises ValueError."""
        log = self._record.view.log
        on_branch = 1 <= seq <= len(log) and log.fork_point(seq, log.head) == seq
        message = log.message(seq) if on_branch else None
        if message is None or typed_in(message) is None:
            raise ValueError(f"number {seq} is not a message of yours on this branch")
        return log[log.group_start(seq)].parent, message

    async def _move(self, to: int, reason: events.MoveReason) -> None:
        before, left = self._record.engine.tokens, self._record.view.head
        await self._record.answer_open_calls()
        if self._turns.busy:
            raise AgentBusy("a turn waits to go on here")
        # Texts that were queued at that point were handled on another branch: this withdraws them here.
        seq = await self._record.append(HeadMoved(to=to, reason=reason))
        await self._steps.keep_if_it_holds()
        if self._record.view.model not in ("", self._active.profile.name):
            # Record the present model on that branch too, so that a restart continues with it.
            await self._active.introduce()
        mode, after = await self._planning.follow(left), self._record.engine.tokens
        self._steps.tell(events.BranchChanged(seq=seq, to=to, reason=reason, before=before, after=after))
        if mode:
            self._steps.tell(events.Notice(level="info", title=f"Mode {mode} again", text="As it was at this point."))


def _ends_at(log: Log, head: int, tip: int) -> bool:
    """Whether the branch with this head ends at entry `tip`, apart from later context work and records."""
    if not 1 <= tip <= len(log) or log.fork_point(tip, head) != tip:
        return False
    return not any(issubclass(log.kind(seq), Message | Delivered) for seq in log.path(head, tip).numbers)


def _branch(log: Log, tip: int, fork: int) -> Branch:
    said = log.said(tip)
    own = said[bisect_right(said, fork) :]
    words = (text for seq in (*own, *reversed(said)) if (text := _typed(log, seq)) is not None)
    answers = (each for seq in reversed(own) if (each := log.message(seq)) is not None and each.role == "assistant")
    answer = next(filter(None, (text_in(each.blocks).strip() for each in answers)), "")
    return Branch(tip, fork, len(said), next(words, ""), log[tip].time, tip == log.head, answer)


def _typed(log: Log, seq: int) -> str | None:
    message = log.message(seq)
    return typed_in(message) if message is not None else None
