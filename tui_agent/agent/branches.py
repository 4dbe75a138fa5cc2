"""The branches of one conversation: its past, and moving to another place in it."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from tui_agent.agent import events
from tui_agent.agent.history.as_events import newest, replay
from tui_agent.agent.history.branches import Branch, Prompt, branches, ends_at, prompts, turn_start
from tui_agent.agent.turn.turn import Parts
from tui_agent.agent.turn.turns import AgentBusy, Turns
from tui_agent.conversation.entries import typed_in
from tui_agent.conversation.log import because_of
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Texts

Told = Iterator[events.AgentEvent]


class Branches:
    """The branches of one conversation. The log keeps the branch that is left.

    What moves the head raises `AgentBusy`, `StorageError` and ValueError.
    """

    def __init__(self, parts: Parts, turns: Turns, texts: Texts) -> None:
        self._record, self._active, self._steps, self._planning = (
            parts.record,
            parts.active,
            parts.steps,
            parts.planning,
        )
        self._turns = turns
        self._texts = texts

    def all(self) -> tuple[Branch, ...]:
        """Every branch of the conversation, the present one first, then the newest."""
        return branches(self._record.view.log)

    def prompts(self) -> tuple[Prompt, ...]:
        """The user's messages on the present branch, oldest first."""
        return prompts(self._record.view.log)

    def check_prompt(self, seq: int) -> None:
        """Raise ValueError if `seq` is no message of the user's on this branch."""
        turn_start(self._record.view.log, seq)

    def history(self) -> Told:
        """The conversation so far, as the events with which it was first shown."""
        return replay(self._record.view.log.path())

    def history_in_parts(self, least: int) -> tuple[Told, Told]:
        """`history` in two parts: the earlier one, and the newest with at least `least` entries."""
        entries = self._record.view.log.path()
        start = newest(entries, least)
        return replay(entries[:start]), replay(entries[start:])

    def history_around(self, first: int, last: int) -> tuple[Told, Told]:
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
            to, message = turn_start(self._record.view.log, seq)
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
            ends = [branch.tip for branch in await asyncio.to_thread(self.all)]
            end = tip if tip in ends else next((each for each in ends if ends_at(log, each, tip)), None)
            if end is None:
                raise ValueError(f"no branch ends at entry {tip}")
            if end != log.head:
                await self._move(end, "switch")

    async def _move(self, to: int, reason: events.MoveReason) -> None:
        before, left = self._record.engine.tokens, self._record.view.head
        await self._record.answer_open_calls()
        if self._turns.busy:
            raise AgentBusy("a turn waits to go on here")
        seq = await self._record.move_head(to, reason)
        await self._steps.keep_if_it_holds()
        if self._record.view.model not in ("", self._active.profile.name):
            # Record the present model on that branch too, so that a restart continues with it.
            await self._active.introduce()
        mode, after = await self._planning.follow(left), self._record.engine.tokens
        self._steps.tell(events.HeadMoved(seq=seq, to=to, reason=reason, before=before, after=after))
        if mode:
            self._steps.tell(events.Notice(level="info", title=f"Mode {mode} again", text="As it was at this point."))
