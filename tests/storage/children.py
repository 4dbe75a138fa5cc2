"""Starting ``writer.py`` as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_writer(folder: Path, verb: str) -> "subprocess.Popen[str]":
    """The writer, running; its standard output is a pipe."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer.py")), str(folder), verb],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
