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

from tests.tools.gate.test_gate_paths import LENGTHS, strictly
from tests.tools.world import Person, World, attempt
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.shell.run_command import RunCommand

PROGRAMS = (
    *(
        "bash",
        "sh",
        "env",
        "cat",
        "ls",
        "head",
        "tail",
        "wc",
        "sort",
        "uniq",
        "grep",
        "find",
        "sed",
        "awk",
        "tar",
        "tee",
    ),
    *("git", "diff", "stat", "du", "xargs", "timeout", "nice", "nohup", "realpath", "date", "cp", "tr", "gzip"),
)
ALLOWED = (
    *(
        "git status *",
        "git diff *",
        "git log *",
        "git *",
        "ls *",
        "cat *",
        "head *",
        "tail *",
        "wc *",
        "sort *",
        "uniq *",
    ),
    *("grep *", "find *", "sed *", "awk *", "tar *", "tee *", "diff *", "stat *", "du *", "xargs *", "realpath *"),
    *("echo *", "printf *", "true *", "cd *", "test *", "date *", "cp *", "tr *", "env *", "pushd *", "popd *"),
)
OPTIONS = {
    "git": (
        *("status", "diff", "log", "show", "diff --stat", "log --oneline", "status -s", "log -p --ext-diff", "blame"),
        *(
            "diff --output=OUT",
            "diff --outp=OUT",
            "log --output OUT",
            "-c core.pager=EVIL -p log",
            "-C ../outside status",
        ),
        *("-c diff.external=EVIL diff", "diff --no-index /dev/null OUT", "-c alias.x=!EVIL x", "config alias.x !EVIL"),
        *("grep -OEVIL line", "archive -o OUT HEAD", "format-patch -oOUT HEAD", "--git-dir=.git status", "add a.txt"),
        *(
            "bisect run EVIL",
            "submodule foreach EVIL",
            "rebase -x EVIL HEAD",
            "worktree add OUT",
            "init OUT",
            "mv a.txt OUT",
            "diff -- a.txt",
            "show HEAD:a.txt",
        ),
    ),
    "sort": (
        "-o OUT",
        "-oOUT",
        "-uo OUT",
        "--output=OUT",
        "--outp OUT",
        "--compress-program=EVIL -S1",
        "-n",
        "--files0-from=OUT",
    ),
    "find": (
        *(
            "-name a.txt",
            "-delete",
            "-exec EVIL ;",
            "-exec EVIL {} +",
            "-execdir cat {} ;",
            "-fprint OUT",
            "-L",
            "-type f",
        ),
        *("-follow", "-exec cat {} +", "-okdir EVIL ;", "-maxdepth 1", "-newer OUT", "-fls OUT"),
    ),
    "sed": (
        *(
            "-n 1p",
            "'1w OUT'",
            "'1e EVIL'",
            "'s/l/EVIL/e'",
            "'s/A/x/w OUT'",
            "-i s/A/B/",
            "-ni p",
            "--in-pl s/A/B/",
            "s/A/B/g",
        ),
        *("-e 1p -e 'w OUT'", "'r OUT'", "-f OUT", "-n '/A/p'", "-s 2q", "'1!e'", "-n '$p;1w OUT'"),
    ),
    "awk": (
        *(
            "'{print $1}'",
            "'BEGIN{system(\"EVIL\")}'",
            "'{print > \"OUT\"}'",
            "'{print | \"EVIL\"}'",
            "-f OUT",
            "-F: '{print $2}'",
        ),
        *("'BEGIN{while((getline x < \"OUT\")>0) print x}'", "'BEGIN{ARGV[1]=\"OUT\";ARGC=2}{print}'", "'/A/'"),
    ),
    "tar": (
        "tf OUT",
        "cf OUT a.txt",
        "xf OUT",
        "-tf OUT --to-command=EVIL",
        "cf - a.txt --checkpoint-action=exec=EVIL",
        "-I EVIL -tf a.txt",
    ),
    "ls": ("-l", "-la", "-R", "-L", "-HR", "--deref -R", "-d"),
    "cat": ("", "-n", "--"),
    "grep": ("-r line", "-R Qz7", "--deref Qz7", "-n A", "-f OUT A", "-rfOUT A", "-rh line"),
    "diff": ("-r", "-u", "--recur", "-ruN"),
    "wc": ("-l", "--files0-from=OUT", "--files0-from=-"),
    "du": ("-a", "-aL", "-D", "--files0-from=OUT"),
    "stat": ("", "-L"),
    "date": ("", "-f OUT", "-r OUT", "--file=OUT"),
    "printf": ("x", "-v PATH /evil", "'%s\\n'", "-v 'a[$(EVIL)]' x"),
    "test": ("-e", "-v 'a[$(EVIL)]'", "-f"),
    "tee": ("", "-a"),
    "uniq": ("", "a.txt"),
    "xargs": ("cat", "-a OUT cat", "EVIL", "-I{} cat {}", "cat < a.txt"),
    "env": (
        "",
        "EVIL",
        "PATH=/evil git status",
        "-C .. cat outside/secret.txt",
        "-S 'EVIL x'",
        "git status",
        "X=1 EVIL",
    ),
    "cp": ("a.txt", "-L", "-r link-dir"),
    "cd": ("src", "..", "link-dir", "-", "up", "src/deep", "/"),
    "pushd": ("src", "..", "up"),
    "timeout": ("5 cat", "5 EVIL", "5 git status"),
    "bash": ("-c EVIL", "-c 'cat a.txt'", '-c "cat $HOME/x.txt"', "a.txt", "-lc 'git status'"),
    "eval": ("EVIL", "'cat a.txt'", "cat OUT"),
    **dict.fromkeys(("head", "tail", "realpath", "echo", "true", "tr", "EVIL", "nohup", "popd", "date"), ("",)),
}
JOINTS = (" && ", " || ", "; ", " | ", " |& ", " & ", "\n", " # ", "\\\n", " ")
FRAMES = (
    *("{}", "{}", "{}", "{}", "({})", "{{ {}; }}", "$({})", "echo $({})", "echo `{}`", "! {}", "time {}", "cat <({})"),
    *("X=1 {}", "PATH=/evil {}", "GIT_EXTERNAL_DIFF=EVIL {}", "eval '{}'", "bash -c '{}'", "nice {}", "timeout 5 {}"),
    *(
        "for f in *; do {}; done",
        "for f in /etc/host* $HOME/*; do cat $f; done; {}",
        "if true; then {}; fi",
        "alias ls=EVIL\n{}",
    ),
    *("git() {{ EVIL; }}; {}", "cat <<E\n$({})\nE", "cat <<'E'\n{}\nE", "{} <<< x", "cd src && {}", "cd src/deep; {}"),
    *("cd up; {}", "cd src; cd deep; {}", "while read x; do {}; break; done < a.txt", "set -- OUT; {}", "exec {}"),
)
REDIRECTIONS = (
    "",
    "",
    "",
    "",
    " > OUT",
    " >> OUT",
    " 2> OUT",
    " &> OUT",
    " < OUT",
    " <> OUT",
    " > new.txt",
    " 2>&1",
    " >| OUT",
    " > $X",
)


