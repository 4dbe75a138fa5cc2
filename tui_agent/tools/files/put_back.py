"""Restoring files to an earlier state: planning what that would change, and doing it file by file, each atomically.

A file is restored only if it still is as the log says it was left. If somebody else has changed it since, the plan says
so, and the file is left alone unless the user wants it overwritten; then its content is kept first.
"""

import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.entries import FileChange, FileState, file_change
from tui_agent.conversation.file_changes import FilePast, FilesPast
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.diffs import unified
from tui_agent.tools.files.confined import explained, folder_of, make_folders, replacing, sync_folder
from tui_agent.tools.files.states import ABSENT, look_at, look_in
from tui_agent.tools.gate.guarded import INSTRUCTION_FILES, is_guarded_name
from tui_agent.tools.gate.workspace import shown

Does: TypeAlias = Literal["restore", "bring back", "remove", "mode"]

MAX_DIFFED: Final = 2_000_000
"""Bytes of the largest file whose diff is shown."""

DIFFING_S: Final = 3.0
"""Seconds spent on the diffs of one plan; the remaining files get none."""

CHANGED_SINCE: Final = "changed since by somebody else"
CHANGED_BETWEEN: Final = "changed by somebody else in between"
CUT_SHORT: Final = "changed since, by a call that was cut short or by somebody else"
NO_FILE: Final = "no file or link stands there now"
OUTSIDE: Final = "it lies outside the session's folders"
GUARDED: Final = "it is a guarded file: put it back yourself"
NOT_KEPT: Final = "not kept: {why}"
GONE: Final = "its kept content is gone or damaged"

_TOO_MANY: Final = "Its diff is not shown: there are too many."
_UNTEXT: Final = "Its content is not text, or large: {before:,} bytes now, {after:,} then."


class FileStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file that can be restored: what that does, the states before and after it, and a unified diff.

    `others` says what somebody else has done to it, or is empty; such a file is left alone unless it is to be
    overwritten. `made` is the number of its parent folders that the change made, to be removed with it. `folder_first`:
    a folder stands in its place, which goes with what was made in it.
    """

    path: str
    name: str
    does: Does
    now: FileState
    then: FileState
    diff: str = ""
    others: str = ""
    made: int = 0
    folder_first: bool = False


class PutBack(msgspec.Struct, frozen=True, omit_defaults=True):
    """What restoring files to before entry `seq` would do. Names and diffs are untrusted text.

    `steps` can be done; `impossible` are changed files that cannot be restored, as (name, reason); `gaps` are sentences
    about changes that are not known.
    """

    seq: int
    steps: tuple[FileStep, ...] = ()
    impossible: tuple[tuple[str, str], ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def ours(self) -> tuple[FileStep, ...]:
        """The steps for files that nobody else has changed."""
        return tuple(step for step in self.steps if not step.others)

    @property
    def theirs(self) -> tuple[FileStep, ...]:
        """The steps for files that somebody else has changed."""
        return tuple(step for step in self.steps if step.others)

    @property
    def diff(self) -> str:
        """The diffs of `ours` as one text."""
        return "\n".join(step.diff for step in self.ours if step.diff)

    def __bool__(self) -> bool:
        return bool(self.steps or self.impossible or self.gaps)


Read: TypeAlias = Callable[[str], bytes | None]
"""Returns a kept content by its SHA-256; None if it is gone."""


def plan(seq: int, past: FilesPast, folders: Sequence[Path], read: Read) -> PutBack:
    """Plan to restore the files of `past` from their present state; names are relative to the first of `folders`.

    Only files in the folders are restored, and no guarded ones but instructions, since the log may come from somebody
    else. Reads files.
    """
    root = folders[0]
    steps: list[FileStep] = []
    impossible: list[tuple[str, str]] = []
    deadline = time.monotonic() + DIFFING_S
    made = [file.path for file in past.files if file.then.kind == "absent"]
    for file in past.files:
        path = Path(file.path)
        named = os.fsencode(path.relative_to(root) if path.is_relative_to(root) else path)
        name = shown(named.decode(errors="backslashreplace"))
        if why := _not_ours(path, folders):
            impossible.append((name, why))
            continue
        seen = look_at(path, MAX_DIFFED)
        now = seen.state
        folder_first = now.kind == "other" and any(each.startswith(f"{path}/") for each in made)
        if folder_first:
            now = ABSENT
        if now == file.then:
            continue
        # A file that was closed to its owner, or a pipe, can be replaced; pipes are not among what is looked at.
        mode = seen.found.st_mode if seen.found is not None and file.then.kind != "absent" else stat.S_IFDIR
        is_pipe = stat.S_IFMT(mode) not in {stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK}
        why = _impossible(file, now if stat.S_ISDIR(mode) else ABSENT, read)
        if why:
            impossible.append((name, why))
            continue
        in_time = time.monotonic() < deadline
        diff = _diff(name, now, seen.content, file.then, read) if in_time else f"--- {name}\n+++ {name}\n{_TOO_MANY}"
        steps.append(
            FileStep(
                file.path,
                name,
                _does(now, file.then),
                now,
                file.then,
                diff,
                _others(file, ABSENT if is_pipe else now),
                file.made,
                folder_first,
            )
        )
    return PutBack(seq, tuple(steps), tuple(impossible), past.gaps)


def _not_ours(path: Path, folders: Sequence[Path]) -> str:
    """Why a file is not restored wherever the log says it was; empty if it may be."""
    folder = next((folder for folder in folders if path.is_relative_to(folder)), None)
    if folder is None or ".." in path.parts or "\0" in str(path):
        return OUTSIDE
    parts = path.relative_to(folder).parts
    return GUARDED if is_guarded_name(parts) and parts[-1] not in INSTRUCTION_FILES else ""


def as_change(step: FileStep) -> FileChange:
    """A step as the log records it."""
    return file_change(step.path, step.now, step.then)


def put_back(step: FileStep, content: bytes) -> None:
    """Restore one file and its mode, atomically and synced, if it still is as the step says.

    `content` is that of `step.then`. Raises ToolFailure, and has changed nothing then.
    """
    path = Path(step.path)
    with explained(path):
        if step.then.kind == "absent":
            _remove(path, step)
            return
        make_folders(path.parent)
        if step.folder_first:
            _remove_empty(path)
        with folder_of(path) as folder:
            with replacing(path, folder) as temporary:
                if step.then.kind == "link":
                    os.symlink(os.fsdecode(content), temporary, dir_fd=folder)
                else:
                    _fill(temporary, folder, content, step.then.mode)
                _require(step, path, folder)
            sync_folder(path.parent)


def _impossible(file: FilePast, now: FileState, read: Read) -> str:
    if now.kind == "other":
        return NO_FILE
    if file.then.kind == "absent":
        return ""
    if file.unkept or file.then.kind == "other" or not file.then.sha256:
        return NOT_KEPT.format(why=file.unkept or "it was no file or link")
    return GONE if read(file.then.sha256) is None else ""


def _others(file: FilePast, now: FileState) -> str:
    if now not in file.possible:
        return CUT_SHORT if file.unsure else CHANGED_SINCE
    return CHANGED_BETWEEN if file.broken else ""


def _does(now: FileState, then: FileState) -> Does:
    if then.kind == "absent":
        return "remove"
    if now.kind == "absent":
        return "bring back"
    return "mode" if (now.kind, now.sha256) == (then.kind, then.sha256) else "restore"


def _diff(name: str, now: FileState, content: bytes | None, then: FileState, read: Read) -> str:
    if then.size > MAX_DIFFED:
        before, after = _text(content), None
    else:
        before, after = _text(content), _text(read(then.sha256) if then.sha256 else b"")
    if now.kind == "absent":
        before = ""
    heads = [f"--- {name}", f"+++ {name}"]
    if now.mode != then.mode and now.kind == then.kind == "file":
        heads.append(f"mode {now.mode:o} to {then.mode:o}")
    if before is None or after is None:
        return "\n".join((*heads, _UNTEXT.format(before=now.size, after=then.size)))
    changed = unified(before, after, name)
    return "\n".join((*heads, *changed.split("\n")[2:]))


def _text(content: bytes | None) -> str | None:
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _fill(name: str, folder: int, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fchmod(stream.fileno(), mode & 0o777)
        os.fsync(stream.fileno())


def _require(step: FileStep, path: Path, folder: int) -> None:
    """Raises ToolFailure if the file is no longer as it was when the plan was made."""
    if look_in(folder, path.name, 0).state != step.now:
        raise ToolFailure(f"{step.name} was changed by somebody else just now.", "Nothing was done to it.")


def _remove(path: Path, step: FileStep) -> None:
    with folder_of(path) as folder:
        _require(step, path, folder)
        os.unlink(path.name, dir_fd=folder)
    sync_folder(path.parent)
    # Remove the folders that were made for it too; rmdir fails if they contain anything else.
    for above in list(path.parents)[: step.made]:
        try:
            with folder_of(above) as folder:
                if stat.S_ISDIR(os.stat(above.name, dir_fd=folder, follow_symlinks=False).st_mode):
                    os.rmdir(above.name, dir_fd=folder)
        except OSError:
            return


def _remove_empty(folder: Path) -> None:
    """Remove a folder if nothing but folders is in it."""
    if folder.is_symlink():
        return
    for place, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(place).rmdir()
