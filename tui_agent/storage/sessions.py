"""Session folders: creates, copies, lists, finds, renames and deletes them."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import text_in
from tui_agent.conversation.entries import AnyEntry, Message
from tui_agent.regex import regex
from tui_agent.storage.artifacts import safe_name
from tui_agent.storage.errors import Damaged, StorageError, explained
from tui_agent.storage.log import LOG_NAME, LogStore, log_file, read_damaged_summary, read_newest, read_summary
from tui_agent.storage.session_lock import LOCK_NAME, SessionLock
from tui_agent.storage.trace import TRACE_NAME, read_starting_folder
from tui_agent.system.durable import PRIVATE_FOLDER, make_private_folder, sync_folder, threaded, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.text import first_of

SESSIONS_FOLDER: Final = "sessions"
INDEX_NAME: Final = "session-list.json"
TITLE: Final = "title"
WINDOW_NOTE: Final = "context_window"
"""The window that was set for a session at a start, among the facts about it."""
WORDS_SHOWN: Final = 120
"""Characters shown of the last words."""
LOOKED_AT: Final = 8
"""How many entries at the end of a log are searched for the last words."""

BATCH_ENTRIES: Final = 2_000
"""Entries of a new session written in a transaction."""

_FACTS_BYTES: Final = 16_384
"""How much of a log is read to see whether its facts name a folder."""
_NOT_COPIED: Final = (LOG_NAME, TRACE_NAME, LOCK_NAME)
"""Prefixes of the names of files that are not copied: databases with their side files, and the lock."""
_NO_LOG: Final = f"its log ({LOG_NAME}) is missing."
_LIST: Final = "List all with: tui-agent sessions"
_LIST_THEM: Final = "List them with: tui-agent sessions"
_SESSION_ID = regex(r"\d{8}-\d{6}-[0-9a-f]{4}")
_SUBTASK_SIGN = ":sub:"
_SUBTASK_MARK = ".sub."


class _Facts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    title: str = ""
    cwd: str = ""
    created: float = 0.0
    updated: float = 0.0
    size: int = 0
    model: str = ""
    messages: int = 0
    cost_usd: float = 0.0
    problem: str = ""


class SessionInfo(_Facts, frozen=True, kw_only=True):
    """A session in a list. Times are in seconds since the epoch, `size` is that of the whole folder in bytes.

    `cwd` is the folder it was started in, as from `noted_folder`. `problem` says why it cannot be read (empty: it can);
    the other fields are then what is still known.
    """

    id: str
    folder: Path


class _Known(msgspec.Struct, frozen=True, array_like=True):
    """What was read of a session when its log and the newest part of it had these times of change and sizes."""

    stamp: tuple[int, ...]
    facts: _Facts


class NoSuchSession(StorageError):
    """The user's input matches no session, or more than one."""

    kind = "no_such_session"


def new_session_id(now: datetime | None = None) -> str:
    """An id that sorts by time, e.g. ``20261121-214501-ab12`` (local time)."""
    return f"{now or datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def session_folder(home: Path, session_id: str) -> Path:
    return home / SESSIONS_FOLDER / session_id


def subtask_id(parent_id: str, branch: str) -> str:
    return f"{parent_id}{_SUBTASK_SIGN}{branch}"


def subtask_folder(home: Path, parent_id: str, branch: str) -> Path:
    """The folder of a subtask's session, next to its parent's, with a name that is valid on every file system."""
    return home / SESSIONS_FOLDER / f"{parent_id}{_SUBTASK_MARK}{safe_name(branch)}"


def subtask_folders(home: Path, parent_id: str) -> list[Path]:
    """The folders of a session's subtasks, sorted by name. Raises `StorageError`."""
    parent = home / SESSIONS_FOLDER
    with explained(parent):
        return sorted(folder for folder in parent.glob(f"{parent_id}{_SUBTASK_MARK}*") if folder.is_dir())


def subtask_branch(folder: Path) -> str:
    return folder.name.rpartition(_SUBTASK_MARK)[2]


def files_folder(folder: Path) -> Path:
    """The folder of the files that the entries in `folder` refer to; for a subtask, its parent's."""
    parent, mark, _ = folder.name.partition(_SUBTASK_MARK)
    return folder.with_name(parent) if mark else folder


def create_session(home: Path) -> Path:
    """Create the folder of a new session, accessible only to the user; its name is the id. Raises `StorageError`."""
    parent = home / SESSIONS_FOLDER
    with explained(parent):
        make_private_folder(parent)
        while True:
            folder = session_folder(home, new_session_id())
            try:
                folder.mkdir(mode=PRIVATE_FOLDER)
            except FileExistsError:
                continue
            sync_folder(parent)
            return folder


