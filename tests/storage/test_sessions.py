import asyncio
import json
import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from time import time
from typing import ClassVar

import pytest

from tests.storage.entries import conversation, stamped
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    Lost,
    Message,
    Queued,
    Recorded,
    Summarized,
    UnattributedCall,
    Usage,
    Withdrawn,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.reports.sessions import sessions_report
from tui_agent.storage.errors import Damaged
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.sessions import (
    NoSuchSession,
    create_session,
    find_session,
    last_words,
    list_sessions,
    new_session_id,
    noted_folder,
    rename_session,
    session_folder,
    session_to_continue,
    session_to_resume,
    subtask_folder,
    subtask_id,
)


async def said_something(home: Path, session_id: str, cwd: str, turns: int = 2) -> Path:
    folder = session_folder(home, session_id)
    store = await LogStore.open(folder)
    await store.set_meta({"cwd": cwd})
    start = Recorded(kind="session", body=json.dumps({"cwd": cwd}))
    entries = conversation(turns)
    await store.append([*entries, Log(entries).stamp(start, 1.0)])
    await store.close()
    return folder


async def said_at(home: Path, session_id: str, cwd: str, time: float) -> Path:
    """A session whose newest entry has this time, and whose files were last changed a minute later."""
    folder = session_folder(home, session_id)
    store = await LogStore.open(folder)
    await store.set_meta({"cwd": cwd})
    await store.append(stamped([user_message("hello")], start=time))
    await store.close()
    os.utime(folder / LOG_NAME, (time + 60, time + 60))
    return folder


class Opened:
    """Counts the databases that are opened while it is entered."""

    paths: ClassVar[list[str] | None] = None

    def __enter__(self) -> "list[str]":
        Opened.paths = []
        return Opened.paths

    def __exit__(self, *_: object) -> None:
        Opened.paths = None


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if event == "sqlite3.connect" and Opened.paths is not None:
        Opened.paths.append(str(arguments[0]))


sys.addaudithook(_count)


def test_ids_sort_by_time_and_differ(tmp_path: Path) -> None:
    assert len({create_session(tmp_path) for _ in range(20)}) == 20
    assert re.fullmatch(r"20261121-214501-[0-9a-f]{4}", new_session_id(datetime(2026, 11, 21, 21, 45, 1)))


async def test_what_was_sent_meanwhile_counts_once_it_is_said(tmp_path: Path) -> None:
    folder = session_folder(tmp_path, "20261120-100000-aaaa")
    store = await LogStore.open(folder)
    waits: list[AnyEntry] = [Queued(blocks=(Text("and this"),)), Queued(blocks=(Text("not this"),))]
    await store.append(stamped([user_message("# A **bold** `word`"), *waits, Delivered(queued=2), Withdrawn(queued=3)]))
    await store.close()
    (info,) = await list_sessions(tmp_path)
    assert info.messages == 2
    assert await last_words(info.folder) == "A bold word"


async def test_a_session_is_resumed_by_its_title(tmp_path: Path) -> None:
    one = await said_something(tmp_path, "20261120-100000-aaaa", "/here")
    two = await said_something(tmp_path, "20261120-100001-bbbb", "/there")
    await rename_session(one, "Tide tables")
    assert await session_to_resume(tmp_path, " tide TABLES ") == one
    with pytest.raises(NoSuchSession, match="There is no session 'tide'"):
        await session_to_resume(tmp_path, "tide")
    await rename_session(two, "tide tables")
    with pytest.raises(NoSuchSession, match="is the title of 2 sessions: 20261120-10000"):
        await session_to_resume(tmp_path, "Tide tables")


async def test_the_list_tells_what_a_session_is(tmp_path: Path) -> None:
    assert await list_sessions(tmp_path) == []
    await said_something(tmp_path, "20261120-100000-aaaa", "/here", 3)
    (info,) = await list_sessions(tmp_path)
    assert (info.id, info.title, info.cwd, info.model) == (
        "20261120-100000-aaaa",
        "question 0",
        "/here",
        "offline:reader",
    )
    assert (info.messages, info.cost_usd, info.updated) == (6, 0.75, 1_006.0)
    assert info.created == datetime(2026, 11, 20, 10).timestamp()
    assert info.size > 4096


