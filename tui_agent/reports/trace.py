"""Reports on the trace of a session: for people, as JSON lines, as an HTML page, and its verification."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, get_args

import msgspec

from tui_agent.agent.extensions.agents import agent_of
from tui_agent.agent.subtasks import branch_prefix
from tui_agent.arguments import UsageError
from tui_agent.conversation.entries import Recorded
from tui_agent.reports.pages import Remark, session_page
from tui_agent.reports.sessions import folder_of
from tui_agent.settings import Settings
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import log_file, read_entries
from tui_agent.storage.sessions import subtask_branch, subtask_folders, subtask_id
from tui_agent.storage.store import Kind
from tui_agent.storage.trace import TraceEvent, read_events
from tui_agent.storage.verify import verify
from tui_agent.telemetry import names
from tui_agent.telemetry.spans import Span, Spans, spans_of
from tui_agent.telemetry.telemetry import MISSING, captures, installed
from tui_agent.text import call_summary, compact_count, counted, duration_text, money_text, one_line, time_text

KINDS: Final[tuple[str, ...]] = get_args(Kind)
FOLLOW_S: Final = 0.3
"""Seconds between two reads of a trace that is followed."""

SUMMARY_CHARACTERS: Final = 200
_KIND_WIDTH: Final = max(map(len, KINDS))
_REMARKS: Final = frozenset({"permission", "cache_miss", "alert", "error", "trace_gap"})
"""Kinds of trace events that a page shows between the messages; of permissions, only refusals."""


def trace_lines(
    home: Path, session: str, *, as_json: bool = False, kinds: Collection[str] = (), follow: bool = False
) -> Iterator[str]:
    """The trace of a session (see `folder_of`), an event a line, oldest first: for people, or as JSON objects (seq,
    time in seconds since 1970, kind, body).

    `kinds`: only these; `follow`: then wait for new events, without end. Raises `StorageError`, and
    `UsageError` for an unknown kind.
    """
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise UsageError(f"--kind: there is no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    say = _event_json if as_json else event_line
    last = 0
    folder = asyncio.run(folder_of(home, session))
    while True:
        for event in read_events(folder, after=last):
            last = event.seq
            if not kinds or event.kind in kinds:
                yield say(event)
        if not follow:
            return
        time.sleep(FOLLOW_S)


def trace_page(home: Path, session: str) -> Iterator[str]:
    """The session as an HTML page, in pieces. Raises `UsageError` and `StorageError`."""
    folder = asyncio.run(folder_of(home, session))
    try:
        entries = list(read_entries(log_file(folder)))
        yield from session_page(f"session {folder.name}", entries, _remarks(folder))
    except ValueError as error:
        raise UsageError(f"The log of session {folder.name} is damaged: {error}.") from error


def verification(home: Path, session: str) -> tuple[str, bool]:
    """The result of verifying a session's trace, and whether it is intact. Raises `StorageError`."""
    report = verify(asyncio.run(folder_of(home, session)))
    if report.ok:
        return f"{report.events} events of {counted(report.entries, 'log entry', 'log entries')}, unchanged", True
    return "\n".join(report.problems), False


