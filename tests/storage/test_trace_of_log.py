"""The trace says what the log says: completed from it on opening, compared with it on checking."""

import asyncio
import random
import signal
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from typing_extensions import override

from tests.storage.children import start_writer
from tests.storage.entries import LOGS, conversation, stamped
from tests.storage.test_trace import tamper
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Message,
    ModelSwitched,
    Partial,
    Summarized,
    UnattributedCall,
    Usage,
    encode,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.log import LOG_NAME, LogStore, read_summary
from tui_agent.storage.trace import (
    ANCHOR_KEY,
    DERIVATION_KEY,
    TRACE_NAME,
    Anchor,
    NewEvent,
    Trace,
    TraceEvent,
    entry_of,
    event_hash,
    events_of,
    genesis,
    read_events,
)
from tui_agent.storage.verify import verify


async def kept(folder: Path, entries: Sequence[AnyEntry]) -> None:
    """These entries in the log, and none of them in the trace: as a kill between the two leaves them."""
    store = await LogStore.open(folder)
    await store.append(entries)
    await store.close()


async def traced(folder: Path, entries: Sequence[AnyEntry] = ()) -> None:
    """Go on with a session by `entries`, each traced, and close it."""
    store = await LogStore.open(folder)
    trace = await Trace.open(store)
    trace.record("session", {"version": "1"})
    for entry in entries:
        await store.append([entry])
        trace.record_entry(entry)
        trace.record("permission", {"call_id": "c", "seq": entry.seq})
    await trace.close()
    await store.close()


def derived(folder: Path) -> list[NewEvent]:
    return [NewEvent(event.time, event.kind, event.body) for event in read_events(folder) if entry_of(event)]


def all_events_of(entries: Sequence[AnyEntry]) -> list[NewEvent]:
    return [event for entry in entries for event in events_of(entry)]


def in_log(folder: Path, sql: str, parameters: Sequence[object] = ()) -> None:
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        connection.execute(sql, tuple(parameters))
        connection.commit()


def rechain(folder: Path) -> None:
    """Number the events anew, compute every hash anew, and the anchor: what a thorough forger would do."""
    with closing(sqlite3.connect(folder / TRACE_NAME)) as connection:
        rows = connection.execute("SELECT time, kind, body FROM events ORDER BY seq").fetchall()
    previous, inserts = genesis(folder.name), ["DELETE FROM events"]
    for seq, (time, kind, body) in enumerate(rows, 1):
        digest = event_hash(previous, TraceEvent(seq, time, kind, body))
        quoted = body.replace("'", "''")
        inserts.append(f"INSERT INTO events VALUES ({seq}, {time!r}, '{kind}', '{quoted}', '{previous}', '{digest}')")
        previous = digest
    tamper(folder / TRACE_NAME, *inserts)
    anchor = msgspec.json.encode(Anchor(len(rows), previous)).decode()
    in_log(folder, "UPDATE meta SET value = ? WHERE key = ?", (anchor, ANCHOR_KEY))


def test_a_message_is_split_into_what_was_said_called_and_used() -> None:
    answer = Message(
        role="assistant",
        blocks=(Text("I look."), ToolCall("c1", "read_file", '{"path": "a"}')),
        model="m",
        usage=Usage(10, 4, 2, 5),
        cost_usd=0.5,
    )
    shown = Message(role="user", blocks=(Image("image/png", "AAAA"),))
    log = stamped([answer, tool_result(ToolResult("c1", "text")), shown, Partial(text="x"), ModelSwitched(model="n")])
    told = [[event.kind for event in events_of(entry)] for entry in log]
    assert told == [["message", "tool_call", "model_usage"], ["tool_result"], ["message"], [], ["session"]]
    for entry in log:
        for number, event in enumerate(events_of(entry), 1):
            assert entry_of(TraceEvent(number, *event)) == entry.seq
            assert event.time == entry.time
    assert entry_of(TraceEvent(1, 0.0, "permission", '{"seq":3}')) == 0


