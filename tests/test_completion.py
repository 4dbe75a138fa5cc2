"""Completion for shells, in the shells that there are."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tui_agent.command_line import PARSERS
from tui_agent.completion import SHELLS, offered, words

ASKED = {
    "tui-agent se": ["sessions"],
    "tui-agent trace --fo": ["--follow"],
    "tui-agent --output-format js": ["json"],
    "tui-agent --mode p": ["plan"],
    "tui-agent mcp re": ["remove"],
}


def test_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(SHELLS["bash"]())
    ask = f"source {script}"
    for line in ASKED:
        given = " ".join(f"'{word}'" for word in line.split(" "))
        ask += f"; COMP_WORDS=({given}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _tui_agent; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [line.split() for line in done.stdout.splitlines()] == [*ASKED.values()]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_read_theirs(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "completion"
    script.write_text(SHELLS[shell]())
    subprocess.run([shell, "-n", str(script)], check=True)


def test_every_option_is_offered() -> None:
    for command, parser in PARSERS.items():
        assert {each.option for each in offered(command)} == set(parser().options)
    assert set(words("")) == set(filter(None, PARSERS))
    fish = SHELLS["fish"]()
    assert all(
        f"-l {option.removeprefix('--')} " in fish for option in PARSERS["trace"]().options if option[:2] == "--"
    )
