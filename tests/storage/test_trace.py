import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tui_agent.storage.errors import DiskFull, StorageError
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.trace import BATCH_EVENTS, TRACE_NAME, TRIGGERS, Trace, TraceEvent, event_hash, read_events
from tui_agent.storage.verify import verify


async def recorded(folder: Path, count: int = 10) -> Path:
    store = await LogStore.open(folder)
    trace = await Trace.open(store)
    for number in range(1, count + 1):
        trace.record("message", {"number": number, "text": f"words {number}"})
    await trace.close()
    await store.close()
    return folder / TRACE_NAME


def tamper(path: Path, *statements: str, guards: bool = True) -> None:
    """Change the record as someone with a database tool would: take the guards away, and put them back."""
    with closing(sqlite3.connect(path)) as connection:
        scripts = [
            row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
        ]
        for name in TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for script in scripts if guards else ():
            connection.execute(script)
        connection.commit()


async def test_events_come_back_in_order_and_verify(tmp_path: Path) -> None:
    await recorded(tmp_path)
    await recorded(tmp_path, 5)
    events = list(read_events(tmp_path))
    assert [event.seq for event in events] == list(range(1, 16))
    assert events[0].body == '{"number":1,"text":"words 1"}'
    assert [event.seq for event in read_events(tmp_path, after=13)] == [14, 15]
    report = verify(tmp_path)
    assert (report.ok, report.events, report.anchored) == (True, 15, 15)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = '{}' WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events VALUES (3, 0, 'message', '{}', '', '')",
        "INSERT INTO events VALUES (99, 0, 'message', '{}', '', '')",
        "INSERT INTO events VALUES (NULL, 0, 'message', '{}', '', '')",
    ],
)
async def test_the_database_itself_refuses(tmp_path: Path, statement: str) -> None:
    path = await recorded(tmp_path)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute(statement)
    assert verify(tmp_path).ok


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["UPDATE events SET body = replace(body, 'words 4', 'lies 4') WHERE seq = 4"], "event 4 was changed"),
        (["UPDATE events SET kind = 'error' WHERE seq = 4"], "event 4 was changed"),
        (["UPDATE events SET time = time + 1 WHERE seq = 4"], "event 4 was changed"),
        (["UPDATE events SET body = x'00' WHERE seq = 4"], "event 4 was changed"),
        (["DELETE FROM events WHERE seq = 4"], "missing before event 5"),
        (["DELETE FROM events WHERE seq = 4", "UPDATE events SET seq = seq - 1 WHERE seq > 4"], "does not follow"),
        (
            [
                "UPDATE events SET seq = -1 WHERE seq = 4",
                "UPDATE events SET seq = 4 WHERE seq = 5",
                "UPDATE events SET seq = 5 WHERE seq = -1",
            ],
            "reordered",
        ),
        (["DELETE FROM events WHERE seq > 7"], "its end was cut off"),
        (["DELETE FROM events"], "its end was cut off"),
        (["UPDATE events SET hash = 'ff' WHERE seq = 10"], "event 10 is not the one"),
    ],
)
async def test_tampering_is_found(tmp_path: Path, statements: list[str], said: str) -> None:
    path = await recorded(tmp_path)
    tamper(path, *statements)
    report = verify(tmp_path)
    assert not report.ok
    assert any(said in problem for problem in report.problems), report.problems


async def test_a_rewritten_end_is_found_by_the_anchor(tmp_path: Path) -> None:
    path = await recorded(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        (previous,) = connection.execute("SELECT previous FROM events WHERE seq = 10").fetchone()
    forged = event_hash(previous, TraceEvent(10, 5.0, "message", "{}"))
    tamper(path, f"UPDATE events SET time = 5.0, body = '{{}}', hash = '{forged}' WHERE seq = 10")
    assert verify(tmp_path).problems == ("event 10 is not the one that was written there",)


async def test_missing_guards_and_missing_files_are_found(tmp_path: Path) -> None:
    path = await recorded(tmp_path)
    tamper(path, guards=False)
    assert any("events_no_delete was removed" in problem for problem in verify(tmp_path).problems)
    path.unlink()
    assert "cut off" in verify(tmp_path).problems[0]
    assert not verify(tmp_path / "nowhere").ok
    with pytest.raises(StorageError, match="has no record"):
        list(read_events(tmp_path))


@pytest.mark.parametrize("damage", ["foreign", "gone", "cut"])
async def test_going_on_after_tampering_keeps_the_evidence(tmp_path: Path, damage: str) -> None:
    path = await recorded(tmp_path)
    if damage == "foreign":
        path.write_text("Dear diary")
    elif damage == "gone":
        path.unlink()
    else:
        tamper(path, "DELETE FROM events WHERE seq > 5")
    await recorded(tmp_path, 20)
    problems = verify(tmp_path).problems
    assert len(problems) == 1
    assert "not complete" in problems[0]
    assert '"seq":10' in problems[0]


async def test_batches_are_written_without_a_flush(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    trace.record("session", {})
    async with asyncio.timeout(60):
        while not list(read_events(tmp_path)):  # noqa: ASYNC110 - what is awaited is the file
            await asyncio.sleep(0.02)
    for number in range(BATCH_EVENTS):
        trace.record("message", {"number": number})
    async with asyncio.timeout(60):
        while len(list(read_events(tmp_path))) <= BATCH_EVENTS:  # noqa: ASYNC110 - what is awaited is the file
            await asyncio.sleep(0.02)
    await trace.close()
    await store.close()
    assert verify(tmp_path).ok


async def test_a_full_disk_stops_no_turn_and_loses_no_event(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    database = trace._database
    assert database is not None
    await database.read("PRAGMA max_page_count=1")
    trace.record("message", {"text": "x" * 50_000})
    with pytest.raises(DiskFull):
        await trace.flush()
    trace.record("message", {"text": "more"})
    await database.read("PRAGMA max_page_count=100000")
    await trace.flush()
    await trace.close()
    await store.close()
    assert [len(event.body) for event in read_events(tmp_path)] == [50_011, 15]
    assert verify(tmp_path).ok


async def test_a_session_of_a_newer_version_records_nothing(tmp_path: Path) -> None:
    path = await recorded(tmp_path)
    with closing(sqlite3.connect(tmp_path / LOG_NAME)) as connection:
        connection.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    await recorded(tmp_path, 3)
    assert path.read_bytes() == before
    assert verify(tmp_path).ok


async def test_what_no_longer_fits_in_memory_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.storage.trace.PENDING_BYTES", 100)
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    for _ in range(5):
        trace.record("message", {"text": "x" * 40})
    await trace.close()
    await store.close()
    *kept, gap = read_events(tmp_path)
    assert (len(kept), gap.kind) == (1, "trace_gap")
    assert '"lost":4' in gap.body
    assert "not complete" in verify(tmp_path).problems[0]
