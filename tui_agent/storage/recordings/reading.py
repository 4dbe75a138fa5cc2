"""How recorded sessions are read: our own, files of other agents, and the neutral format.

A folder with our databases, or the id of one of our sessions, is read through its log. A file is JSON lines or one JSON
document; its first usable line tells which format it has. Lines that cannot be used are left out and named.

Files may be compressed: codex does that to sessions that were not used for a week. Python reads zstd from 3.14 on, and
before with the package `backports.zstd`; without it the program `zstd` does it.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Final, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix
from tui_agent.conversation.log import Log
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.recordings.atif import AtifReader
from tui_agent.storage.recordings.claude_code import ClaudeCodeReader, abandoned
from tui_agent.storage.recordings.codex import CodexReader, is_codex
from tui_agent.storage.recordings.gemini import GeminiReader
from tui_agent.storage.recordings.neutral import NeutralReader
from tui_agent.storage.recordings.opencode import OpencodeReader
from tui_agent.storage.recordings.pi import PiReader, branch_left
from tui_agent.storage.recordings.recording import (
    EXPECTED,
    MOST_BYTES,
    UNUSABLE,
    ConversationBuilder,
    Format,
    Recording,
    RecordingReader,
    UnreadableRecording,
)
from tui_agent.storage.sessions import find_session, window_of
from tui_agent.system.programs import find_program
from tui_agent.text import expanded

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


Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes read so far and the total bytes."""

FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("~/.claude/projects/**/*.jsonl",),
    "codex": tuple(
        f"~/.codex/{folder}/**/*.jsonl{compressed}"
        for folder in ("sessions", "archived_sessions")
        for compressed in ("", SUFFIX)
    ),
    "gemini-cli": ("~/.gemini/tmp/*/chats/session-*.json*",),
    "pi": ("~/.pi/agent/sessions/**/*.jsonl",),
}
"""Where other agents keep their sessions."""

_PROGRESS_BYTES = 1 << 20


def read_recording(named: str, home: Path, progress: Progress | None = None) -> Recording:
    """The session that a path or an id names. Raises `UnreadableRecording`."""
    path = expanded(named)
    if path.is_file() and path.name != LOG_NAME:
        return read_file(path, progress)
    folder = path.parent if path.is_file() else path
    if folder.is_dir() and not (folder / LOG_NAME).is_file():
        raise UnreadableRecording(f"{path} holds no {LOG_NAME}. {EXPECTED}")
    try:
        if not folder.is_dir():
            folder = asyncio.run(find_session(home, named))
        return asyncio.run(_read_session(folder))
    except UnreadableRecording:
        raise
    except StorageError as error:
        raise UnreadableRecording(f"{error.message} {EXPECTED}") from error


async def _read_session(folder: Path) -> Recording:
    """Read the session in a folder, which may be open. Raises `UnreadableRecording`, `StorageError`."""
    async with await LogStore.open(folder, read_only=True) as store:
        entries, window = tuple(await store.load()), window_of(await store.meta())
    log = Log(entries)
    path, artifacts = log.path(), Artifacts(folder)
    messages: list[Message] = []
    for seq in path.numbers:
        message = log.message(seq)
        # The context's own messages and what was never sent are no part of what was said.
        if message is None or message.kind in ("tool_result_archived", "tool_summary", "summary", "checkpoint"):
            continue
        if message.agent_visible or message.kind == "tool_result":
            messages.append(await whole_text(message, artifacts))
    if not any(message.role == "assistant" for message in messages):
        raise UnreadableRecording(f"Nothing was answered in session {folder.name}.")
    models = (entry.model for entry in path if isinstance(entry, Message | ModelSwitched) and entry.model)
    return Recording(
        name=folder.name,
        format="session",
        messages=tuple(messages),
        log=entries,
        prefix=next(path.of(Prefix), None),
        timed=True,
        model=next(models, ""),
        window=max(0, window),
    )


async def whole_text(message: Message, artifacts: Artifacts) -> Message:
    """The message with the full text of a cut or evicted result, if its file still exists."""
    if message.artifact is None:
        return message
    try:
        text = await artifacts.read(message.artifact)
    except StorageError:
        return message
    if message.kind in ("tool_result", "user_shell"):
        blocks = [
            msgspec.structs.replace(block, text=text) if isinstance(block, ToolResult) else block
            for block in message.blocks
        ]
    else:
        blocks = [Text(text), *(block for block in message.blocks if not isinstance(block, Text))]
    return msgspec.structs.replace(message, blocks=tuple(blocks), artifact=None)


