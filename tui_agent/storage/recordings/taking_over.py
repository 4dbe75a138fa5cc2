"""Imports a session that another program recorded, as an ordinary session of ours.

The file is only read. Signatures of reasoning and hashes of requests are dropped, since only the original provider
could verify them. Recorded usage is kept as that of another program, since it was paid there: it counts in no total.
Calls of foreign tools stay, with their results: every provider accepts calls of tools that are no longer offered.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, CallElsewhere, Cleared, Message, Summarized, notice
from tui_agent.conversation.log import Log
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import MOST_BYTES, Format, Recording, UnreadableRecording
from tui_agent.storage.sessions import make_session
from tui_agent.text import counted

CHARACTERS_A_TOKEN: Final = 3
"""A rough figure, for what people are shown of recorded summaries."""
SHOWN_PROBLEMS: Final = 3
ORIGIN: Final = "origin"
"""Under this name a session notes what it was made of."""

PROGRAMS: Final[dict[Format, str]] = {
    "claude-code": "Claude Code",
    "codex": "codex",
    "gemini-cli": "Gemini CLI",
    "pi": "pi",
    "opencode": "opencode",
    "atif": "another program",
    "neutral": "another program",
}

_IMPORT_NOTICE: Final = (
    "[What stands above was recorded by {program} and goes on here, with other tools and other rules: use the tools "
    "that you are told of now, whatever names stand above. Files may have changed since; read them again before you "
    "rely on what stands there.]"
)
_PICTURE_LOST: Final = "[a picture that was not recorded]"


class TakenOver(msgspec.Struct, frozen=True):
    """A session imported from a file; `description` is a sentence for people on what it contains."""

    folder: Path
    description: str


async def take_over(home: Path, path: Path) -> TakenOver:
    """A new session that goes on with what a file recorded. Raises `UnreadableRecording`, `StorageError`.

    Nothing is left behind where it fails.
    """
    recording = await asyncio.to_thread(_read, path)
    program = PROGRAMS[recording.format]
    entries = await asyncio.to_thread(_entries, recording, program)
    folder = await make_session(home, entries, {ORIGIN: f"{recording.format}: {path.name}"})
    return TakenOver(folder, _account(recording, program))


def _read(path: Path) -> Recording:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UnreadableRecording(f"{path} cannot be read: {error.strerror or error}.") from error
    if size > MOST_BYTES:
        raise UnreadableRecording(
            f"{path} has {size:,} bytes, and at most {MOST_BYTES:,} can be taken over. The file stays as it is."
        )
    return read_file(path)


def _account(recording: Recording, program: str) -> str:
    count = counted(sum(isinstance(entry, Message) and not entry.kind for entry in recording.log), "message")
    description = f"{recording.name}, recorded by {program}: {count}. This session is new; the file stays as it is."
    if recording.abandoned:
        description += f" What was taken back there is left out ({counted(recording.abandoned, 'line')})."
    if recording.problems:
        shown = "; ".join(f"line {problem.line}: {problem.why}" for problem in recording.problems[:SHOWN_PROBLEMS])
        description += f" {len(recording.problems):,} of its lines could not be used ({shown})."
    return description


def _entries(recording: Recording, program: str) -> list[AnyEntry]:
    """The log of the new session: what was said, the summaries and clearings, and last what the model is told of it."""
    log = Log()
    shown: dict[int, int] = {}
    for entry in recording.log:
        before = sum(shown.values())
        match entry:
            case Message():
                blocks = tuple(_carried(block) for block in entry.blocks)
                call = CallElsewhere(entry.model, entry.usage) if entry.usage is not None else None
                kept: AnyEntry = msgspec.structs.replace(
                    entry, blocks=blocks, model="", usage=None, cost_usd=None, elsewhere=call
                )
                shown[entry.seq] = sum(map(_tokens, blocks))
            case Summarized():
                shown = {seq: size for seq, size in shown.items() if not entry.first <= seq <= entry.last}
                shown[entry.seq] = len(entry.text) // CHARACTERS_A_TOKEN
                kept = msgspec.structs.replace(entry, usage=None)
            case Cleared():
                texts = zip(entry.results, entry.texts, strict=False)
                shown |= {seq: len(text) // CHARACTERS_A_TOKEN for seq, text in texts}
                kept = entry
            case _:
                continue
        if isinstance(kept, Summarized | Cleared):
            after, reason = sum(shown.values()), f"{program} did it."
            kept = msgspec.structs.replace(kept, before=before, after=after, reason=reason)
        log.append(log.stamp(kept, entry.time))
    log.append(log.stamp(notice(_IMPORT_NOTICE.format(program=program)), time.time()))
    return list(log)


def _tokens(block: Block) -> int:
    match block:
        case Text() | Reasoning() | ToolResult():
            return len(block.text) // CHARACTERS_A_TOKEN
        case ToolCall():
            return len(block.arguments) // CHARACTERS_A_TOKEN
        case _:
            return 0


def _carried(block: Block) -> Block:
    match block:
        case Image() if not block.data:
            return Text(_PICTURE_LOST)
        case ToolResult() if any(not image.data for image in block.images):
            images = tuple(image for image in block.images if image.data)
            text = "\n".join(part for part in (block.text, _PICTURE_LOST) if part)
            return msgspec.structs.replace(block, text=text, images=images)
        case _:
            return block
