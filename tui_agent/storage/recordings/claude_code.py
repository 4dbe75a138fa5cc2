"""Session files of Claude Code: JSON lines of which `type` `user` and `assistant` hold the conversation.

The format is not documented by its maker; this reads what its files hold: an answer is written in one line per block,
all with the same `message.id`, results come in `user` lines, side chains are subtasks, and lines of other types
(summaries, snapshots, titles) say nothing to the model. Each line of an answer repeats the usage of its call, in which
`input_tokens` counts neither what was read from the cache nor what was written to it. A compaction is a `system` line
of the subtype `compact_boundary`, which names what is kept, and a `user` line with `isCompactSummary`, which holds the
summary. `parentUuid` names the line before: where the user has gone back, the lines of all branches stand in one file.
"""

from collections.abc import Iterable

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.storage.recordings.building import UNUSABLE, ConversationBuilder, Count, arguments, picture, seconds
from tui_agent.storage.recordings.recording import Format


class _ClaudeSource(msgspec.Struct):
    media_type: str = ""
    data: str = ""


class _ClaudePart(msgspec.Struct):
    type: str
    text: str = ""
    source: _ClaudeSource | None = None


class _ClaudeBlock(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | list[_ClaudePart] | None = None
    is_error: bool | None = None
    source: _ClaudeSource | None = None


class _ClaudeMessage(msgspec.Struct):
    content: str | list[_ClaudeBlock]
    id: str = ""
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _ClaudeWrites(msgspec.Struct):
    ephemeral_5m_input_tokens: Count = 0
    ephemeral_1h_input_tokens: Count = 0


class _ClaudeUsage(msgspec.Struct):
    input_tokens: Count = 0
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count = 0
    cache_creation: _ClaudeWrites | None = None


class _ClaudePreserved(msgspec.Struct, rename="camel"):
    head_uuid: str = ""


class _ClaudeCompaction(msgspec.Struct, rename="camel"):
    preserved_segment: _ClaudePreserved | None = None


class _ClaudeHeader(msgspec.Struct, rename="camel"):
    type: str = ""
    subtype: str = ""
    compact_metadata: _ClaudeCompaction | None = None
    is_sidechain: bool = False
    is_compact_summary: bool = False
    is_api_error_message: bool = False
    uuid: str = ""
    timestamp: str = ""

    @property
    def holds_conversation(self) -> bool:
        return self.type in ("user", "assistant") and not (self.is_sidechain or self.is_api_error_message)


class _ClaudeLine(msgspec.Struct):
    message: _ClaudeMessage


_claude_header = msgspec.json.Decoder(_ClaudeHeader)
_claude_line = msgspec.json.Decoder(_ClaudeLine)
_claude_usage = msgspec.json.Decoder(_ClaudeUsage | None)


class ClaudeCodeReader:
    """Reads a session file of Claude Code. A line that was copied from a resumed session counts once, one that is
    `abandoned` not at all.
    """

    format: Format = "claude-code"

    def __init__(self, builder: ConversationBuilder, abandoned: frozenset[str] = frozenset()) -> None:
        self._builder = builder
        self._abandoned = abandoned
        self._places: dict[str, int] = {}
        self._kept = -1
        self._written_for_an_hour = 0
        """Tokens written to the cache for an hour, less those written for five minutes."""

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    def take(self, number: int, line: bytes) -> None:
        """Read one line; an invalid line is noted as a problem."""
        try:
            header = _claude_header.decode(line)
            if header.subtype == "compact_boundary" and not header.is_sidechain:
                preserved = header.compact_metadata.preserved_segment if header.compact_metadata else None
                self._kept = self._places.get(preserved.head_uuid, -1) if preserved else -1
            if not header.holds_conversation or header.uuid in self._places or header.uuid in self._abandoned:
                return
            message, time = _claude_line.decode(line).message, seconds(header.timestamp)
            content = message.content
            told = [_ClaudeBlock("text", text=content)] if isinstance(content, str) else content
            blocks = [block for part in told if (block := _claude_block(part)) is not None]
        except UNUSABLE as error:
            self._builder.problem(number, str(error))
            return
        if header.is_compact_summary:
            text = "\n".join(block.text for block in blocks if isinstance(block, Text))
            self._builder.compaction(number, text, time, kept=self._kept)
            self._kept = -1
        elif header.type == "assistant":
            model = message.model if message.model.startswith("claude") else ""
            usage = self._usage(number, message.usage)
            self._builder.answer(number, blocks, time, answer_id=message.id, model=model, usage=usage)
        else:
            self._user(number, blocks, time)
        if header.uuid:
            self._places[header.uuid] = self._builder.place

    def _user(self, number: int, blocks: list[Block], time: float) -> None:
        for block in blocks:
            if isinstance(block, ToolResult):
                self._builder.result(number, block, time)
        words: list[Block] = [block for block in blocks if not isinstance(block, ToolResult)]
        if words:
            self._builder.user(number, words, time)

    def _usage(self, number: int, told: msgspec.Raw) -> Usage | None:
        """The usage of a call; None if it is missing or invalid, which is noted as a problem."""
        try:
            usage = _claude_usage.decode(told)
        except UNUSABLE as error:
            self._builder.problem(number, f"only its usage: {error}")
            return None
        if usage is None:
            return None
        if usage.cache_creation is not None:
            writes = usage.cache_creation
            self._written_for_an_hour += writes.ephemeral_1h_input_tokens - writes.ephemeral_5m_input_tokens
            self._builder.cache_ttl_s = 3600 if self._written_for_an_hour > 0 else 300
        read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
        whole = usage.input_tokens + read + written
        return Usage(whole, read, written, usage.output_tokens) if whole else None


class _Part(msgspec.Struct):
    type: str = ""
    id: str = ""
    tool_use_id: str = ""


class _LinkedMessage(msgspec.Struct):
    id: str = ""
    content: str | list[_Part] = ""


class _Link(msgspec.Struct, rename="camel"):
    """How a line is linked to others. `parent_uuid` is unset in early files, whose format had none."""

    type: str = ""
    uuid: str = ""
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    logical_parent_uuid: str | None = None
    is_sidechain: bool = False
    is_compact_summary: bool = False
    message: _LinkedMessage = msgspec.field(default_factory=_LinkedMessage)

    @property
    def parts(self) -> list[_Part]:
        return self.message.content if isinstance(self.message.content, list) else []

    @property
    def begins(self) -> bool:
        """Whether nothing stands before it: the user went back behind their very first words."""
        return self.parent_uuid is None and self.type == "user" and not self.is_compact_summary


_link = msgspec.json.Decoder(_Link)


def abandoned(lines: Iterable[bytes]) -> frozenset[str]:
    """The lines that said something on branches which the user has gone back from, by their uuid.

    The branch that counts is the one of the newest line, followed from parent to parent; a parent that is not in the
    file counts as the line before. An answer is a chain of lines of one `message.id`, and the results of its calls may
    hang from any of them: all of these belong together.
    """
    links: list[_Link] = []
    for line in lines:
        try:
            link = _link.decode(line)
        except UNUSABLE:
            continue
        if link.uuid and not link.is_sidechain:
            links.append(link)
    places: dict[str, int] = {}
    for place, link in enumerate(links):
        places.setdefault(link.uuid, place)
    speaking = [link for link in links if link.type in ("user", "assistant")]
    kept = _branch(links, places, places[speaking[-1].uuid]) if speaking else set()
    answers = {link.message.id for link in speaking if link.uuid in kept and link.type == "assistant"} - {""}
    kept |= {link.uuid for link in speaking if link.message.id in answers}
    calls = {part.id for link in speaking if link.uuid in kept for part in link.parts if part.type == "tool_use"}
    kept |= {link.uuid for link in speaking for part in link.parts if part.tool_use_id in calls}
    return frozenset(link.uuid for link in speaking if link.uuid not in kept)


def _branch(links: list[_Link], places: dict[str, int], newest: int) -> set[str]:
    found: set[str] = set()
    place = newest
    while place >= 0 and links[place].uuid not in found:
        link = links[place]
        found.add(link.uuid)
        if link.begins:
            break
        parent = link.parent_uuid or link.logical_parent_uuid
        place = places.get(parent, place - 1) if isinstance(parent, str) else place - 1
    return found


def _claude_block(told: _ClaudeBlock) -> Block | None:
    match told.type:
        case "text":
            return Text(valid_text(told.text)) if told.text.strip() else None
        case "thinking":
            return Reasoning(valid_text(told.thinking))
        case "tool_use":
            return ToolCall(told.id, told.name, arguments(told.input))
        case "tool_result":
            parts = [_ClaudePart("text", told.content)] if isinstance(told.content, str) else told.content or []
            text = "\n".join(each.text for each in parts if each.type == "text")
            images = tuple(_image(each.source) for each in parts if each.type == "image")
            return ToolResult(told.tool_use_id, valid_text(text), is_error=bool(told.is_error), images=images)
        case "image":
            return _image(told.source)
        case _:
            return None


def _image(source: _ClaudeSource | None) -> Image:
    return picture(source.media_type, source.data) if source else picture("", "")
