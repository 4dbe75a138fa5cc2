"""The files that tools changed: what was changed since a message, and putting it back."""

from typing import Final

from tui_agent.agent.history.file_history import FileHistory, PutBackDone
from tui_agent.agent.record import Record
from tui_agent.agent.turn.turns import Turns
from tui_agent.conversation.entries import notice
from tui_agent.durable import in_thread
from tui_agent.tools.files.put_back import PutBack

FILES_PUT_BACK: Final = "[the user has put files back as they were: {names}. Read them again before you change them.]"
FILES_NAMED: Final = 50
"""The most files named in the notice to the model."""


class ChangedFiles:
    """The files that the tools of one conversation changed. All raise `AgentBusy` while a turn runs.

    Without a `history` nothing was kept, so there is nothing to put back.
    """

    def __init__(self, record: Record, turns: Turns, history: FileHistory | None) -> None:
        self._record = record
        self._turns = turns
        self._history = history

    async def changes(self, seq: int) -> PutBack:
        """Plan putting back the files that were changed since the user's message `seq`."""
        async with self._turns.held():
            if (history := self._history) is None:
                return PutBack(seq)
            return await in_thread(history.plan, self._record.view.log, seq)

    async def newest(self, *, redo: bool = False) -> PutBack | None:
        """Plan undoing the newest turn with file changes that were not put back yet; with `redo`, undoing the last
        put-back.

        None if there is nothing to do.
        """
        async with self._turns.held():
            if (history := self._history) is None:
                return None
            return await in_thread(history.newest, self._record.view.log, redo=redo)

    async def put_back(self, planned: PutBack, *, overwrite: bool = False, tell: bool = True) -> PutBackDone:
        """Put files back as planned. Files that somebody else has changed since are left alone, unless `overwrite`.

        `tell`: notify the model. Raises `StorageError`, and then nothing was changed.
        """
        async with self._turns.held():
            if self._history is None:
                return PutBackDone()
            done = await self._history.put_back(planned, self._record, overwrite=overwrite)
            if done.done and tell:
                names = ", ".join(step.name for step in done.done[:FILES_NAMED])
                more = f" and {len(done.done) - FILES_NAMED:,} more" if len(done.done) > FILES_NAMED else ""
                await self._record.append(notice(FILES_PUT_BACK.format(names=f"{names}{more}")))
            return done
