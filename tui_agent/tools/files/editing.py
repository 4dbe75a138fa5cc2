"""Changing files: `write_file` and `edit_file`. A file is replaced whole and at once, or not at all."""

import os
from pathlib import Path

import msgspec

from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.files.confined import identity, open_file, write_atomically
from tui_agent.tools.files.diffs import unified
from tui_agent.tools.files.encodings import Kind, decode, encode
from tui_agent.tools.files.replacing import replaced
from tui_agent.tools.files.threads import Stop, in_thread
from tui_agent.tools.gate.workspace import access_to, display_path, granted_path, shown
from tui_agent.tools.schema import Signature

MAX_EDITED_BYTES = 20_000_000
"""The largest file that is edited, and of which a diff is made: it is held in memory whole."""


class _Found(msgspec.Struct, frozen=True):
    """A text file as it was read, and the identity it had then."""

    text: str
    kind: Kind
    identity: tuple[int, int, int, int]


class WriteFile:
    """Writes a whole file."""

    effect: Effect = "write"

    def __init__(self) -> None:
        self._signature = Signature.of(self._write, "write_file")
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (access_to(workspace, str(self._signature.parse(arguments)["path"]), "write"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_write, arguments, workspace)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await in_thread(lambda stop: self._signature.call(self._write, arguments, context, stop))

    def _write(self, context: ToolContext, stop: Stop, /, path: str, content: str) -> ToolOutput:
        """Write a file, new or in place of an old one, in UTF-8. Folders that are missing are made.

        To change a part of a file use edit_file.

        Args:
            path: The file: relative to the working folder, absolute, or starting with ~.
            content: The whole content.
        """
        real = granted_path(context, path)
        name = display_path(context.workspace, real)
        data = content.encode()
        before = _text_if_any(real)
        write_atomically(real, data, stop)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        done = f"{'Created' if before is None else 'Replaced'} {name}: {lines:,} lines, {len(data):,} bytes."
        diff = "" if before is _UNREADABLE else unified(before.text if before else "", content, name)
        return ToolOutput(done, summary=f"{lines:,} lines", diff=diff)


class EditFile:
    """Replaces an exact piece of text in a file, keeping its encoding, line endings and mode."""

    effect: Effect = "write"

    def __init__(self) -> None:
        self._signature = Signature.of(self._edit, "edit_file")
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (access_to(workspace, str(self._signature.parse(arguments)["path"]), "write"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_edit, arguments, workspace)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await in_thread(lambda stop: self._signature.call(self._edit, arguments, context, stop))

    def _edit(
        self, context: ToolContext, stop: Stop, /, path: str, old: str, new: str, replace_all: bool = False
    ) -> ToolOutput:
        """Replace an exact piece of text in a file. It must be there exactly once, unless replace_all is set.

        Args:
            path: The file: relative to the working folder, absolute, or starting with ~.
            old: The text to replace, exactly as it is in the file: white space included, line numbers left out.
            new: The text to put in its place; empty to delete.
            replace_all: Replace every occurrence.
        """
        real = granted_path(context, path)
        name = display_path(context.workspace, real)
        found = _text_of(real)
        text, lines = replaced(found.text, old, new, replace_all)
        write_atomically(real, _encoded(text, found.kind, name), stop, expected=found.identity)
        where = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines[:10]))}"
        more = f" and {len(lines) - 10:,} more" if len(lines) > 10 else ""
        done = f"Replaced {len(lines):,} occurrence{'s' * (len(lines) != 1)} in {name} ({where}{more})."
        return ToolOutput(done, summary=f"{where}{more}", diff=unified(found.text, text, name))


_UNREADABLE = _Found("", Kind(), (0, 0, 0, 0))
"""Stands for a file that is there but has no text to compare with."""


def _preview_of_write(workspace: WorkspaceView, /, path: str, content: str) -> Preview:
    real = workspace.resolve(path)
    name = display_path(workspace, real)
    try:
        before = _text_if_any(real)
    except ToolFailure as failure:
        return Preview(f"Write {name}", text=str(failure))
    if before is None:
        return Preview(f"Create {name}", diff=unified("", content, name))
    if before is _UNREADABLE:
        return Preview(
            f"Overwrite {name}", text="The file that is there now is binary or very large: it is replaced whole."
        )
    return Preview(f"Overwrite {name}", diff=unified(before.text, content, name))


def _preview_of_edit(workspace: WorkspaceView, /, path: str, old: str, new: str, replace_all: bool) -> Preview:
    real = workspace.resolve(path)
    name = display_path(workspace, real)
    try:
        found = _text_of(real)
        text, _ = replaced(found.text, old, new, replace_all)
    except ToolFailure as failure:
        return Preview(f"Edit {name}", text=f"This edit will not work. {failure}")
    return Preview(f"Edit {name}", diff=unified(found.text, text, name))


def _text_if_any(real: Path) -> _Found | None:
    """The text that is at `real` now: None for no file, `_UNREADABLE` for one that is no text or is too large.

    Raises ToolFailure for what is no file.
    """
    if not os.path.lexists(real):
        return None
    try:
        return _text_of(real)
    except _NoText:
        return _UNREADABLE


class _NoText(ToolFailure):
    """The file is not text, or too large to be held in memory."""


def _text_of(real: Path) -> _Found:
    with open_file(real) as stream:
        before = identity(stream)
        content = stream.read(MAX_EDITED_BYTES + 1)
    if len(content) > MAX_EDITED_BYTES:
        raise _NoText(
            f"{shown(str(real))} is larger than {MAX_EDITED_BYTES:,} bytes.", "Use a command such as sed to change it."
        )
    try:
        text, kind = decode(content)
    except ValueError as error:
        raise _NoText(
            f"{shown(str(real))} is not text: it cannot be edited by replacing text.",
            "Use a command made for its format, or write_file to replace it whole.",
        ) from error
    return _Found(text, kind, before)


def _encoded(text: str, kind: Kind, name: str) -> bytes:
    try:
        return encode(text, kind)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ToolFailure(
            f"{name} is encoded in {kind.encoding}, which has no {character!a}. Nothing was changed.",
            "Write the whole file with write_file to turn it into UTF-8.",
        ) from error
