import asyncio
import sqlite3
import stat
import tempfile
import zlib
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.storage.entries import LOGS, conversation
from tests.storage.files import names
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Lost, encode, user_message
from tui_agent.conversation.log import Log
from tui_agent.conversation.view import View
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
async def test_a_damaged_entry_takes_no_other_with_it(tmp_path: Path, sql: str) -> None:
    entries = conversation(10)
    path = await saved(tmp_path, entries)
    change(path, sql)
    broken = path.read_bytes()
    store, loaded = await reopened(tmp_path)
    assert loaded == [*entries[:7], Lost(seq=8, parent=7, time=entries[8].time), *entries[8:]]
    assert "Of its 21 entries, entry 8 is lost; the other 20 are there" in store.notices[0]
    (aside,) = names(tmp_path, f"{LOG_NAME}.damaged-*")
    assert aside in store.notices[0]
    assert (tmp_path / aside).read_bytes() == broken
    assert (await store.meta())["title"] == "question 0"
    await store.append([Log(loaded).stamp(user_message("on we go"), 2.0)])
    await store.close()
    store, loaded = await reopened(tmp_path)
    assert (len(loaded), store.notices) == (22, [])
    await store.close()


async def test_a_lost_move_of_the_head_is_told_by_what_follows_it(tmp_path: Path) -> None:
    entries = conversation(2)
    log = Log(entries)
    for entry in (HeadMoved(to=3, reason="rewind"), user_message("otherwise"), user_message("again")):
        log.append(log.stamp(entry, 9.0))
    path = await saved(tmp_path, list(log))
    change(path, "UPDATE entries SET body = x'00' WHERE seq = 6")
    store, loaded = await reopened(tmp_path)
    assert loaded[5] == HeadMoved(seq=6, parent=5, time=9.0, to=3)
    assert View(loaded).messages() == View(log).messages()
    await store.close()


@pytest.mark.parametrize("noted", [True, False])
async def test_a_damaged_or_missing_end_is_said(tmp_path: Path, noted: bool) -> None:
    path = await saved(tmp_path, conversation(2))
    if noted:
        change(path, "DELETE FROM entries WHERE seq > 3")
    else:
        change(path, "UPDATE entries SET body = x'00' WHERE seq > 3")
        change(path, "DELETE FROM meta WHERE key = 'head'")
    store, loaded = await reopened(tmp_path)
    assert loaded[:3] == conversation(2)[:3]
    assert [type(entry) for entry in loaded[3:]] == [Lost, Lost]
    assert "entries 4 to 5 are lost" in store.notices[0]
    await store.close()


async def test_overwritten_pages_take_no_other_with_them(tmp_path: Path) -> None:
    entries = conversation(2000)
    path = await saved(tmp_path, entries)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20_000] = b"\xa5" * 20_000
    path.write_bytes(data)
    store, loaded = await reopened(tmp_path)
    assert len(loaded) == len(entries)
    lost = [entry.seq for entry, whole in zip(loaded, entries, strict=True) if entry != whole]
    assert 0 < len(lost) < 200
    assert all(isinstance(loaded[seq - 1], Lost) for seq in lost)
    assert f"the other {len(entries) - len(lost):,} are there" in store.notices[0]
    await store.close()


async def test_a_session_of_an_earlier_version_is_chained_when_it_is_opened(tmp_path: Path) -> None:
    path = await saved(tmp_path, conversation(2))
    head = (await (await LogStore.open(tmp_path, read_only=True)).meta())["head"]
    change(path, "DELETE FROM meta WHERE key = 'head'")
    store, _ = await reopened(tmp_path)
    assert (await store.meta())["head"] == head
    assert store.notices == []
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
    assert all(
        entry in (entries[place], Lost(seq=entry.seq, parent=entry.parent)) for place, entry in enumerate(loaded)
    )
    assert bool(store.notices) == bool(names(tmp_path, f"{LOG_NAME}.damaged-*"))
    await store.append([Log(loaded).stamp(user_message("on we go"), 2.0)])
    await store.set_meta({"cwd": "/somewhere"})
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
    with pytest.raises(ReadOnly, match="newer version"):
        await store.append([Log(loaded).stamp(user_message("no"), 2.0)])
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
    assert "entry 8 does not follow" in store.notices[0]
    await store.close()


async def test_a_failed_open_gives_the_session_free(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).mkdir()
    with pytest.raises(StorageError):
        await LogStore.open(tmp_path)
    (tmp_path / LOG_NAME).rmdir()
    store, _ = await reopened(tmp_path)
    await store.close()


async def test_an_open_that_is_cancelled_gives_the_session_free(tmp_path: Path) -> None:
    for turns in count(step=5):
        opening = asyncio.create_task(LogStore.open(tmp_path))
        for _ in range(turns):
            await asyncio.sleep(0)
        if opening.done():
            break
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await (await LogStore.open(tmp_path)).close()
    assert turns > 1
    await opening.result().close()
