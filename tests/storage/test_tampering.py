"""What somebody who has a session's files and a database tool does to them, and what `verify` says of it."""

import asyncio
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.agent.talking import say, talking
from tests.storage.test_trace import tamper
from tui_agent.conversation.entries import Message, TraceHead, decode, encode
from tui_agent.storage.kept_files import KEPT_FOLDER
from tui_agent.storage.log import LOG_NAME, LogStore, read_entries, trace_head
from tui_agent.storage.trace import (
    ANCHOR_KEY,
    BINDING_KEY,
    DERIVATION_KEY,
    TRACE_NAME,
    Anchor,
    Trace,
    TraceEvent,
    event_hash,
)
from tui_agent.storage.verify import verify


async def _session(folder: Path) -> Path:
    async with talking(folder, {"output.max_lines": "20"}) as session:
        await say(session, "run seq 300; echo more >> calc.py")
        await say(session, "read calc.py")
        return session.folder


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two sessions that the program has closed: each read, ran, and changed something."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
        one, other = (asyncio.run(_session(tmp_path_factory.mktemp(name))) for name in ("one", "other"))
    assert verify(one).ok, verify(one)
    assert verify(other).ok
    return one, other


@pytest.fixture
def folder(sessions: tuple[Path, Path], tmp_path: Path) -> Path:
    """A session of this test's own."""
    copy = tmp_path / sessions[0].name
    shutil.copytree(sessions[0], copy)
    return copy


