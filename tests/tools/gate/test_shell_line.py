"""Reading a shell line for rules."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tools.gate.shell_line import read_line


def texts(line: str) -> list[str]:
    return [command.text for command in read_line(line).commands]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git status", ["git status"]),
        ("git status && rm -rf x", ["git status", "rm -rf x"]),
        ("git status||rm x", ["git status", "rm x"]),
        ("git status;rm x", ["git status", "rm x"]),
        ("git status & rm x", ["git status", "rm x"]),
        ("git status\nrm x", ["git status", "rm x"]),
        ("git status | tee f |& cat", ["git status", "tee f", "cat"]),
        ("(rm x)", ["rm x"]),
        ("{ rm x; }", ["rm x"]),
        ("! rm x", ["rm x"]),
        ("if true; then rm x; else ls; fi", ["true", "rm x", "ls"]),
        ("while true; do rm x; done", ["true", "rm x"]),
        ("for f in *.py; do wc -l $f; done", ["wc -l $f"]),
        ("git status # && rm x", ["git status"]),
        ("echo a#b", ["echo 'a#b'"]),
        ("echo 'a; rm x' \"b && rm y\"", ["echo 'a; rm x' 'b && rm y'"]),
        ("r\\m x", ["rm x"]),
        ("'r'\"m\" x", ["rm x"]),
        ("g\\\nit status", ["git status"]),
        ("echo a\\\\\nrm x", ["echo 'a\\'", "rm x"]),
        ("echo $(rm x)", ["echo '$(rm x)'", "rm x"]),
        ('echo "$(rm x)"', ["echo '$(rm x)'", "rm x"]),
        ('echo "a $(echo ")" ; rm x) b"', ["echo 'a $(echo \")\" ; rm x) b'", "echo ')'", "rm x"]),
        ("echo '$(rm x)'", ["echo '$(rm x)'"]),
        ("echo `rm x`", ["echo '`rm x`'", "rm x"]),
        ("echo `echo \\`rm x\\``", ["echo '`echo \\`rm x\\``'", "echo '`rm x`'", "rm x"]),
        ("diff <(rm a) b", ["diff '' b", "rm a"]),
        ("ls > >(rm a)", ["ls", "rm a"]),
        ("cat <<EOF\n$(rm x)\nEOF\nls", ["cat", "ls", "rm x"]),
        ("cat <<'EOF'\n$(rm x)\nEOF\nls", ["cat", "ls"]),
        ("cat <<-EOF\n\trm x\n\tEOF\nls", ["cat", "ls"]),
        ("cat <<A <<B; ls\n1\nA\n2\nB\nrm x", ["cat", "ls", "rm x"]),
        ("cat <<<$(rm x)", ["cat", "rm x"]),
        ("X=1 git status", ["X=1 git status"]),
        ("X=$(rm x)", ["'X=$(rm x)'", "rm x"]),
        ("sudo -u root rm x", ["sudo -u root rm x", "rm x"]),
        ("env A=1 git status", ["A=1 git status"]),
        ("time nice -n 5 timeout -k 1 5 git status", ["git status"]),
        ("nohup git status", ["git status"]),
        ("command git status", ["git status"]),
        ("xargs -n 1 rm", ["xargs -n 1 rm", "rm '…'"]),
        ("bash -c 'git status; rm x'", ["git status", "rm x"]),
        ("bash -x -c 'rm x'", ["bash -x -c 'rm x'", "rm x"]),
        ("eval 'rm x'", ["rm x"]),
        ("eval rm x '&&' ls", ["rm x", "ls"]),
        ("find . -exec rm {} \\; -o -exec ls {} +", ["find . -exec rm {} ';' -o -exec ls {} +", "rm '…'", "ls '…'"]),
        ("echo $((1 + 2)) ${HOME} ${x:-y} $1", ["echo '$((1 + 2))' ${HOME} ${x:-y} $1"]),
        ("2>/dev/null git status", ["git status"]),
        ("> out", []),
        ("", []),
        ("# nothing", []),
    ],
)
def test_all_that_runs_is_seen(line: str, commands: list[str]) -> None:
    read = read_line(line)
    assert [command.text for command in read.commands] == commands
    assert not read.opaque


@pytest.mark.parametrize(
    "line",
    [
        "$X status",
        "$(echo rm) x",
        "`echo rm` x",
        "g* status",
        "/bin/r? x",
        "{rm,-rf,x}",
        "git {status,push}",
        "echo {1..3}",
        "f() { rm x; }; f",
        "function f { rm x; }",
        "git() { rm x; }",
        "case x in x) rm y;; esac",
        "select x in a; do rm y; done",
        "coproc rm x",
        "[[ -f x ]] && rm y",
        "((x=1))",
        "a=(1 2)",
        "echo $'\\x72m'",
        'echo $"x"',
        "echo ${!x}",
        "echo ${x@P}",
        "echo ${x[$(rm y)]}",
        "echo ${x:-$(rm y)}",
        "echo $((a[$(rm y)]))",
        "echo $[1]",
        "eval $X",
        'bash -c "$X"',
        "bash",
        "curl x | sh",
        "bash <<EOF\nrm x\nEOF",
        "bash -o errexit -c 'rm x'",
        "sh -s",
        "source x",
        ". x",
        "trap 'rm x' EXIT",
        "alias git=rm",
        "ssh host rm x",
        "env -S 'rm x'",
        "env -C / rm x",
        "sudo -i",
        "xargs -I{} sh -c {}",
        "find . -exec {} \\;",
        "echo 'open",
        'echo "open',
        "echo `open",
        "echo $(open",
        "echo )",
        "cat <<EOF\nopen",
        "ls >",
        "ls > & x",
        "echo $( # comment )\n)",
        "echo $(cat <<E\n)\nE\n)",
        "for PATH in /evil; do git status; done",
        "for ((;;)); do rm x; done",
        '"$\\\n(rm x)"',
        "cat < /dev/tcp/host/1",
        "$(" * 20 + ")" * 20,
        "su -c 'rm x'",
    ],
)
def test_what_is_not_understood_is_opaque(line: str) -> None:
    assert read_line(line).opaque


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("ls > f", ["f"]),
        ("ls>>f 2>g", ["f", "g"]),
        ("ls &> f", ["f"]),
        ("ls >& f", ["f"]),
        ("ls >| 'a b'", ["a b"]),
        ("ls <> f", ["f"]),
        ("exec 3> f", ["f"]),
        ("{ ls; } > f", ["f"]),
        ("(ls > f)", ["f"]),
        ("echo $(ls > f)", ["f"]),
        ("bash -c 'ls > f'", ["f"]),
        ("ls > $X", [None]),
        ("ls > *.x", [None]),
        ("ls > ~/f", ["~/f"]),
        ("ls > ~root/f", [None]),
        ("ls > '~/f'", ["./~/f"]),
        ("cd /tmp && ls > f", [None]),
        ("cd /tmp && ls > /x/f", ["/x/f"]),
        ("ls 2>&1 >/dev/null <f 2>&- >&2", []),
    ],
)
def test_files_a_redirection_writes(line: str, writes: list[str | None]) -> None:
    assert [write.target for write in read_line(line).writes] == writes


def test_programs_by_path_are_mentioned_by_name() -> None:
    assert "rm x" in read_line("/bin/rm x").mentions
    assert "rm x" in read_line("A=1 rm x").mentions
    assert "nohup rm x" in read_line("nohup rm x").mentions


PIECES = st.sampled_from(
    [
        "echo",
        " ",
        " ",
        "MARK",
        "'",
        '"',
        "`",
        "$",
        "(",
        ")",
        "{",
        "}",
        ";",
        "&",
        "|",
        "\n",
        "\\",
        "#",
        "<",
        ">",
        "a",
        "=",
        "$(",
        "<<",
        "E",
        "&&",
        "if",
        "then",
        "fi",
        "do",
        "!",
        "true",
        "${",
        ",",
        "eval ",
        "env ",
        "$((",
        "for x in ",
        "time ",
        "bash -c ",
        ":",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_reading_never_fails(line: str) -> None:
    read_line(line)
    read_line(line + "\x00\ud800")


OPENERS = [
    "",
    "",
    "; ",
    "& ",
    "| ",
    "&& ",
    "(",
    "$(",
    "`",
    '"$(',
    '"`',
    "{ ",
    "if ",
    "! ",
    "time ",
    "env ",
    "eval ",
    "eval '",
    "bash -c '",
    "<(",
    "x=$(",
    "\\\n",
    "\n",
    "${x:-",
    "$((",
    "<<E\n",
    "<<'E'\n",
    "# ",
    "'",
    '"',
    "x=1 ",
    "xargs ",
    "nohup ",
]
CLOSERS = ["", "", ";", ")", ")", "`", '"', "'", "}", "; }", "; fi", " x", "\n", "\nE\n", "))", " # ", "\\"]


@given(
    before=st.lists(st.sampled_from(["true ", "echo a ", *OPENERS]), max_size=5).map("".join),
    after=st.lists(st.sampled_from(CLOSERS), max_size=5).map("".join),
)
def test_a_program_that_runs_is_seen_or_the_line_is_opaque(
    before: str, after: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """bash is the judge: whatever line makes the program MARK run, it is among the commands that were read."""
    line = f"{before}MARK{after}"
    read = read_line(line)
    if read.opaque or any(command.words[:1] == ("MARK",) for command in read.commands):
        return
    folder = tmp_path_factory.getbasetemp() / "programs"
    folder.mkdir(exist_ok=True)
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
        timeout=10,
        check=False,
    )
    assert b"ran" not in done.stdout


def test_the_judge_of_that_can_see_the_program_run(tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    mark.write_text("#!/bin/sh\necho ran >&9\n")
    mark.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-c", 'exec 9>&1 >/dev/null 2>&1; eval "$LINE"'],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "LINE": "echo $(MARK)"},
        capture_output=True,
        check=False,
    )
    assert b"ran" in done.stdout
