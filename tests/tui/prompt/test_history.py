"""What was sent before: looking back, and what lasts."""

import json
import stat
from pathlib import Path

from tui_agent.tui.prompt.history import MAX_FILE_BYTES, PromptHistory


def filled(path: Path | None, *texts: str) -> PromptHistory:
    history = PromptHistory(path)
    for text in texts:
        history.add(text)
    return history


def test_a_text_sent_twice_in_a_row_is_kept_and_shown_once(tmp_path: Path) -> None:
    history = filled(None, "one", "one", "  ")
    assert history.older("") == "one"
    assert history.older("one") is None
    (tmp_path / "of_two_processes").write_text('"one two"\n"one"\n"one"\n')
    history = PromptHistory(tmp_path / "of_two_processes")
    assert [history.older(shown) for shown in ("one", "one two")] == ["one two", None]
    history.reset()
    assert [history.older(shown) for shown in ("", "one")] == ["one", "one two"]
    assert [history.newer(shown) for shown in ("one two", "one", "")] == ["one", "", None]


def test_it_lasts_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "home" / "history.jsonl"
    filled(path, "first\nsecond line", 'quotes " and \\', "\ud800 surrogate")
    again = PromptHistory(path)
    assert again.older("") == "\ud800 surrogate"
    assert again.older("\ud800 surrogate") == 'quotes " and \\'
    assert again.older('quotes " and \\') == "first\nsecond line"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'"good"\n{"not": "a text"}\n\xff\xfe\n' + b"[" * 100_000 + b'\n"cut off\n')
    assert PromptHistory(path).older("") == "good"


def test_a_file_of_few_long_texts_is_shortened_too(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text((json.dumps("x" * 1024**2) + "\n") * 17)
    assert len(PromptHistory(path).newest_first()) == 1
    assert path.stat().st_size < MAX_FILE_BYTES


def test_an_unwritable_place_does_not_keep_anyone_from_typing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = filled(tmp_path / "file" / "history.jsonl", "one", "two")
    assert history.older("") == "two"
