"""How soon Esc, and Ctrl+C twice, are answered at every moment, from a real pseudo-terminal."""

import tempfile
from pathlib import Path
from typing import Final

from tests.bench.report import Figure
from tests.e2e.moments import answers

ESC_MS: Final = 100
QUIT_MS: Final = 1_000


def figures() -> list[Figure]:
    """Milliseconds from the key to its answer on the screen, and to the end of the program."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            Figure(name, 1000 * seconds, "ms", QUIT_MS if name.endswith("quitting") else ESC_MS)
            for name, seconds in answers(Path(folder))
        ]
