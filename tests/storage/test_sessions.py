import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from tests.storage.entries import conversation
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.sessions import (
    NoSuchSession,
    create_session,
    find_session,
    list_sessions,
    new_session_id,
    newest_session,
    session_folder,
    subtask_folder,
    subtask_id,
)


async def said_something(home: Path, session_id: str, cwd: str, turns: int = 2) -> Path:
    folder = session_folder(home, session_id)
    store = await LogStore.open(folder)
    await store.set_meta({"cwd": cwd})
    await store.append(conversation(turns))
    await store.close()
    return folder


def test_ids_sort_by_time() -> None:
    assert re.fullmatch(r"20261121-214501-[0-9a-f]{4}", new_session_id(datetime(2026, 11, 21, 21, 45, 1)))


def test_new_folders_differ(tmp_path: Path) -> None:
    assert len({create_session(tmp_path) for _ in range(20)}) == 20


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
    empty = create_session(tmp_path)
    cut = session_folder(tmp_path, "20261120-100003-dddd")
    shutil.copytree(good, cut)
    (cut / LOG_NAME).write_bytes((cut / LOG_NAME).read_bytes()[:5000])
    (tmp_path / "sessions" / "notes").mkdir()
    subtask_folder(tmp_path, good.name, "x").mkdir()
    before = {path: path.read_bytes() for path in bad.iterdir()}
    found = {info.id: info.problem for info in await list_sessions(tmp_path)}
    assert found[good.name] == ""
    assert all(found[folder.name] for folder in (bad, empty, cut))
    assert len(found) == 4
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
    assert await newest_session(tmp_path, Path("/here")) == one
    assert await newest_session(tmp_path, Path("/there")) == two
    assert await newest_session(tmp_path, Path("/nowhere")) is None
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