async def test_damaged_sessions_are_listed_with_their_problem(tmp_path: Path) -> None:
    good = await said_something(tmp_path, "20261120-100000-aaaa", "/here")
    bad = session_folder(tmp_path, "20261120-100001-bbbb")
    bad.mkdir()
    (bad / LOG_NAME).write_bytes(b"SQLite format 3\0" + b"\0" * 3000)
    killed_at_its_start = create_session(tmp_path)
    cut = session_folder(tmp_path, "20261120-100003-dddd")
    shutil.copytree(good, cut)
    (cut / LOG_NAME).write_bytes((cut / LOG_NAME).read_bytes()[:5000])
    (tmp_path / "sessions" / "notes").mkdir()
    subtask_folder(tmp_path, good.name, "x").mkdir()
    before = {path: path.read_bytes() for path in bad.iterdir()}
    found = {info.id: info.problem for info in await list_sessions(tmp_path)}
    assert found[good.name] == ""
    assert all(found[folder.name] for folder in (bad, cut))
    assert killed_at_its_start.name not in found
    assert len(found) == 3
    assert {path: path.read_bytes() for path in bad.iterdir()} == before


async def test_finding_by_id_prefix_and_folder(tmp_path: Path) -> None:
    one = await said_something(tmp_path, "20261120-100000-aaaa", "/here")
    two = await said_something(tmp_path, "20261120-100001-bbbb", "/there", 9)
    create_session(tmp_path)
    assert await find_session(tmp_path, "20261120-100000-aaaa") == one
    assert await find_session(tmp_path, " 20261120-100001 ") == two
    for text in ("2026112", "nothing", "", "..", "/", "../sessions"):
        with pytest.raises(NoSuchSession):
            await find_session(tmp_path, text)
    with pytest.raises(NoSuchSession, match="2 sessions"):
        await find_session(tmp_path, "20261120")
    assert await session_to_continue(tmp_path, Path("/here")) == one
    assert await session_to_continue(tmp_path, Path("/there")) == two
    with pytest.raises(NoSuchSession, match="no session to continue in /nowhere"):
        await session_to_continue(tmp_path, Path("/nowhere"))
    assert await session_to_resume(tmp_path, "20261120-100001") == two
    assert [info.folder for info in await list_sessions(tmp_path)][-2:] == [two, one]


def test_subtasks_have_safe_folders(tmp_path: Path) -> None:
    assert subtask_id("20261120-100000-aaaa", "read") == "20261120-100000-aaaa:sub:read"
    folder = subtask_folder(tmp_path, "20261120-100000-aaaa", "../../x:y")
    assert folder.parent == tmp_path / "sessions"
    assert ":" not in folder.name


async def test_a_session_in_use_is_listed(tmp_path: Path) -> None:
    folder = create_session(tmp_path)
    store = await LogStore.open(folder)
    await store.append(conversation(1))
    (info,) = await list_sessions(tmp_path)
    assert (info.messages, info.problem) == (2, "")
    await store.close()


@pytest.mark.parametrize("name", ["20269999-999999-abcd", "00000000-000000-abcd", "00010101-000000-abcd"])
async def test_a_folder_whose_name_is_no_time_breaks_nothing(tmp_path: Path, name: str) -> None:
    good = await said_something(tmp_path, "20261120-100000-aaaa", "/here")
    odd = await said_something(tmp_path, name, "/there")
    listed = {info.folder: info for info in await list_sessions(tmp_path)}
    assert set(listed) == {good, odd}
    assert not listed[odd].problem
    assert await session_to_continue(tmp_path, Path("/here")) == good
    assert await session_to_continue(tmp_path, Path("/there")) == odd
    assert name in await asyncio.to_thread(sessions_report, tmp_path, as_json=False)


