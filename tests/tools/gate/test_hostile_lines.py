"""The hostile lines: none is judged to run unasked, and those that are really run show that they would do harm."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.gate.shell_lines import (
    FORMS,
    HARMFUL,
    HARMLESS,
    LINES,
    PAYLOADS,
    RULES,
    WRAPPERS,
    by_command,
    table,
)
from tests.tools.world import tree
from tui_agent.tools.base import Access
from tui_agent.tools.gate.judging import Judgement, judge, judge_outside
from tui_agent.tools.gate.known_commands import Unknown, known, known_commands, may_be_known
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.shell_line import read_words
from tui_agent.tools.gate.workspace import Workspace

WIDE = tuple(Rule("run_command", pattern) for pattern in RULES)
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]


def hostile_tree(base: Path) -> Path:
    """The project, with an outside beside it and every way there that links know."""
    root, outside = base / "project", base / "outside"
    for folder in (root / "src/deep", root / "bin", outside / "dir"):
        folder.mkdir(parents=True)
    for path in (outside / "secret.txt", outside / "inner.txt", outside / "dir/inner.txt"):
        path.write_text("secret\n")
    for name in ("a.txt", "src/b.py", "AGENTS.md", "args.txt", "list"):
        (root / name).write_text("a line\n")
    for name in ("payload", "evil.sh", "nice", "ls", "bin/ls"):
        (root / name).write_text("#!/bin/sh\ntouch PWNED\n")
        (root / name).chmod(0o755)
    links = {
        "link-file": "../outside/secret.txt",
        "link-dir": "../outside",
        "chain-file": "link-file",
        "dlink": "src/deep",
        "up": "..",
        "root": "/",
        "absolute": str(outside),
        "src/link": "../../outside",
        "src/deep/up": "../../..",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "hard").hardlink_to(outside / "inner.txt")
    for command in (["init", "-q"], ["add", "a.txt", "src/b.py"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=root, check=True, capture_output=True)
    (root / "a.txt").write_text("another line\n")
    for name in ("--output=f", "-exec"):
        (root / name).touch()
    return root


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(hostile_tree(Path(os.path.realpath(tmp_path_factory.mktemp("hostile")))))


def judged(line: str, workspace: Workspace, granted: tuple[Rule, ...]) -> list[Judgement]:
    """A line in the modes auto and ask, without a sandbox."""
    return [judge(line, granted, workspace, reading_passes=reading) for reading in (True, False)]


def test_no_hostile_line_runs_unasked(workspace: Workspace) -> None:
    """Under every rule at once, with no sandbox and outside of one; and it is said why."""
    assert len(LINES) > 1_000
    outside = tuple(Rule("outside", rule.pattern) for rule in WIDE)
    passed = []
    for line in LINES:
        judgements = [*judged(line, workspace, WIDE), judge_outside(line, outside, workspace)]
        if any(each.outcome != "ask" for each in judgements) or not judgements[0].reasons:
            passed.append(line)
    assert passed == []


def test_every_line_is_decided(workspace: Workspace) -> None:
    """Whatever it names: words too long for a path, folders that may not be entered."""
    gate = PermissionGate("auto", workspace)
    locked = workspace.root / "locked"
    locked.mkdir(mode=0)
    closed = ("cd locked/in && make", "make -C locked/in", "git -C locked/in status", "wc locked/in/*", "sort locked/f")
    long = ("make -C " + "x" * 300, "python -m " + "x." * 300, "cd " + "x/" * 5_000 + " && make", "sort " + "x" * 300)
    for line in (*LINES[::20], *LINES[-60:], *closed, *long):
        gate.passes("run_command", Access("run", line))
    locked.rmdir()


def test_an_exact_rule_allows_its_words_in_its_folder_and_nothing_else(workspace: Workspace) -> None:
    """A plugin in mypy.ini, a conftest.py: what runs the project's own code is allowed word for word alone."""
    exact = table("exact")
    rules = tuple(Rule("run_command", line) for line in exact)
    lines = [form.format(r=rule, root=workspace.root) for rule in exact for form in table("elsewhere")]
    assert [line for line in lines for each in judged(line, workspace, rules) if each.outcome != "ask"] == []
    assert [line for line in exact for each in judged(line, workspace, rules) if each.outcome != "allow"] == []
    wide = tuple(Rule("run_command", f"{line} *") for line in exact)
    assert [line for line in exact for each in judged(line, workspace, wide) if each.outcome != "ask"] == []


