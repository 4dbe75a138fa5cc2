"""Shows a command's output in a client's terminal: run as a script, with a file, and the process that writes it.

It prints the file as it grows. When the file beside it says how the command ended, it ends the same way.
"""

import os
import sys
import time
from pathlib import Path

LOOK_S = 0.05
PIECE_BYTES = 65_536
ENDED = ".ended"


def show(path: Path, writer: int) -> int:
    """Print the file until the command has ended or `writer` is gone; returns the command's exit code."""
    with path.open("rb", buffering=0) as output:
        while True:
            code = _ended(path.with_suffix(ENDED), writer)
            while piece := output.read(PIECE_BYTES):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            if code is not None:
                return code
            time.sleep(LOOK_S)


def _ended(marker: Path, writer: int) -> int | None:
    try:
        os.kill(writer, 0)
        return int(marker.read_text())
    except FileNotFoundError:
        return None
    except (ProcessLookupError, ValueError):
        return 1


if __name__ == "__main__":
    sys.exit(show(Path(sys.argv[1]), int(sys.argv[2])))
