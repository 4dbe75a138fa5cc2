"""Changing files: `write_file` and `edit_file`. A file is replaced atomically, or not at all."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from typing_extensions import override

from tui_agent.system.regular import read_at_most
from tui_agent.text import counted
from tui_agent.tools.base import Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import OfPath
from tui_agent.tools.diffs import unified
from tui_agent.tools.files.confined import identity, open_file, write_atomically
from tui_agent.tools.files.encodings import FileKind, decode, encode
from tui_agent.tools.files.notebooks import Notebook
from tui_agent.tools.files.replacing import Replaced, Replacement, replaced
from tui_agent.tools.gate.workspace import display_path, folder_gone, granted_path, named_path, shown
from tui_agent.tools.threads import Cancellation, in_thread

MAX_EDITED_BYTES = 20_000_000
"""The largest file that is edited or compared with its replacement: it is held in memory."""


class Buffers(Protocol):
    """The files that an editor has open."""

    async def unsaved(self, path: Path) -> str | None:
        """The editor's text of a file with unsaved changes; None for any other. Raises nothing."""
        ...

    async def save(self, path: Path, text: str) -> None:
        """Replace the editor's text of a file, and save it. Raises ToolFailure."""
        ...


async def held_by(buffers: Buffers | None, path: object, context: ToolContext) -> str | None:
    """The unsaved text of the file that a call names, or None. Raises ToolFailure if the file was not granted."""
    return await buffers.unsaved(granted_path(context, str(path))) if buffers is not None else None


class _Found(msgspec.Struct, frozen=True):
    """The content of a text file, and its identity when it was read."""

    text: str
    kind: FileKind
    identity: tuple[int, int, int, int]


class _Changing(OfPath):
    """Changes a file: `_do`, in a thread, gives the text that it has then, and the output. A file with unsaved changes
    in an editor, whose text is `held`, is changed through its `buffers`.
    """

    effect: Effect = "write"
    _do: Callable[..., tuple[str, ToolOutput]]

    def __init__(self, buffers: Buffers | None = None) -> None:
        super().__init__()
        self._buffers = buffers

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        path = self._signature.parse(arguments)["path"]
        held = await held_by(self._buffers, path, context)
        text, output = await in_thread(lambda stop: self._signature.call(self._do, arguments, context, stop, held))
        if self._buffers is not None and held is not None:
            await self._buffers.save(granted_path(context, str(path)), text)
        return output


class WriteFile(_Changing):
    name = "write_file"

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_write, arguments, workspace)

    @override
    def _do(
        self, context: ToolContext, stop: Cancellation, held: str | None, /, path: str, content: str
    ) -> tuple[str, ToolOutput]:
        """Write a file, new or in place of an old one, in UTF-8. Folders that are missing are made.

        To change a part of a file use edit_file.

        Args:
            path: The file.
            content: The whole content.
        """
        real = granted_path(context, path)
        name = display_path(context.workspace, real)
        data = content.encode()
        before = _text_if_any(real) if held is None else _held(held)
        root = context.workspace.root
        if real.is_relative_to(root) and not root.is_dir():
            raise folder_gone(root)
        if held is None:
            write_atomically(real, data, stop)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        size = counted(lines, "line")
        done = f"{'Created' if before is None else 'Replaced'} {name}: {size}, {counted(len(data), 'byte')}."
        diff = "" if before is _UNREADABLE else unified(before.text if before else "", content, name)
        return content, ToolOutput(done, summary=size, diff=diff)


class EditFile(_Changing):
    """Replaces an exact piece of text in a file, keeping its encoding, line endings and mode."""

    name = "edit_file"

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_edit, arguments, workspace, self._buffers is not None)

    @override
    def _do(
        self,
        context: ToolContext,
        stop: Cancellation,
        held: str | None,
        /,
        path: str,
        old: str = "",
        new: str = "",
        replace_all: bool = False,
        edits: Sequence[Replacement] = (),
    ) -> tuple[str, ToolOutput]:
        """Replace an exact piece of text in a file. It must be there exactly once, unless replace_all is set.

        Args:
            path: The file.
            old: The text to replace, exactly as it is in the file, white space included, without line numbers.
            new: The text in its place; empty deletes.
            replace_all: Replace every occurrence.
            edits: Instead of old and new: several replacements, one after the other, all or none.
        """
        real = granted_path(context, path)
        name = display_path(context.workspace, real)
        found = _text_of(real) if held is None else _held(held)
        notebook = Notebook.of(real.name, found.text)
        before = notebook.text if notebook else found.text
        done = _all_replaced(before, old, new, replace_all, edits)
        content = notebook.edited(done.text) if notebook else done.text
        after = notebook.shown(done.text) if notebook else done.text
        if held is None:
            write_atomically(real, _encoded(content, found.kind, name), stop, expected=found.identity)
        lines = done.lines
        where = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines[:10]))}"
        more = f" and {len(lines) - 10:,} more" if len(lines) > 10 else ""
        message = f"Replaced {len(lines):,} occurrence{'s' * (len(lines) != 1)} in {name} ({where}{more})."
        if done.differed:
            message += f" `old` differed from the file in its {done.differed}; what is there now is as the file has it."
        return content, ToolOutput(message, summary=f"{where}{more}", diff=unified(before, after, name))


