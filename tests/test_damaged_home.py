"""Files of the home folder that hold anything at all: the program answers, or says which of them is wrong."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tui_agent.cli import main
from tui_agent.settings.trust import trust
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.notes.memory import memory_folder

NOISE = random.Random(8)

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "random bytes": lambda before: NOISE.randbytes(len(before) + 400),
    "random bytes inside": lambda before: before[: len(before) // 2] + NOISE.randbytes(3) + before[len(before) // 2 :],
    "no valid UTF-8 in a text": lambda before: before.replace(b'"', b'"\xff', 1),
    "NUL bytes": lambda before: bytes(len(before)),
    "cut off": lambda before: before[:-5],
    "empty": lambda before: b"",
    "a list": lambda before: b"[1, 2]",
    "another object": lambda before: b'{"anthropic:claude|rule|prose": "text", "folders": 1, "projects": {"/": [5]}}',
    "numbers without end": lambda before: b'{"a": [1e999, -1e999, 123456789012345678901234567890]}',
    "a lone surrogate": lambda before: b'{"\\ud800": ["\\udfff"], "projects": {"\\ud800": ["\\udfff"]}}\n"\\ud800"\n',
    "deeper than a parser goes": lambda before: b"[" * 200_000,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with every file that is kept there, the project of which is the working folder."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / "themes").mkdir(parents=True)
    (home / "skills" / "sums").mkdir(parents=True)
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("TUI_AGENT_HOME", str(home))
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    (home / "config.json").write_text('{"ui": {"theme": "dark"}}')
    (home / "history.jsonl").write_text('"hello"\n"read README.md"\n')
    (home / "token-ratios.json").write_text('{"anthropic:claude-opus-5-5|rule|prose": [1.2, 1.3]}')
    (home / "themes" / "mine.json").write_text('{"primary": "#102030"}')
    (home / "skills" / "sums" / "SKILL.md").write_text("---\nname: sums\ndescription: how to add\n---\nAdd.\n")
    trust(project, home)
    RememberedRules(home / "permissions.json", project).add([Rule.read("run_command(make test)")])
    notes = memory_folder(home, project)
    notes.mkdir(parents=True)
    (notes / "MEMORY.md").write_text("- [build](build.md): how it is built\n")
    (notes / "build.md").write_text("make\n")
    return home


@pytest.fixture(autouse=True)
def no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for it here cannot be read."""
    monkeypatch.setattr(sys, "stdin", None)


def answer(capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[int, str, list[str]]:
    code = main(["-p", "hello", "--model", "offline"])
    out, err = capfdbinary.readouterr()
    return code, out.decode(), err.decode().splitlines()


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        case
        for number, damage in enumerate(DAMAGES)
        for case in ((damage, slice(number % 3, None, 3)), pytest.param(damage, slice(None), marks=pytest.mark.soak))
    ],
)
def test_the_program_answers_or_says_which_file_it_is(
    damage: str, part: slice, home: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, complaint = answer(capfdbinary)
    assert (code, complaint) == (0, [])
    assert "offline model" in out
    files = sorted(path for path in home.rglob("*") if path.is_file())
    assert len(files) > 10
    for path in files[part]:
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(DAMAGES[damage](before))
        code, out, complaint = answer(capfdbinary)
        assert code in (0, 2), (path, complaint)
        if code == 2:
            assert complaint
            assert all(line.startswith(f"tui-agent: {path}: ") for line in complaint), complaint
            assert len(complaint) == 1 or path.name == "config.json"
            assert path.name in ("config.json", "trusted.json", "permissions.json")
        else:
            assert "offline model" in out
            assert not any("unexpected" in line or "Traceback" in line for line in complaint)
        path.write_bytes(before)
    assert not (home / "logs").exists()


def test_a_folder_where_a_file_should_be_is_said_or_passed_over(
    home: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("config.json", "history.jsonl", "permissions.json", "token-ratios.json", "trusted.json"):
        path = home / name
        kept = path.rename(home / "kept")
        path.mkdir()
        code, out, complaint = answer(capfdbinary)
        if code == 0:
            assert "offline model" in out
        else:
            assert (code, len(complaint)) == (2, 1)
            assert complaint[0].startswith(f"tui-agent: {path}: ")
        path.rmdir()
        kept.rename(path)
    assert not (home / "logs").exists()
