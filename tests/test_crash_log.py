"""What is kept of an unexpected error."""

from pathlib import Path

import pytest

from tui_agent.printing import in_a_line, write_crash_log


def test_the_log_has_the_traceback_but_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-no-known-form")
    error = ValueError("refused: a-key-of-no-known-form, sk-ant-api03-abcdef")
    told = write_crash_log(error, {"TUI_AGENT_HOME": str(tmp_path)})
    (log,) = (tmp_path / "logs").iterdir()
    kept = log.read_text()
    assert str(log) in told
    assert "ValueError: refused: [key], [key]" in kept
    assert log.stat().st_mode & 0o777 == 0o600


def test_an_error_on_one_line_has_no_key_and_no_escape_sequence() -> None:
    error = ValueError("refused:\n\x1b[31m https://me:secret@api.test?key=abc and sk-ant-api03-abcdef")
    told = in_a_line(error)
    assert told.isprintable()
    assert told == "ValueError: refused: https://[key]@api.test?key=[key] and [key]"
