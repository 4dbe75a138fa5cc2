"""Recorded sessions and how they are read: our own, files in the neutral format, and files of Claude Code.

A folder with our databases, or the id of one of our sessions, is read through the storage floor. A file is JSON lines;
its first usable line tells which format it has. Lines that cannot be used are left out and named.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    Message,
    ModelSwitched,
    Prefix,
    Queued,
    Summarized,
    Usage,
    tool_result,
)
from tui_agent.conversation.log import Log
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME, LogStore
from tui_agent.storage.sessions import find_session

Format: TypeAlias = Literal["neutral", "claude-code", "session"]
Progress: TypeAlias = Callable[[int, int], None]
"""Told the bytes read so far and the bytes there are."""

EXPECTED = (
    "Expected a JSON Lines file (neutral: role, text, tool_calls, tool_call_id; or Claude Code's), "
    "or the id or folder of a session; `tui-agent sessions` lists them."
)
_PROGRESS_BYTES = 1 << 20


class UnreadableRecording(Exception):
    """What was named is no recorded session; the text says why and what would be one."""


class Problem(NamedTuple):
    """A line that could not be used, by its number from 1, and why."""

    line: int
    why: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. Every tool result follows the message that asked for it.

    `log` is what was said as it was sent: the messages with their numbers in it, and the recorded context entries
    between them. `prefix` is the system prompt and tools, None where the format keeps none. `timed`: the messages carry
    the times at which they were said. `model` answered first; empty where it is not told. An answer's `usage` is what
    its call used, where that is recorded. `cache_ttl_s` is how long a cached prefix lived, in seconds; 0: not recorded.
    `problems` are the lines left out.
    """

    name: str
    format: Format
    messages: tuple[Message, ...]
    log: tuple[AnyEntry, ...] = ()
    prefix: Prefix | None = None
    timed: bool = False
    model: str = ""
    cache_ttl_s: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def metered(self) -> tuple[Message, ...]:
        """The answers of `model` whose usage is recorded."""
        return tuple(message for message in self.messages if is_metered(message, self.model))


