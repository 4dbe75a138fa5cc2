"""Recorded sessions and how they are read: our own, and files in the neutral format, of Claude Code and of codex.

A folder with our databases, or the id of one of our sessions, is read through its log. A file is JSON lines; its first
usable line tells which format it has. Lines that cannot be used are left out and named.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from tui_agent.conversation.entries import Prefix
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME
from tui_agent.storage.recordings.building import ConversationBuilder, LineReader
from tui_agent.storage.recordings.claude_code import ClaudeCodeReader, abandoned
from tui_agent.storage.recordings.codex import CodexReader, is_codex
from tui_agent.storage.recordings.neutral import NeutralReader
from tui_agent.storage.recordings.own import read_session
from tui_agent.storage.recordings.recording import EXPECTED, Recording, UnreadableRecording
from tui_agent.storage.sessions import find_session

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes read so far and the total bytes."""

_PROGRESS_BYTES = 1 << 20


def read_recording(named: str, home: Path, progress: Progress | None = None) -> Recording:
    """The session that a path or an id names. Raises `UnreadableRecording`."""
    path = Path(named).expanduser()
    if path.is_file() and path.name != LOG_NAME:
        return read_file(path, progress)
    try:
        if path.is_file():
            folder = path.parent
        elif path.is_dir():
            folder = path
            if not (folder / LOG_NAME).is_file():
                raise UnreadableRecording(f"{path} holds no {LOG_NAME}. {EXPECTED}")
        else:
            folder = asyncio.run(find_session(home, named))
        return asyncio.run(read_session(folder))
    except StorageError as error:
        raise UnreadableRecording(f"{error.message} {EXPECTED}") from error


def read_file(path: Path, progress: Progress | None = None) -> Recording:
    """The recording in a JSON Lines file. Lines that cannot be used are named in it. Raises `UnreadableRecording`."""
    builder = ConversationBuilder()
    reader: LineReader | None = None
    for number, line in _lines(path, progress):
        if reader is None:
            reader = _reader_for(line, builder, path)
        if reader is None:
            builder.problem(number, "no JSON object with a role or a type")
        else:
            reader.take(number, line)
    messages = builder.finish()
    if reader is None or not any(message.role == "assistant" for message in messages):
        malformed = f" {len(builder.problems)} of its lines could not be used." if builder.problems else ""
        raise UnreadableRecording(f"{path} holds no answer of a model.{malformed} {EXPECTED}")
    return Recording(
        name=path.name,
        format=reader.format,
        messages=messages,
        log=builder.log,
        prefix=Prefix(system=builder.system) if builder.system else None,
        timed=builder.timed,
        model=builder.model,
        cache_ttl_s=builder.cache_ttl_s,
        problems=tuple(builder.problems),
        abandoned=reader.abandoned,
    )


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1, without reading a large file into memory."""
    try:
        with path.open("rb") as file:
            total, done, told = path.stat().st_size, 0, 0
            for number, line in enumerate(file, 1):
                done += len(line)
                if progress is not None and done - told >= _PROGRESS_BYTES:
                    progress(done, total)
                    told = done
                line = line.strip().removeprefix(b"\xef\xbb\xbf")
                if line:
                    yield number, line
            if progress is not None:
                progress(total, total)
    except OSError as error:
        raise UnreadableRecording(f"{path} cannot be read: {error.strerror or error}.") from error


class _Kind(msgspec.Struct):
    role: str | None = None
    type: str | None = None


_kind = msgspec.json.Decoder(_Kind)


def _reader_for(line: bytes, builder: ConversationBuilder, path: Path) -> LineReader | None:
    """The reader of the file at `path`, in which this is the first usable line; None where it is not usable."""
    try:
        kind = _kind.decode(line)
        codex = is_codex(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if codex:
        return CodexReader(builder)
    if kind.role is not None:
        return NeutralReader(builder)
    if kind.type is None:
        return None
    return ClaudeCodeReader(builder, abandoned(line for _, line in _lines(path, None)))
