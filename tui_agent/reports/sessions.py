"""The text of `tui-agent sessions`."""

import asyncio
import json
from pathlib import Path

from tui_agent.reports.wording import moment
from tui_agent.storage.errors import StorageError
from tui_agent.storage.sessions import SessionInfo, list_sessions
from tui_agent.text import money_text


class ReportError(Exception):
    """What was asked for cannot be shown; the text says why and what to do."""


def sessions_report(home: Path, *, as_json: bool) -> str:
    """The sessions kept in `home` in which something was said, newest first: a table, or a JSON object a line.

    Raises ReportError.
    """
    try:
        sessions = [each for each in asyncio.run(list_sessions(home)) if each.messages or each.problem]
    except StorageError as error:
        raise explained(error) from error
    if as_json:
        return "\n".join(_session_json(session) for session in sessions)
    return "\n".join(_session_line(session) for session in sessions) or "no sessions yet"


def _session_line(session: SessionInfo) -> str:
    when = moment(session.updated or session.created)
    if session.problem:
        return f"{session.id}  {when}  cannot be read: {session.problem}"
    figures = f"{session.messages:>5} messages  {money_text(session.cost_usd):>9}  {session.model:<28}"
    return f"{session.id}  {when}  {figures}  {session.title}".rstrip()


def _session_json(session: SessionInfo) -> str:
    return json.dumps(
        {name: getattr(session, name) for name in session.__struct_fields__} | {"folder": str(session.folder)},
        ensure_ascii=False,
    )


def explained(error: StorageError) -> ReportError:
    """What a store says, as a report's error."""
    return ReportError(f"{error.message} {error.hint}".strip())
