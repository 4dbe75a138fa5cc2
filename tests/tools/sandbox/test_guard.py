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
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxFolders, SandboxMechanism

LIBC = ctypes.CDLL(None, use_errno=True)
EXCHANGE, AT_FDCWD = 2, -100
FINDER = Finder(Path("/no/home"))


def test_a_tree_comes_back_byte_for_byte(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".vscode" / "deep").mkdir(parents=True)
    (project / ".vscode" / "deep" / "a.json").write_text("{}")
    (project / ".vscode" / "deep" / "a.json").chmod(0o750)
    (project / ".vscode" / "link").symlink_to("/etc/passwd")
    (project / ".envrc").write_text("x\n")
    os.utime(project / ".vscode" / "deep", (5, 5))
    before = tree(project / ".vscode")
    guard = Guard(FINDER, [project], frozen=False)
    (project / ".vscode").rename(project / "gone")
    (project / "gone" / "deep" / "a.json").write_text("evil")
    (project / ".envrc").unlink()
    (project / ".mcp.json").mkdir()
    aside = tmp_path / "aside"
    assert sorted(path.name for path in guard.take_back(aside)) == [".envrc", ".mcp.json", ".vscode"]
    assert tree(project / ".vscode") == before
    assert (project / ".envrc").read_text() == "x\n"
    assert (aside / ".mcp.json").is_dir()
    assert guard.take_back(aside) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_a_command_had_done_when_another_began_does_not_come_back(tmp_path: Path, order: tuple[int, int]) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "in" / ".vscode").mkdir(parents=True)
    (project / "in" / ".npmrc").write_text("mine")
    (project / ".git" / "config").write_text("mine")
    places = SandboxFolders(folders=(project,), project=project, program=tmp_path, session=tmp_path, home=tmp_path)
    sandbox = Sandbox("auto", places, offered=SandboxMechanism("landlock", ""))
    first = sandbox.guard()
    (project / "in" / ".envrc").write_text("evil")
    (project / "in" / ".npmrc").write_text("evil")
    (project / ".git").rename(project / "git")
    (project / ".git").mkdir()
    guards = first, sandbox.guard()
    allowed = sandbox.guard(confines=False)
    for name in ("in/.vscode/allowed.json", "in/.vscode/evil.json", "in/.mcp.json", "in/mise.toml"):
        (project / name).write_text("new")
    sandbox.accept(allowed, [f"{project}/in/.vscode/allowed.json", f"{project}/in/mise.toml"])
    for number in order:
        sandbox.take_back(guards[number])
    left = {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()}
    accepted = {"in/.vscode/allowed.json": "new", "in/mise.toml": "new"}
    assert left == {"in/.npmrc": "mine", ".git/config": "mine", **accepted}
    sandbox.close()


def test_what_another_program_has_replaced_is_named(tmp_path: Path) -> None:
    """With the file goes the mount that kept the command from changing it."""
    project = tmp_path / "project"
    project.mkdir()
    for name in (".envrc", ".npmrc", "mise.toml", "new"):
        (project / name).write_text("mine")
    places = SandboxFolders(folders=(project,), project=project, program=tmp_path, session=tmp_path, home=tmp_path)
    sandbox = Sandbox("auto", places, offered=SandboxMechanism("namespaces", ""))
    guard, allowed = sandbox.guard(), sandbox.guard(confines=False)
    (project / "new").replace(project / ".envrc")
    (project / ".npmrc").write_text("by the user, where it stands")
    (project / "mise.new").write_text("by the user's leave")
    (project / "mise.new").replace(project / "mise.toml")
    sandbox.accept(allowed, [f"{project}/mise.toml"])
    assert sandbox.take_back(guard) == []
    (told,) = sandbox.held_by_git(guard)
    assert told.title.startswith(f"{project}/.envrc was replaced")
    assert sandbox.held == (told,)
    sandbox.close()


def test_what_is_noted_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert contents(tmp_path / "link" / "file") == {}
    found = contents(tmp_path / "link")
    assert found is not None
    assert found["."].content == "real"


def test_a_new_link_on_the_way_is_taken_out_and_an_old_one_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / ".config").symlink_to("old")
    guard = Guard(FINDER, [tmp_path], frozen=False)
    (tmp_path / "evil").mkdir()
    (tmp_path / ".github").symlink_to("evil")
    assert guard.take_back(tmp_path / "aside") == [tmp_path / ".github"]
    assert not os.path.lexists(tmp_path / ".github")
    assert (tmp_path / ".config").is_symlink()


