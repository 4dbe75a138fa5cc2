"""Properties of the gate with the file tools, run for real: what passes unasked stays in the workspace."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.world import HIDDEN, SECRET, Person, World, attempt, tree
from tui_agent.tools.base import Tool
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.notes.memory import Memory, Notes
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.shell.run_command import RunCommand

SOAK = pytest.mark.soak
QUICK = 40
LENGTHS = [QUICK, pytest.param(1_000, marks=SOAK)]


def calls(paths: "st.SearchStrategy[str]") -> "st.SearchStrategy[tuple[Tool, dict[str, Any]]]":
    """Calls of the file tools with these paths."""
    reading = st.tuples(st.sampled_from([ReadFile(), ListDir()]), st.fixed_dictionaries({"path": paths}))
    writing = st.tuples(st.just(WriteFile()), st.fixed_dictionaries({"path": paths, "content": st.just("mine\n")}))
    changes = st.fixed_dictionaries({"path": paths, "old": st.just("A line"), "new": st.just("mine")})
    editing = st.tuples(st.just(EditFile()), changes)
    names = st.fixed_dictionaries({"path": paths, "pattern": st.one_of(paths, st.sampled_from(["*", "**/*", "**"]))})
    finding = st.tuples(st.just(Glob()), names)
    texts = st.fixed_dictionaries(
        {"path": paths, "pattern": st.sampled_from(["", "l.ne", "\n"]), "glob": st.one_of(st.none(), paths)}
    )
    return st.one_of(reading, writing, editing, finding, st.tuples(st.just(Grep()), texts))


def strictly(examples: int) -> settings:
    """Settings for a property that runs a loop of its own in one folder."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        # How often each thing comes is counted, which differs too much in so few examples of chance.
        derandomize=examples == QUICK,
    )


@pytest.mark.parametrize("examples", LENGTHS)
def test_in_auto_nothing_outside_is_touched_without_a_question(
    examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.setenv("HOME", str(world.home))
    done = {"read": 0, "written": 0, "asked": 0}

    @strictly(examples)
    @given(calls(world.paths))
    def holds(called: tuple[Tool, dict[str, Any]]) -> None:
        tool, arguments = called
        person = Person()
        gate = PermissionGate("auto", world.workspace)
        _, output = asyncio.run(attempt(world, gate, tool, person, arguments))
        world.check(output)
        done["asked"] += bool(person.questions)
        if output is not None and not output.is_error:
            done["read" if tool.effect == "read" else "written"] += 1
            if tool.effect == "write":
                assert tree(world.root / ".git") == kept
                world.restore()

    kept = tree(world.root / ".git")
    holds()
    assert min(done.values()) > examples // 40, done


@pytest.mark.parametrize("examples", LENGTHS)
def test_in_plan_nothing_at_all_is_changed(examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the user answers, and whatever their rules allow."""
    world = World(tmp_path)
    monkeypatch.setenv("HOME", str(world.home))
    before = tree(world.base)
    notes = Memory(Notes(world.base / "memory"))
    others = st.one_of(
        st.tuples(
            st.just(RunCommand()), st.fixed_dictionaries({"command": world.paths.map(lambda path: f"touch {path}")})
        ),
        st.tuples(st.just(notes), st.just({"action": "write", "name": "a", "description": "b", "text": "c"})),
    )
    done = {"read": 0, "refused": 0}

    @strictly(examples)
    @given(st.one_of(calls(world.paths), others), st.sampled_from([[], ["*"], ["write_file", "run_command(*)"]]))
    def holds(called: tuple[Tool, dict[str, Any]], allow: list[str]) -> None:
        tool, arguments = called
        gate = PermissionGate("plan", world.workspace, allow=allow)
        verdict, output = asyncio.run(attempt(world, gate, tool, Person(within=world.base), arguments))
        assert tree(world.base) == before
        if verdict is not None and not verdict.allowed:
            done["refused"] += 1
            assert verdict.reason
            assert verdict.advice
        done["read"] += output is not None and not output.is_error

    holds()
    assert min(done.values()) > examples // 20, done


SWAPPING = """
import os, shutil, sys
root, outside = sys.argv[1:]
link, aside = f"{root}/swap-link", f"{root}/swap-aside"
while True:
    for name, target in ("src", f"{outside}/dir"), ("src", f"{outside}/dir"), ("a.txt", f"{outside}/secret.txt"):
        place = f"{root}/{name}"
        try:
            os.symlink(target, link)
            for _ in range(20):
                os.rename(place, aside)
                os.rename(link, place)
                os.rename(place, link)
                os.rename(aside, place)
        except OSError:
            pass
        if os.path.lexists(aside):  # a call has made something in its place
            shutil.rmtree(place, ignore_errors=True)
            try:
                os.rename(aside, place)
            except OSError:
                pass
        if os.path.lexists(link):
            os.unlink(link)
"""


@contextmanager
def swapping(world: World) -> Iterator[None]:
    """A folder and a file of the workspace that another process turns into links to outside and back, all the time."""
    process = subprocess.Popen([sys.executable, "-c", SWAPPING, world.root, world.outside])
    try:
        yield
    finally:
        assert process.poll() is None
        process.kill()
        process.wait()


@pytest.mark.parametrize("examples", LENGTHS)
def test_a_link_that_takes_a_place_between_check_and_use_leads_nowhere(examples: int, tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.root / "src/inner.txt").write_text("A line\n")
    names = ("src", "src/inner.txt", "src/new.txt", "src/deep", "src/deep/c.txt", "a.txt", "src/inner.txt")
    done = {"ok": 0, "failed": 0}

    @strictly(examples)
    @given(calls(st.sampled_from(names)))
    def holds(called: tuple[Tool, dict[str, Any]]) -> None:
        tool, arguments = called
        for _ in range(3):
            gate = PermissionGate("auto", world.workspace)
            _, output = asyncio.run(attempt(world, gate, tool, Person(), arguments))
            assert output is None or (SECRET not in output.text and HIDDEN not in output.text), output.text
            done["failed" if output is None or output.is_error else "ok"] += 1

    with swapping(world):
        holds()
    assert tree(world.outside) == world.before
    assert min(done.values()) > 0, done


def test_a_hard_link_is_a_file_of_the_folder_it_lies_in(tmp_path: Path) -> None:
    """Which other names a file has nobody can tell; but writing gives the workspace a file of its own."""
    world = World(tmp_path)
    gate = PermissionGate("auto", world.workspace)
    for tool, arguments in (
        (EditFile(), {"path": "hard", "old": "second", "new": "third"}),
        (WriteFile(), {"path": "hard", "content": "mine"}),
    ):
        _, output = asyncio.run(attempt(world, gate, tool, Person(), arguments))
        assert output is not None
        assert not output.is_error
        world.check(output)


def test_the_outside_would_tell(tmp_path: Path) -> None:
    """The judge of these properties can see a read and a write."""
    world = World(tmp_path)
    gate = PermissionGate("allow", world.workspace)
    _, output = asyncio.run(attempt(world, gate, ReadFile(), Person(), {"path": "chain-file"}))
    with pytest.raises(AssertionError):
        world.check(output)
    asyncio.run(attempt(world, gate, WriteFile(), Person(), {"path": "dangling", "content": ""}))
    with pytest.raises(AssertionError):
        world.check(None)
