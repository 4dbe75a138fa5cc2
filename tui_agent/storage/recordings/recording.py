"""A recorded session of any program, and the builder that puts one together from the lines of a file."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    NO_OUTCOME,
    AnyEntry,
    Cleared,
    Message,
    Outcome,
    Prefix,
    Summarized,
    Usage,
    tool_result,
)
from tui_agent.conversation.log import Log
from tui_agent.storage.errors import StorageError
from tui_agent.storage.recordings.fields import Json, words

Format: TypeAlias = Literal["neutral", "claude-code", "codex", "gemini-cli", "pi", "opencode", "atif", "session"]

EXPECTED = (
    "Expected a session file of Claude Code, codex, gemini-cli, pi or opencode, an ATIF trajectory, a JSON Lines file "
    "(role, text, tool_calls, tool_call_id), or the id or folder of a session; `tui-agent sessions` lists them."
)
UNUSABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""What a line raises that is not what its format says."""
CLEARED: Final = "[Old tool result content cleared]"
"""What Claude Code and opencode show in place of a result that they have cleared."""
MOST_BYTES: Final = 512 * 1024 * 1024
"""Size of the largest file whose whole conversation is read into memory at once."""


class UnreadableRecording(StorageError):
    """A path or id is not a recorded session; the message says why, and what would be one."""


class LineProblem(msgspec.Struct, frozen=True):
    """A line that could not be used: its number, from 1, and the reason."""

    line: int
    why: str


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded conversation. Every tool result follows the message with its call.

    `log` are the messages, numbered, with the recorded context entries between them. `prefix`: the system prompt and
    tools, None if the format does not record them. `timed`: the messages have their times. `model`: the one that
    answered most often; empty if unknown. `cache_ttl_s`: seconds that a cached prefix lived; 0: not recorded. `window`:
    tokens of the window that the session was given; 0: the model's.
    `problems` are the lines left out; `abandoned` counts the lines of branches that the user left by going back.
    """

    name: str
    format: Format
    messages: tuple[Message, ...]
    log: tuple[AnyEntry, ...] = ()
    prefix: Prefix | None = None
    timed: bool = False
    model: str = ""
    cache_ttl_s: int = 0
    window: int = 0
    problems: tuple[LineProblem, ...] = ()
    abandoned: int = 0

    @property
    def metered(self) -> tuple[Message, ...]:
        """The answers of `model` whose usage is recorded."""
        return tuple(message for message in self.messages if is_metered(message, self.model))


def is_metered(message: Message, model: str) -> bool:
    """Whether the usage of this answer is recorded and it is this model's (empty: any)."""
    return message.usage is not None and (not model or message.model in ("", model))


class _Edit(msgspec.Struct, frozen=True):
    """A recorded edit after the message with the index `after` - 1: a summary, into which those before the index `kept`
    went, or the clearing of the results at the indices `cleared`.
    """

    after: int
    entry: Summarized | Cleared
    kept: int = 0
    cleared: tuple[int, ...] = ()

    def numbered(self, numbers: Sequence[int]) -> Summarized | Cleared:
        """The entry with the numbers that messages have in the log."""
        if isinstance(self.entry, Cleared):
            return msgspec.structs.replace(self.entry, results=tuple(numbers[place] for place in self.cleared))
        return msgspec.structs.replace(self.entry, first=numbers[0], last=numbers[self.kept - 1])


class _Early(msgspec.Struct):
    """A result that is recorded before its call: its line, what adds it, and whether it has waited for one answer."""

    line: int
    add: Callable[[], None]
    waited: bool = False


