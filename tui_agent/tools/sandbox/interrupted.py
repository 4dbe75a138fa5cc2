"""Restoring guarded files if the program was killed while a command ran: what was noted before it is kept on disk. What
the command left to git is told.
"""

import fcntl
import os
import pickle
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from tui_agent.system.durable import make_private_folder
from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.held_by_git import Held


class Journal:
    """A file in the private `folder`, locked by this process: what was noted before the commands that run now.

    A full disk keeps no command from running. Thread-safe.
    """

    def __init__(self, folder: Path, withheld: Path, held: Held) -> None:
        self._folder, self._withheld, self._held = folder, withheld, held
        self.running: list[Guard] = []
        """Those of the commands that run now, the oldest first."""
        self._writing = threading.Lock()
        self._file: BinaryIO | None = None
        self._path = ""

    def write(self, begun: Guard | None = None, ended: Guard | None = None) -> None:
        """Write what there is now that a command has `begun` or `ended`. Writes a file."""
        with self._writing, suppress(OSError):
            self.running = [guard for guard in (*self.running, begun) if guard is not None and guard is not ended]
            if self._file is None and not self.running:
                return
            file = self._file = self._file or self._made()
            file.seek(0)
            file.truncate()
            file.write(pickle.dumps((self.running, self._withheld, self._held)) if self.running else b"")

    def _made(self) -> BinaryIO:
        make_private_folder(self._folder)
        made, self._path = tempfile.mkstemp(dir=self._folder)
        file = cast("BinaryIO", os.fdopen(made, "wb", buffering=0))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(self._path)  # noqa: PTH116 - another start may just have taken it for left over
        return file

    def close(self) -> None:
        """Remove the file."""
        with self._writing:
            file, self._file = self._file, None
            if file is not None:
                Path(self._path).unlink(missing_ok=True)
                file.close()


def restore_interrupted(folder: Path) -> list[str]:
    """Restore what commands changed while which the program was killed, by the journals in `folder`.

    Returns what was done, in sentences. Reads and writes files.
    """
    told: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        # One that is locked belongs to a program that runs.
        with suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = stream.read()
            try:
                # No command can see or write this folder, so it holds nothing but what `Journal` wrote.
                guards, withheld, held = pickle.loads(data) if data else ((), "", Held(path))  # noqa: S301
                changed = filter(None, [guard.take_back(withheld) for guard in guards])
                said = [f"Put back: {', '.join(map(str, each))}; see {withheld}" for each in changed]
                left = dict.fromkeys(each.title for guard in guards for each in held.add(guard.left_to_git()))
                said += (f"Left to git: {title}" for title in left)
                told += (f"A command ran when the program was killed. {each}" for each in said)
            except (pickle.PickleError, EOFError, LookupError, ImportError, AttributeError, TypeError, ValueError):
                told.append("A command ran when the program was killed. What it changed is not known: look at them.")
            finally:
                path.unlink()
    return told
