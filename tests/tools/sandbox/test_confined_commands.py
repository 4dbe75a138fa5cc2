"""What commands can do in the sandbox, what they cannot, and what is said of it: with real commands."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.tools.sandbox.test_ways_out import Outside, kinds, outside
from tests.tools.support import Call
from tui_agent.tools.base import Access, ToolFailure
from tui_agent.tools.files.editing import WriteFile
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.guarded import common_git_folder
from tui_agent.tools.sandbox.home import PIP, cargo_settings, settings_of
from tui_agent.tools.sandbox.sandbox import Kind, Sandbox, SandboxAware, SandboxFolders, SandboxMechanism
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand

__all__ = ["outside"]

NONE = SandboxMechanism("none", "the kernel says no")
GIT = "git -c user.name=x -c user.email=x@x"


class Shell:
    """Commands in the sandbox of a place."""

    def __init__(self, place: Outside, kind: Kind) -> None:
        self.place, self.kind = place, kind
        self.plan = False
        self.sandbox = Sandbox("auto", place.places, offered=SandboxMechanism(kind, ""))
        self.background = BackgroundCommands()
        self.tool = RunCommand(background=self.background, sandbox=self.sandbox, only_reads=lambda: self.plan)
        self.workspace = Workspace(place.project)

    async def run(self, command: str, *, accesses: tuple[Access, ...] | None = None, **more: object) -> str:
        arguments = json.dumps({"command": command, **more})
        granted = self.tool.access(arguments, self.workspace) if accesses is None else accesses
        context = Call(self.workspace, granted, self.place.state / "session")
        return (await self.tool.run(arguments, context)).text


@pytest.fixture(params=kinds())
async def shell(outside: Outside, request: pytest.FixtureRequest) -> AsyncIterator[Shell]:
    found = Shell(outside, request.param)
    yield found
    await found.background.close()
    found.sandbox.close()


async def test_work_goes_on_as_ever_also_after_a_command_that_ends_all_others(shell: Shell) -> None:
    text = await shell.run(
        f"echo new > file.txt; mkdir -p deep/er; {GIT} add file.txt && {GIT} commit -qm two && git log --oneline"
    )
    assert "[exit code 0" in text
    assert " two\n" in text
    assert "new" in await shell.run("cat file.txt; sort file.txt | uniq; ls /usr/bin > /dev/null")
    assert "7\n" in await shell.run('echo "$((3 + 4))" > "$TMPDIR/x"; cat "$TMPDIR/x"')
    assert "7\n" in await shell.run('cat "$TMPDIR/x"')  # it lasts as long as the session
    assert "[exit code 3" in await shell.run("exit 3")
    assert "[ended by signal 9" in await shell.run("kill -9 $$")
    for _ in range(3):
        await shell.run("pkill -9 python; pkill -STOP python; kill -9 -1")
        assert "still here\n" in await shell.run("echo still here")


async def test_what_is_stopped_before_it_starts_does_not_count_as_running(shell: Shell) -> None:
    with shell.sandbox._guarding:  # somebody else looks at guarded files
        call = asyncio.create_task(shell.run("true"))
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.2)  # for a thread that nobody would wait for
    assert shell.sandbox._journal.running == []


async def test_guarded_files_that_it_commits_are_named(shell: Shell) -> None:
    (shell.place.project / ".envrc").write_text("mine")
    assert "guarded files may" not in await shell.run(f"{GIT} add .envrc && {GIT} commit -qm mine")
    text = await shell.run(f"mkdir in; echo evil > in/.envrc; git add in; {GIT} commit -qm x; git reset -q HEAD~1")
    assert "[guarded files may not be what the user knows: in/.envrc is another one in commit " in text
    assert [change.title.split()[0] for change in shell.sandbox.held] == ["in/.envrc"]
    text = await shell.run("git clone -q . clone; cd clone; git checkout -q --detach HEAD~0")
    assert ".envrc is another one in" in text
    later = Sandbox("auto", shell.place.places, offered=SandboxMechanism(shell.kind, ""))
    assert later.held == shell.sandbox.held
    later.accept_held(later.held)
    assert shell.sandbox.held == ()


async def test_a_refusal_says_that_it_is_the_sandboxs(shell: Shell) -> None:
    assert f"it does not show {shell.place.outside}." in await shell.run(f"touch {shell.place.outside}/x")
    text = await shell.run("touch /usr/x")
    assert "[the sandbox may be why it failed (a place it may not touch)" in text
    assert str(shell.place.project) in text
    assert "`outside`" in text
    push = f"git push {shell.place.outside}/repository main"
    assert f"it does not show {shell.place.outside}." in await shell.run(push)
    refused = "fatal: could not read Username for 'https://example.org': terminal prompts disabled"
    assert "(the user's keys and sign-ins are not in it)" in await shell.run(f'echo "{refused}" >&2; exit 128')
    assert "[the sandbox" not in await shell.run("echo Permission denied")
    assert "[the sandbox" not in await shell.run("echo no; false")
    lookup = f"{sys.executable} -c \"import socket; socket.create_connection(('192.0.2.1', 80), 5)\""
    assert "[the sandbox may be why it failed" in await shell.run(lookup)


async def test_a_path_that_it_cannot_see_is_told_and_seen_once_it_is_allowed(shell: Shell) -> None:
    name = shlex.quote(f"{shell.place.outside}/file.txt")
    # A line whose last command did well fails no less to see the file.
    for line in (f"cat {name}", f"cat {name} | head -3", f"{sys.executable} -c 'print(open(\"{name}\").read())'"):
        text = await shell.run(line)
        assert "as it was" not in text
        assert f"it does not show {shell.place.outside}/file.txt." in text, text
        assert "as it was" in await shell.run(line, reads=[f"{shell.place.outside}/file.txt"])
    assert "[the sandbox" not in await shell.run("cat /no/such/file")
    assert "[the sandbox" not in await shell.run(f"{sys.executable} -c 'open(\"nowhere/there\")'")
    assert ("it does not show /tmp." in await shell.run("cat /tmp/nowhere")) == (shell.kind == "landlock")
    assert "it does not show" not in await shell.run("echo '/tmp: not found'") or shell.kind == "landlock"
    text = await shell.run(f"cat {name}; echo x > {name}", reads=[str(shell.place.outside)])
    assert text.startswith("as it was\n")
    assert (shell.place.outside / "file.txt").read_text() == "as it was\n"
    arguments = json.dumps({"command": "true", "reads": [str(shell.place.outside)]})
    assert [access.inside for access in shell.tool.access(arguments, shell.workspace) if access.effect == "read"] == [
        False
    ]


async def test_another_program_of_the_user_cannot_trace_what_keeps_a_command(shell: Shell) -> None:
    (process,) = re.findall(r"as process (\d+)", await shell.run("sleep 9", background=True))
    look = "import os; from tui_agent.tools.sandbox import kernel; kernel.keep_capabilities(()); os.readlink"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", f"{look}('/proc/{process}/cwd')", stderr=PIPE)
    assert b"PermissionError" in (await other.communicate())[1]


async def test_the_home_is_an_empty_one_with_what_git_and_package_managers_need(shell: Shell) -> None:
    home = shell.place.home
    for name, content in {
        ".gitconfig": "[user]\n\tname = A User\n\temail = a@b\n[core]\n\tfsmonitor = evil\n[alias]\n\tx = !evil\n",
        ".npmrc": "registry=https://registry.example/\n//registry.example/:_authToken=SECRET\n",
        ".config/pip/pip.conf": "[global]\nindex-url = https://pypi.example/simple\n"
        "extra-index-url = https://me:SECRET@pypi.example/\n",
        ".cargo/bin/tool": "#!/bin/sh\necho it runs\n",
        ".cargo/credentials.toml": "[registry]\ntoken = 'SECRET'\n",
        ".cargo/config.toml": '[source.crates-io]\nreplace-with = "mirror"\n[registries.mine]\n'
        'index = "sparse+https://x"\ntoken = "SECRET"\n',
        ".some-new-tool/auth.json": "SECRET",
        ".cargo/registry/cache/index-1/old.crate": "old" * 5000,
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    (home / ".cargo/bin/tool").chmod(0o755)
    crates = home / ".cargo/registry/cache/index-1"
    text = await shell.run(
        "cd ~/.cargo/registry/cache/index-1 && echo x > new.crate && wc -c *.crate; echo x > old.crate"
    )
    assert "15000 old.crate" in text
    assert "2 new.crate" in text
    assert (crates / "old.crate").read_text() == "old" * 5000
    assert not (crates / "new.crate").exists()
    text = await shell.run(
        f"git -c safe.directory='*' commit -q --allow-empty -m mine && git log -1 --format=%an; ~/.cargo/bin/tool; "
        f"cat $(find ~ -follow -type f); cat {home}/.some-new-tool/auth.json {home}/.cargo/credentials.toml; "
        "echo y > ~/.cache-of-a-tool; echo $HOME"
    )
    assert "A User\n" in text
    assert "it runs\n" in text
    assert "registry=https://registry.example/" in text
    assert "index-url = https://pypi.example/simple" in text
    assert '"crates-io"."replace-with" = "mirror"' in text
    assert "SECRET" not in text
    assert "evil" not in text
    assert str(home) not in text.splitlines()
    assert "y\n" in await shell.run("cat ~/.cache-of-a-tool")
    assert not (home / ".cache-of-a-tool").exists()


async def test_only_known_variables_come_in(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_TOOLS_LOGIN", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "SENTRY_DSN"):
        monkeypatch.setenv(name, "a SECRET")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:SECRET@pypi.example/")
    monkeypatch.setenv("UV_INDEX_URL", "https://pypi.example/")
    monkeypatch.setenv("CFLAGS", "-O2")
    text = await shell.run("env")
    assert "SECRET" not in text
    assert "CFLAGS=-O2\n" in text
    assert "UV_INDEX_URL=https://pypi.example/\n" in text


async def test_outside_is_outside_and_is_not_said_to_be_confined(shell: Shell) -> None:
    arguments = json.dumps({"command": "true", "outside": True})
    assert shell.tool.access(arguments, shell.workspace) == (Access("run", "true", outside=True),)
    assert shell.tool.preview(arguments, shell.workspace).title == "Run a command outside the sandbox"
    assert not shell.tool.access(json.dumps({"command": "true"}), shell.workspace)[0].outside
    assert "[exit code 0" in await shell.run(f"touch {shell.place.outside}/x", outside=True)
    # What the gate let out of the sandbox is out, as what the user runs is.
    granted = (Access("run", f"touch {shell.place.outside}/y", outside=True),)
    assert "[exit code 0" in await shell.run(f"touch {shell.place.outside}/y", accesses=granted)
    assert {path.name for path in shell.place.outside.iterdir()} >= {"x", "y"}


async def test_a_guarded_file_that_a_command_makes_is_taken_out_again(shell: Shell) -> None:
    project = shell.place.project
    text = await shell.run("echo use evil > .envrc; mkdir -p .vscode .github/workflows; echo x > .vscode/tasks.json")
    assert f"put back: {project}/.vscode" in text or f"put back: {project}/.envrc" in text or "put back" in text
    assert not any((project / name).exists() for name in (".envrc", ".vscode", ".github/workflows"))
    kept = [path.name for path in (shell.place.state / "session" / "withheld").rglob("*")]
    assert {".envrc", "tasks.json"} <= set(kept)
    # What the user let through stays, and what was there is not touched.
    assert "[exit code 0" in await shell.run("echo mine > .envrc", outside=True)
    assert "put back" not in await shell.run("cat .envrc")
    assert (project / ".envrc").read_text() == "mine\n"
    await shell.run("echo more >> .envrc; echo x > AGENTS.md; rm -rf .git/hooks")
    assert (project / ".envrc").read_text() == "mine\n"
    assert (project / "AGENTS.md").read_text() == "Be kind.\n"
    assert (project / ".git" / "hooks").is_dir()


async def test_what_a_background_command_puts_there_is_accepted_with_nothing_else(shell: Shell) -> None:
    project = shell.place.project
    (project / "sub").mkdir()
    text = await shell.run("mkdir sub/.vscode; sleep 100", background=True)
    process = int(re.findall(r"process (\d+)", text)[0])
    assert (project / "sub" / ".vscode").exists()
    await shell.run("echo x > sub/.envrc", outside=True)
    edit = SandboxAware(WriteFile(), shell.sandbox)
    for name in ("a.txt", "sub/.npmrc"):
        arguments = json.dumps({"path": name, "content": "x\n"})
        context = Call(shell.workspace, edit.access(arguments, shell.workspace), shell.place.state / "session")
        await edit.run(arguments, context)
    await StopCommand(shell.background).run(json.dumps({"process": process}), Call(shell.workspace, (), project))
    await shell.background.close()
    assert sorted(path.name for path in (project / "sub").iterdir()) == [".envrc", ".npmrc"]


async def test_what_is_replaced_outside_between_commands_is_guarded_too(shell: Shell) -> None:
    """Commands share their view; replacing a file outside takes the mount that protects it away."""
    git = shell.place.project / ".git"
    for _ in range(3):
        assert "[exit code 0" in await shell.run("true")
        for _ in range(2):  # the second file may get the number of the first
            (git / "new").write_text((git / "config").read_text())
            (git / "new").rename(git / "config")
        shutil.rmtree(git / "hooks", ignore_errors=True)
        (git / "hooks").mkdir()
        before = (git / "config").read_text()
        text = await shell.run("echo '[core] pager = evil' >> .git/config; echo evil > .git/hooks/pre-commit")
        assert (git / "config").read_text() == before
        assert not (git / "hooks" / "pre-commit").exists()
        assert ("Read-only file system" in text) == (shell.kind != "landlock")


async def test_what_is_guarded_in_git_is_there_after_all_was_removed(shell: Shell) -> None:
    git = shell.place.project / ".git"
    before = (git / "config").read_text()
    for line in ("rm -rf .git", "find . -delete", "mv .git deep-down; mkdir .git"):
        await shell.run(line)
        assert (git / "config").read_text() == before


async def test_neither_does_it_come_from_what_was_left_running(shell: Shell) -> None:
    await shell.run("(sleep 0.3; echo x > .envrc; sleep 1000) > /dev/null 2>&1 & echo")
    async with asyncio.timeout(60):
        while not (shell.place.project / ".envrc").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await shell.background.close()
    assert not (shell.place.project / ".envrc").exists()


async def test_in_plan_mode_the_project_is_read_only(shell: Shell) -> None:
    shell.plan = True
    text = await shell.run("cat AGENTS.md; touch new")
    assert "Be kind." in text
    assert "[the sandbox may be why" in text
    assert not (shell.place.project / "new").exists()
    assert "[exit code 0" in await shell.run("echo x > $TMPDIR/y")


async def test_background_commands_are_confined_too(shell: Shell) -> None:
    text = await shell.run(f"touch {shell.place.outside}/x; echo $?; sleep 1000", background=True)
    assert "1\n" in text
    process = next(iter(shell.background.running))
    assert not (shell.place.outside / "x").exists()
    context = Call(shell.workspace, (), shell.place.state / "session")
    stopped = await StopCommand(shell.background).run(json.dumps({"process": process}), context)
    assert "[stopped, with everything it had started]" in stopped.text
    assert "ended" in (await CommandOutput(shell.background).run("{}", context)).text


async def test_commands_share_their_localhost_and_their_processes(shell: Shell) -> None:
    if shell.kind == "landlock":
        pytest.skip("there is no network at all there")
    server = f"{sys.executable} -m http.server 8123 --bind 127.0.0.1"
    await shell.run(server, background=True)
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/AGENTS.md', timeout=10).read())"
    assert "Be kind." in await shell.run(
        f'for i in 1 2 3 4 5; do {sys.executable} -c "{fetch}" && break; sleep 1; done'
    )
    assert "http.server" in await shell.run("ps ax || pgrep -af http.server")


async def test_what_is_left_running_can_be_stopped(shell: Shell) -> None:
    text = await shell.run("sleep 1000 > /dev/null 2>&1 & echo started")
    told = re.search(r"is still running: (\d+); stop_command\(process=(\d+)\)", text)
    assert told is not None, text
    context = Call(shell.workspace, (), shell.place.state / "session")
    stopped = await StopCommand(shell.background).run(json.dumps({"process": int(told[2])}), context)
    assert "is stopped" in stopped.text
    async with asyncio.timeout(60):
        while psutil.pid_exists(int(told[2])):  # noqa: ASYNC110 - processes tell nobody
            await asyncio.sleep(0.01)


async def test_the_network_is_there_where_it_is_allowed(outside: Outside) -> None:
    for kind in kinds():
        sandbox = Sandbox("auto", outside.places, network=("*",), offered=SandboxMechanism(kind, ""))
        connect = f"import socket; socket.create_connection(('127.0.0.1', {outside.facts['ipv4']}), 5)"
        command = json.dumps({"command": f'{sys.executable} -c "{connect}"; touch {outside.outside}/x'})
        context = Call(Workspace(outside.project), (), outside.state / "session")
        text = (await RunCommand(sandbox=sandbox).run(command, context)).text
        sandbox.close()
        assert outside.heard() == ["ipv4"], text
        assert not (outside.outside / "x").exists()


async def test_a_worktree_can_commit_and_a_file_that_claims_to_be_one_opens_nothing(shell: Shell) -> None:
    project, state = shell.place.project, shell.place.state
    tree = shell.place.place / "worktree"
    git(project, "worktree", "add", "-q", str(tree))
    places = SandboxFolders(folders=(tree,), project=tree, program=state, session=state / "session")
    tool = RunCommand(sandbox=Sandbox("auto", places, offered=SandboxMechanism(shell.kind, "")))
    line = f"echo x > y; {GIT} add y && {GIT} commit -qm inner; echo x >> {project}/.git/config"
    text = (await tool.run(json.dumps({"command": line}), Call(Workspace(tree), (), state / "session"))).text
    assert "inner" in git(tree, "log", "--oneline"), text
    assert "\nx\n" not in (project / ".git" / "config").read_text()
    assert common_git_folder(tree) == project / ".git"
    other = shell.place.place / "liar"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {project}/.git/worktrees/worktree\n")
    assert common_git_folder(other) is None


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    places = SandboxFolders(
        folders=(tmp_path,), project=tmp_path, program=tmp_path / "state", session=tmp_path / "state"
    )
    command, workspace = json.dumps({"command": "true", "outside": True}), Workspace(tmp_path)
    for choice, offered, trouble in (
        ("auto", NONE, "the kernel says no"),
        ("off", SandboxMechanism("landlock", ""), ""),
    ):
        sandbox = Sandbox(choice, places, offered=offered)  # type: ignore[arg-type]
        assert (sandbox.confines, sandbox.trouble) == (False, trouble)
        # Outside of what is not there is nothing that would be asked about apart.
        tool = RunCommand(sandbox=sandbox)
        assert not tool.access(command, workspace)[0].outside
        assert tool.preview(command, workspace).title == "Run a command" + (", with no sandbox" if trouble else "")
    with pytest.raises(ToolFailure, match=r"Commands may run in a sandbox only.*the kernel says no"):
        RunCommand(sandbox=Sandbox("required", places, offered=NONE)).access(command, workspace)


@pytest.mark.skipif(not kinds(), reason="there is no sandbox here")
async def test_a_home_as_project_keeps_its_start_files_and_keys(outside: Outside) -> None:
    (outside.home / ".bashrc").write_text("alias x=y\n")
    (outside.home / "work").mkdir()
    session = outside.state / "session"
    places = SandboxFolders(
        folders=(outside.home,), project=outside.home, program=outside.state, session=session, home=outside.home
    )
    line = "echo evil >> .bashrc; echo evil > .zshrc; cat .ssh/id_ed25519; echo work > work/notes.txt"
    for kind in kinds():
        tool = RunCommand(sandbox=Sandbox("auto", places, offered=SandboxMechanism(kind, "")))
        text = (await tool.run(json.dumps({"command": line}), Call(Workspace(outside.home), (), session))).text
        assert "SECRET" not in text
        assert (outside.home / ".bashrc").read_text() == "alias x=y\n"
        assert not (outside.home / ".zshrc").exists()
        assert (outside.home / "work" / "notes.txt").read_text() == "work\n"


async def test_a_link_above_a_guarded_file_opens_nothing(shell: Shell) -> None:
    """What is above a guarded file can be written: not what a link there leads to."""
    outside = shell.place.outside
    (outside / "workflows").mkdir()
    await shell.run(f"ln -s {outside} .github")
    text = await shell.run(
        f"touch {outside}/made .github/made; chmod 777 {outside}; echo still works > own.txt; cat own.txt"
    )
    assert "still works" in text
    assert not (outside / "made").exists()
    assert outside.stat().st_mode & 0o777 != 0o777


def test_what_package_managers_need_comes_in_without_keys() -> None:
    cargo = """
        source.crates-io.replace-with = "own"
        net = { retry = 3, git-fetch-with-cli = true }
        alias.b = "build"
        [registries]
        own = { index = "https://me:word@x.example/", token = "one" }
        other = { index = "sparse+https://x.example/" }
        """
    assert list(cargo_settings(cargo)) == [
        '"source"."crates-io"."replace-with" = "own"',
        '"registries"."other"."index" = "sparse+https://x.example/"',
        '"net"."retry" = 3',
        '"net"."git-fetch-with-cli" = true',
    ]
    pip = (
        "[global]\nindex-url = https://me:word@x.example/\nextra-index-url:\n  https://y.example/?a=b\n"
        "  https://me:word@z.example/\n  //z/:_authToken=word\nuser = yes\n  word\n"
    )
    assert list(settings_of(PIP, pip)) == ["[global]", "extra-index-url:", "    https://y.example/?a=b"]
