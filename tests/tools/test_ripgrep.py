import asyncio
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.support import call
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_folder
from tui_agent.tools.ripgrep import find_rg, search
from tui_agent.tools.search.finding import Glob, Grep


async def test_a_search_that_never_ends_is_killed_when_it_is_cancelled(tmp_path: Path) -> None:
    started = asyncio.Event()
    read, write = os.pipe()

    async def endless() -> None:
        with open_folder(tmp_path) as folder, os.fdopen(read, "rb") as stream:
            async with search(("--regexp=x", "-"), folder, stdin=stream) as rg:
                started.set()
                async for _ in rg.records(b"\n"):
                    pytest.fail("nothing was written to its input")

    task = asyncio.ensure_future(endless())
    await started.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    os.close(write)
    assert task.cancelled()


async def test_records_are_cut_at_separators_wherever_the_chunks_end(tmp_path: Path) -> None:
    names = {f"{number:03}{'n' * 200}" for number in range(900)}
    for name in names:
        (tmp_path / name).touch()
    with open_folder(tmp_path) as folder:
        async with search(("--files", "--null"), folder) as rg:
            found = [record.decode() async for record in rg.records(b"\0")]
            assert await rg.errors() == ""
    assert len(found) == 900
    assert set(found) == names


async def test_what_it_refuses_is_told(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        async with search(("--no-such-flag",), folder) as rg:
            assert [record async for record in rg.records(b"\n")] == []
            assert "no-such-flag" in await rg.errors()
        with pytest.raises(ToolFailure, match="could not be started"):
            async with search(("a\0b",), folder):
                pytest.fail("it was started")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows a process its environment")
async def test_it_gets_none_of_the_keys_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    with open_folder(tmp_path) as folder:
        async with search(("--text", "--regexp=ANTHROPIC_API_KEY|PATH=", "/proc/self/environ"), folder) as rg:
            output = b"\n".join([record async for record in rg.records(b"\n")])
    assert b"PATH=" in output
    assert b"a-key" not in output


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the rg beside this Python is looked for meanwhile; none is among the scripts."""
    place = tmp_path / "bin" / "rg"
    place.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(place.parent / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "none"))
    find_rg.cache_clear()
    yield place
    find_rg.cache_clear()


def script(place: Path, lines: str) -> None:
    place.write_text(f"#!/bin/sh\n{lines}\n")
    place.chmod(0o755)


def test_rg_is_found_in_its_package_or_on_the_path_or_its_lack_is_said(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(find_rg()).name == "rg"
    assert Path(find_rg()) != program
    monkeypatch.setattr(sys, "path", [])  # where packages are found
    monkeypatch.setenv("PATH", str(program.parent))
    script(program, "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    find_rg.cache_clear()
    assert find_rg() == str(program)
    program.unlink()
    find_rg.cache_clear()
    with pytest.raises(ToolFailure, match="not installed"):
        find_rg()


async def test_what_a_killed_search_left_unfinished_is_not_taken_for_a_name(program: Path, tmp_path: Path) -> None:
    script(program, r"printf 'whole\0hal'; kill -KILL $$")
    with open_folder(tmp_path) as folder:
        async with search(("--files", "--null"), folder) as rg:
            records = rg.records(b"\0")
            assert await anext(records) == b"whole"
            with pytest.raises(ToolFailure, match="broke off"):
                await anext(records)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a running process")
async def test_an_ignore_file_without_end_ends_a_search_and_not_the_machine(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    (tmp_path / ".gitignore").symlink_to("/dev/zero")
    with pytest.raises(ToolFailure, match="broke off"):
        await call(Glob(), tmp_path, pattern="*.py")


async def test_an_older_ripgrep_is_named(program: Path, tmp_path: Path) -> None:
    script(program, r"printf 'a.txt\0a line without its number\n'")
    with pytest.raises(ToolFailure, match="older than 13"):
        await call(Grep(), tmp_path, pattern="x")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has it")
async def test_without_a_list_of_open_files_nothing_is_searched_and_why_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_agent.tools.ripgrep.OPEN_FILES", str(tmp_path / "none"))
    with open_folder(tmp_path) as folder, pytest.raises(ToolFailure, match="There is no "):
        async with search(("--files",), folder):
            pytest.fail("it was started")
