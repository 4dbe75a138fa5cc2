"""A running program keeps its keys to itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