_UNREADABLE = _Found("", FileKind(), (0, 0, 0, 0))
"""Stands for an existing file that is binary or too large to compare with."""


def _held(text: str) -> _Found:
    """An editor's unsaved text of a file."""
    return _Found(text, FileKind(), (0, 0, 0, 0))


def _preview_of_write(workspace: WorkspaceView, /, path: str, content: str) -> Preview:
    real = workspace.resolve(path)
    name = named_path(workspace, real)
    whole = unified("", content, name, complete=True)
    try:
        before = _text_if_any(real)
    except ToolFailure as failure:
        return Preview(f"Write {name}", diff=whole, text=str(failure))
    if before is None:
        return Preview(f"Create {name}", diff=whole, text="" if whole else "The file is empty.")
    if before is _UNREADABLE:
        note = "The file that is there now is binary or very large: it is replaced whole."
        return Preview(f"Overwrite {name}", diff=whole, text=note)
    diff = unified(before.text, content, name, complete=True)
    return Preview(f"Overwrite {name}", diff=diff, text="" if diff else "Nothing in it changes.")


def _preview_of_edit(
    workspace: WorkspaceView,
    may_be_held: bool,
    /,
    path: str,
    old: str,
    new: str,
    replace_all: bool,
    edits: Sequence[Replacement],
) -> Preview:
    real = workspace.resolve(path)
    name = named_path(workspace, real)
    try:
        found = _text_of(real).text
        notebook = Notebook.of(real.name, found)
        before = notebook.text if notebook else found
        after = _all_replaced(before, old, new, replace_all, edits).text
        if notebook:
            notebook.edited(after)
            after = notebook.shown(after)
    except ToolFailure as failure:
        if may_be_held:  # the editor is asked for unsaved text only once the call is allowed
            steps = edits or (Replacement(old, new),)
            olds, news = ("\n".join(texts) for texts in zip(*((step.old, step.new) for step in steps), strict=True))
            return Preview(f"Edit {name}", diff=unified(olds, news, name, complete=True))
        return Preview(
            f"Edit {name}", text=f"This edit will not work. {failure.why}", failure=(failure.why, failure.instead)
        )
    return Preview(f"Edit {name}", diff=unified(before, after, name, complete=True))


def _all_replaced(text: str, old: str, new: str, replace_all: bool, edits: Sequence[Replacement]) -> Replaced:
    """Carry out one replacement or several in `text`. Raises ToolFailure that says which one cannot be done."""
    if not edits:
        return replaced(text, old, new, replace_all)
    if old or new:
        raise ToolFailure("Both `old` and `edits` are given. Nothing was changed.", "Give `edits` alone.")
    lines: list[int] = []
    differed: list[str] = []
    for number, edit in enumerate(edits, 1):
        try:
            done = replaced(text, edit.old, edit.new, edit.replace_all)
        except ToolFailure as failure:
            raise ToolFailure(f"Edit {number} of {len(edits)}: {failure.why}", failure.instead) from failure
        text = done.text
        lines += done.lines
        differed += [done.differed] if done.differed else []
    return Replaced(text, lines, " and ".join(dict.fromkeys(differed)))


def _text_if_any(real: Path) -> _Found | None:
    """The text file at `real`; None if there is no file, `_UNREADABLE` if it is not text or too large.

    Raises ToolFailure for anything that is not a regular file.
    """
    if not os.path.lexists(real):
        return None
    try:
        return _text_of(real)
    except _NoText:
        return _UNREADABLE


class _NoText(ToolFailure):
    """The file is not text, or too large to hold in memory."""


def _text_of(real: Path) -> _Found:
    with open_file(real) as stream:
        before = identity(stream)
        content = read_at_most(stream, MAX_EDITED_BYTES + 1)
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


def _encoded(text: str, kind: FileKind, name: str) -> bytes:
    try:
        return encode(text, kind)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ToolFailure(
            f"{name} is encoded in {kind.encoding}, which has no {character!a}. Nothing was changed.",
            "Write the whole file with write_file to turn it into UTF-8.",
        ) from error
