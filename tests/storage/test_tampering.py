"""What somebody who has a session's files and a database tool does to them, and what `verify` says of it."""

import asyncio
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from tests.agent.talking import say, talking
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message, decode, encode
from tui_agent.storage.kept_files import KEPT_FOLDER
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.rows import HEAD_KEY, as_text, beginning
from tui_agent.storage.trace import TRACE_NAME
from tui_agent.storage.verify import verify

Change = Callable[[Path], None]


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


def changing(name: str, *statements: str) -> Change:
    """Run SQL as someone with a database tool would: take the guards away, and put them back."""

    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / name)) as connection:
            guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            assert len(guards) == (3 if name == TRACE_NAME else 0)
            for trigger, _ in guards:
                connection.execute(f"DROP TRIGGER {trigger}")
            for statement in statements:
                connection.execute(statement)
            for _, script in guards:
                connection.execute(script)
            connection.commit()

    return change


def with_script(name: str, script: str) -> Change:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / name)) as connection:
            connection.executescript(script)

    return change


def forging(folder: Path) -> None:
    """The last answer says something else and costs less, with a right checksum."""
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        seq, body = connection.execute("SELECT seq, body FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        entry = decode(body)
        assert isinstance(entry, Message)
        forged = encode(msgspec.structs.replace(entry, blocks=(Text("forged"),), cost_usd=0.01))
        connection.execute("UPDATE entries SET body = ?, crc = ? WHERE seq = ?", (forged, zlib.crc32(forged), seq))
        connection.commit()


def forging_with_head(folder: Path) -> None:
    """The same, and the noted link is made to fit."""
    forging(folder)
    link = beginning(folder.name)
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        for (body,) in connection.execute("SELECT body FROM entries ORDER BY seq"):
            link = link.following(body)
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", (as_text(link), HEAD_KEY))
        connection.commit()


def as_an_earlier_version(folder: Path) -> None:
    """A forged log, without the link, beside a trace that looks as an earlier version's does, rightly chained."""
    forging(folder)
    changing(LOG_NAME, f"DELETE FROM meta WHERE key = '{HEAD_KEY}'")(folder)
    (folder / TRACE_NAME).unlink()
    body = '{"text":"forged"}'
    digest = sha256(msgspec.json.encode(("0" * 64, 1, 5.0, "message", body))).hexdigest()
    with closing(sqlite3.connect(folder / TRACE_NAME)) as connection:
        connection.executescript(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, time, kind, body, previous, hash);"
            "PRAGMA application_id=0x54415431; PRAGMA user_version=1"
        )
        connection.execute("INSERT INTO events VALUES (1, 5.0, 'message', ?, ?, ?)", (body, "0" * 64, digest))
        connection.commit()
    anchor = f'{{"seq":1,"hash":"{digest}"}}'
    changing(LOG_NAME, f"INSERT INTO meta VALUES ('trace_anchor', '{anchor}')")(folder)


HARMLESS_GUARD = """
    DROP TRIGGER events_no_delete;
    CREATE TRIGGER events_no_delete BEFORE DELETE ON events WHEN 0 BEGIN SELECT 1; END
"""
VIEW = """
    ALTER TABLE events RENAME TO kept;
    CREATE VIEW events AS SELECT seq, time, kind, body, entry, hash FROM kept
"""
EXTRA_GUARD = "CREATE TRIGGER quiet BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END"
A_PERMISSION = """
    INSERT INTO events SELECT max(seq) + 1, 5.0, 'permission', '{"allowed":true}', max(entry), hash FROM events
"""


def change_result(folder: Path) -> None:
    (path,) = (folder / "large_tool_results").iterdir()
    path.write_bytes(path.read_bytes().replace(b"\n7\n", b"\n8\n"))


def remove_result(folder: Path) -> None:
    shutil.rmtree(folder / "large_tool_results")


def change_kept_file(folder: Path) -> None:
    (path,) = (folder / KEPT_FOLDER).glob("*/*")
    path.write_bytes(b"another")


def cut_both(folder: Path) -> None:
    changing(LOG_NAME, "DELETE FROM entries WHERE seq > 4")(folder)
    changing(TRACE_NAME, "DELETE FROM events WHERE entry > 4")(folder)


def trace(*statements: str) -> Change:
    return changing(TRACE_NAME, *statements)


def log(*statements: str) -> Change:
    return changing(LOG_NAME, *statements)


