"""The files that tools changed: what was changed since a message, putting it back, and what people are told of it.

The texts contain untrusted names and diffs.
"""

from typing import Final

from tui_agent.agent.history.file_history import FileHistory, PutBackDone
from tui_agent.agent.record import Record
from tui_agent.agent.turn.turns import Turns
from tui_agent.conversation.entries import notice
from tui_agent.system.durable import in_thread
from tui_agent.text import counted, first_of
from tui_agent.tools.files.put_back import FileStep, PutBack

FILES_PUT_BACK: Final = "[the user has put files back as they were: {names}. Read them again before you change them.]"
NAMED: Final = 50
"""The most files of each kind that are named."""

NOTHING: Final = "No turn has changed files that are still to be put back"
NOTHING_TO_REDO: Final = "No files were put back that could be changed again"

DOES: Final = {"restore": "changed back", "bring back": "brought back", "remove": "removed", "mode": "mode set back"}


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
                names = first_of([step.name for step in done.done], NAMED)
                await self._record.append(notice(FILES_PUT_BACK.format(names=names)))
            return done


def plan_title(planned: PutBack) -> str:
    """The number of files, in a few words."""
    gone = sum(step.does == "remove" for step in planned.ours)
    back = len(planned.ours) - gone
    parts = [f"{counted(back, 'file')} can be put back"] if back or not gone else []
    if gone:
        parts.append(f"{counted(gone, 'file')} will be deleted")
    if planned.theirs:
        parts.append(f"{len(planned.theirs):,} changed by somebody else")
    if planned.impossible:
        parts.append(f"{len(planned.impossible):,} not")
    return ", ".join(parts)


def plan_text(planned: PutBack) -> str:
    """Every file that would be put back, with its diff; those that would stay; and what is unknown."""
    theirs = [(step.name, step.others) for step in planned.theirs]
    left = _listed("Stay as they are", [*theirs, *planned.impossible])
    parts = ("\n".join(map(_done, planned.ours)), left, "\n".join(planned.gaps), planned.diff)
    return "\n\n".join(filter(None, parts))


def title_of_done(done: PutBackDone) -> str:
    return f"{counted(len(done.done), 'file')} put back" if done.done else "No file was put back"


def done_text(planned: PutBack, done: PutBackDone) -> str:
    """The files that were put back, those that were not, and what is unknown."""
    names = [_done(step) for step in done.done[:NAMED]]
    if len(done.done) > NAMED:
        names.append(f"and {len(done.done) - NAMED:,} more")
    put = {step.path for step in done.done}
    theirs = [(step.name, step.others) for step in planned.theirs if step.path not in put]
    left = _listed("Stay as they are", [*theirs, *done.failed, *planned.impossible])
    return "\n\n".join(filter(None, ("\n".join(names), left, "\n".join(planned.gaps))))


def _done(step: FileStep) -> str:
    return f"{step.name}: {DOES[step.does]}"


def _listed(title: str, files: list[tuple[str, str]]) -> str:
    lines = [f"  {name}: {why}" for name, why in dict(files).items()]
    more = [f"  and {len(lines) - NAMED:,} more"] if len(lines) > NAMED else []
    return "\n".join((f"{title}:", *lines[:NAMED], *more)) if lines else ""