@pytest.mark.skipif(not hasattr(LIBC, "renameat2"), reason="it cannot be exchanged at once here")
def test_a_link_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A program left running makes the folder above what is guarded now a folder, now a link to the outside."""
    outside, project = tmp_path / "outside", tmp_path / "project"
    (outside / "workflows").mkdir(parents=True)
    (outside / "workflows" / "precious.yml").write_text("mine\n")
    project.mkdir()
    guard = Guard(FINDER, [project], frozen=False)
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


def test_what_a_tool_runs_by_itself_goes_at_every_depth(tmp_path: Path) -> None:
    project = tmp_path / "project"
    places = [project, project / "a" / "deep" / "folder", project / "nested"]
    for place in places:
        place.mkdir(parents=True)
        git(place, "init", "-q")
    before = tree(project)
    guard = Guard(FINDER, [project], frozen=False)
    for number, name in enumerate(RUN_BY_TOOLS):
        for place in places:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("evil")
            (place / "Makefile").write_text("all: # the project's own\n")
        assert len(guard.take_back(tmp_path / "aside" / str(number))) == len(places), name
        left = {path for path, _ in tree(project).items() ^ before.items()}
        assert {Path(path).name for path in left if Path(path).is_file()} == {"Makefile"}, name


def test_what_a_tool_runs_by_itself_and_is_there_comes_back_at_every_depth(tmp_path: Path) -> None:
    project = tmp_path / "project"
    names = (".npmrc", "sub/.npmrc", "sub/sub/.husky/pre-commit", "inner/AGENTS.md")
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("mine\n")
    (project / "module").mkdir()
    git(project / "module", "init", "-q")
    git(project, "init", "-q")
    (project / ".git" / "modules" / "libs").mkdir(parents=True)
    (project / "module" / ".git").rename(project / ".git" / "modules" / "libs" / "module")
    inner = project / ".git" / "modules" / "libs" / "module" / "config"
    guard, kept = Guard(FINDER, [project], frozen=False), inner.read_text()
    for name in names[:3]:
        (project / name).write_text("evil\n")
    (project / "inner" / "AGENTS.md").unlink()
    inner.write_text("[core]\n\tfsmonitor = evil\n")
    assert len(guard.take_back(tmp_path / "aside")) == 5
    assert {(project / name).read_text() for name in names} == {"mine\n"}
    assert inner.read_text() == kept


def test_a_repository_that_runs_nothing_stays_and_so_does_what_moves_with_its_folder(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "old").mkdir(parents=True)
    (project / "old" / ".npmrc").write_text("x\n")
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "one")
    guard = Guard(FINDER, [project], frozen=False)
    git(project, "clone", "-q", ".", "copy")
    git(project, "worktree", "add", "-q", "tree")
    (project / "old").rename(project / "new")
    assert guard.take_back(tmp_path / "aside") == []
    git(project / "copy", "config", "core.fsmonitor", "evil")
    guard = Guard(FINDER, [project], frozen=False)
    git(project, "clone", "-q", "copy", "second")
    git(project / "second", "config", "core.fsmonitor", "evil")
    (project / "linked").mkdir()
    (project / "linked" / ".git").write_text(f"gitdir: {project}/second/.git\n")
    taken = guard.take_back(tmp_path / "aside")
    assert sorted(taken) == [project / "linked" / ".git", project / "second" / ".git"]


def test_neither_pipes_nor_sockets_nor_closed_folders_stay(tmp_path: Path) -> None:
    project = tmp_path / "project"
    git(tmp_path, "init", "-q", "project")
    (project / ".husky").mkdir(parents=True)
    (project / ".husky" / "pre-commit").write_text("mine\n")
    guard = Guard(FINDER, [project], frozen=False)
    os.mkfifo(project / ".mcp.json")
    os.mkfifo(project / ".git" / "index")
    (project / ".ignore").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one, chdir(project):
        one.bind(".envrc")
    (project / ".husky" / "pre-commit").write_text("evil\n")
    (project / ".husky").chmod(0)
    (project / "closed" / ".vscode").mkdir(parents=True)
    (project / "closed").chmod(0)
    taken = guard.take_back(tmp_path / "aside")
    assert {str(path.relative_to(project)) for path in taken} == {
        *(".mcp.json", ".envrc", ".husky", "closed/.vscode", ".git/index", ".ignore")
    }
    assert (project / ".husky" / "pre-commit").read_text() == "mine\n"
    (project / "closed").chmod(0o700)
    assert list((project / "closed").iterdir()) == []


def test_through_no_link_in_a_git_folder_git_writes_elsewhere(tmp_path: Path) -> None:
    """`git commit` follows a link in the place of its message or its reflog, and so overwrites what it leads to."""
    project = tmp_path / "project"
    places = [project / ".git", project / "deep" / "nested" / ".git", project / "bare.git"]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        git(place.parent, "init", "-q", *(("--bare", place.name) if place.name == "bare.git" else ()))
        (place / "logs" / "refs" / "heads").mkdir(parents=True)
    guard = Guard(FINDER, [project], frozen=False)
    links = ("COMMIT_EDITMSG", "logs/HEAD", "logs/refs/heads/main", "refs/heads/x", "objects/info/alternates")
    for place in places:
        for name in links:
            (place / name).symlink_to("/no/home/.bashrc")
        os.mkfifo(place / "refs" / "heads" / "y")
        os.link(place / "config", place / "MERGE_MSG")
    taken = guard.take_back(tmp_path / "aside")
    assert set(taken) == {place / name for place in places for name in (*links, "refs/heads/y", "config")}
    assert not any(os.path.lexists(place / name) for place in places for name in links)
    assert {(place / "config").stat().st_nlink for place in places} == {1}


def test_what_the_files_of_a_repository_lead_to_is_guarded(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "old")
    shutil.rmtree(tmp_path / "old" / ".git" / "hooks")
    (tmp_path / "old" / ".git" / "hooks").symlink_to("../../hooks")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "harmless").mkdir()
    guard = Guard(FINDER, [tmp_path], frozen=False)
    (tmp_path / "hooks" / "pre-commit").write_text("evil")
    git(tmp_path, "clone", "-q", "old", "new")
    shutil.rmtree(tmp_path / "new" / ".git" / "hooks")
    (tmp_path / "new" / ".git" / "hooks").symlink_to("../../harmless")
    git(tmp_path / "old", "config", "core.hooksPath", "../harmless")
    taken = guard.take_back(tmp_path / "aside")
    assert set(taken) == {tmp_path / name for name in ("hooks", "new/.git", "old/.git/config")}
    assert not (tmp_path / "hooks" / "pre-commit").exists()
    # What the command named stays: it may be anything of the user's.
    assert (tmp_path / "harmless").is_dir()


def test_the_scripts_of_hooks_are_guarded(tmp_path: Path) -> None:
    project = tmp_path / "a project"
    for name in ("scripts/format.sh", "check.py", "scripts/other.sh"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("mine\n")
    commands = ('"$CLAUDE_PROJECT_DIR"/scripts/format.sh --all', "python3 check.py", "ruff check src")
    scripts = scripts_in(commands, Workspace(project), project)
    assert scripts == [project / "scripts" / "format.sh", project / "check.py"]
    guard = Guard(Finder(Path("/no/home"), scripts), [project], frozen=False)
    for path in project.rglob("*.*"):
        path.write_text("evil\n")
    assert sorted(guard.take_back(tmp_path / "aside")) == sorted(scripts)
    assert (project / "check.py").read_text() == "mine\n"


def test_what_is_named_and_not_there_is_taken_out(tmp_path: Path) -> None:
    guard = Guard(Finder(Path("/no/home"), [tmp_path / ".env"]), [tmp_path], frozen=True)
    for name in (".env", "other.env"):
        (tmp_path / name).write_text("PATH=evil")
    assert guard.take_back(tmp_path.with_name("aside")) == [tmp_path / ".env"]
    assert (tmp_path / "other.env").exists()


def test_scripts_that_run_by_themselves_are_guarded_too(tmp_path: Path) -> None:
    project = tmp_path / "project"
    git(tmp_path, "init", "-q", str(project))
    texts = {
        ".git/hooks/pre-commit": "#!/bin/sh\nexec ./scripts/check $@\n",
        ".envrc": "source_env scripts/env.sh\nwatch_file data.txt\ndotenv\n dotenv_if_exists a.env\nuse flake\n",
        "mise.toml": "[env]\n_.file = 'conf/b.env'\n",
        ".pre-commit-config.yaml": "- entry: python tools/hook.py\n  args: [-c, ./x.yaml]\n",
        ".vscode/tasks.json": '{"command": "bash", "args": ["tools/open"]}',
        "Makefile": "all:\n\tsh tools/build.sh\n",
        "AGENTS.md": "run `sh tools/build.sh`",
    }
    scripts = ("scripts/check", "scripts/env.sh", "tools/hook.py", "tools/open")
    for name in (*texts, *scripts, "x.yaml", "data.txt", "tools/build.sh"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(texts.get(name, ""))
    found = run_by_themselves(project, Workspace(project))
    read = (".env", "a.env", "conf/b.env", "flake.nix", "flake.lock")
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
    settings = tmp_path / "deep" / "er" / ".vscode"
    settings.mkdir(parents=True)
    for number in range(400):
        (settings / str(number)).touch()
    assert str(settings) in Guard(FINDER, [tmp_path], frozen=True).fixed
    assert not Guard(FINDER, [tmp_path], frozen=False).whole


def test_thousands_of_folders_in_each_other_are_no_trouble(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    guard = Guard(FINDER, [project], frozen=False)
    with chdir(project):
        for _ in range(3000):
            Path("d").mkdir()
            os.chdir("d")
    (project / ".envrc").write_text("evil")
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


def test_a_repository_among_gits_own_files_goes(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "project")
    guard = Guard(FINDER, [project := tmp_path / "project"], frozen=False)
    inside = [project / ".git" / name / "r" for name in ("objects", "lfs", "logs", "refs")]
    for place in inside:
        git(project, "init", "-q", str(place))
    assert guard.take_back(tmp_path / "aside") == []
    for place in inside:
        git(place, "config", "core.fsmonitor", "evil")
    assert sorted(guard.take_back(tmp_path / "aside")) == sorted(place / ".git" for place in inside)


def test_a_folder_that_becomes_a_repository_keeps_what_is_the_users(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "a.py").write_text("mine\n")
    guard = Guard(FINDER, [project], frozen=False)
    bare(project)
    bare(project / "src")
    assert sorted(guard.take_back(tmp_path / "aside")) == [project, project / "src"]
    assert not any(place.exists() for place in (project / "HEAD", project / "config", project / "src" / "HEAD"))
    assert (project / "src" / "a.py").read_text() == "mine\n"


def test_a_harmless_repository_hides_nothing_below_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    guard = Guard(FINDER, [project], frozen=False)
    git(project, "init", "-q", "--bare", ".")
    git(project, "init", "-q", "x")
    git(project / "x", "config", "core.fsmonitor", "evil")
    (project / ".envrc").write_text("evil\n")
    assert sorted(guard.take_back(tmp_path / "aside")) == [project / ".envrc", project / "x" / ".git"]
    assert (project / "HEAD").exists()


def test_a_repository_whose_settings_lie_elsewhere_is_found(tmp_path: Path) -> None:
    project = tmp_path / "project"
    module = project / ".git" / "modules" / "m"
    git(tmp_path, "init", "-q", "project")
    bare(module, "[core]\n\tworktree = ../../../m\n")
    guard = Guard(FINDER, [project], frozen=False)
    bare(project / "store")
    (project / "store" / "HEAD").unlink()
    (project / "new").mkdir()
    (project / "new" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "new" / "commondir").write_text("../store\n")
    (module / "refs").rmdir()
    (module / "commondir").write_text("../../../store\n")
    assert sorted(guard.take_back(tmp_path / "aside")) == [module / "commondir", project / "new"]
    assert not (project / "new" / "commondir").exists()


def test_what_the_settings_of_a_repository_name_is_guarded(tmp_path: Path) -> None:
    project = tmp_path / "project"
    git(tmp_path, "init", "-q", "project")
    named = {"tools/hooks/pre-commit": "", "tools/clean.sh": "", "tools/more": "[diff]\n\texternal = tools/diff.sh\n"}
    for name, text in (named | {"tools/diff.sh": "", "tools/other.sh": ""}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text or "mine\n")
    git(project, "config", "core.hooksPath", "tools/hooks")
    git(project, "config", "filter.x.clean", "sh tools/clean.sh %f")
    git(project, "config", "include.path", "../tools/more")
    guard = Guard(FINDER, [project], frozen=False)
    for name in ("tools/hooks/post-commit", "tools/clean.sh", "tools/more", "tools/diff.sh", "tools/other.sh"):
        (project / name).write_text("evil\n")
    assert len(guard.take_back(tmp_path / "aside")) == 4
    assert not (project / "tools" / "hooks" / "post-commit").exists()
    assert (project / "tools" / "clean.sh").read_text() == "mine\n"
    assert (project / "tools" / "other.sh").read_text() == "evil\n"
    # A link in the place of a folder on the way goes.
    guard = Guard(FINDER, [project], frozen=False)
    (project / "tools").rename(project / "other")
    (project / "tools").symlink_to("other")
    (project / "other" / "clean.sh").write_text("evil\n")
    assert guard.take_back(tmp_path / "aside") == [project / "tools"]
    assert not os.path.lexists(project / "tools")


def test_more_folders_than_are_looked_into_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.tools.sandbox.guarded.MAX_FOLDERS", 20)
    guard = Guard(FINDER, [tmp_path], frozen=False)
    assert guard.whole
    for number in range(30):
        (tmp_path / f"f{number}").mkdir()
    guard.take_back(tmp_path / "aside")
    assert not guard.whole
