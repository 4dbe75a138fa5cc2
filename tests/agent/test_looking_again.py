"""A project is looked at again only where something happened, and nothing that happened is missed."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tui_agent.storage.kept_files import KeptFiles
from tui_agent.tools.files.tree import Tree, TreeLimits
from tui_agent.tools.files.watched import Watched

LIMITS = TreeLimits(files=1_000, seconds=20.0, file_bytes=10_000)
SETTLED_S = 0.05
"""Seconds after which a stamp proves that its file is unchanged."""


class Project:
    """A project whose files are old enough for their stamps to count, and that was looked at once."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        for name in ("a.txt", "pack/b.txt", "pack/deep/c.txt", "ignored/own.log", "ignored/x.log", ".gitignore"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("*.log\n" if name == ".gitignore" else f"{name}\n")
        (self.root / "empty" / "inner").mkdir(parents=True)
        (self.root / ".git" / "info").mkdir(parents=True)
        (self.root / ".git" / "info" / "exclude").write_text("*.swp\n")
        self.tree = Tree(self.root, [], KeptFiles(folder / "session", 1_000_000), LIMITS)

    async def settle(self) -> None:
        """Two looks, as around a command, of which the second one finds that nothing is new."""
        await asyncio.sleep(SETTLED_S)
        assert await self.changed() == {}

    async def changed(self) -> dict[str, str]:
        """What a command has changed: the kind before and after, by relative path."""
        found = await self.tree.changes() if self.tree._before else None
        await self.tree.look()
        if found is None:
            return {}
        assert found.gaps == ()
        start = f"{self.root}/"
        return {each.path.removeprefix(start): f"{each.before.kind}, {each.after.kind}" for each in found.files}


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    await made.settle()
    await made.settle()
    return made


async def test_every_change_of_a_command_is_found(project: Project, tmp_path: Path) -> None:
    root = project.root
    (root / "a.txt").write_text("other\n")
    assert await project.changed() == {"a.txt": "file, file"}
    await project.settle()
    (root / "empty" / "inner" / "new.txt").write_text("")
    (root / "pack" / "deep" / "new.txt").write_text("")
    (root / "empty" / "inner" / "new.log").write_text("")
    found = await project.changed()
    assert found == {"empty/inner/new.txt": "absent, file", "pack/deep/new.txt": "absent, file"}
    await project.settle()
    shutil.rmtree(root / "pack" / "deep")
    (root / "empty" / "inner" / "new.txt").rename(root / "moved.txt")
    assert await project.changed() == {
        **dict.fromkeys(("pack/deep/c.txt", "pack/deep/new.txt", "empty/inner/new.txt"), "file, absent"),
        "moved.txt": "absent, file",
    }
    await project.settle()
    os.link(root / "pack" / "b.txt", tmp_path / "link")
    assert await project.changed() == {}
    (tmp_path / "link").write_text("through a link of another folder\n")
    assert await project.changed() == {"pack/b.txt": "file, file"}
    await project.settle()
    (root / "pack" / ".git" / "info").mkdir(parents=True)
    (root / "pack" / "s").symlink_to("b.txt")
    assert await project.changed() == {"pack/s": "absent, link"}


async def test_files_that_are_no_longer_ignored_come_into_view(project: Project) -> None:
    (project.root / ".gitignore").write_text("x.log\n")
    found = await project.tree.changes()
    assert [Path(change.path).name for change in found.files] == [".gitignore"]
    assert "Files came into view" in found.gaps[0]
    await project.settle()
    (project.root / "ignored" / "own.log").write_text("changed\n")
    assert await project.changed() == {"ignored/own.log": "file, file"}


async def test_rules_of_the_folders_above_are_followed(project: Project) -> None:
    (project.root.parent / ".ignore").write_text("*.tmp\n")
    await project.settle()
    for name in ("pack/new.tmp", "pack/new.txt"):
        (project.root / name).write_text("")
    assert await project.changed() == {"pack/new.txt": "absent, file"}


async def test_new_names_are_found_and_ignored_ones_are_not_without_a_listing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any listing fails from here on, and would be a gap.
    monkeypatch.setattr("tui_agent.tools.files.tree.search", None)
    root = project.root
    (root / "pack" / "new.txt").write_text("")
    (root / "made" / "below").mkdir(parents=True)
    (root / "made" / "below" / "one.txt").write_text("")
    (root / "pack" / "x.log").write_text("")
    (root / "pack" / "y.log").mkdir()
    (root / "pack" / "y.log" / "in.txt").write_text("")
    found = await project.changed()
    assert found == {"pack/new.txt": "absent, file", "made/below/one.txt": "absent, file"}
    (root / "pack" / "y.log" / "more.txt").write_text("")
    (root / "made" / "below" / "two.txt").write_text("")
    assert await project.changed() == {"made/below/two.txt": "absent, file"}


async def test_what_happens_between_commands_is_not_theirs(project: Project) -> None:
    root = project.root
    (root / "a.txt").write_text("the user's\n")
    (root / "empty" / "theirs.txt").write_text("")
    shutil.rmtree(root / "pack")
    (root / "pack").mkdir()
    (root / "pack" / "d.txt").write_text("d\n")
    await project.tree.look()
    (root / "pack" / "d.txt").write_text("the command's\n")
    assert await project.changed() == {"pack/d.txt": "file, file"}
    # The folder that took the place of another is watched too.
    (root / "pack" / "d.txt").write_text("the user's\n")
    await project.tree.look()
    assert await project.changed() == {}


async def test_a_file_that_is_heeded_is_looked_at_at_once(project: Project) -> None:
    project.tree.track([project.root / "ignored" / "own.log"])
    await project.tree.look()
    (project.root / "ignored" / "own.log").write_text("changed\n")
    assert await project.changed() == {"ignored/own.log": "file, file"}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells of changes")