def read_file(path: Path, progress: Progress | None = None) -> Recording:
    """The recording in a file. Lines that cannot be used are named in it. Raises `UnreadableRecording`."""
    builder = ConversationBuilder()
    reader: RecordingReader | None = None
    form: Format = "neutral"
    for number, line in _lines(path, progress):
        try:
            if reader is None:
                form = _format_of(line)
                reader = _reader(form, builder, path)
            reader.take(number, line)
        except UNUSABLE as error:
            builder.problem(number, str(error))
    if reader is not None:
        reader.finish()
    log = builder.finish()
    messages = tuple(entry for entry in log if isinstance(entry, Message))
    if not any(message.role == "assistant" for message in messages):
        more = "" if reader is not None else " It is empty."
        if builder.problems:
            first = min(builder.problems, key=lambda problem: problem.line)
            more = f" {len(builder.problems):,} of its lines could not be used, line {first.line} first: {first.why}."
        raise UnreadableRecording(f"{path} holds no answer of a model.{more} {EXPECTED}")
    return Recording(
        name=path.name,
        format=form,
        messages=messages,
        log=tuple(log),
        prefix=Prefix(system=builder.system) if builder.system else None,
        timed=builder.timed,
        model=builder.model,
        cache_ttl_s=builder.cache_ttl_s,
        problems=tuple(sorted(builder.problems, key=lambda problem: problem.line)),
        abandoned=reader.left if reader is not None else 0,
    )


class _Kind(msgspec.Struct):
    """What tells the formats apart."""

    role: str | None = None
    type: str | None = None
    schema_version: str = ""
    session_id: str = msgspec.field(default="", name="sessionId")
    project_hash: str = msgspec.field(default="", name="projectHash")
    parent_id: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="parentId")
    info: msgspec.Raw = msgspec.Raw(b"")
    messages: msgspec.Raw = msgspec.Raw(b"")


_kind = msgspec.json.Decoder(_Kind)


def _format_of(line: bytes) -> Format:
    """The format of the file in which this is the first usable line. Raises `ValueError` where it is not usable."""
    try:
        kind = _kind.decode(line)
        if bytes(kind.parent_id):
            return "pi"  # its header may be missing
        if is_codex(line):
            return "codex"
    except (msgspec.DecodeError, RecursionError):
        kind = _Kind()
    if kind.schema_version.startswith("ATIF"):
        return "atif"
    if kind.session_id and kind.project_hash:
        return "gemini-cli"
    if bytes(kind.info) and bytes(kind.messages):
        return "opencode"
    if kind.role is not None:
        return "neutral"
    if kind.type is None:
        raise ValueError("no JSON object with a role or a type")
    return "pi" if kind.type == "session" else "claude-code"


_READERS: Final[Mapping[Format, Callable[[ConversationBuilder], RecordingReader]]] = {
    "codex": CodexReader,
    "gemini-cli": GeminiReader,
    "opencode": OpencodeReader,
    "atif": AtifReader,
}


def _reader(form: Format, builder: ConversationBuilder, path: Path) -> RecordingReader:
    if form == "claude-code":
        return ClaudeCodeReader(builder, abandoned(line for _, line in _lines(path, None)))
    if form == "pi":
        return PiReader(builder, branch_left(line for _, line in _lines(path, None)))
    return _READERS.get(form, NeutralReader)(builder)


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1, without reading a large file into memory.

    A file that is one JSON document over several lines counts as one line.
    """
    try:
        with opened(path) as file:
            total, done, record, first = os.fstat(file.fileno()).st_size, 0, 0, True
            for number, line in enumerate(file, 1):
                done += len(line)
                if progress is not None and done - record >= _PROGRESS_BYTES:
                    progress(done, total)
                    record = done
                line = line.strip().removeprefix(b"\xef\xbb\xbf")
                if not line:
                    continue
                if first and line == b"{" and total <= MOST_BYTES:
                    line += file.read()
                first = False
                yield number, line
            if progress is not None:
                progress(total, total)
    except OSError as error:
        raise UnreadableRecording(f"{path} cannot be read: {error.strerror or error}.") from error
