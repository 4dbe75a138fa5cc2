"""The program starts no program that a command could have put there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui_agent.settings import ToolServer
from tui_agent.system import programs
from tui_agent.system.programs import find_program, is_written, keep_out_of, search_path
from tui_agent.tools.mcp.configuration import ConfiguredServer, ServerSwitches
from tui_agent.tui.terminal.editor import EditorFailure, editor_command


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = set(programs._written)
    yield
    programs._written.clear()
    programs._written.update(before)


def planted(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\ntouch PWNED\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_a_program_of_the_project_is_never_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "bin"
    place = project / ".venv" / "bin"
    for name in ("git", "rg", "uvx", "an-editor"):
        planted(place, name)
    link = tmp_path / "links"
    link.mkdir()
    (link / "uvx").symlink_to(place / "uvx")
    (tmp_path / "venv").symlink_to(place)
    own = planted(elsewhere, "rg")
    path = os.pathsep.join(map(str, (place, tmp_path / "venv", link, "relative", elsewhere)))
    monkeypatch.setenv("PATH", path)
    assert find_program("git") == str(place / "git")
    keep_out_of([project])
    assert find_program("git") is None
    assert find_program("uvx") is None
    assert find_program("rg") == str(own)
    assert search_path(path) == f"{link}{os.pathsep}{elsewhere}"
    assert is_written(link / "uvx")
    with pytest.raises(EditorFailure, match="where commands may write"):
        editor_command({"EDITOR": "an-editor --wait", "PATH": path})


def test_a_server_whose_file_changed_is_asked_about_again(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    script = planted(project / "tools", "server.py")
    keep_out_of([project])
    theirs = ConfiguredServer("theirs", ToolServer(command="python3", args=("tools/server.py",)), "project", project)
    mine = ConfiguredServer("mine", ToolServer(command="./tools/server.py"), "user", project)
    choices = ServerSwitches(home)
    assert choices.is_new(theirs)
    choices.turn(theirs, on=True)
    assert choices.is_on(theirs)
    assert choices.is_on(mine)
    script.write_text("#!/bin/sh\necho evil\n")
    for found in (choices, ServerSwitches(home)):
        assert [found.is_on(each) for each in (theirs, mine)] == [False, False]
        assert [found.is_new(each) for each in (theirs, mine)] == [True, True]
    choices.turn(mine, on=True)
    assert ServerSwitches(home).is_on(mine)


@pytest.mark.parametrize(
    ("command", "args", "changed"),
    [
        ("npm", ("run", "mcp"), "package.json"),
        ("npm", ("run", "mcp"), "tools/server.js"),
        ("make", ("serve",), "Makefile"),
        ("python3", ("-m", "tools.server"), "tools/server.py"),
        ("python3", ("-m", "tools"), "tools/__main__.py"),
        ("bash", ("-c", "exec node ./tools/server.js"), "tools/server.js"),
        ("node", ("tools/server.js", "--config", "tools/config.json"), "tools/config.json"),
        ("uv", ("--directory", "tools", "run", "server.py"), "tools/server.py"),
        ("uv", ("--directory=tools", "run", "server.py"), "tools/server.py"),
        ("fastmcp", ("run", "tools/server.py:app"), "tools/server.py"),
        ("uvicorn", ("tools.server:app",), "tools/server.py"),
        ("node", ("-e", "require('./tools/server')"), "tools/server.js"),
    ],
)
def test_a_server_is_bound_to_what_it_runs_first(
    tmp_path: Path, command: str, args: tuple[str, ...], changed: str
) -> None:
    project = tmp_path / "project"
    for name in ("Makefile", "package.json", *(f"tools/{each}" for each in ("__main__.py", "server.py", "server.js"))):
        planted(project / Path(name).parent, Path(name).name)
    (project / "package.json").write_text('{"scripts": {"mcp": "node tools/server.js"}}')
    (project / "tools" / "config.json").write_text("{}")
    (project / "other.py").write_text("")
    keep_out_of([project])
    server = ConfiguredServer("theirs", ToolServer(command=command, args=args), "project", project)
    choices = ServerSwitches(tmp_path / "home")
    choices.turn(server, on=True)
    (project / "other.py").write_text("changed")
    assert choices.is_on(server)
    (project / changed).write_text((project / changed).read_text() + " ")
    assert [choices.is_on(server), choices.is_new(server)] == [False, True]