async def test_the_session_last_spoken_in_goes_on_and_hardly_any_other_is_opened(tmp_path: Path) -> None:
    for number in range(24):
        await said_at(tmp_path, f"20261120-1{number:05}-aaaa", "/here" if number % 2 else "/there", 1_000.0 * number)
    # Opened again later without a word: its files are the newest, what was said there is not.
    os.utime(session_folder(tmp_path, "20261120-100015-aaaa") / LOG_NAME, (900_000.0, 900_000.0))
    for cwd, newest in (("/here", "20261120-100023-aaaa"), ("/there", "20261120-100022-aaaa")):
        with Opened() as opened:
            assert (await session_to_continue(tmp_path, Path(cwd))).name == newest
        names = {Path(path.removeprefix("file://").partition("?")[0]).parent.name for path in opened}
        assert len(names) <= 3
    (session_folder(tmp_path, "20261120-100000-aaaa") / "large").write_bytes(b"x" * 100)
    with Opened() as opened, pytest.raises(NoSuchSession):
        await session_to_continue(tmp_path, Path("/nowhere"))
    assert list(opened) == []
    # Those that were opened before are known, as long as they do not change.
    with Opened() as opened:
        assert len(await list_sessions(tmp_path)) == 24
    assert len(opened) > 19
    await rename_session(session_folder(tmp_path, "20261120-100001-aaaa"), "changed")
    with Opened() as opened:
        assert len(await list_sessions(tmp_path)) == 24
    assert len(opened) == 1


async def test_a_folder_whose_path_begins_with_another_one_is_not_that_one(tmp_path: Path) -> None:
    await said_at(tmp_path, "20261120-100000-aaaa", "/here/below", 1_000.0)
    with pytest.raises(NoSuchSession):
        await session_to_continue(tmp_path, Path("/here"))


async def test_a_session_that_goes_on_after_a_kill_is_the_newest(tmp_path: Path) -> None:
    old = await said_at(tmp_path, "20261120-100000-aaaa", "/here", 1_000.0)
    await said_at(tmp_path, "20261120-100001-bbbb", "/here", 2_000.0)
    store = await LogStore.open(old)
    await store.append([Log(await store.load()).stamp(user_message("again"), time())])
    os.utime(old / LOG_NAME, (1_060.0, 1_060.0))
    assert await session_to_continue(tmp_path, Path("/here")) == old
    await store.close()


async def truncated(folder: Path, size: int) -> Path:
    (folder / LOG_NAME).write_bytes((folder / LOG_NAME).read_bytes()[:size])
    return folder


async def test_a_session_cut_short_goes_on_with_what_can_be_read(tmp_path: Path) -> None:
    folder = await said_something(tmp_path, "20261120-100000-aaaa", "/here", 2_000)
    await truncated(folder, 300_000)
    (info,) = await list_sessions(tmp_path)
    assert "is damaged" in info.problem
    assert (info.cwd, info.title) == ("/here", "question 0")
    assert await session_to_continue(tmp_path, Path("/here")) == folder
    store = await LogStore.open(folder)
    entries = list(await store.load())
    assert len(entries) > 1_000
    whole = conversation(2_000)
    assert all(entry == whole[place] for place, entry in enumerate(entries) if not isinstance(entry, Lost | Recorded))
    kept = sum(not isinstance(entry, Lost) for entry in entries)
    assert f"the other {kept:,} are there. The damaged file was kept" in store.notices[0]
    await store.close()
    (info,) = await list_sessions(tmp_path)
    assert (info.problem, info.cwd, info.title) == ("", "/here", "question 0")


@pytest.mark.parametrize("damage", ["gone", "empty", "header", "page"])
async def test_a_lost_session_is_named_with_what_is_left_of_it(tmp_path: Path, damage: str) -> None:
    older = await said_at(tmp_path, "20261119-100000-aaaa", "/here", 500.0)
    lost = await said_something(tmp_path, "20261120-100000-bbbb", "/here")
    create_session(tmp_path)
    await truncated(lost, {"gone": 0, "empty": 0, "header": 60, "page": 4096}[damage])
    if damage == "gone":
        (lost / LOG_NAME).unlink()
    with pytest.raises(Damaged) as caught:
        await session_to_continue(tmp_path, Path("/here"))
    assert f"Session {lost.name} cannot be read: " in caught.value.message
    assert f"kept in {lost}: " in caught.value.message
    assert "trace.sqlite" in caught.value.message
    assert f"tui-agent -r {older.name}" in caught.value.hint
    shutil.rmtree(older)
    with pytest.raises(Damaged, match=rf"There is no session to continue in /here. Session {lost.name}") as caught:
        await session_to_continue(tmp_path, Path("/here"))
    assert f"tui-agent trace {lost.name}" in caught.value.hint
    if damage in {"gone", "empty"}:
        with pytest.raises(Damaged, match=f"Session {lost.name} cannot be read: its log .* is missing"):
            await session_to_resume(tmp_path, lost.name)
    else:
        store = await LogStore.open(await session_to_resume(tmp_path, lost.name))
        assert "was kept as checkpoints.sqlite.damaged-" in store.notices[0]
        await store.close()
    with pytest.raises(NoSuchSession):
        await session_to_continue(tmp_path, Path("/there"))