@given(log=LOGS)
@settings(max_examples=15, deadline=None)
def test_every_sum_of_usage_is_the_same(log: list[AnyEntry], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("session")
    asyncio.run(traced(folder, log))
    tracker = UsageTracker()
    tracker.record_log(log)
    used = [msgspec.json.decode(event.body) for event in read_events(folder) if event.kind == "model_usage"]
    assert len(used) == tracker.session.calls
    assert sum(body["cost_usd"] or 0.0 for body in used) == pytest.approx(tracker.session.cost_usd)
    assert sum(body["input_tokens"] for body in used) == tracker.session.usage.input_tokens
    assert read_summary(folder / LOG_NAME).cost_usd == pytest.approx(tracker.session.cost_usd)


def test_a_summary_counts_once_though_its_entry_repeats_what_it_cost() -> None:
    usage = Usage(100, output_tokens=10)
    call = UnattributedCall(model="m", usage=usage, purpose="summary", cost_usd=1.4)
    log = stamped([user_message("hi"), call, Summarized(first=1, last=1, text="s", usage=usage, cost_usd=1.4)])
    used = [event.body for event in all_events_of(log) if event.kind == "model_usage"]
    assert len(used) == 1
    assert '"purpose":"summary"' in used[0]


async def test_what_a_killed_process_did_not_trace_is_added_on_opening(tmp_path: Path) -> None:
    entries = conversation(4)
    await traced(tmp_path, entries[:3])
    await kept(tmp_path, entries[3:])
    assert any("entries 4 to 9 of the log lack events" in problem for problem in verify(tmp_path).problems)
    await traced(tmp_path)
    assert derived(tmp_path) == all_events_of(entries)
    assert verify(tmp_path).ok
    # What came before the next start stands before it.
    assert list(read_events(tmp_path))[-1].body == '{"version":"1"}'


async def test_nothing_is_missing_or_told_twice_after_any_kill(tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(5):
        child = start_writer(tmp_path, "talk")
        assert child.stdout is not None
        for _ in range(chance.randint(1, 60)):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.communicate()
        store = await LogStore.open(tmp_path)
        entries = await store.load()
        trace = await Trace.open(store)
        await trace.close()
        await store.close()
        assert derived(tmp_path) == all_events_of(entries)
        report = verify(tmp_path)
        assert report.ok, report


class Counting(LogStore):
    """Counts the entries that are read for the trace."""

    read = 0

    @override
    async def entries_after(self, seq: int, limit: int) -> list[AnyEntry]:
        found = await super().entries_after(seq, limit)
        self.read += len(found)
        return found


async def test_opening_reads_what_is_missing_and_no_more(tmp_path: Path) -> None:
    entries = conversation(500)
    await traced(tmp_path, entries[:990])
    await kept(tmp_path, entries[990:])
    for missing in (11, 0):
        store = await Counting.open(tmp_path)
        assert isinstance(store, Counting)
        trace = await Trace.open(store)
        await trace.close()
        await store.close()
        assert store.read == missing
    assert derived(tmp_path) == all_events_of(entries)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM events WHERE seq > (SELECT max(seq) - 3 FROM events)", "lack events"),
        ("DELETE FROM events WHERE kind = 'reasoning' AND body LIKE '%\"seq\":3,%'", "is missing before event"),
        ("DELETE FROM events WHERE kind = 'message' AND body LIKE '%question 1%'", "entry 4 of the log lacks"),
        ("UPDATE events SET body = replace(body, 'question 1', 'question 9')", "does not tell what entry 4"),
        ("UPDATE events SET time = 7.0 WHERE kind = 'message' AND body LIKE '%question 1%'", "what entry 4"),
        (
            "INSERT INTO events SELECT 99, time, kind, body, '', '' FROM events WHERE body LIKE '%question 1%'",
            "tells of entry 4, which is not the log's next one",
        ),
        ("DELETE FROM events", "entries 1 to 9 of the log lack events"),
    ],
)
async def test_a_change_is_found_even_where_every_hash_was_made_anew(tmp_path: Path, statement: str, said: str) -> None:
    await traced(tmp_path, conversation(4))
    rechain(tmp_path)
    assert verify(tmp_path).ok
    tamper(tmp_path / TRACE_NAME, statement)
    rechain(tmp_path)
    problems = verify(tmp_path).problems
    assert any(said in problem for problem in problems), problems
    assert len(problems) <= 2


async def test_a_changed_log_is_found(tmp_path: Path) -> None:
    entries = conversation(4)
    await traced(tmp_path, entries)
    changed = encode(msgspec.structs.replace(entries[3], blocks=(Text("something else"),)))
    in_log(tmp_path, "UPDATE entries SET body = ?, crc = ? WHERE seq = 4", (changed, zlib.crc32(changed)))
    (problem,) = verify(tmp_path).problems
    assert "does not tell what entry 4 of the log says" in problem
    in_log(tmp_path, "DELETE FROM entries WHERE seq = 6")
    assert any("the log cannot be read further" in problem for problem in verify(tmp_path).problems)


