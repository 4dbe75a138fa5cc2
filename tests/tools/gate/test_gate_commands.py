"""Properties of the gate with commands, run for real: what rules let through stays in the workspace and is what was
allowed.
"""

import asyncio
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.tools.gate.shell_lines import by_command, table
from tests.tools.gate.test_gate_paths import LENGTHS, strictly
from tests.tools.world import Person, World, attempt
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.shell.run_command import RunCommand

PROGRAMS = (
    "bash sh env cat ls head tail wc sort uniq grep find sed awk tar tee git diff stat du xargs timeout nice nohup "
    "realpath date cp tr gzip"
)
ALLOW = [f"run_command({pattern})" for pattern in table("allowed")]
STARTED = [f"{program} {rest}" for program, more in sorted(by_command("started").items()) for rest in more]
JOINTS = (" && ", " || ", "; ", " | ", " |& ", " & ", "\n", " # ", "\\\n", " ")
REDIRECTIONS = ("", "", "", "", *(f" {each}" for each in table("redirections")))


def lines(world: World) -> "st.SearchStrategy[str]":
    """Shell lines of these programs, with every way to reach out that is known here."""
    quotes = st.sampled_from(["'{}'", '"{}"', "$(echo {})", "\\{}", "{}*", "--file={}", "-f{}", "x:{}"])
    near = st.sampled_from(table("near"))
    quoted = st.builds(lambda quote, path: quote.format(path), quotes, st.one_of(near, world.paths))
    operands = st.one_of(
        st.sampled_from(["", "a.txt", "src"]),
        near,
        world.paths,
        st.lists(st.one_of(near, quoted), max_size=2).map(" ".join),
    )

    simple = st.one_of(st.builds("{} {}".format, st.sampled_from(STARTED), operands), st.sampled_from(table("plain")))
    redirected = st.builds("{}{}".format, simple, st.sampled_from(REDIRECTIONS))
    framed = st.builds(lambda frame, text: frame.format(text), st.sampled_from(table("frames")), redirected)
    joined = st.builds("{}{}{}".format, framed, st.sampled_from(JOINTS), framed)
    places = st.sampled_from([f"{world.outside}/new", "../outside/new", "link-dir/new", "link-file", "hard", "a.txt"])
    return st.builds(
        lambda line, place: line.replace("OUT", place),
        st.one_of(simple, simple, redirected, framed, joined),
        st.one_of(places, world.paths),
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, tuple(PROGRAMS.split()))
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("PATH", str(world.bin))
    monkeypatch.setenv("OLDPWD", str(world.outside))
    return world


@pytest.mark.parametrize("examples", LENGTHS)
def test_what_rules_let_through_stays_in_the_workspace(examples: int, world: World) -> None:
    """Every program under a rule with a star: nothing outside is read or written, and no other program runs."""
    tool = RunCommand()
    gate = PermissionGate("auto", world.workspace, allow=ALLOW)
    done = {"ran": 0, "asked": 0}

    @strictly(examples)
    @given(lines(world))
    def holds(line: str) -> None:
        note(line)
        person = Person()
        _, output = asyncio.run(attempt(world, gate, tool, person, {"command": line, "timeout": 10}))
        done["asked" if person.questions else "ran"] += 1
        if output is not None:
            world.restore()
        world.check(output)

    holds()
    assert min(done.values()) > examples // 40, done


def test_every_known_way_to_reach_out_asks(world: World) -> None:
    """One by one what the property above mixes: each program's every option, with a file and with each kind of link."""
    gate = PermissionGate("auto", world.workspace, allow=ALLOW)
    ran = 0
    for line in sorted(
        {
            f"{started} {operand}".replace("OUT", place)
            for started in STARTED
            for operand, place in (("a.txt", f"{world.outside}/new"), ("link-file", "hard"))
        }
    ):
        person = Person()
        _, output = asyncio.run(attempt(world, gate, RunCommand(), person, {"command": line, "timeout": 10}))
        world.check(output)
        if output is not None:
            ran += 1
            world.restore()
    assert ran > 20


RECORDER = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$PWD" "$@" > RECORD/$$
"""
WRAPPERS = ("bash", "env", "timeout", "nice", "nohup", "xargs")
NARROW = ("git status *", "git diff *", "ls *", "sort -n", "sort -n *")


DEVICES = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")


def is_covered(world: World, name: str, folder: str, *arguments: str) -> bool:
    """Whether one of `NARROW` means this, told without the code under test."""
    reaching = {"git": r"--?(o|ext)", "ls": r"-[a-zA-Z]*[LH]|--dere", "sort": r"-[a-z]*[oT]"}.get(name, "")
    known = {"git": arguments[:1] in (("status",), ("diff",)), "ls": True, "sort": arguments[:1] == ("-n",)}.get(name)
    if not known or any(re.match(reaching, argument) for argument in arguments):
        return False
    places = [Path(os.path.realpath(Path(folder, argument))) for argument in arguments if argument not in DEVICES]
    return all(not os.path.lexists(place) or place.is_relative_to(world.root) for place in places)


@pytest.mark.parametrize("examples", LENGTHS)
def test_whatever_the_shell_runs_is_covered_by_a_rule(examples: int, world: World) -> None:
    """The programs on PATH write down that and how they were run; only wrappers are real."""
    record = world.base / "record"
    record.mkdir()
    for program in world.bin.iterdir():
        if program.name not in WRAPPERS:
            program.unlink()
            program.write_text(RECORDER.replace("RECORD", str(record)))
            program.chmod(0o755)
    gate = PermissionGate("ask", world.workspace, allow=[f"run_command({pattern})" for pattern in NARROW])
    done = {"ran": 0, "asked": 0}
    near = st.sampled_from(table("covered"))

    @strictly(examples)
    @given(st.one_of(lines(world), near, st.builds("{}{}{}".format, near, st.sampled_from(JOINTS), lines(world))))
    def holds(line: str) -> None:
        note(line)
        person = Person()
        asyncio.run(attempt(world, gate, RunCommand(), person, {"command": line, "timeout": 10}))
        runs = [run.read_bytes().decode(errors="replace").split("\0")[:-1] for run in record.iterdir()]
        for run in record.iterdir():
            run.unlink()
        assert [run for run in runs if not is_covered(world, *run)] == []
        done["asked" if person.questions else "ran"] += 1

    holds()
    assert min(done.values()) > examples // 40, done
