"""What is put back is put back where it was: not where a program, still running, leads meanwhile."""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import chdir
from pathlib import Path

import pytest

from tests.tools.world import tree
from tui_agent.system.regular import remove_tree
from tui_agent.tools.gate.read_first import run_by_themselves, scripts_in
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.guard import Guard, contents
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.sandbox import Kind, Sandbox, SandboxFolders, SandboxMechanism

LIBC = ctypes.CDLL(None, use_errno=True)
EXCHANGE, AT_FDCWD = 2, -100
FINDER = Finder(Path("/no/home"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def write(folder: Path, text: str, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def guarding(*folders: Path) -> Guard:
    return Guard(FINDER, folders, frozen=False)


def test_a_tree_comes_back_byte_for_byte(project: Path, tmp_path: Path) -> None:
    write(project, "{}", ".vscode/deep/a.json")
    (project / ".vscode/deep/a.json").chmod(0o750)
    (project / ".vscode/link").symlink_to("/etc/passwd")
    write(project, "x\n", ".envrc")
    os.utime(project / ".vscode/deep", (5, 5))
    before = tree(project / ".vscode")
    guard = guarding(project)
    (project / ".vscode").rename(project / "gone")
    write(project, "evil", "gone/deep/a.json")
    (project / ".envrc").unlink()
    (project / ".mcp.json").mkdir()
    aside = tmp_path / "aside"
    assert sorted(path.name for path in guard.take_back(aside)) == [".envrc", ".mcp.json", ".vscode"]
    assert tree(project / ".vscode") == before
    assert (project / ".envrc").read_text() == "x\n"
    assert (aside / ".mcp.json").is_dir()
    assert guard.take_back(aside) == []


def sandbox_of(project: Path, kind: Kind) -> Sandbox:
    place = project.parent
    places = SandboxFolders(folders=(project,), project=project, program=place, session=place, home=place)
    return Sandbox("auto", places, offered=SandboxMechanism(kind, ""))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_a_command_had_done_when_another_began_does_not_come_back(project: Path, order: tuple[int, int]) -> None:
    (project / "in/.vscode").mkdir(parents=True)
    write(project, "mine", "in/.npmrc", ".git/config")
    sandbox = sandbox_of(project, "landlock")
    first = sandbox.guard()
    write(project, "evil", "in/.envrc", "in/.npmrc")
    (project / ".git").rename(project / "git")
    (project / ".git").mkdir()
    guards = first, sandbox.guard()
    allowed = sandbox.guard(confines=False)
    accepted = ["in/.vscode/allowed.json", "in/mise.toml", "mise.toml"]
    write(project, "new", *accepted, "in/.vscode/evil.json", "in/.mcp.json")
    sandbox.accept(allowed, [f"{project}/{name}" for name in accepted])
    by_then = []
    for number in order:
        assert project / "mise.toml" not in sandbox.take_back(guards[number])[0]
        by_then.append((project / "in/.npmrc").read_text())
    # What was there when a command began stays at its end, while whatever wrote it runs.
    assert by_then == (["mine", "mine"] if order[0] == 0 else ["evil", "mine"])
    left = {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()}
    assert left == {"in/.npmrc": "mine", ".git/config": "mine", **dict.fromkeys(accepted, "new")}
    sandbox.close()


def test_what_another_program_has_replaced_is_named(project: Path) -> None:
    """With the file goes the mount that kept the command from changing it."""
    write(project, "mine", ".envrc", ".npmrc", "mise.toml", "new")
    sandbox = sandbox_of(project, "namespaces")
    guard, allowed = sandbox.guard(), sandbox.guard(confines=False)
    (project / "new").replace(project / ".envrc")
    write(project, "by the user, where it stands", ".npmrc")
    write(project, "by the user's leave", "mise.new")
    (project / "mise.new").replace(project / "mise.toml")
    sandbox.accept(allowed, [f"{project}/mise.toml"])
    changed, (told,) = sandbox.take_back(guard)
    assert changed == []
    assert told.title.startswith(f"{project}/.envrc was replaced")
    assert sandbox.held == (told,)
    sandbox.close()


def test_what_is_noted_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path, "x", "real/file")
    (tmp_path / "link").symlink_to("real")
    assert contents(tmp_path / "link" / "file") == {}
    found = contents(tmp_path / "link")
    assert found is not None
    assert found["."].content == "real"


def test_a_new_link_on_the_way_is_taken_out_and_an_old_one_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / ".config").symlink_to("old")
    guard = guarding(tmp_path)
    (tmp_path / "evil").mkdir()
    (tmp_path / ".github").symlink_to("evil")
    assert guard.take_back(tmp_path / "aside") == [tmp_path / ".github"]
    assert not os.path.lexists(tmp_path / ".github")
    assert (tmp_path / ".config").is_symlink()


@pytest.mark.skipif(not hasattr(LIBC, "renameat2"), reason="it cannot be exchanged at once here")
def test_a_link_in_the_way_leads_nowhere(project: Path, tmp_path: Path) -> None:
    """A program left running makes the folder above what is guarded now a folder, now a link to the outside."""
    outside = tmp_path / "outside"
    write(outside, "mine\n", "workflows/precious.yml")
    guard = guarding(project)
    (project / ".github").mkdir()
    (project / "link").symlink_to(outside)
    before, over = tree(outside), False

    def swap() -> None:
        while not over:
            LIBC.renameat2(AT_FDCWD, bytes(project / ".github"), AT_FDCWD, bytes(project / "link"), EXCHANGE)

    other = threading.Thread(target=swap)
    other.start()
    try:
        end = time.monotonic() + 0.3
        while time.monotonic() < end and tree(outside) == before:
            for number in range(20):
                guard.take_back(tmp_path / "aside" / str(number))
    finally:
        over = True
        other.join()
    assert tree(outside) == before


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


RUN_BY_TOOLS = (
    *(".envrc", ".vscode/tasks.json", ".devcontainer/devcontainer.json", ".zed/tasks.json", ".cargo/config"),
    *(".gdbinit", ".pdbrc", "lefthook.yml", "mise.toml", ".justfile", "my.code-workspace", ".GitHub/Workflows/x"),
    *("CLAUDE.md", ".git/hooks/pre-commit", ".git/config.worktree", ".git/info/attributes", ".hg/hgrc"),
    *(".git/remotes/origin", ".git/branches/origin", ".git/lazygit.yml", ".lazygit.yml", ".sops.yaml"),
    *(".direnv/flake-profile-1.rc", ".config/wt.toml", "jupyter_server_config.py", ".tui-agent/config.json"),
    *(".ropeproject/config.py", ".python-version", "commitlint.config.js", "forge.yaml", ".trunk/trunk.yaml"),
    *("buildServer.json", ".lsp/config.edn", ".github/lsp.json", "bin/hermit.hcl", "global.json", ".mux/init"),
    *(".repo/repo/main.py", ".gclient", "matplotlibrc", ".taskmaster/config.json", "jupytext.py", ".dvc/config"),
    *(".ruby-version", ".miserc.toml", "erlang_ls.config", ".tangled/workflows/x.yml", "CODEOWNERS", "codex.md"),
)


def test_what_a_tool_runs_by_itself_goes_at_every_depth(project: Path, tmp_path: Path) -> None:
    places = [project, project / "a/deep/folder", project / "nested"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        git(place, "init", "-q")
    before, guard = tree(project), guarding(project)
    for number, name in enumerate(RUN_BY_TOOLS):
        for place in places:
            write(place, "evil", name, "Makefile")
        assert len(guard.take_back(tmp_path / "aside" / str(number))) == len(places), name
        left = {path for path, _ in tree(project).items() ^ before.items()}
        assert {Path(path).name for path in left if Path(path).is_file()} == {"Makefile"}, name


def test_what_a_tool_runs_by_itself_and_is_there_comes_back_at_every_depth(project: Path, tmp_path: Path) -> None:
    names = (".npmrc", "sub/.npmrc", "sub/sub/.husky/pre-commit", "inner/AGENTS.md")
    write(project, "mine\n", *names)
    git(project, "init", "-q", "module")
    git(project, "init", "-q")
    (project / ".git/modules/libs").mkdir(parents=True)
    (project / "module/.git").rename(project / ".git/modules/libs/module")
    inner = project / ".git/modules/libs/module/config"
    guard, kept = guarding(project), inner.read_text()
    write(project, "evil\n", *names[:3])
    (project / "inner/AGENTS.md").unlink()
    inner.write_text("[core]\n\tfsmonitor = evil\n")
    assert len(guard.take_back(tmp_path / "aside")) == 5
    assert {(project / name).read_text() for name in names} == {"mine\n"}
    assert inner.read_text() == kept


def test_a_repository_that_runs_nothing_stays_and_so_does_what_moves_with_its_folder(
    project: Path, tmp_path: Path
) -> None:
    write(project, "x\n", "old/.npmrc")
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one")
    guard = guarding(project)
    git(project, "clone", "-q", ".", "copy")
    git(project, "worktree", "add", "-q", "tree")
    (project / "old").rename(project / "new")
    assert guard.take_back(tmp_path / "aside") == []
    git(project / "copy", "config", "core.fsmonitor", "evil")
    guard = guarding(project)
    git(project, "clone", "-q", "copy", "second")
    git(project / "second", "config", "core.fsmonitor", "evil")
    write(project, f"gitdir: {project}/second/.git\n", "linked/.git")
    taken = guard.take_back(tmp_path / "aside")
    assert sorted(taken) == [project / "linked/.git", project / "second/.git"]


def test_neither_pipes_nor_sockets_nor_closed_folders_stay(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    write(project, "mine\n", ".husky/pre-commit")
    guard = guarding(project)
    os.mkfifo(project / ".mcp.json")
    os.mkfifo(project / ".git/index")
    (project / ".ignore").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one, chdir(project):
        one.bind(".envrc")
    write(project, "evil\n", ".husky/pre-commit")
    (project / ".husky").chmod(0)
    (project / "closed/.vscode").mkdir(parents=True)
    (project / "closed").chmod(0)
    taken = guard.take_back(tmp_path / "aside")
    gone = {".mcp.json", ".envrc", ".husky", "closed/.vscode", ".git/index", ".ignore"}
    assert {str(path.relative_to(project)) for path in taken} == gone
    assert (project / ".husky/pre-commit").read_text() == "mine\n"
    (project / "closed").chmod(0o700)
    assert list((project / "closed").iterdir()) == []


def test_through_no_link_in_a_git_folder_git_writes_elsewhere(project: Path, tmp_path: Path) -> None:
    """`git commit` follows a link in the place of its message or its reflog, and so overwrites what it leads to."""
    git(project, "init", "-q")
    git(project, "init", "-q", "deep/nested")
    git(project, "init", "-q", "--bare", "bare.git")
    places = [project / ".git", project / "deep/nested/.git", project / "bare.git"]
    for place in places:
        (place / "logs/refs/heads").mkdir(parents=True)
    guard = guarding(project)
    links = ("COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads/main", "refs/heads/x", "objects/info/alternates")
    for place in places:
        for name in links:
            (place / name).symlink_to("/no/home/.bashrc")
        os.mkfifo(place / "refs/heads/y")
        os.link(place / "config", place / "MERGE_MSG")
    taken = guard.take_back(tmp_path / "aside")
    assert set(taken) == {place / name for place in places for name in (*links, "refs/heads/y", "config")}
    assert not any(os.path.lexists(place / name) for place in places for name in links)
    assert {(place / "config").stat().st_nlink for place in places} == {1}


def test_what_the_files_of_a_repository_lead_to_is_guarded(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "old")
    shutil.rmtree(tmp_path / "old/.git/hooks")
    (tmp_path / "old/.git/hooks").symlink_to("../../hooks")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "harmless").mkdir()
    guard = guarding(tmp_path)
    write(tmp_path, "evil", "hooks/pre-commit")
    git(tmp_path, "clone", "-q", "old", "new")
    shutil.rmtree(tmp_path / "new/.git/hooks")
    (tmp_path / "new/.git/hooks").symlink_to("../../harmless")
    git(tmp_path / "old", "config", "core.hooksPath", "../harmless")
    taken = guard.take_back(tmp_path / "aside")
    assert set(taken) == {tmp_path / name for name in ("hooks", "new/.git", "old/.git/config")}
    assert not (tmp_path / "hooks/pre-commit").exists()
    # What the command named stays: it may be anything of the user's.
    assert (tmp_path / "harmless").is_dir()


def test_the_scripts_of_hooks_are_guarded(tmp_path: Path) -> None:
    project = tmp_path / "a project"
    write(project, "mine\n", "scripts/format.sh", "check.py", "scripts/other.sh")
    commands = ('"$CLAUDE_PROJECT_DIR"/scripts/format.sh --all', "python3 check.py", "ruff check src")
    scripts = scripts_in(commands, Workspace(project), project)
    assert scripts == [project / "scripts/format.sh", project / "check.py"]
    finder = Finder(Path("/no/home"), [*scripts, project / ".env"])
    where_mounts_hold, where_none_do = (Guard(finder, [project], frozen=frozen) for frozen in (True, False))
    write(project, "evil\n", "scripts/format.sh", "check.py", "scripts/other.sh", ".env", "other.env")
    assert sorted(where_mounts_hold.take_back(tmp_path / "aside")) == [project / ".env", scripts[0]]
    assert where_none_do.take_back(tmp_path / "aside") == [project / "check.py"]
    assert (project / "check.py").read_text() == "mine\n"
    assert (project / "other.env").exists()


def test_scripts_that_run_by_themselves_are_guarded_too(project: Path) -> None:
    git(project, "init", "-q")
    for name, text in {
        ".git/hooks/pre-commit": "#!/bin/sh\nexec ./scripts/check $@\n",
        ".envrc": "source_env scripts/env.sh\nwatch_file data.txt\ndotenv\n dotenv_if_exists a.env\nuse flake\n",
        "mise.toml": "[env]\n_.file = 'conf/b.env'\n",
        ".pre-commit-config.yaml": "- entry: python tools/hook.py\n  args: [-c, ./x.yaml]\n",
        ".vscode/tasks.json": '{"command": "bash", "args": ["tools/open"]}',
        "Makefile": "all:\n\tsh tools/build.sh\n",
        "AGENTS.md": "run `sh tools/build.sh`",
    }.items():
        write(project, text, name)
    scripts = ("scripts/check", "scripts/env.sh", "tools/hook.py", "tools/open")
    write(project, "", *scripts, "x.yaml", "data.txt", "tools/build.sh")
    read = (".env", "a.env", "conf/b.env", "flake.nix", "flake.lock")
    found = run_by_themselves(project, Workspace(project))
    assert sorted(found) == sorted(project / name for name in (*scripts, *read))


CLOSING = """
import os, sys
from pathlib import Path
from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.kernel import keep_capabilities

keep_capabilities(())
left = dict(line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Cap"))
print(*(name for name, mask in left.items() if int(mask, 16) and (os.geteuid() == 0 or name != "CapBnd:")))
project, finder = Path(sys.argv[1], "project"), Finder(Path("/no/home"))
(project / "in").mkdir(parents=True)
(project / "in/.envrc").write_text("mine")
guard = Guard(finder, [project], frozen=False)
for name in ("new", "other"):
    (project / name).mkdir()
    (project / name / ".envrc").write_text("evil")
(project / "in/.envrc").unlink()
(project / "other/.envrc").chmod(0)
(project / "new").chmod(0o500)
(project / "in").chmod(0o500)
guard.take_back(Path(sys.argv[1], "aside"))
print(sorted(str(path.relative_to(project)) for path in project.rglob(".envrc")), (project / "in/.envrc").read_text())
print(oct((project / "new").stat().st_mode), Guard(finder, [project], frozen=False).whole)
(project / "in/.envrc").chmod(0)
print(Guard(finder, [project], frozen=False).whole)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_what_a_command_closed_to_its_owner_is_put_back(tmp_path: Path) -> None:
    """For a user whom modes hold back, as root without its capabilities is."""
    told = subprocess.run([sys.executable, "-c", CLOSING, tmp_path], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == ["", "['in/.envrc'] mine", "0o40500 True", "False"]


def test_what_is_too_much_to_be_restored_must_not_change(tmp_path: Path) -> None:
    write(tmp_path, "", *(f"deep/er/.vscode/{number}" for number in range(400)))
    assert f"{tmp_path}/deep/er/.vscode" in Guard(FINDER, [tmp_path], frozen=True).fixed
    assert not guarding(tmp_path).whole


def test_thousands_of_folders_in_each_other_are_no_trouble(project: Path, tmp_path: Path) -> None:
    guard = guarding(project)
    with chdir(project):
        for _ in range(2_100):
            Path("d").mkdir()
            os.chdir("d")
    write(project, "evil", ".envrc")
    assert guard.take_back(tmp_path / "aside") == [project / ".envrc"]
    remove_tree(project)
    assert not project.exists()


EVIL = "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = evil\n"


def bare(place: Path, config: str = EVIL) -> None:
    """Make a folder a git folder."""
    for name in ("objects", "refs"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "config").write_text(config)


def test_a_repository_among_gits_own_files_goes(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    guard = guarding(project)
    inside = [project / ".git" / name / "r" for name in ("objects", "lfs", "logs", "refs")]
    for place in inside:
        git(project, "init", "-q", str(place))
    assert guard.take_back(tmp_path / "aside") == []
    for place in inside:
        git(place, "config", "core.fsmonitor", "evil")
    assert sorted(guard.take_back(tmp_path / "aside")) == sorted(place / ".git" for place in inside)


def test_a_folder_that_becomes_a_repository_keeps_what_is_the_users(project: Path, tmp_path: Path) -> None:
    write(project, "mine\n", "src/a.py")
    guard = guarding(project)
    bare(project)
    bare(project / "src")
    assert sorted(guard.take_back(tmp_path / "aside")) == [project, project / "src"]
    assert not any(place.exists() for place in (project / "HEAD", project / "config", project / "src/HEAD"))
    assert (project / "src/a.py").read_text() == "mine\n"


def test_a_harmless_repository_hides_nothing_below_it(project: Path, tmp_path: Path) -> None:
    guard = guarding(project)
    git(project, "init", "-q", "--bare", ".")
    git(project, "init", "-q", "x")
    git(project / "x", "config", "core.fsmonitor", "evil")
    write(project, "evil\n", ".envrc")
    assert sorted(guard.take_back(tmp_path / "aside")) == [project / ".envrc", project / "x/.git"]
    assert (project / "HEAD").exists()


def test_a_repository_whose_settings_lie_elsewhere_is_found(project: Path, tmp_path: Path) -> None:
    module = project / ".git/modules/m"
    git(project, "init", "-q")
    bare(module, "[core]\n\tworktree = ../../../m\n")
    guard = guarding(project)
    bare(project / "store")
    (project / "store/HEAD").unlink()
    write(project, "ref: refs/heads/main\n", "new/HEAD")
    write(project, "../store\n", "new/commondir")
    (module / "refs").rmdir()
    write(module, "../../../store\n", "commondir")
    assert sorted(guard.take_back(tmp_path / "aside")) == [module / "commondir", project / "new"]
    assert not (project / "new/commondir").exists()


def test_what_the_settings_of_a_repository_name_is_guarded(project: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    write(project, "mine\n", *(f"tools/{name}" for name in ("hooks/pre-commit", "clean.sh", "diff.sh", "other.sh")))
    write(project, "[diff]\n\texternal = tools/diff.sh\n", "tools/more")
    git(project, "config", "core.hooksPath", "tools/hooks")
    git(project, "config", "filter.x.clean", "sh tools/clean.sh %f")
    git(project, "config", "include.path", "../tools/more")
    guard = guarding(project)
    changed = ("hooks/post-commit", "clean.sh", "more", "diff.sh", "other.sh")
    write(project / "tools", "evil\n", *changed)
    assert len(guard.take_back(tmp_path / "aside")) == 4
    assert not (project / "tools/hooks/post-commit").exists()
    assert [(project / "tools" / name).read_text() for name in ("clean.sh", "other.sh")] == ["mine\n", "evil\n"]
    # A link in the place of a folder on the way goes.
    guard = guarding(project)
    (project / "tools").rename(project / "other")
    (project / "tools").symlink_to("other")
    write(project, "evil\n", "other/clean.sh")
    assert guard.take_back(tmp_path / "aside") == [project / "tools"]
    assert not os.path.lexists(project / "tools")


def test_more_folders_than_are_looked_into_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.tools.sandbox.guarded.MAX_FOLDERS", 20)
    guard = guarding(tmp_path)
    assert guard.whole
    for number in range(30):
        (tmp_path / f"f{number}").mkdir()
    guard.take_back(tmp_path / "aside")
    assert not guard.whole
