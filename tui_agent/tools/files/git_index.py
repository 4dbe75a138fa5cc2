"""File contents that a project's git repository already has: the index lists them, `git cat-file` reads them.

The index is parsed here, not by git: comparing the index with the files, git may run a program that the repository's
own settings name (git-config(1), core.fsmonitor). Format: git-scm.com/docs/index-format.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Final

from tui_agent.system.durable import to_completion
from tui_agent.system.programs import find_program, search_path
from tui_agent.system.regular import read_bytes

MAX_INDEX_BYTES: Final = 50_000_000
FETCH_S: Final = 20.0
"""Seconds `git cat-file` may take."""

_HEADER, _ENTRY, _OID = 12, 62, 20
ISOLATED: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
}
"""Variables with which git follows no other settings than the repository's, writes nothing and fetches nothing."""


class GitIndex:
    """The index of the repository that contains `root`; empty if there is none, or it cannot be read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stamp: tuple[int, int, int] | None = None
        self._folder: Path | None = None
        self._known: dict[str, str] = {}

    def names(self) -> Mapping[str, str]:
        """The blob name of each file below the root, by relative path. Reads files."""
        try:
            top, self._folder = _repository(self._root)
            path = self._folder / "index"
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                self._known = _read(path, top, self._root) if found.st_size <= MAX_INDEX_BYTES else {}
                self._stamp = stamp
        except (OSError, ValueError, IndexError):
            # The repository may hold what the index has named, all the same.
            self._stamp, self._known = None, {}
        return self._known

    async def contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of these blobs, except those that the repository no longer has."""
        wanted = list(dict.fromkeys(names))
        git = find_program("git") if wanted else None
        if git is None or self._folder is None:
            return {}
        environment = {
            **ISOLATED,
            "PATH": search_path(os.environ.get("PATH", os.defpath)),
            "GIT_DIR": str(self._folder),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                git,
                "cat-file",
                "--batch",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=self._folder,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            return {}
        try:
            async with asyncio.timeout(FETCH_S):
                output, _ = await process.communicate("".join(f"{name}\n" for name in wanted).encode())
        except TimeoutError:
            return {}
        finally:
            if process.returncode is None:
                process.kill()
                await to_completion(process.wait())
        return blobs_in(output)


def content_name(content: bytes) -> str:
    """The name of git's blob with this content."""
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _repository(root: Path) -> tuple[Path, Path]:
    """The top of the working tree that contains `root`, and the git folder. Raises OSError, ValueError."""
    for top in (root, *root.parents):
        place = top / ".git"
        if place.is_dir():
            return top, place
        if place.is_file():
            pointer = os.fsdecode(read_bytes(place, 4096)).strip()
            if not pointer.startswith("gitdir: "):
                raise ValueError(f"{place} names no repository")
            return top, (top / pointer.removeprefix("gitdir: ")).resolve()
    raise ValueError(f"{root} is in no repository")


def _read(path: Path, top: Path, root: Path) -> dict[str, str]:
    """Raises OSError, and ValueError or IndexError if this is not a valid index."""
    data = read_bytes(path, MAX_INDEX_BYTES)
    checksum = data[-_OID:]
    if any(checksum) and sha1(data[:-_OID], usedforsecurity=False).digest() != checksum:
        raise ValueError(f"{path} is damaged, or another kind of index")
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in {2, 3, 4}:
        raise ValueError(f"{path} is no index")
    below = "" if root == top else f"{root.relative_to(top).as_posix()}/"
    known: dict[str, str] = {}
    at, name = _HEADER, b""
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = int.from_bytes(data[at + 60 : at + 62], "big")
        oid, mode = data[at + 40 : at + 60].hex(), int.from_bytes(data[at + 24 : at + 28], "big")
        start = at + _ENTRY + (2 if flags & 0x4000 else 0)
        if version == 4:
            dropped, start = _number(data, start)
            end = data.index(b"\0", start)
            name = name[: len(name) - dropped] + data[start:end]
            at = end + 1
        else:
            end = data.index(b"\0", start)
            name = data[start:end]
            at += (end - at + 8) & ~7
        path_text = os.fsdecode(name)
        if not flags & 0x3000 and mode & 0o170000 == 0o100000 and path_text.startswith(below):
            known[path_text[len(below) :]] = oid
    return known


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decode a variable-width integer, as in pack offsets: its value, and the position after it."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1


def blobs_in(output: bytes) -> dict[str, bytes]:
    """The blobs that `git cat-file --batch` printed, by name."""
    found: dict[str, bytes] = {}
    at = 0
    while (end := output.find(b"\n", at)) >= 0:
        words = output[at:end].split()
        at = end + 1
        if len(words) == 3 and words[1] == b"blob":
            size = int(words[2])
            found[words[0].decode()] = output[at : at + size]
            at += size + 1
    return found
