"""What was sent before: looking back, and what lasts."""

import json
import stat
from pathlib import Path

from tui_agent.tui.prompt.history import MAX_ENTRIES, MAX_FILE_BYTES, MAX_SAVED_CHARACTERS, PromptHistory


def filled(path: Path | None, *texts: str) -> PromptHistory:
    history = PromptHistory(path)
    for text in texts:
        history.add(text)
    return history


def test_up_goes_back_and_down_returns_to_the_draft() -> None:
    history = filled(None, "one", "two")
    assert history.older("") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer("one") == "two"
    assert history.newer("two") == ""
    assert history.newer("") is None


def test_only_texts_that_begin_like_the_draft_are_found() -> None:
    history = filled(None, "read a", "run b", "read c")
    assert history.older("read") == "read c"
    assert history.older("read c") == "read a"
    assert history.older("read a") is None
    assert history.newer("read a") == "read c"
    assert history.newer("read c") == "read"


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


def test_of_a_long_text_the_file_gets_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = filled(path, "x" * (MAX_SAVED_CHARACTERS + 1))
    assert len(history.older("") or "") == MAX_SAVED_CHARACTERS + 1
    assert PromptHistory(path).older("") == "x" * MAX_SAVED_CHARACTERS
    history.add("see [pasted 9,000 lines]", saved="see " + "line\n" * MAX_SAVED_CHARACTERS)
    assert PromptHistory(path).older("") == "see [pasted 9,000 lines]"


def test_the_file_gets_the_whole_text_of_a_chip(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = PromptHistory(path)
    history.add("[pasted 3 lines]", saved="a\nb\nc")
    assert history.older("") == "[pasted 3 lines]"
    assert PromptHistory(path).older("") == "a\nb\nc"


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'"good"\n{"not": "a text"}\n\xff\xfe\n' + b"[" * 100_000 + b'\n"cut off\n')
    assert PromptHistory(path).older("") == "good"


def test_a_file_of_few_long_texts_is_shortened_too(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text((json.dumps("x" * 1024**2) + "\n") * 17)
    assert len(PromptHistory(path).newest_first()) == 1
    assert path.stat().st_size < MAX_FILE_BYTES


def test_a_file_that_has_grown_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'"entry {number}"\n' for number in range(2 * MAX_ENTRIES + 1)))
    assert PromptHistory(path).older("") == f"entry {2 * MAX_ENTRIES}"
    assert len(path.read_text().splitlines()) == MAX_ENTRIES


def test_an_unwritable_place_does_not_keep_anyone_from_typing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = filled(tmp_path / "file" / "history.jsonl", "one", "two")
    assert history.older("") == "two"
