"""Reading files and listing folders: `read_file` and `list_dir`."""

import base64
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar

from msgspec import Meta
from msgspec.structs import replace
from typing_extensions import override

from tui_agent.conversation.blocks import Image
from tui_agent.system.regular import read_at_most
from tui_agent.text import counted
from tui_agent.tools.base import Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import OfPath
from tui_agent.tools.files.confined import open_file, open_folder
from tui_agent.tools.files.editing import MAX_EDITED_BYTES, Buffers, held_by
from tui_agent.tools.files.encodings import HEAD, FileKind, decode, sniff
from tui_agent.tools.files.notebooks import HOW, Notebook
from tui_agent.tools.files.paging import Page, PageLimits, PastTheEnd, count_lines, read_page
from tui_agent.tools.gate.workspace import display_path, granted_path, named_path, shown
from tui_agent.tools.threads import Cancellation, in_thread
from tui_agent.visible import whole

MAX_IMAGE_BYTES = 48 * 1024 * 1024
"""Bytes of the largest picture that is read: 12 megapixels uncompressed, and some. A smaller version is sent."""
MAX_ENTRIES = 1_000
"""Entries of a folder that are listed."""

_NOTICE = 512
"""Bytes of a page reserved for the notice at its end."""
_SMALLEST_PAGE = 1_000
"""Bytes that a page has even in the smallest context window."""


class _Looking(OfPath):
    """Reads what is at a path, with a `_do` that runs in a thread."""

    effect: Effect = "read"
    _do: Callable[..., ToolOutput]
    _verb: ClassVar[str]

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        real = workspace.resolve(str(self._signature.parse(arguments)["path"]))
        return Preview(f"{self._verb} {named_path(workspace, real)}", text=whole(str(real)))


class ReadFile(_Looking):
    """Returns a picture, or one page of a text file; page and notice together stay within `limits`.

    If the file has unsaved changes in an editor, the editor's text is read, from its `buffers`. shown: how the text of
    a file is shown where that is not as it is, as for skills.
    """

    name = "read_file"
    _verb = "Read"

    def __init__(
        self,
        limits: PageLimits | None = None,
        buffers: Buffers | None = None,
        shown: Callable[[Path, str], str] = lambda _, text: text,
    ) -> None:
        super().__init__()
        self._buffers, self._shown = buffers, shown
        limits = limits or PageLimits()
        self._limits = replace(
            limits, bytes=max(limits.bytes - _NOTICE, 1), characters=max(limits.characters - _NOTICE, 1)
        )

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        held = await held_by(self._buffers, self._signature.parse(arguments)["path"], context)
        return await in_thread(lambda stop: self._signature.call(self._do, arguments, context, stop, held))

    @override
    def _do(
        self,
        context: ToolContext,
        stop: Cancellation,
        held: str | None,
        /,
        path: str,
        offset: int = 1,
        limit: Annotated[int, Meta(ge=1)] = 2000,
        chars: Annotated[int, Meta(ge=0)] = 0,
    ) -> ToolOutput:
        """Read a text file, page by page, or look at a picture (PNG, JPEG, GIF, WebP).

        Each line comes as its number, a tab and its text. A notice at the end of a page says how to get the next one.

        Args:
            path: The file: relative to the working folder, absolute, or starting with ~.
            offset: The first line, counted from 1; -100 is the last 100 lines.
            limit: The most lines.
            chars: Where to start in the first line, in characters: only for a line too long for one page.
        """
        real = granted_path(context, path)
        with open_file(real) if held is None else _as_file(held) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(HEAD)
            kind = sniff(head, whole=len(head) == size)
            if kind.is_image:
                return _picture(stream, kind, size)
            if kind.encoding is None:
                raise ToolFailure(
                    f"{shown(path)} is not text but {kind.media} ({_size(size)}).", "Use a command to look at it."
                )
            if not head[len(kind.mark) :]:
                return ToolOutput("[The file is empty.]", summary="empty", paged=True)
            wanted, within = (offset, limit, chars), self._within(context.page_bytes)
            notebook = _notebook(real.name, stream, size)
            if notebook is None:
                output = self._page(stream, kind, wanted, within, stop)
                return replace(output, text=self._shown(real, output.text))
            with _as_file(notebook.text) as cells:
                output = self._page(cells, FileKind("utf-8"), wanted, within, stop)
            return replace(output, text=f"{output.text}\n[{HOW}]")

    def _within(self, page_bytes: int) -> PageLimits:
        """The limits of a page of at most `page_bytes`."""
        room = max(page_bytes - _NOTICE, _SMALLEST_PAGE)
        return replace(self._limits, bytes=min(self._limits.bytes, room), characters=min(self._limits.characters, room))

    def _page(
        self, stream: BinaryIO, kind: FileKind, wanted: tuple[int, int, int], most: PageLimits, stop: Cancellation
    ) -> ToolOutput:
        offset, limit, chars = wanted
        total = count_lines(stream, kind, stop, most=None) if offset < 0 else count_lines(stream, kind, stop)
        line = max((total or 0) + 1 + offset, 1) if offset < 0 else max(offset, 1)
        limits = replace(most, lines=min(limit, most.lines))
        try:
            page = read_page(stream, kind, line, chars, limits, stop)
        except PastTheEnd as error:
            what = (
                f"line {line} has only {counted(error.last, 'character')}"
                if error.in_line
                else f"the file has {counted(error.last, 'line')}"
            )
            where = f"chars={chars}" if error.in_line else f"offset={offset}"
            raise ToolFailure(f"{where} is past the end: {what}.", "Start earlier.") from error
        span = _span(page, total)
        text = f"{page.text}\n[{' '.join(_notices(page, kind, span))}]"
        return ToolOutput(text, summary=span, paged=True)


