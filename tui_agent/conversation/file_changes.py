"""The file changes recorded in the log: the state of each file at some entry, and the states it may have now.

Files do not branch with the conversation: their entries count in the order of the log, on whatever branch they are.
"""

from collections.abc import Iterable

import msgspec
from msgspec import structs

from tui_agent.conversation.entries import AnyEntry, Delivered, FileChange, FilesChanged, FilesKept, FileState, Message
from tui_agent.conversation.log import Log

CUT_SHORT = "The program was killed while a command ran (entry {seq}); what that command changed is not known."


class FilePast(msgspec.Struct, frozen=True):
    """A file that was changed since some entry of the log.

    `then` is its state at that entry; the content was saved unless `unkept` says why not, and the nearest `made` of the
    folders above it did not exist. `possible` are the states it can have now unless somebody else changed it.
    `broken`: somebody else changed it between two of our changes, so restoring `then` would lose their work.
    `unsure`: a call that changed it was cut short.
    """

    path: str
    then: FileState
    possible: tuple[FileState, ...]
    unkept: str = ""
    made: int = 0
    broken: bool = False
    unsure: bool = False


class FilesPast(msgspec.Struct, frozen=True):
    """The files changed since some entry of the log, sorted by path; `gaps` are sentences on what is not known."""

    files: tuple[FilePast, ...] = ()
    gaps: tuple[str, ...] = ()


def files_since(log: Log, seq: int) -> FilesPast:
    """The files changed by entry `seq` and those after it. Reads only these entries."""
    since = list(log.entries().after(seq - 1).of(FilesKept, FilesChanged))
    finished = {entry.kept for entry in since if isinstance(entry, FilesChanged)}
    files: dict[str, FilePast] = {}
    gaps: dict[str, None] = {}
    for entry in since:
        if isinstance(entry, FilesChanged):
            gaps.update(dict.fromkeys(entry.gaps))
            for change in entry.files:
                files[change.place] = _changed(files.get(change.place), change)
        elif entry.seq not in finished:
            if entry.tree:
                gaps[CUT_SHORT.format(seq=entry.seq)] = None
            for change in entry.files:
                files[change.place] = _begun(files.get(change.place), change, by_call=bool(entry.call))
    return FilesPast(tuple(files[path] for path in sorted(files)), tuple(gaps))


class RecentChanges:
    """The files changed since the user's newest message in a log. Each entry of it is read once."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._read = 0
        self._files: dict[str, FilePast] = {}

    def files(self) -> dict[str, FilePast]:
        """These files, by path; not what was begun and has not ended."""
        for number in range(self._read + 1, len(self.log) + 1):
            entry = self.log[number] if self.log.kind(number) in {Delivered, FilesChanged, Message} else None
            if isinstance(entry, FilesChanged):
                for change in entry.files:
                    self._files[change.place] = _changed(self._files.get(change.place), change)
            elif entry is not None and _is_users(entry):
                self._files = {}
            self._read = number
        return self._files


def _is_users(entry: AnyEntry) -> bool:
    return isinstance(entry, Delivered) or (isinstance(entry, Message) and entry.role == "user" and not entry.kind)


def _user_message(log: Log, before: int) -> int:
    """The number of the user's newest message before entry `before`, on any branch; 0: none. Reads those between."""
    return next((number for number in range(before - 1, 0, -1) if _is_users(log[number])), 0)


class NewestChanges(msgspec.Struct, frozen=True):
    """The newest changes and the newest restore that have not been reversed. Each is an entry number for `files_since`:
    the files before that entry are the files without the changes or the restore. 0: there is none.
    """

    changes: int = 0
    put_back: int = 0


def newest_changes(log: Log) -> NewestChanges:
    """The newest changes by calls, and the newest restore, that have not been reversed.

    The changes start at the user's message that led to them.
    """
    put_back, undone_from = 0, len(log) + 1
    ended = {entry.kept: entry for entry in log.entries().of(FilesChanged)}
    for entry in reversed(list(log.entries().of(FilesKept))):
        number = entry.seq
        if number >= undone_from:
            continue
        if not entry.call:
            undone_from = entry.since
            # A restore that reverses another one restores the state right before that one.
            reversed_one = log[entry.since]
            if not put_back and not (isinstance(reversed_one, FilesKept) and not reversed_one.call):
                put_back = number
        elif (changed := ended.get(number)) is None or changed.files:
            return NewestChanges(_user_message(log, number), put_back)
    return NewestChanges(0, put_back)


def unfinished(log: Iterable[AnyEntry]) -> tuple[FilesKept, ...]:
    """The changes of files that were started and never finished, according to the log."""
    begun: dict[int, FilesKept] = {}
    for entry in log:
        if isinstance(entry, FilesKept):
            begun[entry.seq] = entry
        elif isinstance(entry, FilesChanged):
            begun.pop(entry.kept, None)
    return tuple(begun.values())


def kept_contents(log: Iterable[AnyEntry]) -> frozenset[str]:
    """The SHA-256 of every file content that the log says was saved."""
    return frozenset(
        change.before.sha256
        for entry in log
        if isinstance(entry, FilesKept | FilesChanged)
        for change in entry.files
        if change.before.sha256 and not change.unkept
    )


def _changed(past: FilePast | None, change: FileChange) -> FilePast:
    if past is None:
        return FilePast(change.place, change.before, (change.after,), change.unkept, change.made)
    broken = past.broken or change.before not in past.possible
    return structs.replace(past, possible=(change.after,), broken=broken, unsure=past.unsure and broken)


def _begun(past: FilePast | None, change: FileChange, *, by_call: bool) -> FilePast:
    """Add a change that was started and never finished, so it may or may not have happened.

    Only for a restore is the new state known; after a call the file is `unsure`.
    """
    if past is None:
        past = FilePast(change.place, change.before, (change.before,), change.unkept, change.made)
    elif change.before not in past.possible:
        past = structs.replace(past, broken=True, possible=(change.before,))
    if by_call:
        return structs.replace(past, unsure=True)
    return structs.replace(past, possible=tuple(dict.fromkeys((*past.possible, change.after))))
