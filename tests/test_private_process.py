"""A running program keeps its keys to itself, and an unexpected error keeps none of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tui_agent.printing import in_a_line, write_crash_log

ROOT = Path(__file__).parents[1]
PROGRAM = """
import os, subprocess, sys
from tui_agent.system.process import keep_private
from tui_agent.tools.environment import is_secret
keep_private(is_secret)
own = open("/proc/self/environ", "rb").read() if os.geteuid() == 0 else b""
child = subprocess.run(["/usr/bin/env"], capture_output=True, check=True).stdout
print(b"SECRET" in own, b"SECRET" in child, os.environ["ANTHROPIC_API_KEY"], b"INNOCENT=x" in child, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system shows no environments")
def test_its_keys_are_seen_by_nobody_else() -> None:
    environment = {**os.environ, "ANTHROPIC_API_KEY": "a SECRET", "INNOCENT": "x"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"False False a SECRET True\n"
        # Files of a process that cannot be dumped belong to root: another program of the user does not read them.
        assert Path(f"/proc/{program.pid}/environ").stat().st_uid == 0
        if os.geteuid() == 0:
            assert b"SECRET" not in Path(f"/proc/{program.pid}/environ").read_bytes()
        else:
            with pytest.raises(PermissionError):
                Path(f"/proc/{program.pid}/environ").read_bytes()
        program.communicate(b"")


def test_it_starts_again_with_its_keys(tmp_path: Path) -> None:
    again = "from tui_agent.cli import _keep_private, _start_again\n_keep_private({})\n_start_again('doctor')"
    environment = {**os.environ, "ANTHROPIC_API_KEY": "a SECRET", "TUI_AGENT_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", again], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert re.search(r"^ok +ANTHROPIC_API_KEY +set", done.stdout, re.MULTILINE), done


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
