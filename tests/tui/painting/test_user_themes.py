"""Themes read from files: what is taken, and what is refused with its reason."""

import json
from pathlib import Path

import pytest

from tui_agent.tui.painting.themes import theme_of_terminal
from tui_agent.tui.painting.user_themes import MAX_BYTES, load_user_themes

GOOD = {"primary": "#102030", "background": "black", "foreground": "rgb(250,250,250)"}


def write(home: Path, name: str, content: str) -> None:
    (home / "themes").mkdir(exist_ok=True)
    (home / "themes" / name).write_text(content)


def test_none_where_there_is_no_folder(tmp_path: Path) -> None:
    assert load_user_themes(tmp_path, ()) == ((), ())


def test_a_file_is_a_theme_and_what_it_leaves_out_is_filled_in(tmp_path: Path) -> None:
    write(tmp_path, "mine.json", json.dumps({**GOOD, "dark": False, "variables": {"scrollbar": "#111111"}}))
    (theme,), problems = load_user_themes(tmp_path, ("dusk",))
    assert not problems
    assert (theme.name, theme.dark, theme.accent, theme.surface) == ("mine", False, "#102030", "black")
    assert theme.variables["scrollbar"] == "#111111"
    assert theme.variables["scrollbar-background"] == "black"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", "{", "a.json: Input data was truncated"),
        ("a.json", json.dumps({"primary": "red"}), "missing required field `background`"),
        ("a.json", json.dumps({**GOOD, "acent": "red"}), "unknown field `acent`"),
        ("a.json", json.dumps({**GOOD, "error": "nice"}), "error: 'nice' is no colour"),
        ("a.json", json.dumps({**GOOD, "panel": "#11223344"}), "panel: '#11223344' is not opaque"),
        ("a.json", json.dumps({**GOOD, "variables": {"x": "\x1b[31m"}}), "is no colour"),
        ("a.json", json.dumps({**GOOD, "variables": {"}Screen{": "red"}}), "is no name of a variable"),
        ("a.json", " " * (MAX_BYTES + 1), "larger than"),
        ("dusk.json", json.dumps(GOOD), "there is a shipped theme of this name"),
        ("A b.json", json.dumps(GOOD), "its name may hold small letters"),
    ],
)
def test_a_file_that_is_none_is_named_with_the_reason(tmp_path: Path, name: str, content: str, reason: str) -> None:
    write(tmp_path, name, content)
    write(tmp_path, "other.json", json.dumps(GOOD))
    themes, (problem,) = load_user_themes(tmp_path, ("dusk",))
    assert [theme.name for theme in themes] == ["other"]
    assert problem.startswith(f"{name}: ")
    assert reason in problem
    assert "\x1b" not in problem


def test_a_light_terminal_gets_a_light_theme() -> None:
    for variable in ("", "15;0", "0;15;8"):
        assert theme_of_terminal({"COLORFGBG": variable}) == "dark"
    for variable in ("0;15", "0;default;15", "0;7"):
        assert theme_of_terminal({"COLORFGBG": variable}) == "light"