NOT_WRITTEN = "the log is not what was written"
CASES: dict[str, tuple[Change, str]] = {
    "another text in an event": (
        trace("UPDATE events SET body = replace(body, 'read calc', 'kill calc') WHERE kind = 'message'"),
        "not what entry",
    ),
    "another kind": (trace("UPDATE events SET kind = 'error' WHERE seq = 4"), "event 4 of the trace: not"),
    "another time": (trace("UPDATE events SET time = 1 WHERE seq = 4"), "event 4 of the trace: not"),
    "another hash": (trace("UPDATE events SET hash = 'f' WHERE seq = 4"), "event 4 of the trace: another hash"),
    "no text": (trace("UPDATE events SET body = x'00' WHERE seq = 4"), "event 4 of the trace: not"),
    "an event removed": (trace("DELETE FROM events WHERE seq = 6"), "missing before event 7"),
    "an event removed, the others numbered anew": (
        trace("DELETE FROM events WHERE seq = 6", "UPDATE events SET seq = seq - 1 WHERE seq > 6"),
        "not what entry 5 of the log says",
    ),
    "a permission removed": (
        trace("DELETE FROM events WHERE seq = 9", "UPDATE events SET seq = seq - 1 WHERE seq > 9"),
        "entry 6 of the log lack their events before event 9",
    ),
    "two events changed round": (
        trace("UPDATE events SET seq = iif(seq = 5, -6, -5) WHERE seq IN (5, 6)", "UPDATE events SET seq = abs(seq)"),
        "entry 5",
    ),
    "an event added": (trace(A_PERMISSION), "not what entry"),
    "an event of no entry": (trace(A_PERMISSION.replace("max(entry)", "max(entry) + 1")), "after the log's last entry"),
    "an event of no number": (
        trace("UPDATE events SET entry = 'x' WHERE seq = 4"),
        "of entry 0, which is not the log's next one",
    ),
    "the end cut off": (trace("DELETE FROM events WHERE seq > 7"), "the end of the trace was cut off"),
    "all events": (trace("DELETE FROM events"), "the end of the trace was cut off"),
    "the trace": (lambda folder: (folder / TRACE_NAME).unlink(), "the end of the trace was cut off"),
    "a message forged": (forging, NOT_WRITTEN),
    "a message forged, with the link": (forging_with_head, "not what entry"),
    "no link": (log(f"DELETE FROM meta WHERE key = '{HEAD_KEY}'"), "no valid link is noted"),
    "another link": (log(f"UPDATE meta SET value = '7' WHERE key = '{HEAD_KEY}'"), "no valid link"),
    "a link out of range": (
        log(f"UPDATE meta SET value = replace(value, '\"seq\":', '\"seq\":9') WHERE key = '{HEAD_KEY}'"),
        "its end was cut off",
    ),
    "the layout of an earlier version": (as_an_earlier_version, "no valid link is noted"),
    "an entry damaged": (log("UPDATE entries SET body = x'00' WHERE seq = 4"), "entry 4 of the log was damaged: its"),
    "an entry removed": (log("DELETE FROM entries WHERE seq = 4"), "entry 4 of the log is missing"),
    "the log's end cut off": (log("DELETE FROM entries WHERE seq > 9"), "but 15 were written"),
    "both ends cut off": (cut_both, "the log ends at entry 4, but 15 were written"),
    "a guard removed": (with_script(TRACE_NAME, "DROP TRIGGER events_no_delete"), "events_no_delete was removed"),
    "a guard that guards nothing": (
        with_script(TRACE_NAME, HARMLESS_GUARD),
        "events_no_delete is not the one that was made",
    ),
    "a view for the table": (with_script(TRACE_NAME, VIEW), "events is a view and not the table that was made"),
    "one more trigger": (with_script(TRACE_NAME, EXTRA_GUARD), "guard quiet that was not made with the file"),
    "a trigger in the log": (
        with_script(LOG_NAME, "CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN SELECT 1; END"),
        "there is a guard quiet",
    ),
    "another text in a saved result": (change_result, "its SHA-256 differs"),
    "a saved result is gone": (remove_result, "cannot be read"),
    "another content of a kept file": (change_kept_file, "its SHA-256 differs"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_found(case: str, folder: Path) -> None:
    assert verify(folder).ok, verify(folder)
    change, said = CASES[case]
    change(folder)
    report = verify(folder)
    assert any(said in problem for problem in report.problems), report
    assert len(report.problems) <= 21


def test_what_an_earlier_version_did_not_count_yet_is_no_change(folder: Path) -> None:
    trace("""UPDATE events SET body = replace(body, ',"searches":0', '')""")(folder)
    assert verify(folder).ok, verify(folder)


@pytest.mark.parametrize("case", ["a message forged", "no link", "an entry removed", "the log's end cut off"])
async def test_opening_the_session_covers_nothing_up(case: str, folder: Path) -> None:
    CASES[case][0](folder)
    for _ in range(2):
        store = await LogStore.open(folder)
        await store.load()
        await store.close()
        assert not verify(folder).ok


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = '{}' WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events VALUES (3, 0, 'message', '{}', 1, '')",
        "INSERT INTO events VALUES (99, 0, 'message', '{}', 1, '')",
        "INSERT INTO events VALUES (NULL, 0, 'message', '{}', 1, '')",
    ],
)
def test_the_database_itself_refuses(folder: Path, statement: str) -> None:
    with (
        closing(sqlite3.connect(folder / TRACE_NAME)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="only grows"),
    ):
        connection.execute(statement)
    assert verify(folder).ok


def test_the_databases_of_another_session_are_found(sessions: tuple[Path, Path], folder: Path) -> None:
    _, other = sessions
    shutil.copy(other / TRACE_NAME, folder / TRACE_NAME)
    assert any("another hash" in problem or "not what" in problem for problem in verify(folder).problems)
    for path in folder.glob(f"{LOG_NAME}*"):
        path.unlink()
    shutil.copy(other / LOG_NAME, folder / LOG_NAME)
    assert NOT_WRITTEN in " ".join(verify(folder).problems)


def test_nothing_there_is_no_session(tmp_path: Path) -> None:
    assert not verify(tmp_path / "nowhere").ok
