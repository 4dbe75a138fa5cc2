"""Reading a command line: what is plain, what is opaque, and that bash reads a plain line the same way."""

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tools.gate.shell_lines import by_command, table
from tui_agent.tools.gate.shell_line import MAX_LINE, read_line


def words(line: str) -> list[tuple[str, ...]]:
    return [command.texts for command in read_line(line).commands]


PLAIN: dict[str, list[tuple[str, ...]]] = {
    "git status": [("git", "status")],
    "  git   status\n": [("git", "status")],
    "git status && rm -rf x": [("git", "status"), ("rm", "-rf", "x")],
    "git status||rm x": [("git", "status"), ("rm", "x")],
    "git status;rm x;": [("git", "status"), ("rm", "x")],
    "git status | cat": [("git", "status"), ("cat",)],
    "echo 'a; rm x' \"b && rm y\"": [("echo", "a; rm x", "b && rm y")],
    "echo 'it'\"'s\"\\ fine": [("echo", "it's fine")],
    'echo "a\\"b\\\\c\\d"': [("echo", 'a"b\\c\\d')],
    "grep -E '^(a|b)$' a\\.py": [("grep", "-E", "^(a|b)$", "a.py")],
    "find . \\( -name a \\) \\! -name b": [("find", ".", "(", "-name", "a", ")", "!", "-name", "b")],
    "ls 2>/dev/null >/dev/null 2>&1 | wc": [("ls",), ("wc",)],
    "ls a=b HEAD~1 x@1.2 -5 5 !": [("ls", "a=b", "HEAD~1", "x@1.2", "-5", "5", "!")],
    "cat 'é' \"é\"": [("cat", "é", "é")],
    "cat ''": [("cat", "")],
}


def test_plain_lines() -> None:
    assert {line: words(line) for line in PLAIN} == PLAIN
    assert [line for line in PLAIN if read_line(line).opaque] == []


def test_opaque_lines_say_why() -> None:
    more = {
        "ends in the middle": ("ls && ",),
        "character": ("ls\u00a0x",),
        "control": ("ls \x1b[1m", "ls \x00"),
        "longer": ("ls " + "x" * MAX_LINE,),
        "too many": ("ls;" * 100,),
    }
    for why, lines in [*by_command("opaque").items(), *more.items()]:
        assert [line for line in lines if why not in read_line(line).opaque] == [], why


TOKENS = st.sampled_from([*table("tokens"), "\u00a0", "\u3000", *"   ", "\\ "])
LINES = st.lists(TOKENS, max_size=12).map(lambda tokens: "true " + "".join(tokens))


@settings(deadline=None, max_examples=examples(20))
@given(st.lists(LINES, min_size=30, max_size=60))
def test_bash_reads_the_words_of_a_plain_line_the_same_way(lines: list[str]) -> None:
    read = [read_line(line) for line in lines]
    plain = [
        line
        for line in read
        if len(line.commands) == 1 and ">" not in line.text and not any(word.glob for word in line.commands[0].words)
    ]
    script = "".join(f"printf '%s\\0' {line.text[5:]}\nprintf '\\1\\0'\n" for line in plain)
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    told = [tuple(part.split("\0")[:-1]) for part in done.stdout.split("\1\0")[:-1]]
    assert told == [line.commands[0].texts[1:] or ("",) for line in plain]


OPENERS = [*table("openers"), *(f"{word} " for word in table("opening words"))]
CLOSERS = ["", "", ";", ")", ")", "`", '"', "'", "}", "; }", "; fi", " x", "\n", "\nE\n", "))", " # ", "\\"]


def runs_mark(line: str, folder: Path) -> bool:
    """Whether bash, given this line, runs the program MARK."""
    mark = folder / "MARK"
    if not mark.exists():
        mark.write_text("#!/bin/sh\necho ran >&9\n")
        mark.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-c", 'exec 9>&1 >/dev/null 2>&1; eval "$LINE"'],
        env={"PATH": f"{folder}:/usr/bin:/bin", "LINE": line},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        timeout=60,
        check=False,
    )
    return b"ran" in done.stdout


@given(
    before=st.lists(st.sampled_from(["echo a ", *OPENERS]), max_size=5).map("".join),
    after=st.lists(st.sampled_from(CLOSERS), max_size=5).map("".join),
)
def test_a_program_that_runs_is_seen_or_the_line_is_opaque(
    before: str, after: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """bash is the judge: a line that makes MARK run has it as a command, is opaque, or names what runs arguments."""
    line = f"{before}MARK{after}"
    read = read_line(line)
    if read.opaque or any(c.texts[0] in {"MARK", "env", "eval", "xargs", "bash"} for c in read.commands):
        return
    folder = tmp_path_factory.getbasetemp() / "programs"
    folder.mkdir(exist_ok=True)
    assert not runs_mark(line, folder)


def test_the_judge_of_that_can_see_the_program_run(tmp_path: Path) -> None:
    assert runs_mark("echo $(MARK)", tmp_path)


def test_no_line_takes_long() -> None:
    """By work done, not by the clock on the wall."""
    for piece in ("x|", "[[ a", "${a", "<<<", "<<E ", "((a<<", "ls;", "'", '"$(', "a b ", "*a/", "\\"):
        began = time.thread_time()
        read_line(piece * 3_000)
        read_line(piece * (3_900 // len(piece)))
        assert time.thread_time() - began < 0.5
