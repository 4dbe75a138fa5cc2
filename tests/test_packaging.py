"""What is inside the wheel, and that the program finds its files."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "tui_agent", "styles", "docs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from a copy of the sources, without a network."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, source / name)
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = target.glob("tui_agent-*.whl")
    return built


def test_the_wheel_holds_every_module_style_and_prompt(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (points,) = (name for name in names if name.endswith("dist-info/entry_points.txt"))
        assert "tui-agent = tui_agent.__main__:main" in archive.read(points).decode()
    package = {f"tui_agent/{path.relative_to(ROOT / 'tui_agent')}" for path in (ROOT / "tui_agent").rglob("*.py")}
    prompts = {f"tui_agent/prompts/{path.name}" for path in (ROOT / "tui_agent" / "prompts").glob("*.md")}
    styles = {f"tui_agent/styles/{path.name}" for path in (ROOT / "styles").glob("*.tcss")}
    tables = {
        "tui_agent/tools/gate/guarded_names.txt",
        "tui_agent/tools/gate/known_commands.toml",
        "tui_agent/tools/gate/read_first.txt",
        "tui_agent/tools/sandbox/readable.json",
        "tui_agent/tools/sandbox/system_calls.json",
    }
    assert names >= package | prompts | styles | tables | {"tui_agent/py.typed", "tui_agent/demo/recording.json"}
    assert not {name for name in names if name.startswith(("tests/", "styles/"))}
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert any(name.endswith("data/share/man/man1/tui-agent.1") for name in names)


def test_the_wheel_finds_its_own_files(wheel: Path, tmp_path: Path) -> None:
    """The modules unpacked from the wheel, run away from the checkout, look inside themselves."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = "import tui_agent.system.resources as r; print(r.styles_folder())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == tmp_path / "tui_agent" / "styles"


def test_make_passes_arguments_to_the_shell_as_they_are(tmp_path: Path) -> None:
    """With everything set up, `make run` does nothing but start the command; the shell alone reads ARGS."""
    command = tmp_path / "bin" / "tui-agent"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    command.chmod(0o755)
    (tmp_path / ".ready").touch()
    given = '-p "read README.md; costs $((2 + 3))" --set \'model.id=$(x) "y"\' --model offline'
    done = subprocess.run(
        ["make", "-s", "-C", str(ROOT), "run", f"VENV={tmp_path}", f"ARGS={given}"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = next(line for line in done.stdout.splitlines() if line.startswith("["))
    assert json.loads(said) == [
        "-p", "read README.md; costs 5", "--set", 'model.id=$(x) "y"', "--model", "offline",
    ]  # fmt: skip


def test_constraints_are_plain_pins() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    names = [pin.split("==")[0] for pin in pins]
    assert all(pin.count("==") == 1 and not set(pin) & set(" ;@/<>") for pin in pins)
    assert names == sorted(set(names))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    assert {re.split(r"[>=]=|\[", requirement)[0] for requirement in wanted} <= set(names)
