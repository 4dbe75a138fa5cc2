"""Sessions made of what is there already: a copy of another session, or a log that was put together elsewhere."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.entries import AnyEntry, Message, UnattributedCall
from tui_agent.durable import sync_folder
from tui_agent.storage.errors import explained
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.session_lock import LOCK_NAME
from tui_agent.storage.sessions import create_session
from tui_agent.storage.trace import TRACE_NAME

_OWN: Final = (LOG_NAME, TRACE_NAME, LOCK_NAME)
"""How the names of files begin that a session has for itself: databases and what lies beside them."""
AT_ONCE: Final = 2_000
"""Entries written in one transaction."""


async def copy_session(home: Path, folder: Path) -> Path:
    """Another session with all that the one in `folder` has said and kept so far; its folder.

    It is read beside whoever has it open. The record of the copy begins with the copy. Raises `StorageError`.
    """
    source = await LogStore.open(folder, read_only=True)
    try:
        entries, meta = await source.load(), await source.meta()
    finally:
        await source.close()
    return await make_session(home, [_without_trace(entry) for entry in entries], meta, files=folder)


async def make_session(
    home: Path, entries: Sequence[AnyEntry], meta: Mapping[str, str], *, files: Path | None = None
) -> Path:
    """A session with these stamped entries, and with the files that the session in `files` keeps; its folder.

    It is whole, or there is none. Raises `StorageError`.
    """
    folder = await asyncio.to_thread(create_session, home)
    try:
        if files is not None:
            await asyncio.to_thread(_copy_files, files, folder)
        store = await LogStore.open(folder)
        try:
            for start in range(0, len(entries), AT_ONCE):
                await store.append(entries[start : start + AT_ONCE])
            await store.set_meta(meta)
        finally:
            await store.close()
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise
    return folder


def _copy_files(source: Path, target: Path) -> None:
    with explained(target):
        for path in source.iterdir():
            if path.name.startswith(_OWN):
                continue
            if path.is_dir():
                shutil.copytree(path, target / path.name, symlinks=True)
            else:
                shutil.copy2(path, target / path.name, follow_symlinks=False)
        sync_folder(target)


def _without_trace(entry: AnyEntry) -> AnyEntry:
    """An entry that names no event of another session's record."""
    if isinstance(entry, Message | UnattributedCall) and entry.trace is not None:
        return msgspec.structs.replace(entry, trace=None)
    return entry