def is_metered(message: Message, model: str) -> bool:
    """Whether the usage of this answer is recorded and it is this model's (empty: any)."""
    return message.usage is not None and (not model or message.model in ("", model))


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
    builder = ConversationBuilder()
    reader: LineReader | None = None
    for number, line in _lines(path, progress):
        if reader is None:
            reader = _reader_for(line, builder)
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
    )


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1, so that a large file never is in memory as a whole."""
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


# From lines to a conversation


class _Compaction(NamedTuple):
    """A recorded summary, after the message with the index `after` - 1; those before the index `kept` went into it."""

    after: int
    kept: int
    text: str
    time: float
    usage: Usage | None


class ConversationBuilder:
    """Puts a conversation together message by message, so that it is one a model could have been sent.

    The model's message stays open until something else is said: its results are held back, since a streamed answer may
    be recorded in several lines with the first results between them.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.problems: list[Problem] = []
        self.timed = False
        self.model = ""
        self.system = ""
        self.cache_ttl_s = 0
        self.log: tuple[AnyEntry, ...] = ()
        """All messages and compactions, stamped; set by `finish`."""
        self._blocks: list[Block] = []
        self._results: list[Message] = []
        self._names: dict[str, str] = {}
        self._answered: dict[str, bool] = {}
        self._answer_id = ""
        self._answer_time = 0.0
        self._answer_model = ""
        self._usage: Usage | None = None
        self._compactions: list[_Compaction] = []

    def problem(self, line: int, why: str) -> None:
        """This line is left out."""
        self.problems.append(Problem(line, why))

    def user(self, line: int, blocks: list[Block], time: float) -> None:
        """The user says something."""
        blocks = _without_blank_texts(blocks)
        if not blocks:
            self.problem(line, "a user's message without text")
            return
        self._close()
        self._see(time)
        self.messages.append(Message(role="user", blocks=tuple(blocks), time=time))

    def answer(
        self,
        line: int,
        blocks: list[Block],
        time: float,
        *,
        answer_id: str = "",
        model: str = "",
        usage: Usage | None = None,
    ) -> None:
        """The model says something; lines with the same `answer_id` (not empty) are one message.

        `usage` is what the whole call used; of one that grew while the answer was streamed the newest counts.
        """
        self._see(time)
        self.model = self.model or model
        if not (answer_id and answer_id == self._answer_id and self._blocks):
            self._close()
            self._answer_id, self._answer_time, self._answer_model = answer_id, time, model
        self._usage = usage or self._usage
        for block in blocks:
            if isinstance(block, ToolCall):
                if self._is_open(self._names.get(block.id, "")):
                    self.problem(line, "a call that was already made")
                    continue
                block = self._with_new_id(block)
            self._blocks.append(block)

    def result(self, line: int, result: ToolResult, time: float) -> None:
        """A tool answers."""
        result = msgspec.structs.replace(result, call_id=self._names.get(result.call_id, result.call_id))
        answered = self._answered.get(result.call_id)
        if answered is None:
            self.problem(line, "a result of a call that was not made")
        elif answered:
            self.problem(line, "a second result of one call")
        elif not self._is_open(result.call_id):
            self.problem(line, "a result long after its call")
        else:
            self._answered[result.call_id] = True
            self._see(time)
            self._results.append(_at(tool_result(result), time))

    def compaction(
        self, line: int, text: str, time: float, *, usage: Usage | None = None, kept: int = -1, keeps: int = 0
    ) -> None:
        """A summary takes the place of what was said before the message with the index `kept` (-1: the newest `keeps`).

        A result stays where its call stays.
        """
        self._close()
        kept = max(0, len(self.messages) - keeps) if kept < 0 else kept
        while 0 < kept < len(self.messages) and self.messages[kept].kind == "tool_result":
            kept -= 1
        if not kept or not text.strip():
            self.problem(line, "a compaction of nothing" if text.strip() else "a compaction without text")
            return
        self._see(time)
        self._compactions.append(_Compaction(len(self.messages), kept, text, time, usage))

    @property
    def place(self) -> int:
        """The index that the newest message has or, while the model's message is open, will have."""
        return len(self.messages) - (not self._blocks)

    def finish(self) -> tuple[Message, ...]:
        """All messages; times that are missing are those of the message before."""
        self._close()
        log, found = Log(), list[Message]()
        latest = next((message.time for message in self.messages if message.time), 0.0) if self.timed else 0.0
        due = list(reversed(self._compactions))
        beside = any(_counts_beside(message.usage) for message in self.messages)
        for message in self.messages:
            while due and due[-1].after == len(found):
                self._enter(due.pop(), log, found, latest)
            latest = max(latest, message.time)
            if beside and message.usage is not None:
                message = msgspec.structs.replace(message, usage=_whole_prompt(message.usage))
            found.append(log.stamp(message, latest))
            log.append(found[-1])
        while due:
            self._enter(due.pop(), log, found, latest)
        self.log = tuple(log)
        return tuple(found)

    @staticmethod
    def _enter(compaction: _Compaction, log: Log, said: list[Message], latest: float) -> None:
        last = said[compaction.kept - 1].seq
        summary = Summarized(first=said[0].seq, last=last, text=compaction.text, usage=compaction.usage)
        log.append(log.stamp(summary, max(latest, compaction.time)))

    def _with_new_id(self, call: ToolCall) -> ToolCall:
        """The call with an id that no earlier one has: some recordings count anew in each answer."""
        name, number = call.id, 1
        while name in self._answered:
            number += 1
            name = f"{call.id}#{number}"
        self._names[call.id] = name
        self._answered[name] = False
        return msgspec.structs.replace(call, id=name)

    def _is_open(self, call_id: str) -> bool:
        """Whether the message that is not yet closed makes this call."""
        return any(isinstance(block, ToolCall) and block.id == call_id for block in self._blocks)

    def _close(self) -> None:
        blocks = _without_blank_texts(self._blocks)
        if blocks:
            self.messages.append(
                Message(
                    role="assistant",
                    blocks=tuple(blocks),
                    time=self._answer_time,
                    model=self._answer_model,
                    usage=self._usage,
                )
            )
            self.messages += self._results
        self._blocks, self._results, self._answer_id, self._usage = [], [], "", None

    def _see(self, time: float) -> None:
        self.timed = self.timed or time > 0


