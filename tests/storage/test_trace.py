"""The trace says what the log says: written a moment after it, completed on opening, and written anew where needed."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from tests.storage.entries import LOGS, conversation, stamped
from tests.storage.files import names
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Message,
    ModelSwitched,
    Partial,
    Recorded,
    Usage,
    tool_result,
)
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME, LogStore, read_summary
from tui_agent.storage.trace import TRACE_NAME, TraceEvent, events_of, read_events
from tui_agent.storage.verify import verify


async def kept(folder: Path, entries: Sequence[AnyEntry] = ()) -> list[str]:
    """Go on with a session by `entries`, and close it; what it has to say to the user."""
    store = await LogStore.open(folder)
    await store.load()
    await store.append(entries)
    await store.close()
    return store.notices


def told(folder: Path) -> list[TraceEvent]:
    return [msgspec.structs.replace(event, seq=0) for event in read_events(folder)]


def all_events_of(entries: Sequence[AnyEntry]) -> list[TraceEvent]:
    return [event for entry in entries for event in events_of(entry)]


def test_a_message_is_split_into_what_was_said_called_and_used() -> None:
    answer = Message(
        role="assistant",
        blocks=(Text("I look."), ToolCall("c1", "read_file", '{"path": "a"}')),
        model="m",
        usage=Usage(10, 4, 2, 5),
        cost_usd=0.5,
    )
    shown = Message(role="user", blocks=(Image("image/png", "AAAA"),))
    allowed = Recorded(kind="permission", body='{"allowed":true}')
    result = tool_result(ToolResult("c1", "text"))
    log = stamped([answer, result, shown, Partial(text="x"), ModelSwitched(model="n"), allowed])
    kinds = [[event.kind for event in events_of(entry)] for entry in log]
    assert kinds == [
        ["message", "tool_call", "model_usage"],
        ["tool_result"],
        ["message"],
        [],
        ["session"],
        ["permission"],
    ]
    assert all(event.time == entry.time for entry in log for event in events_of(entry))
    assert events_of(log[5])[0].body == '{"allowed":true}'


@given(log=LOGS)
@settings(max_examples=15, deadline=None)
def test_it_says_what_the_log_says(log: list[AnyEntry], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("session")
    asyncio.run(kept(folder, log))
    assert told(folder) == all_events_of(log)
    assert [problem for problem in verify(folder).problems if "the file a" not in problem] == []
    tracker = UsageTracker()
    tracker.record_log(log)
    used = [msgspec.json.decode(event.body) for event in read_events(folder) if event.kind == "model_usage"]
    assert len(used) == tracker.session.calls
    assert sum(body["cost_usd"] or 0.0 for body in used) == pytest.approx(tracker.session.cost_usd)
    assert sum(body["input_tokens"] for body in used) == tracker.session.usage.input_tokens
    assert read_summary(folder / LOG_NAME).cost_usd == pytest.approx(tracker.session.cost_usd)


async def test_it_is_written_a_moment_later_without_a_flush(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    await store.append(conversation(1))
    async with asyncio.timeout(60):
        while len(told(tmp_path)) < 5:  # noqa: ASYNC110 - what is awaited is the file
            await asyncio.sleep(0.02)
    assert verify(tmp_path).ok
    await store.close()


@pytest.mark.parametrize("damage", ["no database", "gone", "a page", "a folder", "of another session"])
async def test_a_damaged_trace_keeps_no_session_shut(tmp_path: Path, damage: str) -> None:
    entries = conversation(40)
    folder, path = tmp_path / "one", tmp_path / "one" / TRACE_NAME
    await kept(folder, entries[:-2])
    if damage == "no database":
        path.write_text("Dear diary")
    elif damage == "gone":
        path.unlink()
    elif damage == "a page":
        data = bytearray(path.read_bytes())
        data[-4096:] = b"\xa5" * 4096
        path.write_bytes(data)
    elif damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        await kept(tmp_path / "other", conversation(39))
        path.write_bytes((tmp_path / "other" / TRACE_NAME).read_bytes())
    said = " ".join(await kept(folder, entries[-2:]))
    if damage == "a folder":
        assert "is not written" in said
        path.rmdir()
        await kept(folder)
    elif damage == "gone":
        assert said == ""
    else:
        (aside,) = names(folder, f"{TRACE_NAME}.damaged-*")
        assert f"It was kept as {aside} and written anew" in said
    assert told(folder) == all_events_of(entries)
    assert verify(folder).ok


async def test_what_an_earlier_version_wrote_is_kept_beside_it(tmp_path: Path) -> None:
    await kept(tmp_path, conversation(1))
    (tmp_path / TRACE_NAME).unlink()
    with closing(sqlite3.connect(tmp_path / TRACE_NAME)) as connection:
        connection.executescript(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, time, kind, body, previous, hash);"
            "INSERT INTO events VALUES (1, 5.0, 'alert', '{\"text\":\"then\"}', '', '');"
            "PRAGMA application_id=0x54415431; PRAGMA user_version=1"
        )
    assert [event.body for event in told(tmp_path)] == ['{"text":"then"}']
    (said,) = await kept(tmp_path)
    (aside,) = names(tmp_path, f"{TRACE_NAME}.earlier-*")
    assert aside in said
    assert told(tmp_path) == all_events_of(conversation(1))


async def test_it_needs_a_trace_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no record"):
        list(read_events(tmp_path))
