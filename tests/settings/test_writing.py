"""A choice is written into the user's settings file beside all that stands there."""

import json
import stat
from pathlib import Path
from threading import Thread

import pytest

from tui_agent.settings import Settings, SettingsError, load_settings
from tui_agent.settings.writing import keep_setting, with_setting


def test_a_choice_is_there_at_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    path = keep_setting(home, "ui.theme", "mist")
    assert load_settings(home, None).ui.theme == "mist"
    assert load_settings(home, None).source("ui.theme") == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert with_setting(Settings(), "ui.theme", "mist", str(path)) == load_settings(home, None)


def test_all_else_stays_in_its_order_and_form(tmp_path: Path) -> None:
    text = (
        '{\n\t"theirs": "http://a.example/\\"/*",\n'
        '\t"ui": {\n\t\t"mouse": false,\n\t\t"theme": "dusk"\n\t},\n\t"model": {\n\t\t"id": "ollama:größe"\n\t}\n}\n'
    )
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    keep_setting(tmp_path, "ui.theme", "mist")
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == text.replace("dusk", "mist")


@pytest.mark.parametrize(
    "text",
    [
        '{"ui": ',
        '{"ui": 3}',
        "[]",
        '{"ui": {}, "ui": {}}',
        '// mine\n{"ui": {}}',
        '{"ui": {"theme": "dusk"} // mine\n}',
        '{"ui": {} /* mine */}',
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SettingsError):
        keep_setting(tmp_path, "ui.theme", "mist")
    assert (tmp_path / "config.json").read_text() == text


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(SettingsError, match="not a regular file"):
        keep_setting(tmp_path, "ui.theme", "mist")
    with pytest.raises(SettingsError, match=r"permissions\.mode"):
        keep_setting(tmp_path, "permissions.mode", "everything")
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be written: "):
        keep_setting(tmp_path / "file", "ui.theme", "mist")


def test_a_link_goes_on_being_one(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").symlink_to(kept)
    keep_setting(home, "ui.theme", "mist")
    assert (home / "config.json").is_symlink()
    assert json.loads(kept.read_text()) == {"ui": {"theme": "mist"}}


def test_two_programs_that_write_at_once_both_count(tmp_path: Path) -> None:
    values = {"ui.theme": "mist", "model.id": "offline", "permissions.mode": "ask", "context.policy": "careful"}
    writers = [Thread(target=keep_setting, args=(tmp_path, key, value)) for key, value in values.items()]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    settings = load_settings(tmp_path, None)
    assert (settings.ui.theme, settings.model.id, settings.context.policy) == ("mist", "offline", "careful")
    assert not list(tmp_path.glob(".*.tmp"))
