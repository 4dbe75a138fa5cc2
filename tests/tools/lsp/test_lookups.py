"""Looking names up, and what an edit breaks elsewhere, in a real session with a small language server."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.tools.lsp import words_server
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.session import Session
from tui_agent.settings import GivenValue
from tui_agent.tools.lsp import programs, servers
from tui_agent.tools.lsp.programs import TYPESCRIPT, Program, Project

ONE, TWO = "häuser = 1\nbooks = 2\n", "import one\nall = häuser + books\n"


@pytest.fixture
async def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    server = tmp_path / "bin/words-server"
    server.parent.mkdir()
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{words_server.__file__}"\n')
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(server.parent), prepend=os.pathsep)
    known = ((programs.Program((server.name,), ("python",)),),)
    for module in (programs, servers):
        monkeypatch.setattr(module, "PROGRAMS", known)
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    project = tmp_path / "project"
    project.mkdir()
    (project / "one.py").write_text(ONE)
    (project / "two.py").write_text(TWO)
    settings: dict[str, GivenValue] = {"model.id": "offline", "diagnostics.wait_s": 60.0, "permissions.sandbox": "off"}
    async with talking(tmp_path, settings) as opened:
        yield opened


def asking(tool: str, /, **arguments: object) -> str:
    return f"call call_tool {json.dumps({'name': tool, 'arguments': arguments})}"


def texts(seen: list[events.AgentEvent]) -> str:
    return "\n".join(event.text for event in seen if isinstance(event, events.ToolFinished))


async def test_names_are_looked_up_by_tools_that_have_to_be_found(session: Session) -> None:
    assert "references" in texts(await say(session, 'call find_tool query="all uses of a function"'))
    offered = {tool.name for tool in session.agent.tools()}
    assert {"find_tool", "call_tool"} <= offered
    assert offered.isdisjoint({"definition", "references", "symbols"})
    text = texts(await say(session, asking("definition", path="two.py", line=2, name="books")))
    assert "nowhere" in text, "the server sees only what it was given"
    await say(session, 'write "# Notes" to notes.md')
    text = texts(await say(session, asking("symbols", path="one.py")))
    assert "1: variable häuser\n2: variable books" in text
    assert "one.py:2: books = 2" in texts(await say(session, asking("definition", path="two.py", line=2, name="books")))
    text = texts(await say(session, asking("references", path="two.py", line=2, name="books")))
    assert "one.py:2: books = 2" in text
    assert "two.py:2: all = häuser + books" in text
    text = texts(await say(session, asking("references", path="one.py", line=2, name="häuser")))
    assert "It stands in lines 1" in text
    assert "No language server knows" in texts(await say(session, asking("symbols", path="notes.md")))


async def test_files_that_use_the_edited_one_are_looked_at_too(session: Session) -> None:
    changed = 0

    def count() -> None:
        nonlocal changed
        changed += 1

    languages = session.agent.languages
    assert languages is not None
    languages.on_change = count
    text = texts(await say(session, 'replace "books" with "book" in one.py'))
    assert "[1 new problem since this edit" in text
    assert "two.py:2:16: books is not defined (words-server undefined)" in text
    assert changed
    reply = await run_command(session.agent, "/diagnostics")
    assert reply.title.startswith("1 problem ")
    assert "words-server: running" in reply.text
    text = texts(await say(session, 'replace "book = 2" with "book = 3" in one.py'))
    assert "new problem" not in text, "it was there before"
    (Path(session.agent.folder) / "two.py").write_text("all = nothing\n")
    text = texts(await say(session, 'replace "book = 3" with "book = 4" in one.py'))
    assert "new problem" not in text, "somebody else broke that"
    text = texts(await say(session, 'replace "book = 4" with "book = 5 + other" in one.py'))
    assert "one.py:2:12: other is not defined" in text


@pytest.mark.parametrize("trusted", [True, False])
def test_a_language_server_runs_nothing_of_a_project_that_is_not_trusted(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "usr/bin"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(programs))
    project = Project(tmp_path / "project", trusted)
    packages = project.root / ".venv/lib/python3.11/site-packages"
    assert project.configuration("python") is None
    packages.mkdir(parents=True)
    where = {"pythonPath": str(project.root / ".venv/bin/python")}
    assert project.configuration("python") == (where if trusted else {"analysis": {"extraPaths": [str(packages)]}})
    assert project.configuration("ruff") is None
    rust, script = Program(("rust-analyzer",), ("rust",)), Program((TYPESCRIPT, "--stdio"), ("typescript",))
    unrun = {"procMacro": {"enable": False}, "cargo": {"buildScripts": {"enable": False}}}
    assert project.options(rust) == {"checkOnSave": False, **({} if trusted else unrun)}
    assert project.options(Program(("clangd",), ("c",))) == {}
    if trusted:
        assert project.options(script) == {}
    else:
        with pytest.raises(FileNotFoundError, match="only if you trust it"):
            project.options(script)
    (programs / "tsc").touch(mode=0o755)
    library = str(tmp_path.resolve() / "usr/lib")
    assert project.options(script) == {"tsserver": {"fallbackPath" if trusted else "path": library}}
    own = project.root / ".venv/bin/clangd"
    own.parent.mkdir()
    own.touch(mode=0o755)
    assert project.path_of("clangd") == (str(own) if trusted else None)
