"""Servers of others, where their commands are found beside this Python or in `PATH`:

pip install mcp-server-git mcp-server-time mcp-server-fetch
npm install -g @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.tools.mcp.connecting import Talk, talking
from tui_agent.settings import ToolServer


def installed(name: str) -> str:
    """The path of a server's command. Skips the test where it is not there."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which(f"mcp-server-{name}", path=path)
    if found is None:
        pytest.skip(f"mcp-server-{name} is not installed")
    return found


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


async def filesystem(talk: Talk, folder: Path) -> None:
    (folder / "here.txt").write_text("what stands here")
    assert "what stands here" in (await talk.call("read_text_file", path=str(folder / "here.txt"))).text
    outside = await talk.call("read_text_file", path="/etc/hostname")
    assert outside.is_error


async def everything(talk: Talk, folder: Path) -> None:
    assert "hello" in (await talk.call("echo", message="hello")).text
    assert "5" in (await talk.call("get-sum", a=2, b=3)).text
    assert (await talk.call("get-tiny-image")).images
    assert talk.lists[-1].prompts
    assert talk.lists[-1].resources


@pytest.mark.parametrize(
    ("name", "use"),
    [("git", git), ("time", time), ("fetch", fetch), ("filesystem", filesystem), ("everything", everything)],
)
async def test_a_real_server_is_listed_and_called(
    name: str, use: Callable[[Talk, Path], Awaitable[None]], tmp_path: Path
) -> None:
    arguments = (str(tmp_path),) if name == "filesystem" else ()
    async with talking(ToolServer(command=installed(name), args=arguments), tmp_path) as talk:
        await talk.connection.start()
        assert talk.lists[-1].tools
        assert talk.lists[-1].problems == ()
        assert all(tool.description for tool in talk.lists[-1].tools)
        await use(talk, tmp_path)


async def test_a_real_server_is_called_at_its_address(tmp_path: Path, unused_tcp_port: int) -> None:
    environment = {**os.environ, "PORT": str(unused_tcp_port)}
    server = await asyncio.create_subprocess_exec(
        installed("everything"), "streamableHttp", env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert server.stderr is not None
        while not re.search(rb"listening on port", await asyncio.wait_for(server.stderr.readline(), 60)):
            pass
        async with talking(ToolServer(url=f"http://127.0.0.1:{unused_tcp_port}/mcp"), tmp_path) as talk:
            await talk.connection.start()
            await everything(talk, tmp_path)
    finally:
        server.terminate()
        await server.wait()