def send_trace(home: Path, session: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """Send a session and its subtasks to OpenTelemetry with their own times; a sentence on it.

    Raises `UsageError` and `StorageError`.
    """
    if not installed():
        raise UsageError(f"--otlp: {MISSING}")
    from tui_agent.telemetry.otlp import endpoint, send_spans

    folder = asyncio.run(folder_of(home, session))
    sent, whole = send_spans(_spans(home, folder, captures(settings, environ)))
    if not whole:
        raise UsageError(f"--otlp: the collector at {endpoint()} did not take everything ({sent} spans were sent)")
    return f"{counted(sent, 'span')} of session {folder.name} sent to {endpoint()}"


def _spans(home: Path, folder: Path, content: bool) -> Iterator[Span]:
    """The spans of a session and of its subtasks, each below the call that it answered."""
    subtasks = {subtask_branch(each): each for each in subtask_folders(home, folder.name)}
    titles: dict[str, str] = {}
    spans = Spans(folder.name, content=content)
    entries = list(read_entries(log_file(folder)))
    for entry in entries:
        if isinstance(entry, Recorded) and entry.kind == "session":
            with suppress(msgspec.MsgspecError):
                begun = msgspec.json.decode(entry.body, type=_Begun)
                titles[begun.subtask] = begun.title
    for span in spans_of(spans, entries):
        yield span
        call = str(span.attributes.get(names.TOOL_CALL, ""))
        for branch in [branch for branch in subtasks if call and branch.startswith(branch_prefix(call))]:
            name = subtask_id(folder.name, branch)
            below = Spans(name, parent=span.here, agent=agent_of(titles.get(name, "")), content=content)
            yield from spans_of(below, read_entries(log_file(subtasks.pop(branch))))


class _Begun(msgspec.Struct):
    subtask: str = ""
    title: str = ""


def event_line(event: TraceEvent) -> str:
    """An event for people to read: time, kind and summary, with tokens, costs and durations."""
    try:
        said = summary_of(event.kind, msgspec.json.decode(event.body, type=dict[str, object]))
    except msgspec.MsgspecError:
        said = event.body
    return (
        f"{time_text(event.time, '%m-%d %H:%M:%S')}  {event.kind:<{_KIND_WIDTH}}  {one_line(said, SUMMARY_CHARACTERS)}"
    )


def summary_of(kind: str, body: dict[str, object]) -> str:
    """A summary of an event's body in a few words; for an unknown kind, its fields."""
    return _said(kind, body) or "  ".join(
        f"{name}={value}" for name, value in body.items() if value not in ("", None, [], {})
    )


def _said(kind: str, body: dict[str, object]) -> str:
    text = _text(body, "text")
    match kind:
        case "session":
            return _session(body)
        case "message":
            return _message(body)
        case "reasoning":
            return text or "not shown by the provider"
        case "model_usage":
            return _model_usage(body)
        case "tool_call":
            return f"{_text(body, 'name')} {call_summary(_text(body, 'arguments'))}"
        case "tool_result":
            lasted = f", {duration_text(_number(body, 'duration_ms'))}" if body.get("duration_ms") else ""
            failed = "failed, " if body.get("is_error") else ""
            return f"{failed}{counted(len(text), 'character')}{lasted}: {text}"
        case "permission":
            verdict = "allowed" if body.get("allowed") else "refused"
            return f"{verdict}: {_text(body, 'reason')}" if body.get("reason") else verdict
        case "context_compaction":
            return _of_entry(body)
        case "context" if "entry" in body:
            return _of_entry(body)
        case "cache_miss":
            return text
        case "alert":
            return f"{_text(body, 'signal')}: {text} ({_text(body, 'action')})"
        case "error":
            lines = _text(body, "traceback").strip().splitlines()
            return f"{_text(body, 'kind')}: {_text(body, 'message') or (lines[-1] if lines else '')}"
        case "trace_gap":
            return _text(body, "reason")
    return ""


def _remarks(folder: Path) -> Iterator[Remark]:
    """The events that are only in the trace; none if there is no trace."""
    try:
        for event in read_events(folder):
            if event.kind in _REMARKS:
                body = msgspec.json.decode(event.body, type=dict[str, object])
                if event.kind != "permission" or body.get("allowed") is False:
                    said = f"{event.kind.replace('_', ' ')}: {summary_of(event.kind, body)}"
                    yield Remark(event.time, one_line(said), event.kind == "error")
    except (StorageError, msgspec.MsgspecError):
        return


def _session(body: dict[str, object]) -> str:
    if "subtask" in body:
        return f"subtask {_text(body, 'subtask')}: {_text(body, 'title')} ({_text(body, 'model')})"
    if body.get("entry") == "lost":
        return "an entry of the log was damaged and is lost"
    if "version" in body:
        begun = f"tui-agent {_text(body, 'version')}, Python {_text(body, 'python')}, in {_text(body, 'cwd')}"
        return begun + (f", {_text(body, 'model')}" if body.get("model") else "")
    if body.get("entry") == "prefix":
        tools = body.get("tools")
        return f"system prompt and {counted(len(tools) if isinstance(tools, list) else 0, 'tool')}"
    if body.get("entry") == "queued":
        blocks = body.get("blocks")
        texts = (
            [_text(block, "text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        )
        return f"queued for the next step: {_text(body, 'typed') or ' '.join(filter(None, texts))}"
    return _of_entry(body)


def _message(body: dict[str, object]) -> str:
    who = _text(body, "kind") or _text(body, "role") or "message"
    pictures = _number(body, "images")
    shown = f" ({counted(int(pictures), 'picture')})" if pictures else ""
    stopped = _text(body, "stop_reason")
    how = f" ({stopped})" if stopped not in {"", "end_turn", "tool_calls"} else ""
    return f"{who}{how}: {_text(body, 'typed') or _text(body, 'text')}{shown}"


def _model_usage(body: dict[str, object]) -> str:
    cached = _number(body, "cache_read_tokens")
    parts = [
        f"{compact_count(_number(body, 'input_tokens'))} in" + (f" ({compact_count(cached)} cached)" if cached else ""),
        f"{compact_count(_number(body, 'output_tokens'))} out",
        money_text(_number(body, "cost_usd") if body.get("cost_usd") is not None else None),
    ]
    parts += [duration_text(_number(body, "duration_ms"))] if body.get("duration_ms") else []
    parts += [_text(body, "purpose")] if _text(body, "purpose") not in {"", "answer"} else []
    return f"{_text(body, 'model')}: {', '.join(parts)}"


def _of_entry(body: dict[str, object]) -> str:
    """A summary of a context entry: tag, sizes before and after, reason, cost, and other short fields."""
    parts = [_text(body, "entry").replace("_", " ")]
    if body.get("before"):
        parts.append(f"{compact_count(_number(body, 'before'))} → {compact_count(_number(body, 'after'))} tokens")
    parts += [money_text(_number(body, "cost_usd"))] if body.get("cost_usd") else []
    parts += [_text(body, name) for name in ("reason", "model", "message") if body.get(name)]
    parts += [f"to entry {_text(body, 'to')}"] if body.get("entry") == "head_moved" else []
    return " · ".join(parts)


def _text(body: dict[str, object], name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _number(body: dict[str, object], name: str) -> float:
    value = body.get(name)
    return value if isinstance(value, int | float) else 0.0


def _event_json(event: TraceEvent) -> str:
    # The body is JSON already; decoding and encoding it again could change what is shown of a damaged trace.
    return msgspec.json.encode(
        {"seq": event.seq, "time": event.time, "kind": event.kind, "body": msgspec.Raw(event.body.encode())}
    ).decode()