def test_what_a_rule_forbids_stays_forbidden_in_the_mode_allow(workspace: Workspace) -> None:
    """Whatever hides the command: only a file of the project that runs it does so unseen."""
    gate = PermissionGate("allow", workspace, deny=["run_command(touch *)", "run_command(sh *)"])
    lines = [form.format(h=reader, p=payload) for form in FORMS for reader in ("ls", "grep x") for payload in PAYLOADS]
    lines += [form.format(p=payload) for form in WRAPPERS for payload in PAYLOADS]
    passed = {line for line in lines if gate.passes("run_command", Access("run", line))}
    assert passed == {"./nice ls", "./ls", "bin/ls"}
    for line in ("git status", "grep -rn touch .", "find . -name touch", "make", "python x.py", "pytest -k touch"):
        assert gate.passes("run_command", Access("run", line)), line


def test_lines_that_only_read_run_unasked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for line in HARMLESS:
        judgement = judge(line, (), workspace)
        assert judgement.outcome == "allow", (line, judgement)
        assert judge(line, (), workspace, reading_passes=False).outcome == "ask"


def test_a_program_of_the_project_is_none_that_only_reads(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (".:/usr/bin", ":/usr/bin", f"{workspace.root}/bin:/usr/bin", "bin:/usr/bin"):
        monkeypatch.setenv("PATH", path)
        for line in ("ls", "timeout 5 ls", "timeout 5 timeout 5 ls"):
            assert judge(line, WIDE, workspace).outcome == "ask", (path, line)


FSMONITOR = "[core]\n\tfsmonitor = ./evil.sh\n"
CONFIGS = (
    *(FSMONITOR, "[core] fsmonitor = ./evil.sh\n", "[user] [core] fsmonitor = ./evil.sh\n"),
    *("[CORE]\n\tFSMonitor = ./evil.sh\n", "[user]\n\tname = a \\\n[core]\\\n\n[core]\n\tfsmonitor=./evil.sh\n"),
    *("[core]\n\thooksPath = hooks\n", "[diff]\n\texternal = ./evil.sh\n", '[diff "x"]\n\ttextconv = ./evil.sh\n'),
    *('[diff "x"]\n\tcommand = ./evil.sh\n', '[filter "x"]\n\tclean = ./evil.sh\n\tprocess = ./evil.sh\n'),
    *("[alias]\n\tstatus = !./evil.sh\n", "[pager]\n\tlog = ./evil.sh\n", "[core]\n\tpager = ./evil.sh\n"),
    *("[core]\n\teditor = ./evil.sh\n", "[core]\n\tsshCommand = ./evil.sh\n", "[include]\n\tpath = ../evil\n"),
    *("[gpg]\n\tprogram = ./evil.sh\n[log]\n\tshowSignature = true\n", '[includeIf "gitdir:."]\n\tpath = ../evil\n'),
    *("[core]\n\tworktree = ../../outside\n", "[extensions]\n\tworktreeConfig = true\n"),
    *('[remote "x"]\n\tpromisor = true\n\turl = ext::sh payload\n', "[core]\n\tnewPowerfulKey = x\n"),
    *("[core.x]\n\tfilemode = true\n", "\ufeff[core]\n\tfsmonitor = ./evil.sh\n"),
)
"""What the settings of a repository may have git run: also an old form, one line, an unknown key, a byte order mark."""
FILES = (
    *("hooks/post-index-change", "hooks/pre-commit", "modules/x/config", "config.worktree", "objects/info/alternates"),
    *("info/attributes", "sharedindex.0123", "commondir"),
)
GIT_LINES = table("git")


def asked(workspace: Workspace) -> set[str]:
    """Which of the lines for git are asked about, whatever allows them."""
    exact = tuple(Rule("run_command", line) for line in GIT_LINES)
    return {line for line in GIT_LINES if all(j.outcome == "ask" for j in judged(line, workspace, (*WIDE, *exact)))}


def repository(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    for command in (["init", "-q"], ["add", "a.txt"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*GIT, *command], cwd=root, check=True, capture_output=True)
    return Workspace(Path(os.path.realpath(root)))


def test_a_repository_that_gives_orders_is_asked_about_and_an_ordinary_one_is_not(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    git = workspace.root / ".git"
    ordinary = (git / "config").read_text()
    for text in CONFIGS:
        assert asked(workspace) == set()
        (git / "config").write_text(ordinary + text)
        assert asked(workspace) == set(GIT_LINES), text
        (git / "config").write_text(ordinary)
    for name in FILES:
        assert asked(workspace) == set()
        there = (git / name).parent.exists()
        (git / name).parent.mkdir(parents=True, exist_ok=True)
        (git / name).write_text("x\n")
        assert asked(workspace) == set(GIT_LINES), name
        (git / name).unlink() if there else shutil.rmtree(git / name.split("/")[0])


def test_a_submodule_is_seen_in_the_index(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=workspace.root, capture_output=True, text=True, check=True)
    link = ["git", "update-index", "--add", "--cacheinfo", f"160000,{head.stdout.strip()},sub"]
    subprocess.run(link, cwd=workspace.root, check=True)
    assert asked(workspace) == set(GIT_LINES)


def test_a_work_tree_of_a_repository_elsewhere(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    subprocess.run([*GIT, "worktree", "add", "-q", "../beside"], cwd=workspace.root, check=True, capture_output=True)
    (tmp_path / "beside/src").mkdir(exist_ok=True)
    beside = Workspace(Path(os.path.realpath(tmp_path / "beside")))
    assert asked(beside) == set()
    (workspace.root / ".git/modules").mkdir()
    assert asked(beside) == set(GIT_LINES)
    (workspace.root / ".git/modules").rmdir()
    with (workspace.root / ".git/config").open("a") as config:
        config.write(FSMONITOR)
    assert asked(beside) == set(GIT_LINES)
    (beside.root / ".git").write_text("gitdir: evil.git\n")
    assert asked(beside) == set(GIT_LINES)


def test_what_git_passes_over_hides_no_repository_above_it(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    (workspace.root / "src" / ".git").mkdir()
    (workspace.root / "src" / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (tmp_path / ".git").mkdir()
    assert asked(workspace) == set()
    with (workspace.root / ".git/config").open("a") as config:
        config.write(FSMONITOR)
    assert asked(workspace) == set(GIT_LINES)


def test_hooks_that_lie_elsewhere_are_asked_about(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    shutil.rmtree(workspace.root / ".git" / "hooks", ignore_errors=True)
    (workspace.root / ".git" / "hooks").symlink_to("../src")
    assert asked(workspace) == set(GIT_LINES)


def test_a_repository_around_the_project_is_asked_about(tmp_path: Path) -> None:
    workspace = repository(tmp_path)
    inner = Workspace(workspace.root / "src")
    assert "git status" in asked(inner)


def test_each_command_of_the_table_knows_its_own_options_alone() -> None:
    def is_known(line: str) -> bool:
        words = read_words(line)
        if words is None:
            return False
        try:
            known(words)
        except Unknown:
            return False
        return True

    may, may_not = by_command("known"), by_command("unknown")
    assert sorted(may) == sorted(known_commands())
    assert [line for name in may for each in may[name] if not is_known(line := f"{name} {each}")] == []
    assert [line for name in may_not for each in may_not[name] if is_known(line := f"{name} {each}")] == []


def test_a_known_command_names_each_path_that_it_reads() -> None:
    for line, paths in {
        "grep -nf patterns src": "patterns src",
        "grep --file=patterns src": "patterns src",
        "grep -e word src": "src",
        "find src -newer /etc/shadow": "/etc/shadow src",
        "find src -name x": "src",
        "head -n 3 a": "a",
        "realpath --relative-to=/etc a": "/etc a",
        "command -v git": "",
    }.items():
        words = read_words(line)
        assert words is not None
        assert [path.text for path in known(words).paths] == paths.split(), line


def test_a_rule_with_a_star_is_for_what_may_be_known() -> None:
    lines = ["git", "git status", "git log -p", "find", "head -n", "cd", "git push", "git stat", "make", "rm -rf x"]
    known_ones = [line for line in lines if (words := read_words(line)) is not None and may_be_known(words)]
    assert known_ones == lines[:6]


def test_judging_takes_little_work(workspace: Workspace) -> None:
    """By work done: what the bench measures by the clock must not grow by a hundred unnoticed."""
    many = workspace.root / "many"
    many.mkdir(exist_ok=True)
    for number in range(3_000):
        (many / f"f{number}").symlink_to("../a.txt")
    worst = ("cat many/*", "cat many/f*1*2", "cat " + "many/*" * 200, "cat " + " ".join(["src/deep/up/x"] * 190))
    judge("ls", WIDE, workspace)
    for line in (*LINES[-60:], *worst):
        began = time.thread_time()
        judge(line, WIDE, workspace)
        assert time.thread_time() - began < 0.2, line[:60]
    shutil.rmtree(many)


# Run for real

BOX = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
"""Namespaces of its own: no network, no right to the clock, no process that stays."""


def boxed() -> str:
    """Why lines cannot be run in a box here; empty: they can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    done = subprocess.run([*BOX, "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "the kernel gives no namespaces"


def run_boxed(line: str, root: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(root.parent / "outside"), "LC_ALL": "C.UTF-8"}
    subprocess.run(
        [*BOX, "timeout", "5", "bash", "-c", line],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def harm(root: Path, before: dict[str, tuple[int, int, str]]) -> bool:
    """Whether a line changed what is outside, a file of the project, or ran what it brought."""
    return (
        (root / "PWNED").exists()
        or tree(root.parent / "outside") != before
        or (root / "src/b.py").read_text() != "a line\n"
    )


@pytest.mark.skipif(bool(boxed()), reason=boxed() or "-")
def test_hostile_lines_do_harm_where_they_are_run(tmp_path: Path) -> None:
    """Else a table of them would prove nothing. A line that is harmless here is no example."""
    model = hostile_tree(tmp_path / "model")
    harmless = []
    for number, line in enumerate(HARMFUL):
        base = tmp_path / str(number)
        shutil.copytree(model.parent, base, symlinks=True)
        root, before = base / "project", tree(base / "outside")
        run_boxed(line, root)
        if not harm(root, before):
            harmless.append(line)
        shutil.rmtree(base)
    # A file called --output=f makes `sort *` an error, and that is all it does here.
    assert harmless == ["sort *"]


@pytest.mark.skipif(bool(boxed()), reason=boxed() or "-")
def test_lines_that_run_unasked_do_none(tmp_path: Path) -> None:
    root = hostile_tree(tmp_path / "base")
    before, inside = tree(root.parent / "outside"), tree(root / "src")
    for line in HARMLESS:
        run_boxed(line, root)
    assert not harm(root, before)
    assert tree(root / "src") == inside


@pytest.mark.soak
@pytest.mark.skipif(bool(boxed()), reason=boxed() or "-")
def test_the_whole_table_through_the_gate_for_real(tmp_path: Path) -> None:
    """Whatever the gate lets through under any single rule is run, and must do no harm."""
    root = hostile_tree(tmp_path / "base")
    workspace, before = Workspace(Path(os.path.realpath(root))), tree(root.parent / "outside")
    ran = 0
    for rule in RULES:
        gate = PermissionGate("auto", workspace, allow=[f"run_command({rule})"])
        for line in (*LINES, *HARMLESS):
            if gate.passes("run_command", Access("run", line)):
                run_boxed(line, root)
                ran += 1
        assert not harm(root, before), rule
    assert ran >= len(RULES) * len(HARMLESS) // 2


def test_what_each_process_finds_elsewhere_is_not_read_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = hostile_tree(tmp_path)
    (root / "x").mkdir()
    (root / "x/secret.txt").touch()
    (root / "src/deep/x").symlink_to("../../../outside")
    for place in (root, root / "src/deep"):
        (place / "pl").symlink_to("/proc/self/cwd/x")
    monkeypatch.chdir(root)
    assert judge("cat x/secret.txt", (), Workspace(root)).outcome == "allow"
    for way in ("/proc/self/cwd/x", "pl", "../../pl", "pl/../x", "/proc/thread-self/cwd/x", "pl*"):
        assert judge(f"cd src/deep && cat {way}/secret.txt", (), Workspace(root)).outcome == "ask", way
