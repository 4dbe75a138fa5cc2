"""What is said of names without ripgrep is what ripgrep does."""

import random
import subprocess
from pathlib import Path

import pytest

from tui_agent.tools.files.ignore_rules import read_rules
from tui_agent.tools.ripgrep import find_rg

RULES = (
    *("*.log", "build/", "build", "/dist", "dist/", "a?c", "*", "!keep.log", "!build", "**/deep", "docs/*.txt"),
    *("sub/**", "[ab]c", "[!/]c", "*.{tmp,bak}", r"\#odd", "# remark", "", "name ", "nä*", "__pycache__/"),
    *("*.py[co]", "/sub/abc"),
)
NAMES = (
    *("x.log", "keep.log", "build", "dist", "abc", "ac", "deep", "one.txt", "x.tmp", "#odd", "name", "näher"),
    "__pycache__",
)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def listed(root: Path) -> set[str]:
    arguments = ("--files", "--hidden", "--no-require-git", "--no-messages", "--no-config", "--null")
    found = subprocess.run([find_rg(), *arguments], cwd=root, capture_output=True, check=False)
    return set(found.stdout.decode().split("\0")) - {""}


def test_what_is_sure_is_what_ripgrep_does(tmp_path: Path) -> None:
    sure = {True: 0, False: 0}
    for seed in range(80):
        chance, root = random.Random(seed), tmp_path / str(seed)
        for folder in ("", "sub/"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name in NAMES:
                if chance.random() < 0.5:
                    (root / folder / name).write_text("")
                else:
                    (root / folder / name).mkdir()
                    (root / folder / name / "in").write_text("")
        (root / ".gitignore").write_text("\n".join(chance.sample(RULES, chance.randint(0, 6))))
        (root / "sub" / ".ignore").write_text("\n".join(chance.sample(RULES, chance.randint(0, 2))))
        rules, seen = read_rules(root, (".gitignore", "sub/.ignore")), listed(root)
        assert rules is not None
        for place in (*NAMES, *(f"sub/{name}" for name in NAMES)):
            is_folder = (root / place).is_dir()
            said = rules.ignore(place.rpartition("/")[2], folder=is_folder)
            if said is not None:
                assert said is ((f"{place}/in" if is_folder else place) not in seen), (seed, place)
                sure[said] += 1
    assert min(sure.values()) > 50


def test_rules_of_the_users_own_count(tmp_path: Path) -> None:
    home = tmp_path / "home" / ".config" / "git"
    home.mkdir(parents=True)
    (home / "ignore").write_text("*.swp\n")
    rules = read_rules(tmp_path, ())
    assert rules is not None
    assert (rules.ignore("a.swp", folder=False), rules.ignore("a.txt", folder=False)) == (None, False)
    (home / "config").write_text("[core]\n\texcludesFile = ~/mine\n")
    assert read_rules(tmp_path, ()) is None