async def copy_session(home: Path, folder: Path) -> Path:
    """Copy the session in `folder`, with its log and files, and return the copy's folder.

    Another process may have the session open. The copy gets a new trace. Raises `StorageError`.
    """
    async with await LogStore.open(folder, read_only=True) as source:
        entries, meta = await source.load(), await source.meta()
    return await make_session(home, entries, meta, files=folder)


def window_of(meta: Mapping[str, str]) -> int:
    """The window that was set for a session, in tokens (0: none, -1: unknown), of the facts about it."""
    noted = meta.get(WINDOW_NOTE, "")
    return int(noted) if noted.removeprefix("-").isdecimal() and len(noted) < 12 else 0


async def make_session(
    home: Path, entries: Sequence[AnyEntry], meta: Mapping[str, str], *, files: Path | None = None
) -> Path:
    """Make a session of these stamped entries, with the files of the session in `files`, and return its folder.

    If it fails, nothing is left behind. Raises `StorageError`.
    """
    folder = await asyncio.to_thread(create_session, home)
    try:
        if files is not None:
            await asyncio.to_thread(_copy_files, files, folder)
        async with await LogStore.open(folder) as store:
            for start in range(0, len(entries), BATCH_ENTRIES):
                await store.append(entries[start : start + BATCH_ENTRIES])
            await store.set_meta(meta)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise
    return folder


def _copy_files(source: Path, target: Path) -> None:
    with explained(target):
        for path in source.iterdir():
            if path.name.startswith(_NOT_COPIED):
                continue
            if path.is_dir():
                shutil.copytree(path, target / path.name, symlinks=True)
            else:
                shutil.copy2(path, target / path.name, follow_symlinks=False)
        sync_folder(target)


def noted_folder(folder: Path) -> str:
    """A folder's path as text that can be stored: bytes that are not UTF-8 are escaped like ``\\xe9``."""
    return os.fsencode(folder).decode("utf-8", "backslashreplace")


async def rename_session(folder: Path, title: str) -> None:
    """Change a session's title. Raises `StorageError`; `SessionBusy` if it is open."""
    async with await LogStore.open(folder) as store:
        await store.set_meta({TITLE: title})


async def find_session(home: Path, text: str) -> Path:
    """The folder of the session or subtask whose id is `text` or uniquely starts with it. Raises `NoSuchSession`."""
    wanted = text.strip().lower().replace(_SUBTASK_SIGN, _SUBTASK_MARK)
    folders = await asyncio.to_thread(_folders, home, subtasks=_SUBTASK_MARK in wanted)
    names = [folder.name for folder in folders]
    found = [name for name in names if name == wanted] or [name for name in names if name.startswith(wanted)]
    if not wanted or not found:
        raise NoSuchSession(f"There is no session {text!r}.", _LIST_THEM)
    if len(found) > 1:
        shown = first_of(found, 5)
        raise NoSuchSession(f"{text!r} may mean any of {len(found)} sessions: {shown}.", _LIST_THEM)
    return session_folder(home, found[0])


async def session_to_resume(home: Path, text: str) -> Path:
    """The folder of the session to resume (see `find_session`), which may be named by its title. Raises
    `NoSuchSession`, and `Damaged` if its log is missing.
    """
    try:
        folder = await find_session(home, text)
    except NoSuchSession:
        titled = await _titled(home, text)
        if titled is None:
            raise
        folder = titled
    if await asyncio.to_thread(_has_log, folder):
        return folder
    raise Damaged(_lost(folder, _NO_LOG), _advice(folder))


@threaded
def _titled(home: Path, title: str) -> Path | None:
    """The session with this title, in any case; None if there is none. Raises `NoSuchSession` if there are several."""
    wanted, index = title.strip().casefold(), _Index(home)
    found = [info for info in map(index.info, _folders(home)) if wanted and info.title.casefold() == wanted]
    index.save()
    if len(found) > 1:
        newest = sorted(found, key=lambda info: info.updated, reverse=True)
        shown = first_of([info.id for info in newest], 5)
        raise NoSuchSession(f"{title!r} is the title of {len(found)} sessions: {shown}.", _LIST_THEM)
    return found[0].folder if found else None


