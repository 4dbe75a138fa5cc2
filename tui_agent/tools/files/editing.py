"""Changing files: `write_file` and `edit_file`. A file is replaced atomically, or not at all."""

import difflib
import os
import re
from pathlib import Path

import msgspec

from tui_agent.regular import read_at_most
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.files.buffers import Buffers, held_by
from tui_agent.tools.files.confined import identity, open_file, write_atomically
from tui_agent.tools.files.diffs import unified
from tui_agent.tools.files.encodings import FileKind, decode, encode
from tui_agent.tools.gate.workspace import access_to, display_path, granted_path, named_path, shown
from tui_agent.tools.schema import Signature
from tui_agent.tools.threads import Stop, in_thread

MAX_EDITED_BYTES = 20_000_000
"""The largest file that is edited or compared with its replacement: it is held in memory."""


class _Found(msgspec.Struct, frozen=True):
    """The content of a text file, and its identity when it was read."""

    text: str
    kind: FileKind
    identity: tuple[int, int, int, int]


class WriteFile:
    """Writes a whole file; if it has unsaved changes in an editor, through its `buffers`."""

    effect: Effect = "write"

    def __init__(self, buffers: Buffers | None = None) -> None:
        self._buffers = buffers
        self._signature = Signature.of(self._write, "write_file")
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (access_to(workspace, str(self._signature.parse(arguments)["path"]), "write"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_write, arguments, workspace)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        given = self._signature.parse(arguments)
        held = await held_by(self._buffers, given["path"], context)
        output = await in_thread(lambda stop: self._signature.call(self._write, arguments, context, stop, held))
        if self._buffers is not None and held is not None:
            await self._buffers.save(granted_path(context, str(given["path"])), str(given["content"]))
        return output

    def _write(self, context: ToolContext, stop: Stop, held: str | None, /, path: str, content: str) -> ToolOutput:
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
        if held is None:
            write_atomically(real, data, stop)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        size = f"{lines:,} line{'s' * (lines != 1)}"
        done = f"{'Created' if before is None else 'Replaced'} {name}: {size}, {len(data):,} bytes."
        diff = "" if before is _UNREADABLE else unified(before.text if before else "", content, name)
        return ToolOutput(done, summary=size, diff=diff)


class EditFile:
    """Replaces an exact piece of text in a file, keeping its encoding, line endings and mode.

    If the file has unsaved changes in an editor, the editor's text is edited, through its `buffers`.
    """

    effect: Effect = "write"

    def __init__(self, buffers: Buffers | None = None) -> None:
        self._buffers = buffers
        self._signature = Signature.of(self._edit, "edit_file")
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (access_to(workspace, str(self._signature.parse(arguments)["path"]), "write"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._signature.call(_preview_of_edit, arguments, workspace, self._buffers is not None)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        path = self._signature.parse(arguments)["path"]
        held = await held_by(self._buffers, path, context)
        edited, output = await in_thread(lambda stop: self._signature.call(self._edit, arguments, context, stop, held))
        if self._buffers is not None and held is not None:
            await self._buffers.save(granted_path(context, str(path)), edited)
        return output

    def _edit(
        self,
        context: ToolContext,
        stop: Stop,
        held: str | None,
        /,
        path: str,
        old: str,
        new: str,
        replace_all: bool = False,
    ) -> tuple[str, ToolOutput]:
        """Replace an exact piece of text in a file. It must be there exactly once, unless replace_all is set.

        Args:
            path: The file.
            old: The text to replace, exactly as it is in the file, white space included, without line numbers.
            new: The text in its place; empty deletes.
            replace_all: Replace every occurrence.
        """
        real = granted_path(context, path)
        name = display_path(context.workspace, real)
        found = _text_of(real) if held is None else _held(held)
        text, lines = replaced(found.text, old, new, replace_all)
        if held is None:
            write_atomically(real, _encoded(text, found.kind, name), stop, expected=found.identity)
        where = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines[:10]))}"
        more = f" and {len(lines) - 10:,} more" if len(lines) > 10 else ""
        done = f"Replaced {len(lines):,} occurrence{'s' * (len(lines) != 1)} in {name} ({where}{more})."
        return text, ToolOutput(done, summary=f"{where}{more}", diff=unified(found.text, text, name))


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
        told = "The file that is there now is binary or very large: it is replaced whole."
        return Preview(f"Overwrite {name}", diff=whole, text=told)
    diff = unified(before.text, content, name, complete=True)
    return Preview(f"Overwrite {name}", diff=diff, text="" if diff else "Nothing in it changes.")


def _preview_of_edit(
    workspace: WorkspaceView, may_be_held: bool, /, path: str, old: str, new: str, replace_all: bool
) -> Preview:
    real = workspace.resolve(path)
    name = named_path(workspace, real)
    try:
        found = _text_of(real)
        text, _ = replaced(found.text, old, new, replace_all)
    except ToolFailure as failure:
        if may_be_held:  # the editor is asked for unsaved text only once the call is allowed
            return Preview(f"Edit {name}", diff=unified(old, new, name, complete=True))
        return Preview(
            f"Edit {name}", text=f"This edit will not work. {failure.why}", failure=(failure.why, failure.instead)
        )
    return Preview(f"Edit {name}", diff=unified(found.text, text, name, complete=True))


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


