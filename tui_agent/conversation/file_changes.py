"""What the log says of the files that were changed: how each was at some place of it, and may be now.

Files have one course, whatever branch the conversation goes on: the entries about them count in the order of the log.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tui_agent.conversation.entries import AnyEntry, Delivered, FileChange, FilesChanged, FilesKept, FileState, Message
from tui_agent.conversation.log import Log

CUT_SHORT = "The program was ended while a command ran (entry {seq}); what that command changed is not known."


class FilePast(NamedTuple):
    """A file that was changed since some place of the log.

    It was as `then`, whose content is kept unless `unkept` says why not; of the folders above it the nearest `made`
    were not there. Where nobody else has changed it, it is now as one of `possible`. `broken`: somebody else has
    changed it in between, so `then` lacks what they did. `unsure`: a call that changed it was cut short.
    """

    path: str
    then: FileState
    possible: tuple[FileState, ...]
    unkept: str = ""
    made: int = 0
    broken: bool = False
    unsure: bool = False


class FilesPast(NamedTuple):
    """The files changed since some place of the log, by path; `gaps` are sentences about what is not known."""

    files: tuple[FilePast, ...] = ()
    gaps: tuple[str, ...] = ()


def files_since(log: Log, seq: int) -> FilesPast:
    """The files changed since before entry `seq`. Costs what was appended since."""
    since = list(log.entries().after(seq - 1).of(FilesKept, FilesChanged))
    finished = {entry.kept for entry in since if isinstance(entry, FilesChanged)}
    files: dict[str, FilePast] = {}
    gaps: dict[str, None] = {}
    for entry in since:
        if isinstance(entry, FilesChanged):
            gaps.update(dict.fromkeys(entry.gaps))
            for change in entry.files:
                files[change.path] = _changed(files.get(change.path), change)
        elif entry.seq not in finished:
            if entry.tree:
                gaps[CUT_SHORT.format(seq=entry.seq)] = None
            for change in entry.files:
                files[change.path] = _begun(files.get(change.path), change, by_call=bool(entry.call))
    return FilesPast(tuple(files[path] for path in sorted(files)), tuple(gaps))


def newest_words(log: Log, before: int | None = None) -> int:
    """The number of the user's newest message, on whatever branch, or of the newest before an entry; 0: there is none.

    Costs what came after it.
    """
    newest = len(log) if before is None else before - 1
    return next((number for number in range(newest, 0, -1) if _is_said_by_user(log[number])), 0)


class Newest(NamedTuple):
    """The newest changes by a call and the newest putting back that still count, each by the entry before which the
    files were as they were before it; 0: there is none.
    """

    changes: int = 0
    put_back: int = 0


def newest_changes(log: Log) -> Newest:
    """What was changed last and not put back since, and what was put back last and not changed back since.

    Of the changes, the entry is the user's message on which they came.
    """
    put_back, undone_from = 0, len(log) + 1
    ended = {entry.kept: entry for entry in log.entries().of(FilesChanged)}
    for entry in reversed(list(log.entries().of(FilesKept))):
        number = entry.seq
        if number >= undone_from:
            continue
        if not entry.call:
            undone_from = entry.since
            # What undoes a putting back begins right before it.
            if not put_back and not _puts_back(log[entry.since]):
                put_back = number
        elif (changed := ended.get(number)) is None or changed.files:
            return Newest(newest_words(log, number), put_back)
    return Newest(0, put_back)


def unfinished(log: Iterable[AnyEntry]) -> tuple[FilesKept, ...]:
    """What was begun with files and, by the log, never ended."""
    begun: dict[int, FilesKept] = {}
    for entry in log:
        if isinstance(entry, FilesKept):
            begun[entry.seq] = entry
        elif isinstance(entry, FilesChanged):
            begun.pop(entry.kept, None)
    return tuple(begun.values())


def kept_contents(log: Iterable[AnyEntry]) -> frozenset[str]:
    """The SHA-256 of every content that some entry says is kept."""
    return frozenset(
        change.before.sha256
        for entry in log
        if isinstance(entry, FilesKept | FilesChanged)
        for change in entry.files
        if change.before.sha256 and not change.unkept
    )


def _puts_back(entry: AnyEntry) -> bool:
    return isinstance(entry, FilesKept) and not entry.call


def _is_said_by_user(entry: AnyEntry) -> bool:
    return isinstance(entry, Delivered) or (isinstance(entry, Message) and entry.role == "user" and not entry.kind)


def _changed(past: FilePast | None, change: FileChange) -> FilePast:
    if past is None:
        return FilePast(change.path, change.before, (change.after,), change.unkept, change.made)
    broken = past.broken or change.before not in past.possible
    return past._replace(possible=(change.after,), broken=broken, unsure=past.unsure and broken)


def _begun(past: FilePast | None, change: FileChange, *, by_call: bool) -> FilePast:
    """A change that was begun: it was done or it was not, and only of putting back it is known what it would do."""
    if past is None:
        past = FilePast(change.path, change.before, (change.before,), change.unkept, change.made)
    elif change.before not in past.possible:
        past = past._replace(broken=True, possible=(change.before,))
    if by_call:
        return past._replace(unsure=True)
    return past._replace(possible=tuple(dict.fromkeys((*past.possible, change.after))))
