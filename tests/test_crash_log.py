"""What is kept of an unexpected error."""

from pathlib import Path

import pytest

from tui_agent.crash_log import write_crash_log


def test_the_log_has_the_traceback_but_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-no-known-form")
    error = ValueError("refused: a-key-of-no-known-form, sk-ant-api03-abcdef")
    told = write_crash_log(error, {"TUI_AGENT_HOME": str(tmp_path)})
    (log,) = (tmp_path / "logs").iterdir()
    kept = log.read_text()
    assert str(log) in told
    assert "ValueError: refused: [key], [key]" in kept
    assert log.stat().st_mode & 0o777 == 0o600
