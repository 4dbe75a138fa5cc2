import asyncio
import sqlite3
import stat
import tempfile
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.storage.entries import LOGS, conversation
from tests.storage.files import names
from tui_agent.conversation.entries import AnyEntry, HeadMoved, encode, user_message
from tui_agent.conversation.log import Log
from tui_agent.storage.errors import ReadOnly, StorageError
from tui_agent.storage.log import LOG_NAME, LogStore


async def saved(folder: Path, entries: list[AnyEntry]) -> Path:
    store = await LogStore.open(folder)
    await store.append(entries)
    await store.close()
    return folder / LOG_NAME


async def reopened(folder: Path) -> tuple[LogStore, list[AnyEntry]]:
    store = await LogStore.open(folder)
    return store, list(await store.load())


@given(LOGS)
@settings(max_examples=examples(15), deadline=None)
def test_what_is_loaded_is_what_was_saved_byte_for_byte(log: list[AnyEntry]) -> None:
    async def round_trip(folder: Path) -> list[AnyEntry]:
        store = await LogStore.open(folder)
        for start in range(0, len(log), 3):
            await store.append(log[start : start + 3])
        await store.close()
        store, loaded = await reopened(folder)
        assert store.notices == []
        await store.close()
        return loaded

    with tempfile.TemporaryDirectory() as folder:
        loaded = asyncio.run(round_trip(Path(folder)))
    assert loaded == log
    assert [encode(entry) for entry in loaded] == [encode(entry) for entry in log]


async def test_the_folder_is_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "sessions" / "s"
    await saved(folder, conversation(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


async def test_numbers_must_follow(tmp_path: Path) -> None:
    entries = conversation(2)
    store = await LogStore.open(tmp_path)
    with pytest.raises(ValueError, match="cannot follow"):
        await store.append(entries[1:])
    await store.append(entries[:2])
    with pytest.raises(ValueError, match="cannot follow"):
        await store.append(entries[:2])
    await store.append([])
    assert store.last_seq == 2
    await store.close()


async def test_meta_is_kept_and_the_title_is_the_first_question(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    await store.set_meta({"cwd": "/work", "model": "a"})
    await store.set_meta({"model": "b"})
    await store.append(conversation(2))
    await store.close()
    store = await LogStore.open(tmp_path)
    assert {"cwd": "/work", "model": "b", "title": "question 0"}.items() <= (await store.meta()).items()
    await store.close()


async def test_cancelled_appends_leave_log_and_store_in_step(tmp_path: Path) -> None:
    store = await LogStore.open(tmp_path)
    log = Log(await store.load())

    async def work() -> None:
        while True:
            entry = log.stamp(user_message("x" * 500), 1.0)
            try:
                await store.append([entry])
            finally:
                if store.last_seq == entry.seq:
                    log.append(entry)

    for steps in range(30):
        task = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await store.close()
    store, loaded = await reopened(tmp_path)
    assert loaded == list(log)
    assert len(loaded) >= 20
    await store.close()


def change(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql, parameters)
        connection.commit()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET body = substr(body, 1, 20) WHERE seq = 8",
        "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'question', 'Question') AS BLOB) WHERE seq = 8",
        "DELETE FROM entries WHERE seq = 8",
        "UPDATE entries SET seq = 1000 WHERE seq = 8",
    ],
)
async def test_a_damaged_log_keeps_its_valid_beginning(tmp_path: Path, sql: str) -> None:
    entries = conversation(10)
    path = await saved(tmp_path, entries)
    change(path, sql)
    broken = path.read_bytes()
    store, loaded = await reopened(tmp_path)
    assert loaded == entries[:7]
    assert "The 7 entries before the damage were saved" in store.notices[0]
    (aside,) = names(tmp_path, "*.damaged-*")
    assert aside in store.notices[0]
    assert (tmp_path / aside).read_bytes() == broken
    assert (await store.meta())["title"] == "question 0"
    await store.append([Log(loaded).stamp(user_message("on we go"), 2.0)])
    await store.close()
    store, loaded = await reopened(tmp_path)
    assert (len(loaded), store.notices) == (8, [])
    await store.close()


async def test_overwritten_pages_are_salvaged_too(tmp_path: Path) -> None:
    entries = conversation(2000)
    path = await saved(tmp_path, entries)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20_000] = b"\xa5" * 20_000
    path.write_bytes(data)
    store, loaded = await reopened(tmp_path)
    assert 100 < len(loaded) < len(entries)
    assert loaded == entries[: len(loaded)]
    assert f"The {len(loaded)} entries" in store.notices[0]
    await store.close()


