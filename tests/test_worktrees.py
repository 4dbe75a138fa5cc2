"""Worktrees in real repositories, and the real command in one."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs

from tui_agent.agent.commands.session import _handed_back
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.agent.extensions.hooks import Hooks, SessionFacts
from tui_agent.arguments import Arguments
from tui_agent.session_parts import WorktreeHooks, worktree_hooks
from tui_agent.settings import Settings
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.sandbox import mechanism
from tui_agent.worktrees import (
    WorktreeError,
    apply,
    handover_of,
    is_unchanged,
    merge,
    open_worktree,
    patch_of,
    remove_worktree,
    session_worktree,
    worktree_at,
)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@y.z")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "sub/b.txt").write_text("two\n")
    (folder / ".gitignore").write_text("*.env\nbuild/\n")
    (folder / ".worktreeinclude").write_text("*.env\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "x")
    git(folder, "config", "user.email", "x@y.z")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "local.env").write_text("KEY=1\n")
    (folder / "build").mkdir()
    (folder / "build/big").write_text("x")
    hook = folder / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    return folder


def test_it_is_made_with_what_is_to_be_copied_and_no_hook_runs(repository: Path) -> None:
    (repository / "a.txt").write_text("not committed\n")
    made = open_worktree(repository / "sub", "side")
    assert made.folder == repository.with_name("shop-worktrees") / "side"
    assert sorted(path.name for path in made.folder.iterdir() if path.name != ".git") == [
        ".gitignore",
        ".worktreeinclude",
        "a.txt",
        "local.env",
        "sub",
    ]
    assert (made.folder / "a.txt").read_text() == "one\n"
    assert is_unchanged(made)
    again = open_worktree(made.folder, "side")
    assert again == structs.replace(made, new=False)
    remove_worktree(made)
    assert not made.folder.parent.exists()
    assert git(repository, "branch", "--list", "tui-agent/*") == ""


def test_a_link_in_the_commit_leads_no_file_and_no_session_elsewhere_and_a_setup_that_fails_keeps_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("sub", "kept"):
        git(repository, "rm", "-rq", "--cached", "--ignore-unmatch", name)
        (repository / name).mkdir(exist_ok=True)
        (repository / name / "key.env").write_text("evil")
        link = subprocess.run(
            ["git", "hash-object", "-w", "--stdin"],
            cwd=repository,
            input=bytes(tmp_path / "elsewhere"),
            stdout=-1,
            check=True,
        )
        git(repository, "update-index", "--add", "--cacheinfo", f"120000,{link.stdout.decode().strip()},{name}")
    git(repository, "commit", "-qm", "links")
    git(repository, "rm", "-q", "--cached", "kept", "sub")
    monkeypatch.chdir(repository / "sub")
    with session_worktree(repository / "sub", "side", "", print) as place:
        assert place == repository.with_name("shop-worktrees") / "side"
        assert (place / "local.env").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with pytest.raises(WorktreeError, match="ended with 3"), session_worktree(repository, "kept", "exit 3", print):
        raise AssertionError("the session must not open")
    assert (repository.with_name("shop-worktrees") / "kept").is_dir()
    assert Path.cwd() == repository


def test_of_a_project_that_is_not_trusted_git_follows_no_unknown_settings(repository: Path, tmp_path: Path) -> None:
    arguments = Arguments(folder=repository, project=repository, home=tmp_path / "home")
    git(repository, "config", "submodule.x.url", "./evil")
    worktree_hooks(Settings(), arguments, print)
    git(repository, "config", "filter.q.smudge", "./evil")
    worktree_hooks(Settings(), arguments._replace(trusted=True), print)
    with pytest.raises(WorktreeError, match="filter"):
        worktree_hooks(Settings(), arguments, print)


@pytest.mark.parametrize("answer", ["", "n\n", "y\n"])
def test_what_a_worktrees_hook_runs_first_is_asked_about_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    project, told = tmp_path / "project", list[str]()
    project.mkdir()
    makefile = project / "Makefile"
    makefile.write_text("wt:\n\t@pwd\n")
    hook = {"type": "command", "command": "make -s wt"}
    (tmp_path / "hooks.json").write_text(json.dumps({"hooks": {"WorktreeCreate": [{"hooks": [hook]}]}}))
    facts = SessionFacts("", project, project, tmp_path, mode=lambda: "auto", model=lambda: "", resumed=False)
    gate = PermissionGate("auto", Workspace(project), approved=tmp_path / "approved")
    hooks = WorktreeHooks(Hooks([ExtensionFolder(tmp_path, "yours")], facts), project, told.append, gate)
    assert hooks.made("x") == project
    makefile.write_text("wt:\n\t@touch ran; pwd\n")
    terminal = StringIO(answer)
    for stream in (terminal, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: bool(answer))
    monkeypatch.setattr(sys, "stdin", terminal)
    if answer == "y\n":
        assert hooks.made("x") == project
        assert hooks.may_set_up("make -s wt")
    else:
        assert not hooks.may_set_up("make -s wt")
        with pytest.raises(WorktreeError, match="declined it" if answer else "Makefile"):
            hooks.made("x")
    assert (project / "ran").exists() == (answer == "y\n")
    assert ("@touch ran" in "".join(told)) == bool(answer)


def test_where_nothing_was_done_nothing_is_handed_back(repository: Path) -> None:
    made = open_worktree(repository, "side")
    for verb in ("", "merge", "apply", "patch"):
        assert _handed_back(made.folder, verb, "").title == "Nothing is to be handed back"
    assert _handed_back(made.folder, "merge", "x").failed
    assert [path.name for path in made.folder.parent.iterdir()] == ["side"]


def test_its_patch_holds_all_that_was_done_and_leaves_it_as_it_is(repository: Path) -> None:
    made = open_worktree(repository, "side")
    (made.folder / "a.txt").write_text("changed\n")
    git(made.folder, "commit", "-qam", "second")
    (made.folder / "new file").write_bytes(bytes(range(256)))
    (made.folder / "sub/b.txt").unlink()
    before = git(made.folder, "status", "--porcelain")
    patch = patch_of(made)
    assert git(made.folder, "status", "--porcelain") == before
    subprocess.run(["git", "apply"], cwd=repository, input=patch.encode(), check=True)
    assert (repository / "a.txt").read_text() == "changed\n"
    assert (repository / "new file").read_bytes() == bytes(range(256))
    assert not (repository / "sub/b.txt").exists()
    assert not is_unchanged(made)
    remove_worktree(made)
    assert not made.folder.exists()


def test_a_merge_hands_back_all_of_it_or_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = open_worktree(repository, "side")
    (made.folder / "a.txt").write_text("committed\n")
    git(made.folder, "commit", "-qam", "second")
    (made.folder / "new").write_text("not committed\n")
    (repository / "a.txt").write_text("in the way\n")
    assert worktree_at(made.folder / "sub") == structs.replace(made, new=False)
    with pytest.raises(WorktreeError, match=r"Not committed in .*: a\.txt"):
        merge(made)
    with pytest.raises(WorktreeError, match="apply"):
        apply(made)
    git(repository, "commit", "-qam", "another")
    before = git(repository, "log", "-1"), git(made.folder, "status", "--porcelain"), git(made.folder, "log", "-1")
    for key in ("name", "email"):
        git(repository, "config", "--unset", f"user.{key}")
    git(repository, "config", "user.useConfigOnly", "true")
    with monkeypatch.context() as nobody:
        nobody.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        with pytest.raises(WorktreeError, match="it asks who you are: git config --global user"):
            merge(made)
        assert handover_of(made).uncommitted
    git(repository, "config", "user.name", "x")
    git(repository, "config", "user.email", "x@y.z")
    found = handover_of(made)
    assert found.uncommitted
    assert "2 files changed" in found.stat
    assert found.obstacles == ("Both sides changed a.txt: rebase or merge here first.",)
    with pytest.raises(WorktreeError, match=r"Both sides changed a\.txt"):
        merge(made)
    assert (git(repository, "log", "-1"), git(made.folder, "status", "--porcelain"), git(made.folder, "log", "-1")) == (
        before
    )
    git(repository, "checkout", "-q", "HEAD~", "--", "a.txt")
    git(repository, "commit", "-qm", "back")
    merge(made)
    assert (repository / "a.txt").read_text() == "committed\n"
    assert (repository / "new").read_text() == "not committed\n"
    assert is_unchanged(made)
    (made.folder / "later").touch()
    assert not is_unchanged(made)


def test_commits_of_a_submodule_are_not_lost(repository: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    git(library, "commit", "-q", "--allow-empty", "-m", "x")
    local = ("-c", "protocol.file.allow=always")
    git(repository, *local, "submodule", "--quiet", "add", str(library), "lib")
    git(repository, "commit", "-qm", "with a library")
    assert open_worktree(repository / "lib", "inner").folder == repository / "lib-worktrees/inner"
    made = open_worktree(repository, "side")
    assert git(made.folder / "lib", "remote", "get-url", "origin").strip() == str(library)
    assert git(made.folder, "submodule", "status")[0] == " "
    assert is_unchanged(made)
    (made.folder / "lib/f").touch()
    assert not is_unchanged(made)
    assert handover_of(made).left == ("lib",)
    assert "Not handed over: changes inside the submodule lib." in _handed_back(made.folder, "", "").text
    git(made.folder / "lib", "add", "f")
    git(made.folder / "lib", "commit", "-qm", "only here")
    with pytest.raises(WorktreeError, match="has the commits of lib: push them first"):
        merge(made)
    git(made.folder / "lib", "checkout", "-q", "HEAD~")
    git(made.folder / "lib", "branch", "kept", "HEAD@{1}")
    assert not git(made.folder, "status", "--porcelain")
    assert not is_unchanged(made)
    remove_worktree(made)
    git(repository, "submodule", "deinit", "-q", "--all")
    assert list(open_worktree(repository, "without").folder.joinpath("lib").iterdir()) == []


def test_where_there_can_be_none_it_is_said(repository: Path, tmp_path: Path) -> None:
    for name in ("", "../up", "a b", "-x", "x.lock", ".x", "a..b", "x" * 99):
        with pytest.raises(WorktreeError, match="is no name for a worktree"):
            open_worktree(repository, name)
    with pytest.raises(WorktreeError, match="no commit nothing"):
        open_worktree(repository, "side", "nothing")
    repository.with_name("shop-worktrees").mkdir()
    (repository.with_name("shop-worktrees") / "taken").mkdir()
    with pytest.raises(WorktreeError, match="no worktree"):
        open_worktree(repository, "taken")
    (tmp_path / "bare").mkdir()
    with pytest.raises(WorktreeError, match="no git repository"):
        open_worktree(tmp_path / "bare", "side")


def test_the_users_hooks_make_and_clean_up_one(repository: Path, tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "copies"
    home.mkdir()
    banner = r"printf '\033[1mbanner\033[0m\n'"
    add = f"git -c core.hooksPath=/dev/null worktree add -q --detach {place}/x"
    make = f"mkdir -p {place} && {add} && {banner} && echo {place}/x"
    listed = {
        "WorktreeCreate": [{"hooks": [{"type": "command", "command": f"cat > {tmp_path}/asked; {make}"}]}],
        "WorktreeRemove": [{"hooks": [{"type": "command", "command": f"cat > {tmp_path}/told; rm -rf {place}/x"}]}],
    }
    (home / "hooks.json").write_text(json.dumps({"hooks": listed}))
    environment = {**os.environ, "TUI_AGENT_HOME": str(home)}
    command = [sys.executable, "-m", "tui_agent", "--worktree", "mine", "--model", "offline", "-p", "run pwd", "--yolo"]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert str(place / "x") in done.stdout, done.stderr
    assert json.loads((tmp_path / "asked").read_text())["name"] == "mine"
    assert json.loads((tmp_path / "told").read_text())["worktree_path"] == str(place / "x")
    assert not (place / "x").exists()
    listed["WorktreeCreate"][0]["hooks"][0]["command"] = "echo no luck >&2; exit 1"
    (home / "hooks.json").write_text(json.dumps({"hooks": listed}))
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no luck" in done.stderr


@pytest.mark.skipif(mechanism().kind == "none", reason="no sandbox here")
def test_a_session_in_one_commits_in_its_sandbox(repository: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    words = ["--worktree", "side", "--model", "offline", "-p", "run git rm -q b.txt && git commit -qm gone"]
    done = subprocess.run(
        [sys.executable, "-m", "tui_agent", *words],
        cwd=repository / "sub",
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TUI_AGENT_OFFLINE_DELAY_S": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "/worktree there hands it back" in done.stderr
    git(repository, "merge", "-q", "tui-agent/side")
    assert not (repository / "sub/b.txt").exists()