class ConversationBuilder:
    """Puts a conversation together message by message, so that it is one a model could have been sent.

    The model's message stays open until something else is said: its results are held back, since a streamed answer may
    be recorded in several lines with the first results between them, or even before the lines of their calls.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.problems: list[LineProblem] = []
        self.timed = False
        self._models: Counter[str] = Counter()
        self.system = ""
        self.cache_ttl_s = 0
        self._open: Message | None = None
        self._answer_id = ""
        self._results: list[Message] = []
        self._names: dict[str, str] = {}
        self._answered: dict[str, bool] = {}
        self._early: dict[str, _Early] = {}
        """The results of calls that are still to come, by id."""
        self._edits: list[_Edit] = []

    @property
    def model(self) -> str:
        """The model that answered most often; empty if none is recorded."""
        return max(self._models, key=self._models.__getitem__, default="")

    def problem(self, line: int, why: str) -> None:
        """Note that this line is left out."""
        self.problems.append(LineProblem(line, why))

    def each(self, records: Iterable[msgspec.Raw], read: Callable[[int, Json], None]) -> None:
        """Read the records of a document; those that cannot be used are problems."""
        for number, raw in enumerate(records, 1):
            try:
                read(number, Json.decode(raw))
            except UNUSABLE as error:
                self.problem(number, str(error))

    def usage(self, line: int, record: Json, read: Callable[[Json], Usage]) -> Usage | None:
        """The recorded usage of a call; None if it is missing, empty, or invalid, which is noted as a problem."""
        try:
            usage = read(record) if record else Usage()
        except UNUSABLE as error:
            self.problem(line, f"only its usage: {error}")
            return None
        return usage if usage != Usage() else None

    def user(self, line: int, blocks: Sequence[Block], time: float) -> None:
        said = _without_blank_texts(blocks)
        if not said:
            self.problem(line, "a user's message without text")
            return
        self._close()
        self._leave_early()
        self._see(time)
        self.messages.append(Message(role="user", blocks=said, time=time))

    def add(self, message: Message, time: float) -> None:
        """Add a message as it is: a command of the user's own, or what the program said to the model."""
        self._close()
        self._see(time)
        self.messages.append(msgspec.structs.replace(message, time=time))

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
        """The model says something, if `blocks` are not empty; lines with the same `answer_id` (not empty) are one
        message.

        `usage` is what the whole call used; of one that grew while the answer was streamed the newest counts.
        """
        if not blocks and not (answer_id and answer_id == self._answer_id):
            return
        self._see(time)
        if model:
            self._models[model] += 1
        if self._open is None or not self._open.blocks or not answer_id or answer_id != self._answer_id:
            self._close()
            self._leave_early(waiting=True)
            self._open, self._answer_id = Message(role="assistant", blocks=(), time=time, model=model), answer_id
        for block in blocks:
            given = ""
            if isinstance(block, ToolCall):
                given = block.id
                if self._is_open(self._names.get(given, "")):
                    self.problem(line, "a call that was already made")
                    continue
                block = self._with_new_id(block)
            self._open = msgspec.structs.replace(self._open, blocks=(*self._open.blocks, block))
            if (early := self._early.pop(given, None)) is not None:
                early.add()
        self._open = msgspec.structs.replace(self._open, usage=usage or self._open.usage)

    def result(
        self,
        line: int,
        call_id: str,
        blocks: Sequence[Block],
        time: float,
        *,
        is_error: bool = False,
        outcome: Outcome = NO_OUTCOME,
        duration_ms: int = 0,
    ) -> None:
        """Add a tool result, the texts and pictures in `blocks`, with what is recorded of its outcome."""
        given, call_id = call_id, self._names.get(call_id, call_id)
        answered = self._answered.get(call_id)
        if answered is None and given not in self._early:
            add = partial(self.result, line, given, blocks, time, is_error=is_error, outcome=outcome)
            self._early[given] = _Early(line, partial(add, duration_ms=duration_ms))
        elif answered is not False:
            self.problem(line, "a second result of one call")
        elif not self._is_open(call_id):
            self.problem(line, "a result long after its call")
        else:
            self._answered[call_id] = True
            self._see(time)
            images = tuple(block for block in blocks if isinstance(block, Image))
            result = ToolResult(call_id, words(blocks), is_error=is_error, images=images)
            # What has no facts is written as the default, which is left out.
            record = NO_OUTCOME if outcome == NO_OUTCOME else outcome
            message = tool_result(result, outcome=record, duration_ms=duration_ms)
            self._results.append(msgspec.structs.replace(message, time=time))

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
        summary = Summarized(first=1, last=0, text=text, time=time, usage=usage)
        self._edits.append(_Edit(len(self.messages), summary, kept=kept))

    def clearing(self, call_ids: Collection[str], text: str, time: float) -> None:
        """From here on the model was shown `text` in place of the results of these calls."""
        self._close()
        named = {self._names.get(call_id, call_id) for call_id in call_ids}
        places = tuple(
            place
            for place, message in enumerate(self.messages)
            if any(isinstance(block, ToolResult) and block.call_id in named for block in message.blocks)
        )
        if places:
            entry = Cleared(results=(), texts=(text,) * len(places), time=time)
            self._edits.append(_Edit(len(self.messages), entry, cleared=places))

    def take_back(self, turns: int) -> None:
        """Remove the newest turns, which the user took back."""
        self._close()
        starts = [place for place, message in enumerate(self.messages) if message.role == "user" and not message.kind]
        if turns and starts:
            cut = starts[-min(turns, len(starts))]
            del self.messages[cut:]
            self._edits = [each for each in self._edits if each.after <= cut]

    @property
    def place(self) -> int:
        """The index that the newest message has or, while the model's message is open, will have."""
        return len(self.messages) - (self._open is None or not self._open.blocks)

    def finish(self) -> Log:
        """All messages and edits, numbered; times that are missing are those of the message before."""
        self._close()
        self._leave_early()
        log, numbers = Log(), list[int]()
        latest = next((message.time for message in self.messages if message.time), 0.0) if self.timed else 0.0
        used = [message.usage for message in self.messages if message.usage is not None]
        # One that is smaller than its parts can only be without them: then all are.
        uncached = any(each.input_tokens < each.cache_read_tokens + each.cache_write_tokens for each in used)
        for place in range(len(self.messages) + 1):
            for edit in self._edits:
                if edit.after == place:
                    log.append(log.stamp(edit.numbered(numbers), max(latest, edit.entry.time)))
            if place < len(self.messages):
                message = self.messages[place]
                latest = max(latest, message.time)
                if uncached and (usage := message.usage) is not None:
                    whole = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
                    message = msgspec.structs.replace(message, usage=msgspec.structs.replace(usage, input_tokens=whole))
                log.append(log.stamp(message, latest))
                numbers.append(len(log))
        return log

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
        blocks = self._open.blocks if self._open is not None else ()
        return any(isinstance(block, ToolCall) and block.id == call_id for block in blocks)

    def _leave_early(self, *, waiting: bool = False) -> None:
        """The calls of the results that wait will not come any more; `waiting`: but for those of the next answer."""
        for call_id, early in list(self._early.items()):
            if waiting and not early.waited:
                early.waited = True
            else:
                del self._early[call_id]
                self.problem(early.line, "a result of a call that was not made")

    def _close(self) -> None:
        if self._open is not None and (blocks := _without_blank_texts(self._open.blocks)):
            self.messages += [msgspec.structs.replace(self._open, blocks=blocks), *self._results]
        self._open, self._results = None, []

    def _see(self, time: float) -> None:
        self.timed = self.timed or time > 0


class RecordingReader(ABC):
    """Reads a file of one format into a conversation. `left`: the number of lines on branches that the user left."""

    def __init__(self, builder: ConversationBuilder) -> None:
        self.builder = builder
        self.left = 0

    @abstractmethod
    def take(self, number: int, line: bytes) -> None:
        """Read one line, or a file that is one JSON document. Raises what is in `UNUSABLE`."""

    def finish(self) -> None:  # noqa: B027 - most formats have nothing that waits
        """Read what had to wait for the last line."""


def _without_blank_texts(blocks: Sequence[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if not isinstance(block, Text) or block.text.strip())


def usage_of_uncached(given: int, read: int, written: int, output: int, reasoning: int = 0) -> Usage:
    """The usage of a call whose input counts neither what was read from the cache nor what was written to it."""
    whole = given + read + written
    return Usage(whole, read, written, output, reasoning) if whole else Usage()
