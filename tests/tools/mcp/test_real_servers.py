"""Servers of others, where they are installed: `pip install mcp-server-git mcp-server-time mcp-server-fetch`."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.tools.mcp.connecting import Talk, talking
from tui_agent.settings import ToolServer


def installed(name: str) -> ToolServer:
    """A server of the registry, run by this Python. Skips the test where it is not there."""
    if importlib.util.find_spec(name.replace("-", "_")) is None:
        pytest.skip(f"{name} is not installed")
    return ToolServer(command=sys.executable, args=("-m", name.replace("-", "_")))


async def git(talk: Talk, folder: Path) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", "."], cwd=folder, check=True)
    (folder / "new.txt").write_text("new")
    assert "new.txt" in (await talk.call("git_status", repo_path=str(folder))).text
    wrong = await talk.call("git_status", repo_path=str(folder / "nowhere"))
    assert wrong.is_error


async def time(talk: Talk, folder: Path) -> None:
    done = await talk.call("convert_time", source_timezone="Europe/Berlin", time="12:00", target_timezone="Asia/Tokyo")
    assert "Asia/Tokyo" in done.text


async def fetch(talk: Talk, folder: Path) -> None:
    assert (await talk.call("fetch", url="http://127.0.0.1:9/")).is_error


@pytest.mark.parametrize(("name", "use"), [("git", git), ("time", time), ("fetch", fetch)])
async def test_a_real_server_is_listed_and_called(
    name: str, use: Callable[[Talk, Path], Awaitable[None]], tmp_path: Path
) -> None:
    async with talking(installed(f"mcp-server-{name}"), tmp_path) as talk:
        await talk.connection.start()
        assert talk.lists[-1].tools
        assert talk.lists[-1].problems == ()
        assert all(tool.description for tool in talk.lists[-1].tools)
        await use(talk, tmp_path)