def _without_blank_texts(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if not isinstance(block, Text) or block.text.strip()]


def _at(message: Message, time: float) -> Message:
    return msgspec.structs.replace(message, time=time)


def _counts_beside(usage: Usage | None) -> bool:
    """Whether this can only be a usage whose `input_tokens` counts neither what was read nor what was written."""
    return usage is not None and usage.input_tokens < usage.cache_read_tokens + usage.cache_write_tokens


def _whole_prompt(usage: Usage) -> Usage:
    whole = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return msgspec.structs.replace(usage, input_tokens=whole)


class LineReader(Protocol):
    """Reads the lines of one file into a `ConversationBuilder`."""

    @property
    def format(self) -> Format: ...

    def take(self, number: int, line: bytes) -> None:
        """Take one line in; a line that cannot be understood is noted as a problem."""
        ...


class _Kind(msgspec.Struct):
    role: str | None = None
    type: str | None = None


_kind = msgspec.json.Decoder(_Kind)


def _reader_for(line: bytes, builder: ConversationBuilder) -> LineReader | None:
    """The reader of a file in which this is the first usable line; None where it is not usable."""
    try:
        kind = _kind.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if kind.role is not None:
        return NeutralReader(builder)
    return ClaudeCodeReader(builder) if kind.type is not None else None


_UNUSABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""What a line raises that is not what its format says."""


def _seconds(time: float | str | None) -> float:
    """Seconds since the epoch of a number or an ISO 8601 text; 0 for none. Raises `ValueError`."""
    match time:
        case None | "":
            return 0.0
        case str():
            return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
        case number:
            return float(number)


def _arguments(raw: msgspec.Raw) -> str:
    """The arguments of a call as the text of a JSON object; a text that holds one is taken as it.

    Raises `ValueError`.
    """
    told: object = msgspec.json.decode(raw)
    if isinstance(told, str):
        told = msgspec.json.decode(told) if told.strip() else {}
    if isinstance(told, dict):
        return valid_text(msgspec.json.encode(told).decode())
    raise ValueError("the arguments of a call are no object")


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


# The neutral format: a JSON object a line with `role`, `text`, `tool_calls`, `tool_call_id` and, if known, `time`,
# `model` and `usage`


class _NeutralUsage(msgspec.Struct):
    input_tokens: _Count
    cache_read_tokens: _Count = 0
    cache_write_tokens: _Count = 0
    output_tokens: _Count = 0


class _NeutralCall(msgspec.Struct):
    id: str
    name: str
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _NeutralLine(msgspec.Struct):
    role: str
    text: str | None = None
    tool_calls: list[_NeutralCall] | None = None
    tool_call_id: str | None = None
    is_error: bool = False
    time: float | str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    keeps: _Count = 0


_neutral_line = msgspec.json.Decoder(_NeutralLine)
_neutral_usage = msgspec.json.Decoder(_NeutralUsage | None)


class NeutralReader:
    """Reads the neutral format."""

    format: Format = "neutral"

    def __init__(self, builder: ConversationBuilder) -> None:
        self._builder = builder

    def take(self, number: int, line: bytes) -> None:
        """Take one line in; a line that cannot be understood is noted as a problem."""
        try:
            told = _neutral_line.decode(line)
            time, text = _seconds(told.time), valid_text(told.text or "")
            calls = [ToolCall(call.id, call.name, _arguments(call.args)) for call in told.tool_calls or ()]
        except _UNUSABLE as error:
            self._builder.problem(number, str(error))
            return
        match told.role:
            case "system":
                self._builder.system = text or self._builder.system
            case "assistant":
                blocks: list[Block] = [Text(text)] if text.strip() else []
                usage = self._usage(number, told.usage)
                self._builder.answer(number, [*blocks, *calls], time, model=told.model or "", usage=usage)
            case "compaction":
                usage = self._usage(number, told.usage)
                self._builder.compaction(number, text, time, usage=usage, keeps=told.keeps)
            case "user" | "tool" if told.tool_call_id:
                self._builder.result(number, ToolResult(told.tool_call_id, text, is_error=told.is_error), time)
            case "user":
                self._builder.user(number, [Text(text)], time)
            case "tool":
                self._builder.problem(number, "a tool's result without tool_call_id")
            case other:
                self._builder.problem(number, f"unknown role {other[:40]!r}")

    def _usage(self, number: int, told: msgspec.Raw) -> Usage | None:
        """What the call used; None where that is not told, or (a problem) not in a way that can be understood."""
        try:
            usage = _neutral_usage.decode(told)
        except _UNUSABLE as error:
            self._builder.problem(number, f"only its usage: {error}")
            return None
        if usage is None:
            return None
        return Usage(usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)


# Claude Code: JSON lines of which `type` `user` and `assistant` hold the conversation. The format is not documented by
# its maker; this reads what its files hold: an answer is written in one line per block, all with the same `message.id`,
# results come in `user` lines, side chains are subtasks, and lines of other types (summaries, snapshots, titles) say
# nothing to the model. Each line of an answer repeats the usage of its call, in which `input_tokens` counts neither
# what was read from the cache nor what was written to it. A compaction is a `system` line of the subtype
# `compact_boundary`, which names what is kept, and a `user` line with `isCompactSummary`, which holds the summary.


class _ClaudePart(msgspec.Struct):
    type: str
    text: str = ""


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


class _ClaudeMessage(msgspec.Struct):
    content: str | list[_ClaudeBlock]
    id: str = ""
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _ClaudeWrites(msgspec.Struct):
    ephemeral_5m_input_tokens: _Count = 0
    ephemeral_1h_input_tokens: _Count = 0


class _ClaudeUsage(msgspec.Struct):
    input_tokens: _Count = 0
    cache_creation_input_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    output_tokens: _Count = 0
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
    """Reads a session file of Claude Code. A line that was copied from a resumed session counts once."""

    format: Format = "claude-code"

    def __init__(self, builder: ConversationBuilder) -> None:
        self._builder = builder
        self._places: dict[str, int] = {}
        self._kept = -1
        self._written_for_an_hour = 0
        """Tokens written to the cache for an hour, less those written for five minutes."""

    def take(self, number: int, line: bytes) -> None:
        """Take one line in; a line that cannot be understood is noted as a problem."""
        try:
            header = _claude_header.decode(line)
            if header.subtype == "compact_boundary" and not header.is_sidechain:
                preserved = header.compact_metadata.preserved_segment if header.compact_metadata else None
                self._kept = self._places.get(preserved.head_uuid, -1) if preserved else -1
            if not header.holds_conversation or header.uuid in self._places:
                return
            message, time = _claude_line.decode(line).message, _seconds(header.timestamp)
            content = message.content
            told = [_ClaudeBlock("text", text=content)] if isinstance(content, str) else content
            blocks = [block for part in told if (block := _claude_block(part)) is not None]
        except _UNUSABLE as error:
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
        """What the call used; None where that is not told, or (a problem) not in a way that can be understood."""
        try:
            usage = _claude_usage.decode(told)
        except _UNUSABLE as error:
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


def _claude_block(told: _ClaudeBlock) -> Block | None:
    match told.type:
        case "text":
            return Text(valid_text(told.text)) if told.text.strip() else None
        case "thinking":
            return Reasoning(valid_text(told.thinking))
        case "tool_use":
            return ToolCall(told.id, told.name, _arguments(told.input))
        case "tool_result":
            parts = [_ClaudePart("text", told.content)] if isinstance(told.content, str) else told.content or []
            text = "\n".join(each.text for each in parts if each.type == "text")
            images = tuple(Image("image/png", "") for each in parts if each.type == "image")
            return ToolResult(told.tool_use_id, valid_text(text), is_error=bool(told.is_error), images=images)
        case "image":
            return Image("image/png", "")
        case _:
            return None


# Our own sessions


async def _read_session(folder: Path) -> Recording:
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
    if message.artifact is None:
        return message
    try:
        text = await artifacts.read(message.artifact)
    except StorageError:
        return message
    if message.kind == "tool_result":
        blocks = [
            msgspec.structs.replace(block, text=text) if isinstance(block, ToolResult) else block
            for block in message.blocks
        ]
    else:
        blocks = [Text(text), *(block for block in message.blocks if not isinstance(block, Text))]
    return msgspec.structs.replace(message, blocks=tuple(blocks), artifact=None)
