"""Reading a recorded session, whatever kind it is.

A folder with our databases, or the id of one of our sessions, is read through the storage floor; a file is the neutral
format or Claude Code's, which its first usable line tells.
"""

import asyncio
from pathlib import Path

import msgspec

from tui_agent.conversation.blocks import ToolResult
from tui_agent.conversation.entries import AnyEntry, Delivered, Message, ModelSwitched, Prefix, Queued
from tui_agent.conversation.log import Log
from tui_agent.replay.claude_code import ClaudeCode
from tui_agent.replay.gathering import Gathering
from tui_agent.replay.lines import Progress, read_lines
from tui_agent.replay.neutral import take as take_neutral
from tui_agent.replay.recording import Recording, UnreadableRecording
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.sessions import find_session

EXPECTED = (
    "Expected a JSON Lines file (neutral: role, text, tool_calls, tool_call_id; or Claude Code's), "
    "or the id or folder of a session; `tui-agent sessions` lists them."
)


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
        return asyncio.run(_read_session(folder))
    except StorageError as error:
        raise UnreadableRecording(f"{error.message} {EXPECTED}") from error


def read_file(path: Path, progress: Progress | None = None) -> Recording:
    """The recording in a JSON Lines file. Lines that cannot be used are named in it. Raises `UnreadableRecording`."""
    gathering, system = Gathering(), ""
    claude: ClaudeCode | None = None
    known = False
    for number, line in read_lines(path, progress):
        if not known:
            shape = _shape(line)
            if shape is None:
                gathering.problem(number, "no JSON object with a role or a type")
                continue
            known = True
            claude = ClaudeCode(gathering) if shape == "claude-code" else None
        if claude is not None:
            claude.take(number, line)
        else:
            system = take_neutral(gathering, number, line) or system
    messages = gathering.finish()
    if not any(message.role == "assistant" for message in messages):
        malformed = f" {len(gathering.problems)} of its lines could not be used." if gathering.problems else ""
        raise UnreadableRecording(f"{path} holds no answer of a model.{malformed} {EXPECTED}")
    return Recording(
        name=path.name,
        format="neutral" if claude is None else "claude-code",
        messages=messages,
        prefix=Prefix(system=system) if system else None,
        timed=gathering.timed,
        model=gathering.model,
        problems=tuple(gathering.problems),
    )


class _Shape(msgspec.Struct):
    role: str | None = None
    type: str | None = None


_shape_decoder = msgspec.json.Decoder(_Shape)


def _shape(line: bytes) -> str | None:
    try:
        told = _shape_decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if told.role is not None:
        return "neutral"
    return "claude-code" if told.type is not None else None


async def _read_session(folder: Path) -> Recording:
    store = await LogStore.open(folder, read_only=True)
    try:
        log = Log(await store.load())
    finally:
        await store.close()
    path = log.path()
    artifacts = Artifacts(folder)
    messages = [message for entry in path if (message := _message(entry, log)) is not None]
    whole = tuple([await _whole(message, artifacts) for message in messages])
    if not any(message.role == "assistant" for message in whole):
        raise UnreadableRecording(f"Nothing was answered in session {folder.name}.")
    prefixes = [entry for entry in path if isinstance(entry, Prefix)]
    models = [entry.model for entry in path if isinstance(entry, Message | ModelSwitched) and entry.model]
    return Recording(
        name=folder.name,
        format="session",
        messages=whole,
        prefix=prefixes[0] if prefixes else None,
        timed=True,
        model=models[0] if models else "",
    )


def _message(entry: AnyEntry, log: Log) -> Message | None:
    """What was said by this entry; the context's own messages and what never was sent are left out."""
    match entry:
        case Message(kind="" | "tool_result") | Message(kind="notice"):
            return entry if entry.agent_visible or entry.kind == "tool_result" else None
        case Delivered():
            queued = log[entry.queued]
            return Message(role="user", blocks=queued.blocks, time=entry.time) if isinstance(queued, Queued) else None
        case _:
            return None


async def _whole(message: Message, artifacts: Artifacts) -> Message:
    """The message with what was cut or evicted put back, where its file is still there."""
    if message.artifact is None or message.kind != "tool_result":
        return message
    try:
        text = await artifacts.read(message.artifact)
    except StorageError:
        return message
    blocks = tuple(
        msgspec.structs.replace(block, text=text) if isinstance(block, ToolResult) else block
        for block in message.blocks
    )
    return msgspec.structs.replace(message, blocks=blocks, artifact=None)
