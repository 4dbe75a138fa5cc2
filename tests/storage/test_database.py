import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.storage.files import contents, names
from tui_agent.storage.database import Schema, open_database
from tui_agent.storage.errors import Damaged, DiskFull, StorageError

SCHEMA = Schema(0x1234, 2, "CREATE TABLE things (name TEXT PRIMARY KEY)")
ADD = "INSERT INTO things VALUES (?)"


async def test_new_database_is_durable_private_and_ours(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    database = await open_database(path, SCHEMA)
    assert await database.read("PRAGMA journal_mode") == [("wal",)]
    assert await database.read("PRAGMA synchronous") == [(2,)]
    assert await database.read("PRAGMA application_id") == [(0x1234,)]
    assert await database.read("PRAGMA user_version") == [(2,)]
    await database.write([(ADD, [("a",), ("b",)])])
    await database.close()
    await database.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = await open_database(path, SCHEMA)
    assert await again.read("SELECT name FROM things ORDER BY name") == [("a",), ("b",)]
    assert (again.quarantined, again.read_only) == (None, "")
    await again.close()


async def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "d.sqlite", SCHEMA)
    with pytest.raises(StorageError):
        await database.write([(ADD, [("a",)]), (ADD, [("b",), ("a",)])])
    assert await database.read("SELECT * FROM things") == []
    await database.write([(ADD, [("c",)])])
    assert await database.read("SELECT * FROM things") == [("c",)]
    await database.close()
    with pytest.raises(StorageError, match="already closed"):
        await database.write([(ADD, [("d",)])])


async def test_another_programs_database_is_set_aside_with_its_wal(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE recipes (name TEXT)")
        other.execute("INSERT INTO recipes VALUES ('soup')")
        other.commit()
        files = contents(tmp_path)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    first = await open_database(path, SCHEMA)
    await first.close()
    assert first.quarantined is not None
    with closing(sqlite3.connect(first.quarantined)) as other:
        assert other.execute("SELECT * FROM recipes").fetchall() == [("soup",)]
    path.write_bytes(b"foreign again")
    second = await open_database(path, SCHEMA)
    await second.close()
    assert second.quarantined not in {None, first.quarantined}


async def test_reading_only_makes_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    with pytest.raises(Damaged, match="does not exist"):
        await open_database(path, SCHEMA, read_only=True)
    assert names(tmp_path) == []
    path.write_bytes(b"a diary")
    with pytest.raises(Damaged):
        await open_database(path, SCHEMA, read_only=True)
    assert names(tmp_path) == ["d.sqlite"]


async def test_a_file_system_without_wal_is_refused(tmp_path: Path) -> None:
    # sqlite's dot-file locking offers no shared memory, like the network file systems this is about.
    with pytest.raises(StorageError, match="WAL mode does not work") as caught:
        await open_database(tmp_path / "d.sqlite", SCHEMA, vfs="unix-dotfile")
    assert str(tmp_path) in caught.value.message
    assert "TUI_AGENT_HOME" in caught.value.hint


async def test_a_full_database_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "d.sqlite", SCHEMA)
    await database.write([(ADD, [("kept",)])])
    await database.read("PRAGMA max_page_count=1")
    with pytest.raises(DiskFull, match="no space left") as caught:
        await database.write([(ADD, [("x" * 100_000,)])])
    assert "intact" in caught.value.message
    await database.read("PRAGMA max_page_count=100000")
    await database.write([(ADD, [("more",)])])
    assert await database.read("SELECT name FROM things ORDER BY name") == [("kept",), ("more",)]
    await database.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError) as caught:
            asyncio.run(open_database(tmp_path / "d.sqlite", SCHEMA))
    finally:
        tmp_path.chmod(0o700)
    assert caught.value.hint


async def begun() -> None:
    """Let a write that was just asked for reach its transaction."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_cancelled_write_is_done_and_the_cancellation_arrives(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "d.sqlite", SCHEMA)
    task = asyncio.create_task(database.write([(ADD, [("a",)])]))
    await begun()
    task.cancel()
    await begun()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await database.read("SELECT * FROM things") == [("a",)]
    await database.close()


async def test_a_write_that_fails_while_cancelled_says_so(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "d.sqlite", SCHEMA)
    task = asyncio.create_task(database.write([(ADD, [("a",), ("a",)])]))
    await begun()
    task.cancel()
    with pytest.raises(StorageError):
        await task
    assert await database.read("SELECT * FROM things") == []
    await database.close()


async def test_a_timeout_around_a_write_stays_a_timeout(tmp_path: Path) -> None:
    database = await open_database(tmp_path / "d.sqlite", SCHEMA)
    with pytest.raises(TimeoutError):  # noqa: PT012
        async with asyncio.timeout(0):
            await database.write([(ADD, [("a",)])])
            await asyncio.Event().wait()
    await database.close()