@pytest.mark.parametrize("page", range(4))
async def test_whatever_page_is_overwritten_the_session_opens(tmp_path: Path, page: int) -> None:
    entries = conversation(3)
    path = await saved(tmp_path, entries)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    assert page * size < len(data)
    begin = page * size + (100 if page == 0 else 0)
    data[begin : (page + 1) * size] = b"\xa5" * ((page + 1) * size - begin)
    path.write_bytes(data)
    store, loaded = await reopened(tmp_path)
    assert loaded == entries[: len(loaded)]
    assert bool(store.notices) == bool(names(tmp_path, "*.damaged-*"))
    await store.append([Log(loaded).stamp(user_message("on we go"), 2.0)])
    await store.set_meta({"cwd": "/somewhere"})
    await store.close()


async def test_a_file_cut_short_is_salvaged_or_set_aside(tmp_path: Path) -> None:
    entries = conversation(2000)
    path = await saved(tmp_path, entries)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    store, loaded = await reopened(tmp_path)
    assert loaded == entries[: len(loaded)]
    assert len(store.notices) == 1
    assert names(tmp_path, "*.damaged-*")
    await store.close()


async def test_a_salvage_cut_short_by_a_crash_is_finished(tmp_path: Path) -> None:
    path = await saved(tmp_path, conversation(3))
    path.rename(path.with_name(f"{path.name}.rebuilt"))
    store, loaded = await reopened(tmp_path)
    assert loaded == conversation(3)
    await store.close()


async def test_a_kind_this_version_does_not_know_opens_read_only(tmp_path: Path) -> None:
    entries = conversation(3)
    path = await saved(tmp_path, entries)
    body = b'{"entry":"dreamt","seq":8,"parent":7}'
    change(path, "INSERT INTO entries VALUES (8, ?, ?)", (zlib.crc32(body), body))
    store, loaded = await reopened(tmp_path)
    assert loaded == entries
    assert "newer version" in store.read_only
    assert "'dreamt'" in store.notices[0]
    with pytest.raises(ReadOnly):
        await store.append([Log(loaded).stamp(user_message("no"), 2.0)])
    with pytest.raises(ReadOnly):
        await store.set_meta({"title": "no"})
    await store.close()
    assert not names(tmp_path, "*.damaged-*")


async def test_a_newer_layout_opens_read_only(tmp_path: Path) -> None:
    path = await saved(tmp_path, conversation(3))
    change(path, "PRAGMA user_version=2")
    store, loaded = await reopened(tmp_path)
    assert loaded == conversation(3)
    assert "newer version" in store.notices[0]
    await store.close()


async def test_a_foreign_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).write_text("Dear diary")
    store, loaded = await reopened(tmp_path)
    assert loaded == []
    assert "was kept as checkpoints.sqlite.damaged-" in store.notices[0]
    await store.append(conversation(1))
    await store.close()


async def test_an_impossible_parent_is_damage(tmp_path: Path) -> None:
    entries = conversation(3)
    path = await saved(tmp_path, entries)
    body = encode(HeadMoved(seq=8, parent=7, to=99))
    change(path, "INSERT INTO entries VALUES (8, ?, ?)", (zlib.crc32(body), body))
    store, loaded = await reopened(tmp_path)
    assert loaded == entries
    assert "cannot move" in store.notices[0]
    await store.close()


async def test_a_failed_open_gives_the_session_free(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).mkdir()
    with pytest.raises(StorageError):
        await LogStore.open(tmp_path)
    (tmp_path / LOG_NAME).rmdir()
    store, _ = await reopened(tmp_path)
    await store.close()
