"""The folders a session works in, and resolving the paths that the model writes.

After a path is resolved, a folder may still be replaced by a link. So tools open files through `files/confined.py`,
which follows no link at all on the way to the resolved path.
"""

import os
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from tui_agent.conversation.blocks import valid_text
from tui_agent.regex import regex
from tui_agent.system.regular import is_folder
from tui_agent.tools.base import Access, Effect, ToolContext, ToolFailure, WorkspaceView
from tui_agent.tools.gate.guarded import is_guarded
from tui_agent.visible import whole

_ARTIFACT_FOLDERS = frozenset({"large_tool_results", "conversation_history"})
_UNSAFE = regex(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " "})
_ENTRIES_LOOKED_AT = 20_000
_LOOK = "Find the right name with list_dir or glob."


class Workspace:
    """The folders of a session: it works in `root` and `extra_dirs`, and may always read `read_roots`.

    The first of `read_roots` is the session's own folder: a relative path such as ``large_tool_results/ID`` is looked
    up there first, because notices in the conversation name it like that. In `guarded` folders the user is asked before
    every change. Folders need not exist yet.
    """

    def __init__(
        self,
        root: Path,
        extra_dirs: Iterable[Path] = (),
        read_roots: Iterable[Path] = (),
        guarded: Iterable[Path] = (),
    ) -> None:
        self.root = _real(root)
        self.folders = (self.root, *map(_real, extra_dirs))
        """All folders the session works in, `root` first."""
        self._read_roots = tuple(map(_real, read_roots))
        self.guarded = tuple(map(_real, guarded))

    def resolve(self, path: str) -> Path:
        """The real path, which need not exist: ``~`` expanded, taken relative to `root`, with all links followed.

        A name that does not exist is replaced by the only existing one that looks the same: composed differently in
        Unicode, with another kind of space, or with bytes that are not UTF-8 and are shown as U+FFFD. Raises
        ToolFailure for text that cannot be a path, and for circular links.
        """
        if not path:
            raise ToolFailure("The path is empty.", "Name a file or a folder; . is the working folder.")
        if "\0" in path or valid_text(path) != path:
            raise ToolFailure(
                "The path holds characters that no path can hold (NUL or half a surrogate pair).",
                "Write it as list_dir shows it.",
            )
        expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for an unknown user
        real = _real(self._artifact(expanded) or self.root / expanded)
        try:
            os.lstat(real)
        except FileNotFoundError:
            real = _as_on_disk(real)
        except OSError as error:
            if not isinstance(error, NotADirectoryError | PermissionError):
                raise ToolFailure(f"{shown(path, 200)} cannot be a path: {error.strerror}.", _LOOK) from error
        if real.is_symlink():
            raise ToolFailure(f"{shown(path)} is a link that leads in a circle.", _LOOK)
        return real

    def contains(self, path: Path) -> bool:
        return any(_below(path, folder) for folder in self.folders) and not self.owns(path)

    def owns(self, path: Path) -> bool:
        return any(_below(path, folder) for folder in self._read_roots)

    def _artifact(self, path: Path) -> Path | None:
        if path.is_absolute() or not self._read_roots or path.parts[:1] == () or path.parts[0] not in _ARTIFACT_FOLDERS:
            return None
        candidate = self._read_roots[0] / path
        return candidate if os.path.lexists(candidate) else None


def folder_gone(folder: Path | str) -> ToolFailure:
    """The failure of what needs the session's folder, which is not there any more."""
    return ToolFailure(f"There is no folder {folder} any more.", "Tell the user: it may have been moved or deleted.")


def access_to(workspace: WorkspaceView, path: str, effect: Effect) -> Access:
    """The `Access` to a path. Only a read can be `own`, only a change can be `guarded`.

    Raises ToolFailure as `WorkspaceView.resolve` does.
    """
    real = workspace.resolve(path)
    own = workspace.owns(real)
    return Access(
        effect,
        str(real),
        inside=workspace.contains(real),
        own=own and effect == "read",
        guarded=effect != "read" and (own or is_guarded(real, workspace, path)),
    )


def granted_path(context: ToolContext, path: str) -> Path:
    """Resolve `path` again before use. Raises ToolFailure if it no longer leads to what the call was allowed."""
    real = context.workspace.resolve(path)
    if all(access.target != str(real) for access in context.accesses):
        raise ToolFailure(
            f"{shown(path)} now leads to another place ({shown(str(real))}) than when the call was checked.",
            "Nothing was done; call again if that is meant.",
        )
    return real


def display_path(workspace: WorkspaceView, real: Path) -> str:
    """`real` as one line of valid text, relative to the root if it is below it."""
    return shown(str(real.relative_to(workspace.root) if _below(real, workspace.root) else real))


def named_path(workspace: WorkspaceView, real: Path) -> str:
    """`real` for a preview: not cut, relative to the root if it is below it."""
    return whole(str(real.relative_to(workspace.root) if _below(real, workspace.root) else real))


def shown(text: str, limit: int = 1_000) -> str:
    """An untrusted name as one line of valid text, with control characters and direction marks escaped."""
    safe = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), valid_text(text))
    return safe if len(safe) <= limit else f"{safe[:limit]}…"


def missing(path: str, real: Path) -> ToolFailure:
    """The failure for a path that does not exist, with similar names that the model may have meant."""
    folder = real.parent
    while not is_folder(folder) and folder != folder.parent:
        folder = folder.parent
    wanted = real.relative_to(folder).parts[0]
    try:
        with os.scandir(folder) as entries:
            names = {entry.name.casefold(): entry.name for entry in islice(entries, _ENTRIES_LOOKED_AT)}
    except OSError:
        names = {}
    near = [names[name] for name in get_close_matches(wanted.casefold(), sorted(names), n=3, cutoff=0.5)]
    hint = f"Nearest in {shown(str(folder))}: {', '.join(shown(name, 200) for name in near)}." if near else _LOOK
    place = "" if folder == real.parent else f" The deepest folder that exists is {shown(str(folder))}."
    return ToolFailure(f"{shown(path)} does not exist.{place}", hint)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise ToolFailure(f"{shown(str(path), 200)} cannot be a path: {error}.", _LOOK) from error


def _below(path: Path, folder: Path) -> bool:
    return path.is_absolute() and ".." not in path.parts and path.is_relative_to(folder)


def _as_on_disk(real: Path) -> Path:
    """`real` with each missing name replaced by the only entry of its folder that looks the same, if there is one."""
    existing = real
    while not os.path.lexists(existing):
        existing = existing.parent
    found = existing
    for name in real.relative_to(existing).parts:
        found /= _same_name(found, name) or name
    return _real(found)


def _same_name(folder: Path, name: str) -> str | None:
    if name.isascii() and " " not in name:
        return None
    wanted = _composed(name)
    try:
        with os.scandir(folder) as entries:
            same = [entry.name for entry in islice(entries, _ENTRIES_LOOKED_AT) if _composed(entry.name) == wanted]
    except OSError:
        return None
    return same[0] if len(same) == 1 else None


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", valid_text(name).translate(_SPACES))
