"""The texts of `tui-agent sessions` and `tui-agent trace`."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from tui_agent.storage.errors import StorageError
from tui_agent.storage.sessions import SessionInfo, find_session, list_sessions
from tui_agent.storage.trace import TraceEvent, read_events
from tui_agent.storage.verify import verify
from tui_agent.text import money_text


class ReportError(Exception):
    """What was asked for cannot be shown; the text says why and what to do."""


def sessions_report(home: Path, *, as_json: bool) -> str:
    """The sessions kept in `home`, newest first: a table, or a JSON object a line. Raises ReportError."""
    try:
        sessions = asyncio.run(list_sessions(home))
    except StorageError as error:
        raise _explained(error) from error
    if as_json:
        return "\n".join(_session_json(session) for session in sessions)
    return "\n".join(_session_line(session) for session in sessions) or "no sessions yet"


def trace_lines(home: Path, session: str) -> Iterator[str]:
    """The record of a session, a JSON object a line: seq, time (seconds since 1970), kind, body. Raises ReportError."""
    try:
        for event in read_events(asyncio.run(find_session(home, session))):
            yield _event_json(event)
    except StorageError as error:
        raise _explained(error) from error


def verification(home: Path, session: str) -> tuple[str, bool]:
    """What a check of a session's record found, and whether all is well. Raises ReportError."""
    try:
        report = verify(asyncio.run(find_session(home, session)))
    except StorageError as error:
        raise _explained(error) from error
    if report.ok:
        return f"{report.events} events, unchanged; {report.anchored} of them anchored", True
    return "\n".join(report.problems), False


def _session_line(session: SessionInfo) -> str:
    when = _when(session.updated or session.created)
    if session.problem:
        return f"{session.id}  {when}  cannot be read: {session.problem}"
    figures = f"{session.messages:>5} messages  {money_text(session.cost_usd):>9}  {session.model:<28}"
    return f"{session.id}  {when}  {figures}  {session.title}".rstrip()


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at no known time"


def _session_json(session: SessionInfo) -> str:
    return json.dumps(
        {name: getattr(session, name) for name in session.__struct_fields__} | {"folder": str(session.folder)},
        ensure_ascii=False,
    )


def _event_json(event: TraceEvent) -> str:
    # The body is JSON already; decoding it only to encode it again could change what is shown of a damaged record.
    return msgspec.json.encode(
        {"seq": event.seq, "time": event.time, "kind": event.kind, "body": msgspec.Raw(event.body.encode())}
    ).decode()


def _explained(error: StorageError) -> ReportError:
    return ReportError(f"{error.message} {error.hint}".strip())