_NAMED = 10
"""Matches that an error lists by line number."""
_MATCHES_COUNTED = 1_000
_LINES_COMPARED = 20_000
_CONTEXT_SHOWN = 12
_WIDTH_COMPARED = 200
_NUMBERED = re.compile(r"^\s*\d+(?:\+\d+)?\t", re.MULTILINE)


def replaced(text: str, old: str, new: str, replace_all: bool) -> tuple[str, list[int]]:
    """Replace `old` with `new`; returns the new text, and the numbers (from 1) of the lines where `old` began.

    If all lines of the text end in CRLF, newlines in `old` and `new` mean CRLF. Raises ToolFailure if `old` is not in
    the text, or occurs more than once (counting overlaps) without `replace_all`.
    """
    if not old:
        raise ToolFailure("`old` is empty.", "Give the exact text to replace, or use write_file to write a whole file.")
    if old == new:
        raise ToolFailure(
            "`old` and `new` are the same: there is nothing to change.", "Give what is to be there instead."
        )
    if _only_crlf(text) or (old not in text and _as_crlf(old) in text):
        old, new = _as_crlf(old), _as_crlf(new)
    places = _places(text, old, overlapping=not replace_all)
    if not places:
        raise ToolFailure("`old` is not in the file. Nothing was changed.", _not_found(text, old))
    if replace_all:
        return text.replace(old, new), _line_numbers(text, places)
    if len(places) > 1:
        raise ToolFailure(
            _ambiguous(_line_numbers(text, places)),
            "Give more of the lines around the one you mean, or set replace_all=true.",
        )
    start = places[0]
    return text[:start] + new + text[start + len(old) :], _line_numbers(text, places)


def _only_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def _as_crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _places(text: str, old: str, overlapping: bool) -> list[int]:
    """Where `old` starts in `text`: all matches without overlaps, or the first `_MATCHES_COUNTED` with overlaps."""
    places: list[int] = []
    start = text.find(old)
    while start >= 0 and not (overlapping and len(places) == _MATCHES_COUNTED):
        places.append(start)
        start = text.find(old, start + (1 if overlapping else len(old)))
    return places


def _line_numbers(text: str, places: list[int]) -> list[int]:
    numbers, line, before = [], 1, 0
    for place in places:
        line += text.count("\n", before, place)
        before = place
        numbers.append(line)
    return numbers


def _ambiguous(lines: list[int]) -> str:
    named = ", ".join(map(str, lines[:_NAMED])) + (", …" if len(lines) > _NAMED else "")
    count = f"{len(lines)}" if len(lines) < _MATCHES_COUNTED else f"at least {len(lines)}"
    return f"`old` is there {count} times (starting in lines {named}). Nothing was changed."


def _not_found(text: str, old: str) -> str:
    """Advice if `old` is not in the file: where the most similar text is."""
    bare = _NUMBERED.sub("", old)
    if bare != old and bare in text:
        return "Leave out the line numbers and tabs that read_file puts in front of each line."
    lines = text.split("\n")
    wanted = old.strip("\r\n").split("\n")
    loose = _loosely_equal(lines, wanted)
    if loose is not None:
        return f"It differs only in white space from these lines:\n{_region(lines, loose, len(wanted))}"
    near = _nearest(lines, wanted)
    if near is None:
        return "Read it again: it may have changed."
    return f"The nearest lines are:\n{_region(lines, near, len(wanted))}\nCopy `old` from the file exactly."


def _loosely_equal(lines: list[str], wanted: list[str]) -> int | None:
    """The index where the `lines` equal `wanted`, ignoring white space."""
    pattern = ["".join(line.split()) for line in wanted]
    if not any(pattern):
        return None
    squeezed = ["".join(line.split()) for line in lines[:_LINES_COMPARED]]
    anchor = max(range(len(pattern)), key=lambda index: len(pattern[index]))
    for index, line in enumerate(squeezed):
        start = index - anchor
        if line == pattern[anchor] and start >= 0 and squeezed[start : start + len(pattern)] == pattern:
            return start
    return None


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """The index where `lines` is most similar to `wanted`, judged by the longest line of `wanted`."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor].strip()[:_WIDTH_COMPARED])
    best, found = 0.6, None
    for index, line in enumerate(lines[:_LINES_COMPARED]):
        matcher.set_seq1(line.strip()[:_WIDTH_COMPARED])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and matcher.ratio() > best:
            best, found = matcher.ratio(), max(index - anchor, 0)
    return found


def _region(lines: list[str], start: int, count: int) -> str:
    """Some lines, as read_file shows them."""
    region = lines[start : start + min(count, _CONTEXT_SHOWN)]
    return "\n".join(f"{start + 1 + index}\t{line[:500]}" for index, line in enumerate(region))
