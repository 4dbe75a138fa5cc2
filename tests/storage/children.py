"""Starting ``writer.py`` as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_writer(folder: Path, verb: str, *, errors: bool = False) -> "subprocess.Popen[str]":
    """The writer, running; its standard output is a pipe, with `errors` its standard error too."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("writer.py")), str(folder), verb],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else None,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
