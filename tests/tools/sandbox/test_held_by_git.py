"""What a command stages, commits or stashes of guarded files is found, however it came there."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.held_by_git import held_since, state_of

BEGIN = (
    "git init -q -b main; git config user.name x; git config user.email x@x; echo .x > .envrc; mkdir sub; echo b > f; "
    "git add .; git commit -qm one; git branch old; echo .y > .envrc; git commit -qam two"
)
EVIL = "B=$(echo evil | git hash-object -w --stdin)"
STAGE = f"{EVIL}; git update-index --add --cacheinfo 100644,$B"
COMMIT = f"{STAGE},.envrc; C=$(git commit-tree -p HEAD -m c $(git write-tree)); git read-tree HEAD"
CYCLE = (
    f"{COMMIT}; D=$(git commit-tree -p $C -m d $C^{{tree}}); mkdir -p .git/info; echo $C $D > .git/info/grafts; "
    "echo $D $C >> .git/info/grafts"
)
IMPORT = (
    "printf 'commit refs/heads/%s\\ncommitter x <x@x> 0 +0000\\ndata 1\\nx\\nfrom refs/heads/main^0\\n"
    "M 100644 inline .envrc\\ndata 5\\nevil\\n\\n' new | git fast-import --quiet"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "project"
    made.mkdir()
    run(made, BEGIN)
    return made


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


def run(folder: Path, line: str) -> None:
    subprocess.run(["sh", "-ec", line], cwd=folder, check=True, capture_output=True)


def found_after(project: Path, line: str, named: tuple[str, ...] = ()) -> list[str]:
    git = str(project / ".git")
    before = state_of(git, None)
    run(project, line)
    return sorted({change.title.partition(" ")[0] for change in held_since(git, before, named)})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"{STAGE},.envrc", [".envrc"]),
        (f"{STAGE},sub/.vscode/tasks.json", ["sub/.vscode/tasks.json"]),
        (f"{EVIL}; git update-index --add --cacheinfo 120000,$B,.github", [".github"]),
        (f"{COMMIT}; git update-ref refs/heads/new $C", [".envrc"]),
        (f"{COMMIT}; echo $C > .git/refs/heads/index", [".envrc"]),
        (f"{COMMIT}; git update-ref refs/heads/new $C; git pack-refs --all", [".envrc"]),
        (f"{COMMIT}; echo $C | tr a-f A-F > .git/refs/heads/new", [".envrc"]),
        (f"{COMMIT}; git update-ref HEAD $C; git update-ref HEAD $C^", [".envrc"]),
        (f"{COMMIT}; git update-ref --create-reflog refs/heads/old $C; git update-ref refs/heads/old $C^", [".envrc"]),
        (f"{COMMIT}; echo $C $C > .git/info/grafts", [".envrc"]),
        (f"{COMMIT}; mkdir .git/wip; echo $C > .git/wip/x", [".envrc"]),
        (f"{CYCLE}; git update-ref refs/heads/new $D", [".envrc"]),
        (f"git config log.showRoot false; git checkout -q --orphan n; {STAGE},.envrc; git commit -qm n", [".envrc"]),
        (f"{EVIL}; printf '100644 %s 3\\t.envrc\\n' $B | git update-index --index-info", [".envrc"]),
        (f"{COMMIT}; git stash store $C -m x; git stash store HEAD -m y", [".envrc"]),
        (f"{COMMIT}; git tag -am t new $C", [".envrc"]),
        (f"{COMMIT}; echo $C > .git/MERGE_HEAD", [".envrc"]),
        (f"{COMMIT}; git update-ref refs/heads/new $(git commit-tree -p $C -m d main:)", [".envrc"]),
        (f"{COMMIT}; git update-ref refs/heads/new $(git commit-tree -p main -p old -m d $C^{{tree}})", [".envrc"]),
        (f"{COMMIT}; git worktree add -q ../other $C; rm ../other/.envrc", [".envrc"]),
        ("git worktree add -q ../other; cd ../other; echo evil > .envrc; git add .; rm .envrc", [".envrc"]),
        (IMPORT, [".envrc"]),
        (f"git checkout -q --orphan new; {STAGE},.envrc", [".envrc"]),
        ("git update-ref refs/heads/new $(git commit-tree -p $(git commit-tree -m a main:) -m b main:)", []),
        ("git update-ref refs/heads/new $(git commit-tree -p $(git commit-tree -m a old:) -m b main:)", []),
        (f"{COMMIT}; git update-ref refs/heads/new $(git commit-tree -p $C -m b main:)", [".envrc"]),
        ("git update-index --add --cacheinfo 100644,$(git rev-parse main:f),.envrc", [".envrc"]),
    ],
)
def test_what_git_would_put_in_place_is_found(project: Path, line: str, found: list[str]) -> None:
    assert found_after(project, line) == found


@pytest.mark.parametrize(
    "line",
    [
        "true",
        "git status; git log; git diff; git fetch -q . main:also",
        "echo c > f; git commit -qam three; git tag three; git stash; git gc -q",
        "git checkout -qb new old; git checkout -q main; git merge -q old; git branch -q -D new; git rebase -q old",
        "echo .z > .envrc; git commit -qam three",
        "echo .z > .envrc; git stash -q; git stash apply -q",
        "printf '.z\\n' | git hash-object -w --stdin; printf '.y\\r\\n' > .envrc; git add .; git reset -q",
        "git rm -q .envrc; git commit -qm none",
        "rm -rf .git",
        "git update-index --add --cacheinfo 100644,$(git rev-parse old:.envrc),.envrc",
        "git checkout -q old; echo c > g; git add g; git commit -qm three; git stash; git checkout -q main",
        "git worktree add -q ../other; cd ../other; echo mine > .envrc; git commit -qam mine",
    ],
)
def test_what_the_user_has_or_allowed_is_not_named(project: Path, line: str) -> None:
    assert found_after(project, line) == []


@pytest.mark.parametrize("order", ["exec evil", "x evil", "\\texec\\tevil"])
def test_what_a_rebase_would_run_when_it_goes_on_is_named(project: Path, order: str) -> None:
    line = "GIT_SEQUENCE_EDITOR=\"sed -i '1i break'\" git rebase -q -i -x 'evil $X' old"
    assert found_after(project, line) == ["exec"]
    todo = ".git/rebase-merge/git-rebase-todo"
    assert [word.strip() for word in found_after(project, f"printf '{order}\\n' > {todo}")] != []
    assert found_after(project, "git rebase --abort") == []


def test_patches_that_git_would_apply_are_named(project: Path) -> None:
    line = "git format-patch -1 --stdout > p; git reset -q --hard old; echo c > .envrc; git add .; git am -q p || true"
    assert [word for word in found_after(project, line) if word.endswith("rebase-apply")]
    assert found_after(project, "git am --abort") == []


def test_a_name_that_the_prompt_of_a_shell_might_run_is_named(project: Path) -> None:
    assert found_after(project, "git branch fix/100") == []
    assert found_after(project, "git branch 'fix/$(touch${IFS}x)'") == [f"{project}/.git"]


def test_what_a_new_repository_holds_is_named_once(project: Path) -> None:
    guard = Guard(Finder(Path("/no/home")), [project], frozen=False)
    run(project, "git clone -q . clone; cd clone; git checkout -q -b other; echo evil > .envrc")
    run(project, "git clone -q . node_modules/clone")
    run(project / "clone", "git -c user.name=x -c user.email=x@x commit -qam e")
    guard.take_back(project.parent / "aside")
    clone = f"{project}/clone/.git"
    assert list(guard.git) == [clone]
    told = [change.title for change in held_since(clone, guard.git[clone], ())]
    assert [title.partition(" ")[0] for title in told] == [".envrc"]


def test_what_settings_name_and_what_cannot_be_followed(project: Path) -> None:
    assert found_after(project, f"{STAGE},sub/hook", named=(str(project / "sub/hook"),)) == ["sub/hook"]
    commit = "tree %040d\\nauthor x <x> 0 +0000\\ncommitter x <x> 0 +0000\\n\\n"
    broken = f"printf '{commit}' 1 | git hash-object -w -t commit --literally --stdin"
    assert found_after(project, f"git update-ref refs/heads/new $({broken})") == [str(project / ".git")]
    assert found_after(project, f"{EVIL}; git replace main:.envrc $B; git pack-refs --all") == [str(project / ".git")]


THROUGH_MEMORY = """
import mmap, sys
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    memory[0]
    memory[:40] = sys.argv[2].encode()
"""


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="a file system in memory is needed")
def test_a_branch_that_is_written_through_memory_is_found_where_that_changes_no_times(made: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        project = Path(shutil.copytree(made, Path(folder) / "project"))
        time.sleep(0.05)
        git = str(project / ".git")
        before = state_of(git, None)
        assert state_of(git, before) is before
        tree = f"{EVIL}; T=$(printf '100644 blob %s\\t.envrc\\n' $B | git mktree); git commit-tree -p HEAD -m c $T"
        made_there = subprocess.run(["sh", "-ec", tree], cwd=project, check=True, capture_output=True, text=True)
        branch = project / ".git/refs/heads/old"
        times = branch.stat().st_ctime_ns
        subprocess.run([sys.executable, "-c", THROUGH_MEMORY, branch, made_there.stdout.strip()], check=True)
        assert branch.stat().st_ctime_ns == times
        assert [change.title.partition(" ")[0] for change in held_since(git, before, ())] == [".envrc"]
