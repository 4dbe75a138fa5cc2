"""Files of recordings, also those that are compressed: codex does that to sessions that were not used for a week.

Python reads zstd from 3.14 on, and before with the package `backports.zstd`; without it the program `zstd` does it.
"""

import subprocess
from collections.abc import Generator, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Final

from tui_agent.storage.recordings.recording import MOST_BYTES, UnreadableRecording
from tui_agent.system.programs import find_program

SUFFIX: Final = ".zst"
_BEGINS: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of what is compressed with zstd, whatever the file is called."""
_MODULES: Final = ("compression.zstd", "backports.zstd")
_PIECE: Final = 1 << 20


def opened(path: Path) -> IO[bytes]:
    """The file's text from its beginning; what was compressed is in a temporary file without a name.

    Raises `OSError`, `UnreadableRecording`.
    """
    if not _is_compressed(path):
        return path.open("rb")
    plain = TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        _unpack(path, plain)
    except BaseException:
        plain.close()
        raise
    plain.seek(0)
    return plain


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of a file's text. Raises `OSError`, `UnreadableRecording`."""
    if not _is_compressed(path):
        with path.open("rb") as file:
            return file.read(size)
    head = b""
    with closing(_pieces(path)) as pieces:
        while len(head) < size and (piece := next(pieces, b"")):
            head += piece
    return head[:size]


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS


def _unpack(path: Path, plain: IO[bytes]) -> None:
    with closing(_pieces(path)) as pieces:
        for piece in pieces:
            plain.write(piece)
            if plain.tell() > MOST_BYTES:
                raise UnreadableRecording(f"{path} has more than {MOST_BYTES:,} bytes once it is unpacked.")


def _pieces(path: Path) -> Generator[bytes]:
    """The text of a compressed file, piece by piece. Raises `OSError`, `UnreadableRecording`."""
    # Unbuffered, so that a program that gets the file begins at its beginning.
    with path.open("rb", buffering=0) as file:
        if (module := _module()) is None:
            yield from _by_program(file, path)
            return
        try:
            with module.ZstdFile(file) as stream:
                while piece := bytes(stream.read(_PIECE)):
                    yield piece
        except (module.ZstdError, EOFError) as error:
            raise UnreadableRecording(f"{path} cannot be unpacked: {error}.") from error


def _module() -> ModuleType | None:
    for name in _MODULES:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _by_program(file: IO[bytes], path: Path) -> Iterator[bytes]:
    if (program := find_program("zstd")) is None:
        raise UnreadableRecording(
            f"{path} is compressed with zstd. Install the program zstd, or `pip install 'tui-agent[zstd]'`."
        )
    quiet = subprocess.DEVNULL
    with subprocess.Popen([program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=quiet) as process:
        try:
            while process.stdout is not None and (piece := process.stdout.read(_PIECE)):
                yield piece
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode != 0:
        raise UnreadableRecording(f"{path} cannot be unpacked: zstd ended with {process.returncode}.")