@threaded
def session_to_continue(home: Path, folder: Path) -> Path:
    """The session last used in a folder in which something was said; of a damaged one what can be read is saved when
    it is opened.

    Raises `NoSuchSession`, and `Damaged` where the last one cannot be read. Looks at the newest first, and no further
    than it must.
    """
    index, cwd = _Index(home), noted_folder(folder)
    newest: SessionInfo | None = None
    lost: list[SessionInfo] = []
    for changed, place in sorted(((_changed(place), place) for place in _folders(home)), reverse=True):
        # The modification time bounds the last use, so older folders cannot win.
        if newest is not None and newest.updated >= changed:
            break
        if not index.knows(place) and _is_of_another(place, cwd):
            continue
        info = index.info(place)
        if info.problem and not info.messages:
            if info.cwd in {cwd, ""} and _contents(place):
                lost.append(msgspec.structs.replace(info, updated=changed))
        elif info.cwd == cwd and info.messages and (newest is None or info.updated > newest.updated):
            newest = info
    index.save()
    if newest is not None:
        # A damaged session whose folder is unknown must not block the others.
        later = [info for info in lost if info.cwd and info.updated > newest.updated]
        if not later:
            return newest.folder
        raise Damaged(
            f"The session last used in {cwd} cannot be continued. {_lost(later[0].folder, later[0].problem)}",
            f"Go on with the one before it: tui-agent -r {newest.id}. {_advice(later[0].folder)}".rstrip(),
        )
    none = f"There is no session to continue in {cwd}."
    if not lost:
        raise NoSuchSession(none, _LIST)
    last = next((info for info in lost if info.cwd), lost[0])
    whose = "" if last.cwd else " It may have been of this folder."
    more = f" {len(lost) - 1} more cannot be read." if len(lost) > 1 else ""
    raise Damaged(f"{none} {_lost(last.folder, last.problem)}{whose}{more}", f"{_advice(last.folder)} {_LIST}".lstrip())


@threaded
def last_words(folder: Path) -> str:
    """The last thing said in a session, by either side, on one line; empty if unknown. Untrusted text."""
    try:
        entries = read_newest(log_file(folder), LOOKED_AT)
    except StorageError:
        return ""
    for entry in reversed(entries):
        if isinstance(entry, Message) and not entry.kind:
            said = entry.typed or text_in(entry.blocks, between=" ")
            if said.strip():
                # Markdown's markers are only noise on one line.
                words = said[: 4 * WORDS_SHOWN].replace("**", "").replace("`", "").lstrip("# ")
                return " ".join(words.split())[:WORDS_SHOWN]
    return ""


@threaded
def delete_session(home: Path, session_id: str) -> None:
    """Delete a session and its subtasks permanently. Raises `StorageError`; `SessionBusy` if it is open."""
    folder = session_folder(home, session_id)
    # Whoever has it open keeps it; the lock goes with the folder.
    lock = SessionLock.acquire(folder)
    try:
        with explained(folder):
            for part in (*subtask_folders(home, session_id), folder):
                shutil.rmtree(part)
            sync_folder(folder.parent)
    finally:
        lock.release()


def _lost(folder: Path, problem: str) -> str:
    """The message for a session that cannot be read: which, why, and what was kept of it."""
    kept = _contents(folder)
    left = f"What is left of it is kept in {folder}: {', '.join(kept)}." if kept else f"Nothing is left in {folder}."
    return f"Session {folder.name} cannot be read: {problem} {left}"


def _advice(folder: Path) -> str:
    go_on = f"Go on with what can still be read of it: tui-agent -r {folder.name}." if _has_log(folder) else ""
    look = f"Print its record: tui-agent trace {folder.name}." if (folder / TRACE_NAME).exists() else ""
    return f"{go_on} {look}".strip()