async def test_a_lost_session_of_nobody_knows_where_keeps_no_other_from_going_on(tmp_path: Path) -> None:
    older = await said_at(tmp_path, "20261119-100000-aaaa", "/here", 500.0)
    lost = await said_at(tmp_path, "20261120-100000-bbbb", "/there", 1_000.0)
    (lost / LOG_NAME).unlink()
    (lost / "notes").touch()
    assert await session_to_continue(tmp_path, Path("/here")) == older
    with pytest.raises(Damaged, match="It may have been of this folder"):
        await session_to_continue(tmp_path, Path("/elsewhere"))


async def before_this_accounting(folder: Path, cost_usd: float) -> None:
    """A session as the version before left it: with another sum, and nothing noted about how it was made."""
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'accounting'")
        connection.execute("UPDATE totals SET cost_usd = ?", (cost_usd,))
        connection.commit()


def with_summaries() -> list[AnyEntry]:
    usage = Usage(100, output_tokens=10)
    return stamped(
        [
            user_message("hi"),
            Message(role="assistant", blocks=(Text("ho"),), model="m", usage=usage, cost_usd=1.0),
            UnattributedCall(model="m", usage=usage, purpose="summary", cost_usd=0.9),
            UnattributedCall(model="m", usage=usage, purpose="digest", cost_usd=0.3),
            UnattributedCall(model="m", usage=usage, purpose="unfinished", cost_usd=0.2),
            UnattributedCall(model="m", usage=usage, purpose="unfinished", cost_usd=None),
            Summarized(first=1, last=2, text="s", usage=usage, cost_usd=0.9),
        ]
    )


async def test_the_list_counts_every_call_once(tmp_path: Path) -> None:
    folder, branch = (
        session_folder(tmp_path, "20261120-100000-aaaa"),
        subtask_folder(tmp_path, "20261120-100000-aaaa", "b"),
    )
    for place in (folder, branch):
        store = await LogStore.open(place)
        await store.append(with_summaries())
        await store.close()
    (info,) = await list_sessions(tmp_path)
    assert info.cost_usd == pytest.approx(2 * 2.4)


@pytest.mark.parametrize("opened", [False, True])
async def test_the_costs_of_earlier_sessions_are_summed_anew(tmp_path: Path, opened: bool) -> None:
    folder = session_folder(tmp_path, "20261120-100000-aaaa")
    for step in (with_summaries(), []):
        store = await LogStore.open(folder)
        await store.load()
        await store.append(step)
        await store.close()
        if step:
            await before_this_accounting(folder, 1.9)
        if not opened:
            break
    (info,) = await list_sessions(tmp_path)
    assert info.cost_usd == pytest.approx(2.4)
    assert (info.messages, info.model) == (2, "m")
    with closing(sqlite3.connect(folder / LOG_NAME)) as connection:
        assert connection.execute("SELECT cost_usd FROM totals").fetchone() == (pytest.approx(2.4 if opened else 1.9),)


async def test_a_folder_that_is_no_utf_8_is_found_again(tmp_path: Path) -> None:
    first, second = (Path(os.fsdecode(name)) for name in (b"/caf\xe9", b"/caf\xe8"))
    folder = await said_something(tmp_path, "20261120-100000-aaaa", noted_folder(first))
    assert await session_to_continue(tmp_path, first) == folder
    with pytest.raises(NoSuchSession, match=r"caf\\xe8"):
        await session_to_continue(tmp_path, second)
    assert "caf\\\\xe9" in await asyncio.to_thread(sessions_report, tmp_path, as_json=True)