def in_log(folder: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        connection.execute(sql, parameters)
        connection.commit()


def anchored(folder: Path) -> Anchor:
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        (value,) = connection.execute("SELECT value FROM meta WHERE key = ?", (ANCHOR_KEY,)).fetchone()
    return msgspec.json.decode(value, type=Anchor)


def set_anchor(folder: Path, seq: int) -> None:
    with closing(sqlite3.connect(folder / TRACE_NAME)) as connection:
        (digest,) = connection.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
    in_log(
        folder, "UPDATE meta SET value = ? WHERE key = ?", msgspec.json.encode(Anchor(seq, digest)).decode(), ANCHOR_KEY
    )


def heads(folder: Path) -> Iterator[tuple[int, TraceHead]]:
    for entry in read_entries(folder / LOG_NAME):
        if head := trace_head(entry):
            yield entry.seq, head


def remove_anchor(folder: Path) -> None:
    in_log(folder, "DELETE FROM meta WHERE key = ?", ANCHOR_KEY)


def cut_both(folder: Path) -> None:
    """The end of the record is removed, and the anchor made to fit."""
    set_anchor(folder, 3)
    tamper(folder / TRACE_NAME, "DELETE FROM events WHERE seq > 3")


def older_anchor(folder: Path) -> None:
    set_anchor(folder, 3)


def add_events(folder: Path) -> None:
    """A permission that nobody gave, chained as the program would."""
    with closing(sqlite3.connect(folder / TRACE_NAME)) as connection:
        seq, previous = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC").fetchone()
        body = '{"call_id":"c","allowed":true,"reason":"allowed by the user"}'
        digest = event_hash(previous, TraceEvent(seq + 1, 5.0, "permission", body))
        values = (seq + 1, 5.0, "permission", body, previous, digest)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", values)
        connection.commit()


def with_script(name: str, script: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.executescript(script)

    return change


HARMLESS_GUARD = """
    DROP TRIGGER events_no_delete;
    CREATE TRIGGER events_no_delete BEFORE DELETE ON events WHEN 0 BEGIN SELECT 1; END
"""
VIEW = """
    ALTER TABLE events RENAME TO kept;
    CREATE VIEW events AS SELECT seq, time, kind, body, previous, hash FROM kept
"""
EXTRA_GUARD = "CREATE TRIGGER quiet BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END"


def change_result(folder: Path) -> None:
    (path,) = (folder / "large_tool_results").iterdir()
    path.write_bytes(path.read_bytes().replace(b"\n7\n", b"\n8\n"))


def remove_result(folder: Path) -> None:
    shutil.rmtree(folder / "large_tool_results")


def change_kept_file(folder: Path) -> None:
    (path,) = (folder / KEPT_FOLDER).glob("*/*")
    path.write_bytes(b"another")


def rewrite_call(folder: Path) -> None:
    """The entry of a model call names another event, with a right checksum."""
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        for seq, body in connection.execute("SELECT seq, body FROM entries ORDER BY seq DESC").fetchall():
            entry = decode(body)
            if isinstance(entry, Message) and entry.trace is not None:
                forged = encode(msgspec.structs.replace(entry, trace=TraceHead(entry.trace.seq, "f" * 64)))
                connection.execute(
                    "UPDATE entries SET body = ?, crc = ? WHERE seq = ?", (forged, zlib.crc32(forged), seq)
                )
                break
        connection.commit()


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no anchor": (remove_anchor, "there is no anchor"),
    "an anchor older than the log says": (cut_both, "is older than entry"),
    "events that the log names are gone": (cut_both, "of the log names event"),
    "an older anchor alone": (older_anchor, "come after the last one that was written"),
    "events after the anchor": (add_events, "come after the last one that was written"),
    "a guard that guards nothing": (
        with_script(TRACE_NAME, HARMLESS_GUARD),
        "the guard events_no_delete is not the one that was made",
    ),
    "a view for the table": (with_script(TRACE_NAME, VIEW), "events is a view and not the table that was made"),
    "one more trigger": (
        with_script(TRACE_NAME, EXTRA_GUARD),
        "there is a guard quiet that was not made with the file",
    ),
    "a trigger in the log": (
        with_script(LOG_NAME, "CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN SELECT 1; END"),
        "there is a guard quiet",
    ),
    "another text in a saved result": (change_result, "its SHA-256 differs"),
    "a saved result is gone": (remove_result, "cannot be read"),
    "another content of a kept file": (change_kept_file, "its SHA-256 differs"),
    "another event in a call's entry": (rewrite_call, "which is not the one that was written there"),
    "no note of the session": (
        lambda folder: in_log(folder, "DELETE FROM meta WHERE key = ?", BINDING_KEY),
        "the note which session this is was removed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_found(case: str, folder: Path) -> None:
    assert verify(folder).ok, verify(folder)
    assert [head for _, head in heads(folder) if head.seq], "no entry of a model call names an event"
    change, said = CASES[case]
    change(folder)
    report = verify(folder)
    assert any(said in problem for problem in report.problems), report


def test_the_databases_of_another_session_are_found(sessions: tuple[Path, Path], folder: Path) -> None:
    _, other = sessions
    for name in (LOG_NAME, TRACE_NAME):
        for path in folder.glob(f"{name}*"):
            path.unlink()
        shutil.copy(other / name, folder / name)
    shutil.rmtree(folder / "large_tool_results")
    shutil.copytree(other / "large_tool_results", folder / "large_tool_results")
    shutil.copytree(other / KEPT_FOLDER, folder / KEPT_FOLDER, dirs_exist_ok=True)
    assert verify(folder).problems == (
        f"these are the databases of session {other.name}, not of {folder.name}",
        f"the record was not begun in session {folder.name}",
    )
    # A note that was made to fit does not help: the first event's hash covers the session's id.
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        connection.execute("UPDATE meta SET value = replace(value, ?, ?)", (other.name, folder.name))
        connection.commit()
    assert verify(folder).problems == (f"the record was not begun in session {folder.name}",)


def test_the_trace_of_another_session_is_found(sessions: tuple[Path, Path], folder: Path) -> None:
    shutil.copy(sessions[1] / TRACE_NAME, folder / TRACE_NAME)
    problems = verify(folder).problems
    assert f"the record was not begun in session {folder.name}" in problems
    assert any("is not the one that was written there" in problem for problem in problems), problems


@pytest.mark.parametrize("case", ["no anchor", "events after the anchor", "an older anchor alone", "no note"])
async def test_opening_the_session_covers_nothing_up(case: str, folder: Path) -> None:
    if case == "no note":
        in_log(folder, "DELETE FROM meta WHERE key IN (?, ?, ?)", ANCHOR_KEY, BINDING_KEY, DERIVATION_KEY)
    else:
        CASES[case][0](folder)
    store = await LogStore.open(folder)
    trace = await Trace.open(store)
    await trace.close()
    await store.close()
    report = verify(folder)
    assert any("is not complete" in problem for problem in report.problems), report
