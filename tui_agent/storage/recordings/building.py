"""Builds a valid conversation from the lines of a recording; shared by the readers of all formats."""

from datetime import datetime
from typing import Annotated, NamedTuple, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import AnyEntry, Message, Summarized, Usage, tool_result
from tui_agent.conversation.log import Log
from tui_agent.storage.recordings.recording import Format, Problem

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds of pictures that a message can hold."""


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
        """Note that this line is left out."""
        self.problems.append(Problem(line, why))

    def user(self, line: int, blocks: list[Block], time: float) -> None:
        """Add a message of the user."""
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
        """Add a tool result."""
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

    def take_back(self, turns: int) -> None:
        """Remove the newest turns, which the user took back."""
        self._close()
        starts = [place for place, message in enumerate(self.messages) if message.role == "user" and not message.kind]
        if turns and starts:
            cut = starts[-min(turns, len(starts))]
            del self.messages[cut:]
            self._compactions = [each for each in self._compactions if each.after <= cut]

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
    def format(self) -> Format:
        """The form it reads."""
        ...

    @property
    def abandoned(self) -> int:
        """Lines left out because the user went back from them."""
        ...

    def take(self, number: int, line: bytes) -> None:
        """Read one line; an invalid line is noted as a problem."""
        ...


UNUSABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""What a line raises that is not what its format says."""


def seconds(time: float | str | None) -> float:
    """Seconds since the epoch of a number or an ISO 8601 text; 0 for none. Raises `ValueError`."""
    match time:
        case None | "":
            return 0.0
        case str():
            return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
        case number:
            return float(number)


def arguments(raw: msgspec.Raw) -> str:
    """The arguments of a call as the text of a JSON object; a text that holds one is taken as it.

    Raises `ValueError`.
    """
    told: object = msgspec.json.decode(raw)
    if isinstance(told, str):
        told = msgspec.json.decode(told) if told.strip() else {}
    if isinstance(told, dict):
        return valid_text(msgspec.json.encode(told).decode())
    raise ValueError("the arguments of a call are no object")


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


def picture(media_type: str, data: str) -> Image:
    """A picture as it was recorded; one without data where its kind is none that a message can hold."""
    return Image(media_type, data) if media_type in PICTURES else Image("image/png", "")