def _contents(folder: Path) -> list[str]:
    """The names in a session's folder, without its lock and sqlite's side files."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    return [name for name in names if name != LOCK_NAME and not name.endswith(("-wal", "-shm"))]


def _has_log(folder: Path) -> bool:
    path = log_file(folder)
    with suppress(OSError):
        return path.stat().st_size > 0
    return False


def stamped_logs(home: Path) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """The folders of all sessions and subtasks with a log, each with what changes when its log does.

    Raises `StorageError`.
    """
    for folder in (*_folders(home), *_folders(home, subtasks=True)):
        if stamp := stamp_of(folder):
            yield folder, stamp


def logs_of(home: Path, cwd: str) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """As `stamped_logs`, newest first, without most of what was started in another folder. Raises `StorageError`."""
    for folder, stamp in sorted(stamped_logs(home), key=lambda each: each[1], reverse=True):
        if not _is_of_another(folder, cwd):
            yield folder, stamp


def _stats(folder: Path) -> list[os.stat_result]:
    """Of the log, and of the file with its newest entries."""
    found: list[os.stat_result] = []
    for name in (LOG_NAME, f"{LOG_NAME}-wal"):
        with suppress(OSError):
            stat = (folder / name).stat()
            # Readers leave an empty file where a writer's newest entries would stand.
            found += [stat] if stat.st_size else []
    return found


def stamp_of(folder: Path) -> tuple[int, ...]:
    """What changes when the log of a session does; empty if it has none."""
    return tuple(number for stat in _stats(folder) for number in (stat.st_mtime_ns, stat.st_size))


def _is_of_another(folder: Path, cwd: str) -> bool:
    """Whether a session was certainly started in another folder than `cwd`. Opening its database would take 2 ms.

    The facts about it stand in the first pages of its log, each value right behind its key.
    """
    path = folder / LOG_NAME
    with suppress(OSError):
        written = path.with_name(f"{LOG_NAME}-wal")
        if written.exists() and written.stat().st_size:
            return False
        with path.open("rb") as file:
            facts = file.read(_FACTS_BYTES)
        return b"cwd/" in facts and f"cwd{cwd}".encode() not in facts
    return False


def _changed(folder: Path) -> float:
    """When a session was last written to, in seconds since the epoch; 0 if unknown."""
    times = [stat.st_mtime for stat in _stats(folder)]
    for path in (folder / TRACE_NAME, folder):
        with suppress(OSError):
            times = times or [path.stat().st_mtime]
    return max(times, default=0.0)


@threaded
def list_sessions(home: Path) -> list[SessionInfo]:
    """All sessions without subtasks, newest first; damaged ones have a `problem`. Skips empty folders of processes
    that were killed at their start. Raises `StorageError`.
    """
    index = _Index(home)
    costs: dict[str, float] = {}
    for folder in _folders(home, subtasks=True):
        parent = folder.name.partition(_SUBTASK_MARK)[0]
        costs[parent] = costs.get(parent, 0.0) + index.info(folder).cost_usd
    found = [info for info in map(index.info, _folders(home)) if not info.problem or _contents(info.folder)]
    index.save()
    found = [msgspec.structs.replace(info, cost_usd=info.cost_usd + costs.get(info.id, 0.0)) for info in found]
    return sorted(found, key=lambda info: (info.updated or info.created, info.id), reverse=True)


class _Index:
    """What is known of the sessions, so that a list reads only those that have changed. Kept in a file that may be lost
    at any time.
    """

    def __init__(self, home: Path) -> None:
        self._folder, self._path = home / SESSIONS_FOLDER, home / INDEX_NAME
        self._known = decoded_file(self._path, dict[str, _Known]) or {}
        self._seen: dict[str, _Known] = {}

    def knows(self, folder: Path) -> bool:
        """Whether the session in `folder` has not changed since it was last read."""
        known = self._known.get(folder.name)
        return known is not None and known.stamp == stamp_of(folder)

    def info(self, folder: Path) -> SessionInfo:
        """The session in `folder`; reads its log only if that has changed."""
        known = self._known[folder.name] if self.knows(folder) else _Known(stamp_of(folder), _facts(folder))
        if not known.facts.problem:
            self._seen[folder.name] = known
        return SessionInfo(id=folder.name, folder=folder, **msgspec.structs.asdict(known.facts))

    def save(self) -> None:
        """Keep what was read; errors of the disk are ignored."""
        now = {**self._known, **self._seen}
        if now != self._known:
            there = {name: now[name] for name in now if name in self._seen or (self._folder / name).exists()}
            with suppress(OSError):
                write_file(self._path, msgspec.json.encode(there))


def _folders(home: Path, *, subtasks: bool = False) -> list[Path]:
    parent = home / SESSIONS_FOLDER
    with explained(parent), suppress(FileNotFoundError), os.scandir(parent) as found:
        names = [item.name for item in found if item.is_dir()]
        return [parent / name for name in names if (_SUBTASK_MARK in name if subtasks else _SESSION_ID.fullmatch(name))]
    return []


def _facts(folder: Path) -> _Facts:
    # Take the size first: reading a database creates side files.
    path, problem, size = log_file(folder), "", _size(folder)
    try:
        summary = read_summary(path)
    except StorageError as error:
        problem = error.message if _has_log(folder) else _NO_LOG
        summary = read_damaged_summary(path)
    try:
        # What the folder's name says; of a name that is no time, when the folder was changed.
        created = datetime.strptime(folder.name[:15], "%Y%m%d-%H%M%S").timestamp()
    except (ValueError, OverflowError):
        created = _changed(folder)
    return _Facts(
        title=summary.meta.get(TITLE, ""),
        cwd=summary.meta.get("cwd", "") or (read_starting_folder(folder) if problem else ""),
        created=created,
        updated=summary.updated or created,
        size=size,
        model=summary.model,
        messages=summary.messages,
        cost_usd=summary.cost_usd,
        problem=problem,
    )


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        # Gone since it was listed: a session in use makes and removes files beside its databases.
        with suppress(OSError):
            total += path.lstat().st_size
    return total
