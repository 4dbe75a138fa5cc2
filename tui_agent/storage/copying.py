"""Makes sessions from existing entries: a copy of another session, or an imported log."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tui_agent.conversation.entries import AnyEntry
from tui_agent.durable import sync_folder
from tui_agent.storage.errors import explained
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.session_lock import LOCK_NAME
from tui_agent.storage.sessions import create_session
from tui_agent.storage.trace import TRACE_NAME

_NOT_COPIED: Final = (LOG_NAME, TRACE_NAME, LOCK_NAME)
"""Prefixes of the names of files that are not copied: databases with their side files, and the lock."""
BATCH_ENTRIES: Final = 2_000
"""Entries written in a transaction."""


async def copy_session(home: Path, folder: Path) -> Path:
    """Copy the session in `folder`, with its log and files, and return the copy's folder.

    Another process may have the session open. The copy gets a new trace. Raises `StorageError`.
    """
    source = await LogStore.open(folder, read_only=True)
    try:
        entries, meta = await source.load(), await source.meta()
    finally:
        await source.close()
    return await make_session(home, entries, meta, files=folder)


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
        store = await LogStore.open(folder)
        try:
            for start in range(0, len(entries), BATCH_ENTRIES):
                await store.append(entries[start : start + BATCH_ENTRIES])
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
            if path.name.startswith(_NOT_COPIED):
                continue
            if path.is_dir():
                shutil.copytree(path, target / path.name, symlinks=True)
            else:
                shutil.copy2(path, target / path.name, follow_symlinks=False)
        sync_folder(target)