async def test_the_end_of_a_record_that_is_being_written_is_no_problem(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    await store.append(conversation(2))
    assert verify(tmp_path).ok
    await trace.close()
    await store.close()
    assert derived(tmp_path) == all_events_of(conversation(2))


def test_a_session_in_use_is_checked_beside_its_writer(tmp_path: Path) -> None:
    child = start_writer(tmp_path, "talk")
    assert child.stdout is not None
    for _ in range(12):
        for _ in range(20):
            child.stdout.readline()
        report = verify(tmp_path)
        assert report.ok, report
    child.kill()
    child.communicate()


async def written_before(folder: Path, entries: Sequence[AnyEntry], last: int) -> None:
    """A session as the version before left it: events up to entry `last`, each with the time it was recorded at, and
    nothing noted about where they come from."""
    store = await LogStore.open(folder)
    await store.append(entries)
    trace = await Trace.open(store)
    await trace.close()
    await store.close()
    in_log(folder, "DELETE FROM meta WHERE key = ?", (DERIVATION_KEY,))
    before = "UPDATE events SET time = time + 0.25, body = replace(body, ',\"purpose\":\"answer\"', '')"
    tamper(folder / TRACE_NAME, f"DELETE FROM events WHERE json_extract(body, '$.seq') > {last}", before)
    rechain(folder)


async def test_a_record_of_the_version_before_goes_on_and_is_checked_from_there(tmp_path: Path) -> None:
    entries = conversation(6)
    await written_before(tmp_path, entries[:9], last=7)
    report = verify(tmp_path)
    assert report.ok, report
    await traced(tmp_path, entries[9:])
    report = verify(tmp_path)
    assert report.ok, report
    told = [entry_of(event) for event in read_events(tmp_path) if entry_of(event)]
    assert list(dict.fromkeys(told)) == list(range(1, 14))
    assert derived(tmp_path)[-12:] == all_events_of(entries)[-12:]
    tamper(tmp_path / TRACE_NAME, "UPDATE events SET body = replace(body, 'question 5', 'question 1')")
    rechain(tmp_path)
    assert not verify(tmp_path).ok


async def test_a_lost_record_is_made_again_from_the_log(tmp_path: Path) -> None:
    entries = conversation(300)
    await traced(tmp_path, entries)
    (tmp_path / TRACE_NAME).unlink()
    await traced(tmp_path)
    assert derived(tmp_path) == all_events_of(entries)
    (problem,) = verify(tmp_path).problems
    assert "trace" not in problem
    assert "is not complete" in problem


async def test_a_log_that_lost_its_end_is_told_of_and_its_new_end_is_followed(tmp_path: Path) -> None:
    entries = conversation(10)
    await traced(tmp_path, entries)
    in_log(tmp_path, "DELETE FROM entries WHERE seq = 8")
    store = await LogStore.open(tmp_path)
    again = Log(await store.load()).stamp(user_message("on we go"), 2_000.0)
    await store.close()
    await traced(tmp_path, [again])
    (problem,) = verify(tmp_path).problems
    assert "the log was damaged and goes on after entry 7" in problem
    assert derived(tmp_path)[-1:] == events_of(again)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_comes_between_every_entry_has_its_events_once_and_in_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    entries = conversation(400)
    done = 0
    while done < len(entries):
        batch = entries[done : done + chance.randint(1, 4)]
        await store.append(batch)
        done += len(batch)
        for entry in batch:
            if chance.random() < 0.9:
                trace.record_entry(entry)
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            flushing = asyncio.create_task(trace.flush())
            await asyncio.sleep(0)
            if chance.random() < 0.5:
                flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
    await trace.close()
    await store.close()
    assert derived(tmp_path) == all_events_of(entries)
    assert verify(tmp_path).ok


async def test_what_no_memory_holds_is_read_from_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.storage.trace.PENDING_BYTES", 500)
    entries = conversation(50)
    await traced(tmp_path, entries)
    assert derived(tmp_path) == all_events_of(entries)


async def test_a_disk_that_takes_nothing_for_a_while_costs_no_event(tmp_path: Path) -> None:
    entries = stamped([user_message(f"{number} " + "x" * 9_000) for number in range(20)])
    store = await LogStore.open(tmp_path)
    trace = await Trace.open(store)
    database = trace._database
    assert database is not None
    await database.read("PRAGMA max_page_count=1")
    for entry in entries:
        await store.append([entry])
        trace.record_entry(entry)
    with pytest.raises(Exception, match="no space left"):
        await trace.flush()
    await database.read("PRAGMA max_page_count=100000")
    await trace.close()
    await store.close()
    assert derived(tmp_path) == all_events_of(entries)
    assert verify(tmp_path).ok
