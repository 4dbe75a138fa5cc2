"""Session folders: making one, listing them, finding the one that is meant."""

import asyncio
import re
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.durable import PRIVATE_FOLDER, make_private_folder, sync_folder
from tui_agent.storage.artifacts import safe_name
from tui_agent.storage.database import explain_sqlite_error, inspect, read_connection
from tui_agent.storage.errors import StorageError, explained
from tui_agent.storage.log import LOG_NAME, SCHEMA

SESSIONS_FOLDER: Final = "sessions"

_SESSION_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_SUBTASK_SIGN = ":sub:"
_SUBTASK_MARK = ".sub."


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a list of sessions shows. Times in seconds since the epoch, `size` in bytes of the whole folder.

    `problem` says why a session cannot be read (empty: it can); then only id, folder and size are known.
    """

    id: str
    folder: Path
    title: str = ""
    cwd: str = ""
    created: float = 0.0
    updated: float = 0.0
    size: int = 0
    model: str = ""
    messages: int = 0
    cost_usd: float = 0.0
    problem: str = ""


class NoSuchSession(StorageError):
    """No session, or more than one, is meant by what the user gave."""

    kind = "no_such_session"


def new_session_id(now: datetime | None = None) -> str:
    """An id that sorts by time, e.g. ``20261121-214501-ab12`` (local time)."""
    return f"{now or datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def session_folder(home: Path, session_id: str) -> Path:
    """Where a session lies below `home`."""
    return home / SESSIONS_FOLDER / session_id


def subtask_id(parent_id: str, branch: str) -> str:
    """The id of a subtask's conversation."""
    return f"{parent_id}{_SUBTASK_SIGN}{branch}"


def subtask_folder(home: Path, parent_id: str, branch: str) -> Path:
    """Where a subtask's conversation lies: a name every file system takes, beside its parent's."""
    return home / SESSIONS_FOLDER / f"{parent_id}{_SUBTASK_MARK}{safe_name(branch)}"


def subtask_folders(home: Path, parent_id: str) -> list[Path]:
    """Where the conversations of a session's subtasks lie, by name. Raises `StorageError`."""
    parent = home / SESSIONS_FOLDER
    with explained(parent):
        return sorted(folder for folder in parent.glob(f"{parent_id}{_SUBTASK_MARK}*") if folder.is_dir())


def subtask_branch(folder: Path) -> str:
    """The branch of the subtask whose conversation lies in `folder`."""
    return folder.name.rpartition(_SUBTASK_MARK)[2]


def create_session(home: Path) -> Path:
    """A new session's folder, for the user alone; its name is the session's id. Raises `StorageError`."""
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


async def list_sessions(home: Path) -> list[SessionInfo]:
    """Every session, newest first, subtasks aside; damaged ones with their `problem`. Raises `StorageError`."""
    return await asyncio.to_thread(_list, home)


async def find_session(home: Path, text: str) -> Path:
    """The folder of the one session, or subtask, whose id is `text` or begins with it. Raises `NoSuchSession`."""
    wanted = text.strip().lower().replace(_SUBTASK_SIGN, _SUBTASK_MARK)
    looked = _subtasks if _SUBTASK_MARK in wanted else _folders
    names = [folder.name for folder in await asyncio.to_thread(lambda: list(looked(home)))]
    found = [name for name in names if name == wanted] or [name for name in names if name.startswith(wanted)]
    hint = "List them with: tui-agent sessions"
    if not wanted or not found:
        raise NoSuchSession(f"There is no session {text!r}.", hint)
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise NoSuchSession(f"{text!r} may mean any of {len(found)} sessions: {shown}.", hint)
    return session_folder(home, found[0])


async def newest_session(home: Path, cwd: Path) -> Path | None:
    """The session last used in the folder `cwd` in which something was said; None when there is none."""
    found = (info for info in await list_sessions(home) if info.cwd == str(cwd) and info.messages)
    return next((info.folder for info in found if not info.problem), None)


def _list(home: Path) -> list[SessionInfo]:
    subtasks = _subtask_costs(home)
    found = [_with_subtasks(_info(folder), subtasks) for folder in _folders(home)]
    return sorted(found, key=lambda info: (info.updated or info.created, info.id), reverse=True)


def _folders(home: Path) -> Iterator[Path]:
    return (folder for folder in _all_folders(home) if _SESSION_ID.fullmatch(folder.name))


def _subtasks(home: Path) -> Iterator[Path]:
    return (folder for folder in _all_folders(home) if _SUBTASK_MARK in folder.name)


def _all_folders(home: Path) -> Iterator[Path]:
    parent = home / SESSIONS_FOLDER
    with explained(parent):
        if not parent.exists():
            return
        for folder in parent.iterdir():
            if folder.is_dir():
                yield folder


def _info(folder: Path) -> SessionInfo:
    size = _size(folder)
    created = datetime.strptime(folder.name[:15], "%Y%m%d-%H%M%S").timestamp()
    path = folder / LOG_NAME
    try:
        found = inspect(path, SCHEMA)
        if found.state not in {"ours", "newer"}:
            reason = found.reason or "It holds no log."
            return SessionInfo(folder.name, folder, created=created, size=size, problem=reason)
        with closing(read_connection(path)) as connection:
            meta = dict(connection.execute("SELECT key, value FROM meta"))
            totals = connection.execute("SELECT messages, cost_usd, updated, model FROM totals").fetchone()
        messages, cost_usd, updated, model = totals or (0, 0.0, 0.0, "")
        return SessionInfo(
            folder.name,
            folder,
            title=meta.get("title", ""),
            cwd=meta.get("cwd", ""),
            created=created,
            updated=updated or created,
            size=size,
            model=model,
            messages=messages,
            cost_usd=cost_usd,
        )
    except sqlite3.Error as error:
        problem = explain_sqlite_error(error, path).message
    except StorageError as error:
        problem = error.message
    return SessionInfo(folder.name, folder, created=created, size=size, problem=problem)


def _with_subtasks(info: SessionInfo, costs: Mapping[str, float]) -> SessionInfo:
    return msgspec.structs.replace(info, cost_usd=info.cost_usd + costs.get(info.id, 0.0))


def _subtask_costs(home: Path) -> dict[str, float]:
    """What the subtasks of each session cost, in USD; those that cannot be read count nothing."""
    costs: dict[str, float] = {}
    for folder in (home / SESSIONS_FOLDER).glob(f"*{_SUBTASK_MARK}*"):
        parent = folder.name.partition(_SUBTASK_MARK)[0]
        with suppress(sqlite3.Error, StorageError), closing(read_connection(folder / LOG_NAME)) as connection:
            (cost,) = connection.execute("SELECT cost_usd FROM totals").fetchone() or (0.0,)
            costs[parent] = costs.get(parent, 0.0) + cost
    return costs


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:
            # Gone since it was listed: a session in use makes and removes files beside its databases.
            continue
    return total
