"""Moving between branches: rewind, fork, switch, and putting files back as they were."""

import asyncio
from typing import Final

from tui_agent.agent import events
from tui_agent.agent.active_model import ActiveModel
from tui_agent.agent.history.branches import branches, is_end_of_present, turn_start
from tui_agent.agent.history.file_history import FileHistory, PutBackDone
from tui_agent.agent.record import Record
from tui_agent.agent.turn.steps import Emit, StepRunner
from tui_agent.agent.turn.turns import AgentBusy, Turns
from tui_agent.aside import aside
from tui_agent.conversation.entries import notice
from tui_agent.tools.files.put_back import PutBack

FILES_PUT_BACK: Final = "[the user has put files back as they were: {names}. Read them again before you change them.]"
FILES_NAMED: Final = 50
"""The most files named in the notice to the model."""


class Moves:
    """Moves the head of one conversation. The log keeps the branch that was left.

    `files`: the history of file changes; None: not kept. `tell` is called with the event of each move.
    """

    def __init__(
        self,
        record: Record,
        active: ActiveModel,
        steps: StepRunner,
        turns: Turns,
        files: FileHistory | None,
        tell: Emit,
    ) -> None:
        self._record = record
        self._active = active
        self._steps = steps
        self._turns = turns
        self._files = files
        self._tell = tell

    async def rewind(self, seq: int) -> str:
        """See `Agent.rewind`."""
        async with self._turns.held():
            to, text = turn_start(self._record.view.log, seq)
            await self._move(to, "rewind")
            return text

    async def fork(self, seq: int | None = None) -> int:
        """See `Agent.fork`."""
        async with self._turns.held():
            to = self._record.view.end_of(seq) if seq is not None else self._record.view.head
            if not to:
                missing = "no message yet" if seq is None else f"no message {seq} on this branch"
                raise ValueError(f"there is {missing}")
            await self._move(to, "fork")
            return to

    async def switch_branch(self, tip: int) -> None:
        """See `Agent.switch_branch`."""
        async with self._turns.held():
            if tip in {branch.tip for branch in await asyncio.to_thread(branches, self._record.view.log)}:
                await self._move(tip, "switch")
            elif not is_end_of_present(self._record.view.log, tip):
                raise ValueError(f"no branch ends at entry {tip}")

    async def file_changes(self, seq: int) -> PutBack:
        """See `Agent.file_changes`."""
        async with self._turns.held():
            if (files := self._files) is None:
                return PutBack(seq)
            return await aside(lambda: files.plan(self._record.view.log, seq))

    async def newest_file_changes(self, *, redo: bool = False) -> PutBack | None:
        """See `Agent.newest_file_changes`."""
        async with self._turns.held():
            if (files := self._files) is None:
                return None
            return await aside(lambda: files.newest(self._record.view.log, redo=redo))

    async def put_back(self, planned: PutBack, *, overwrite: bool = False, tell: bool = True) -> PutBackDone:
        """See `Agent.put_back`."""
        async with self._turns.held():
            if self._files is None:
                return PutBackDone()
            done = await self._files.put_back(planned, self._record, overwrite=overwrite)
            if done.done and tell:
                names = ", ".join(step.name for step in done.done[:FILES_NAMED])
                more = f" and {len(done.done) - FILES_NAMED:,} more" if len(done.done) > FILES_NAMED else ""
                await self._record.append(notice(FILES_PUT_BACK.format(names=f"{names}{more}")))
            return done

    async def _move(self, to: int, reason: events.MoveReason) -> None:
        before = self._record.engine.tokens
        await self._record.answer_open_calls()
        if self._turns.busy:
            raise AgentBusy("a turn waits to go on here")
        seq = await self._record.move_head(to, reason)
        await self._steps.keep_if_it_holds()
        if self._record.view.model not in ("", self._active.profile.name):
            # Record the present model on that branch too, so that a restart continues with it.
            await self._active.introduce()
        self._tell(events.HeadMoved(seq=seq, to=to, reason=reason, before=before, after=self._record.engine.tokens))
