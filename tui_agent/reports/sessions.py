"""The report of `tui-agent sessions`."""

import asyncio
import json
from pathlib import Path
from typing import Final

from msgspec import structs
from rich.cells import cell_len, set_cell_size

from tui_agent.storage.sessions import SessionInfo, find_session, list_sessions, noted_folder, session_to_continue
from tui_agent.text import counted, money_text, short_path, time_text

LEAST_TITLE: Final = 16
"""Cells of a session's title that are shown even in a narrow terminal."""


def sessions_report(home: Path, *, as_json: bool, width: int = 0) -> str:
    """The sessions in `home` that are not empty, newest first, as a table or as JSON lines.

    The table names the folder of sessions from other folders. Titles are cut to fit `width` cells; 0: they are not cut.

    Raises `StorageError`.
    """
    sessions = [each for each in asyncio.run(list_sessions(home)) if each.messages or each.problem]
    if as_json:
        found = ({**structs.asdict(each), "folder": str(each.folder)} for each in sessions)
        return "\n".join(json.dumps(each, ensure_ascii=False) for each in found)
    here = noted_folder(Path.cwd())
    return "\n".join(_session_line(session, here, width) for session in sessions) or "No sessions yet."


def imported(home: Path, file: Path) -> str:
    """Make a session of what another agent recorded in a file; returns its id and content. Raises `StorageError`."""
    from tui_agent.storage.recordings.taking_over import take_over

    made = asyncio.run(take_over(home, file))
    return f"{made.folder.name}  {made.description}"


async def folder_of(home: Path, text: str) -> Path:
    """The folder of the session or subtask that `text` names; if empty, of the newest one in the working folder.

    Raises `StorageError`.
    """
    return await (find_session(home, text) if text else session_to_continue(home, Path.cwd()))


def _session_line(session: SessionInfo, here: str, width: int) -> str:
    when = time_text(session.updated or session.created)
    if session.problem:
        return f"{session.id}  {when}  cannot be read: {session.problem}"
    figures = f"{counted(session.messages, 'message'):<14}  {money_text(session.cost_usd):>9}  {session.model:<28}"
    place = "" if session.cwd == here else f"  (in {short_path(Path(session.cwd))})" if session.cwd else ""
    before = f"{session.id}  {when}  {figures}  "
    room = max(LEAST_TITLE, width - cell_len(before) - cell_len(place)) if width else 0
    cut = bool(room) and cell_len(session.title) > room
    title = f"{set_cell_size(session.title, room - 1)}…" if cut else session.title
    return f"{before}{title}{place}".rstrip()
