"""Our own sessions as recordings."""

from pathlib import Path

import msgspec

from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Prefix
from tui_agent.conversation.log import Log
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.recordings.recording import Recording, UnreadableRecording


async def read_session(folder: Path) -> Recording:
    """Read the session in a folder, which may be open. Raises `UnreadableRecording`, `StorageError`."""
    store = await LogStore.open(folder, read_only=True)
    try:
        entries = tuple(await store.load())
        log = Log(entries)
    finally:
        await store.close()
    path = log.path()
    artifacts = Artifacts(folder)
    found = [message for entry in path if (message := _message_of(entry, log)) is not None]
    messages = tuple([await _whole(message, artifacts) for message in found])
    if not any(message.role == "assistant" for message in messages):
        raise UnreadableRecording(f"Nothing was answered in session {folder.name}.")
    prefixes = [entry for entry in path if isinstance(entry, Prefix)]
    models = [entry.model for entry in path if isinstance(entry, Message | ModelSwitched) and entry.model]
    return Recording(
        name=folder.name,
        format="session",
        messages=messages,
        log=entries,
        prefix=prefixes[0] if prefixes else None,
        timed=True,
        model=models[0] if models else "",
    )


def _message_of(entry: AnyEntry, log: Log) -> Message | None:
    """What was said by this entry; the context's own messages and what never was sent are left out."""
    message = log.message(entry.seq)
    if message is None or message.kind in ("tool_result_archived", "tool_summary", "summary", "checkpoint"):
        return None
    return message if message.agent_visible or message.kind == "tool_result" else None


async def _whole(message: Message, artifacts: Artifacts) -> Message:
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