def test_a_watched_folder_is_quiet_until_something_changes(tmp_path: Path) -> None:
    watched = Watched()
    assert not watched.is_quiet()  # nothing is known of what is not watched
    (tmp_path / "a").write_text("")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        watched.add(descriptor, "pack")
    finally:
        os.close(descriptor)
    assert watched.is_quiet()
    (tmp_path / "a").read_text()
    assert watched.is_quiet()
    (tmp_path / "a").write_text("x")
    assert not watched.is_quiet()
    assert watched.take_written() == frozenset({"pack/a"})
    for change in (
        lambda: (tmp_path / "a").chmod(0o600),
        lambda: os.utime(tmp_path / "a"),
        lambda: (tmp_path / "a").rename(tmp_path / "b"),
        (tmp_path / "b").unlink,
        lambda: tmp_path.chmod(0o700),
    ):
        change()
        assert not watched.is_quiet()
        assert watched.take_written() == frozenset()
        assert watched.is_quiet()
    watched.close()
    assert not watched.is_quiet()
    assert watched.take_written() is None


WRITING = """
import mmap, sys
for path in sys.argv[1:]:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0]
        memory[0:1] = b"X"
"""


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="a file system in memory is needed")
@pytest.mark.parametrize("names", [["a.txt"], ["pack/deep/c.txt", "a.txt"]])
@pytest.mark.parametrize("is_watched", [True, False])
async def test_what_is_written_through_memory_is_found(names: list[str], is_watched: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        project = Project(Path(folder))
        if not is_watched:
            project.tree._watched.close()
        await project.settle()
        await project.settle()
        times = [(project.root / name).stat().st_ctime_ns for name in names]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITING, *names, cwd=project.root)
        assert await process.wait() == 0
        assert times == [(project.root / name).stat().st_ctime_ns for name in names]  # so they prove nothing
        assert await project.changed() == dict.fromkeys(names, "file, file")
        project.tree.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has it")
def test_where_another_machine_may_change_things_nothing_is_ever_quiet(tmp_path: Path) -> None:
    watched = Watched()
    for folder in (tmp_path, Path("/proc"), tmp_path):
        descriptor = os.open(folder, os.O_RDONLY)
        watched.add(descriptor, "")
        os.close(descriptor)
        assert watched.is_quiet() == (folder == tmp_path and not watched._ended)
    assert watched._ended


def watches() -> list[str]:
    """What this process has open to be told of changes."""
    places = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return [place for place in places if os.path.islink(place) and "inotify" in os.readlink(place)]  # noqa: PTH114,PTH115


@pytest.mark.parametrize(("limits", "gap"), [((6, 3), ""), ((5, 3), "5"), ((6, 2), "2")])
async def test_a_project_is_followed_up_to_its_limits(
    limits: tuple[int, int], gap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, changes = limits
    monkeypatch.setattr("tui_agent.tools.files.tree.MAX_CHANGES", changes)
    for number in range(6):
        (tmp_path / "project" / f"{number}").mkdir(parents=True)
        (tmp_path / "project" / f"{number}" / "a.txt").write_text("a")
    tree = Tree(tmp_path / "project", [], KeptFiles(tmp_path / "session", 1_000_000), TreeLimits(files, 20.0, 10_000))
    await tree.look()
    for number in range(3):
        (tmp_path / "project" / f"{number}" / "a.txt").write_text("other")
    found = await tree.changes()
    assert [gap in said for said in found.gaps] == [True] * bool(gap)
    assert len(found.files) == (0 if files < 6 else min(3, changes))
    before = watches() if sys.platform == "linux" else []
    tree.close()
    if before:
        assert len(watches()) == len(before) - 1


async def test_a_project_that_grows_too_large_or_vanishes_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    tree = Tree(root, [], KeptFiles(tmp_path / "session", 1_000_000), TreeLimits(2, 20.0, 10_000))
    await tree.look()
    for name in "abc":
        (root / name).touch()
    assert "more than 2 files" in (await tree.changes()).gaps[0]
    (root / "c").unlink()
    await tree.look()
    assert await tree.gap() == ""
    shutil.rmtree(root)
    (gap,) = (await tree.changes()).gaps
    assert "No such file or directory" in gap
    await tree.look()
    assert await tree.gap() == gap
    tree.close()


async def test_an_excluded_folder_is_not_looked_at_whatever_its_name(tmp_path: Path) -> None:
    own = tmp_path / "project" / "own [*]{a,b}?!"
    for folder in (own, tmp_path / "project" / "own x"):
        folder.mkdir(parents=True)
    for name in "abc":
        (own / name).touch()
    kept = KeptFiles(tmp_path / "session", 1_000)
    tree = Tree(own.parent, [own, tmp_path / "elsewhere"], kept, TreeLimits(2, 20.0, 10_000))
    await tree.look()
    assert await tree.gap() == ""
    for folder in (own, own.parent / "own x"):
        (folder / "a.txt").touch()
    assert [Path(each.path).parent.name for each in (await tree.changes()).files] == ["own x"]
    tree.close()


def add_to_git(root: Path) -> None:
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)


@pytest.mark.parametrize("lost", [".git/objects", ".git", ".git/index"])
async def test_a_content_that_git_has_lost_is_not_kept(tmp_path: Path, lost: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
    add_to_git(root)
    tree = Tree(root, [], KeptFiles(tmp_path / "session", 1_000_000), LIMITS)
    await tree.look()
    (root / lost).rename(tmp_path / "lost")
    (root / "a.txt").write_text("second\n")
    (change,) = (await tree.changes()).files
    # Without the index, git still has what that named.
    assert change.unkept == ("" if lost == ".git/index" else "git no longer holds its content")
    tree.close()