PLAIN = (
    *("git status", "git diff --stat", "git log --oneline", "ls -l src", "cat a.txt src/b.py", "head -n 1 a.txt", "ls"),
    *("wc -l a.txt", "sort -n a.txt", "grep -n A a.txt", "grep -r line .", "find . -name a.txt", "sed -n 1p a.txt"),
    *(
        "awk '{print $1}' a.txt",
        "diff -u a.txt src/b.py",
        "stat src",
        "du -a .",
        "realpath src",
        "echo link-dir",
        "date",
    ),
    *("cat src/*.py", "cd src && cat b.py", "ls src/*", "tr a b", "timeout 5 cat a.txt", "tail -n 1 src/deep/c.txt"),
)
"""Lines with which nothing is wrong, for the others to be mixed with."""


def lines(world: World) -> "st.SearchStrategy[str]":
    """Shell lines of these programs, with every way to reach out that is known here."""
    quotes = st.sampled_from(["'{}'", '"{}"', "$(echo {})", "\\{}", "{}*", "--file={}", "-f{}", "x:{}"])
    near = st.sampled_from(
        ["a.txt", "src/b.py", "src", "link-file", "link-dir", "link-*/*", "hard", "$HOME/x.txt", "up/.."]
    )
    quoted = st.builds(lambda quote, path: quote.format(path), quotes, st.one_of(near, world.paths))
    operands = st.one_of(
        st.sampled_from(["", "a.txt", "src"]),
        near,
        world.paths,
        st.lists(st.one_of(near, quoted), max_size=2).map(" ".join),
    )

    started = st.sampled_from([f"{name} {option}" for name in sorted(OPTIONS) for option in OPTIONS[name]])
    simple = st.one_of(st.builds("{} {}".format, started, operands), st.sampled_from(PLAIN))
    redirected = st.builds("{}{}".format, simple, st.sampled_from(REDIRECTIONS))
    framed = st.builds(lambda frame, text: frame.format(text), st.sampled_from(FRAMES), redirected)
    joined = st.builds("{}{}{}".format, framed, st.sampled_from(JOINTS), framed)
    places = st.sampled_from([f"{world.outside}/new", "../outside/new", "link-dir/new", "link-file", "hard", "a.txt"])
    return st.builds(
        lambda line, place: line.replace("OUT", place),
        st.one_of(simple, simple, redirected, framed, joined),
        st.one_of(places, world.paths),
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, PROGRAMS)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("PATH", str(world.bin))
    monkeypatch.setenv("OLDPWD", str(world.outside))
    return world


@pytest.mark.parametrize("examples", LENGTHS)
def test_what_rules_let_through_stays_in_the_workspace(examples: int, world: World) -> None:
    """Every program under a rule with a star: nothing outside is read or written, and no other program runs."""
    tool = RunCommand()
    gate = PermissionGate("auto", world.workspace, allow=[f"run_command({pattern})" for pattern in ALLOWED])
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
    gate = PermissionGate("auto", world.workspace, allow=[f"run_command({pattern})" for pattern in ALLOWED])
    ran = 0
    for line in sorted(
        {
            f"{name} {option} {operand}".replace("OUT", place)
            for name, options in OPTIONS.items()
            for option in options
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
    near = st.sampled_from(
        ["git status", "git diff", "ls -l", "sort -n a.txt", "git diff a.txt | ls", "ls src && ls", "ls 2>/dev/null"]
    )

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