def _notebook(name: str, stream: BinaryIO, size: int) -> Notebook | None:
    if not name.endswith(".ipynb") or size > MAX_EDITED_BYTES:
        return None
    stream.seek(0)
    return Notebook.of(name, decode(read_at_most(stream, MAX_EDITED_BYTES))[0])


def _as_file(text: str) -> BinaryIO:
    """A temporary file with this text, which closing it deletes."""
    stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    stream.write(text.encode())
    stream.seek(0)
    return stream


class ListDir(_Looking):
    """Lists at most `MAX_ENTRIES` entries of one folder."""

    name = "list_dir"
    _verb = "List"

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await in_thread(lambda stop: self._signature.call(self._do, arguments, context, stop))

    @override
    def _do(self, context: ToolContext, stop: Cancellation, /, path: str = ".") -> ToolOutput:
        """List what is in a folder: folders first, then files with their sizes. Hidden entries are included.

        Args:
            path: The folder.
        """
        real = granted_path(context, path)
        with open_folder(real) as folder, os.scandir(folder) as entries:
            listed = [_entry(entry, folder, stop) for entry in entries]
        listed.sort(key=lambda entry: (not entry.is_folder, entry.name.casefold(), entry.name))
        lines = [entry.line for entry in listed[:MAX_ENTRIES]]
        if len(listed) > MAX_ENTRIES:
            more = counted(len(listed) - MAX_ENTRIES, "more entry", "more entries")
            lines.append(f"[{more}. Use glob to find names by a pattern.]")
        where = display_path(context.workspace, real)
        return ToolOutput("\n".join(lines) or f"[{where} is empty.]", summary=counted(len(listed), "entry", "entries"))


class _Entry:
    """An entry of a folder, and the line that shows it."""

    def __init__(self, name: str, is_folder: bool, detail: str) -> None:
        self.name = name
        self.is_folder = is_folder
        self.line = f"{shown(name)}{'/' if is_folder else ''}{detail}"


def _entry(entry: "os.DirEntry[str]", folder: int, stop: Cancellation) -> _Entry:
    stop.check()
    try:
        found = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return _Entry(entry.name, False, f" -> {shown(os.readlink(entry.name, dir_fd=folder))}")
    except OSError as error:
        return _Entry(entry.name, False, f"  ({error.strerror})")
    if stat.S_ISDIR(found.st_mode):
        return _Entry(entry.name, True, "")
    return _Entry(entry.name, False, f"  {_size(found.st_size)}" if stat.S_ISREG(found.st_mode) else "  (special file)")


def _picture(stream: BinaryIO, kind: FileKind, size: int) -> ToolOutput:
    what = f"{kind.media}, {_size(size)}"
    if size > MAX_IMAGE_BYTES:
        raise ToolFailure(
            f"This picture is too large to be shown ({what}; at most {_size(MAX_IMAGE_BYTES)}).",
            "Scale it down with a command.",
        )
    stream.seek(0)
    data = base64.b64encode(read_at_most(stream, MAX_IMAGE_BYTES)).decode()
    return ToolOutput(f"[A picture: {what}.]", images=(Image(kind.media, data),), summary=what, paged=True)


def _span(page: Page, total: int | None) -> str:
    """The range of a page, such as ``lines 1-200 of 512``."""
    first, last = page.parts[0], page.parts[-1]
    of = f" of {total}" if total is not None else ""
    if page.following == (last.line, last.start + len(last.text)):
        return f"line {first.line}{of}, characters {last.start}-{page.following[1]}"
    return f"line {first.line}{of}" if first.line == last.line else f"lines {first.line}-{last.line}{of}"


def _notices(page: Page, kind: FileKind, span: str) -> list[str]:
    notices = [f"{span[0].upper()}{span[1:]}."]
    if page.following is None:
        notices.append(
            "This is the end of the file." if page.parts[-1].ending else "No newline at the end of the file."
        )
    elif page.following[1]:
        notices.append(f"Line {page.following[0]} is longer than a page.")
    if page.following is not None:
        line, character = page.following
        notices.append(f"Continue with offset={line}{f', chars={character}' if character else ''}.")
    endings = {part.ending for part in page.parts} - {""}
    if "\r\n" in endings:
        notices.append("Line endings: CRLF." if len(endings) == 1 else "Line endings: CRLF and LF, mixed.")
    if kind.encoding != "utf-8":
        notices.append(
            f"Encoding: {'UTF-8 with a byte order mark' if kind.encoding == 'utf-8-sig' else kind.encoding}."
        )
    elif any("\ufffd" in part.text for part in page.parts):
        notices.append("Bytes that are not UTF-8 are shown as \ufffd.")
    return notices


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1_000
        if size < 999.5:
            return f"{size:.1f} {unit}" if size < 99.5 else f"{size:.0f} {unit}"
    return f"{size / 1_000:.1f} TB"
