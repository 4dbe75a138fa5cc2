"""The common part of reading and writing message lists, independent of their form.

A message becomes a `Message` of blocks, and each of its results one of its own. What a block or a message would not be
written as by itself is noted in its blocks' opaque texts (`models.originals`); beside `as`, only for these modules:
``message`` is what is around the message's parts; ``begins`` says that a message of its own begins here, though the one
before has the same role; ``place`` is where among the blocks it stood, if a conversation has it elsewhere.
"""

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Kind, Message, Role, tool_result
from tui_agent.conversation.request import OPENING, RequestMessage
from tui_agent.conversation.view import View
from tui_agent.conversation.wire import fresh_id, is_object, read_arguments, safe_id
from tui_agent.models.originals import Form, Json, as_json, marked, notes, original, with_original

TEXT: Final = "\0text"
"""In a message's note, in place of its only text."""
PARTS: Final = ["\0parts"]
"""In a message's note, in place of its parts."""

Part: TypeAlias = tuple[Block | None, Json]
"""A block and the JSON it was read from; without a block: JSON that says nothing."""


class UnknownForm(ValueError):
    """A message cannot be read: number `index` of the list, at `key` in it, such as ``content[1].source.type``."""

    def __init__(self, index: int, key: str, why: str) -> None:
        super().__init__(f"messages[{index}]{'.' if key else ''}{key}: {why}")
        self.index = index
        self.key = key


class MessagePlace(msgspec.Struct, frozen=True):
    """A place in a list: the message's index, and the key in it."""

    message: int
    key: str = ""

    def at(self, key: str | int) -> "MessagePlace":
        if isinstance(key, int):
            return structs.replace(self, key=f"{self.key}[{key}]")
        return structs.replace(self, key=f"{self.key}.{key}" if self.key else key)

    def unknown(self, why: str) -> UnknownForm:
        return UnknownForm(self.message, self.key, why)


@runtime_checkable
class _Dumpable(Protocol):
    """An object of a provider's SDK."""

    def model_dump(self, *, mode: str, exclude_unset: bool) -> object: ...


def plain(value: object, place: MessagePlace) -> object:
    """`value` as JSON: of an SDK's object, the fields that were set; bytes as base64; valid Unicode."""
    if isinstance(value, _Dumpable) and not isinstance(value, Mapping):
        value = value.model_dump(mode="json", exclude_unset=True)
    match value:
        case Mapping():
            return {valid_text(str(key)): plain(each, place.at(str(key))) for key, each in value.items()}
        case str():
            return valid_text(value)
        case bytes():
            return b64encode(value).decode()
        case None | bool() | int():
            return value
        case float() if value == value and abs(value) != float("inf"):
            return value
        case Iterable():
            return [plain(each, place.at(number)) for number, each in enumerate(value)]
        case _:
            raise place.unknown(f"this is not JSON: {value!r:.80}")


def mapping(value: object, place: MessagePlace) -> Json:
    """`value`, which must be an object."""
    if not isinstance(value, dict):
        raise place.unknown("is missing" if value is None else f"expected an object, got {value!r:.80}")
    return value


def items(value: object, place: MessagePlace) -> Iterator[tuple[Json, MessagePlace]]:
    """The objects of a list, each with its place."""
    if not isinstance(value, list):
        raise place.unknown("is missing" if value is None else f"expected a list, got {value!r:.80}")
    for number, item in enumerate(value):
        yield mapping(item, place.at(number)), place.at(number)


def text_at(fields: Json, key: str, place: MessagePlace) -> str:
    """The text under a key."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise place.at(key).unknown("is missing" if value is None else f"expected a text, got {value!r:.80}")
    return value


def arguments_at(value: object, place: MessagePlace) -> str:
    """A call's arguments, as the text of a JSON object."""
    arguments = as_json(mapping(value, place))
    if not is_object(arguments):
        raise place.unknown("these arguments cannot be sent: nested too deeply, or a number too large")
    return arguments


class FormReader(ABC):
    """Reads a list message by message: `read` gives the entries of the next one. `write` writes a whole list.

    `model` (``provider:id``): recorded as the author of the assistant's messages. `after`: the conversation that the
    list continues, as it is now.
    """

    form: Form
    results_apart = False
    """Whether each result is a message of its own."""
    results_alone = False
    """Whether results share a message with nothing else."""

    def __init__(self, model: str = "", after: View | None = None) -> None:
        self.model = model
        self._after = after
        self._taken: set[str] = set()
        self.asked: list[ToolCall] = list(after.unanswered()) if after is not None else []
        """The calls of the newest answer, in their order."""
        self._open = list(self.asked)
        self._last: Role | Literal["tool"] | None = after.ends_with if after is not None else None
        self._count = 0

    def read(self, message: object) -> list[Message]:
        """The entries of the next message: one for each of its results, then one for the rest. Raises `UnknownForm`."""
        place = MessagePlace(self._count)
        fields = mapping(plain(message, place), place)
        entries = self.read_message(fields, place)
        self._count += 1
        return entries

    def write(self, messages: Sequence[RequestMessage]) -> list[Json]:
        """The messages of a request in this form, without the system prompt."""
        written: list[Json] = []
        messages = self._answers_together(messages)
        for number, message in enumerate(messages):
            if message.role == "assistant":
                self.asked = [block for block in message.blocks if isinstance(block, ToolCall)]
            elif message.blocks == (Text(OPENING),) and self.may_begin_with(messages[number + 1 :][:1]):
                continue
            group: list[Block] = []
            for block in message.blocks:
                if group and "begins" in notes(self.form, block):
                    written += self.write_message(message.role, in_place(self.form, group))
                    group = []
                group.append(block)
            written += self.write_message(message.role, in_place(self.form, group))
        return written

    def _answers_together(self, messages: Sequence[RequestMessage]) -> list[RequestMessage]:
        """The messages, with the calls of consecutive messages of the assistant before all their results again."""
        found: list[RequestMessage] = []
        for message in messages:
            follows = message.role == "assistant" and "begins" in notes(self.form, message.blocks[0])
            if follows and found and all(isinstance(block, ToolResult) for block in found[-1].blocks):
                results = found.pop()
                found[-1] = RequestMessage("assistant", found[-1].blocks + message.blocks)
                found.append(results)
            elif found and found[-1].role == message.role:
                found[-1] = RequestMessage(message.role, found[-1].blocks + message.blocks)
            else:
                found.append(message)
        return found

    @abstractmethod
    def read_message(self, fields: Json, place: MessagePlace) -> list[Message]:
        """The entries of a message."""

    @abstractmethod
    def write_message(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        """The messages that these blocks are in the list."""

    @abstractmethod
    def by_itself(self, block: Block, role: Role) -> list[Json]:
        """What is written for a block without an original."""

    @abstractmethod
    def around(self, role: Role, blocks: Sequence[Block]) -> Json:
        """The message around these blocks, as it is written by itself."""

    @abstractmethod
    def written_as(self, call: ToolCall) -> tuple[str, str]:
        """The id (empty: none) and the name of a call in the list."""

    def may_begin_with(self, first: Sequence[RequestMessage]) -> bool:
        """Whether the list begins with this message of the assistant."""
        return any("begins" in notes(self.form, block) for message in first for block in message.blocks)

    def parts(self, blocks: Sequence[Block], role: Role) -> list[Json]:
        """The parts of these blocks."""
        parts: list[Json] = []
        for block in blocks:
            given = original(self.form, block)
            parts += self.by_itself(block, role) if given is None else given
        return parts

    def answered_as(self, result: ToolResult) -> tuple[str, str]:
        """The id and the name of the call that a result answers, in the list."""
        call = next((call for call in self.asked if call.id == result.call_id), None)
        return self.written_as(call) if call is not None else (safe_id(result.call_id), "unnamed")

    # For the readers of the forms

    def called(self, call_id: str, name: str, arguments: str, opaque: str = "") -> ToolCall:
        """A call. It keeps its id in the conversation unless another call has that."""
        taken = call_id in self._taken or (self._after is not None and self._after.call(call_id) is not None)
        own_id = call_id if call_id and not taken else fresh_id()
        self._taken.add(own_id)
        read, malformed = read_arguments(arguments)
        return ToolCall(own_id, name, read, opaque, malformed)

    def answered(self, place: MessagePlace, call_id: str, name: str = "") -> ToolCall:
        """The call that is answered, found by its id or, without one, by its name."""
        for call in self._open:
            if self.written_as(call)[0] == call_id if call_id else self.written_as(call)[1] == name:
                self._open.remove(call)
                return call
        raise place.unknown(f"this answers no call of the message before it ({call_id or name})")

    def entries(
        self, parts: Sequence[Part], role: Role, around: Json | None, whole: Json, kind: Kind = ""
    ) -> list[Message]:
        """The entries of a message: its parts, what is around them (None: nothing special), and all of it."""
        pieces: list[tuple[Block, list[Json]]] = []
        silent: list[Json] = []
        for block, fields in parts:
            if block is not None:
                pieces.append((block, [*silent, fields]))
                silent = []
            elif pieces:
                pieces[-1][1].append(fields)
            else:
                silent.append(fields)
        if not pieces:  # A message that says nothing stands in the conversation as one that says so.
            pieces, around = [(with_original(self.form, Text("(an empty message)"), []), [])], whole
        blocks: list[Block] = []
        for block, originals in pieces:
            same = not originals or self.parts([block], role) == originals
            blocks.append(block if same else with_original(self.form, block, originals))
        calls = [call.id for call in self.asked]
        order = sorted(
            range(len(blocks)),
            key=lambda at: calls.index(each.call_id) if isinstance(each := blocks[at], ToolResult) else len(calls),
        )
        results = sum(isinstance(block, ToolResult) for block in blocks)
        if order != list(range(len(blocks))) or (self.results_alone and 0 < results < len(blocks)):
            blocks = [marked(self.form, block, place=str(number)) for number, block in enumerate(blocks)]
        note = "" if around is None or around == self.around(role, blocks) else as_json(around)
        results_only = self.results_apart and all(isinstance(block, ToolResult) for block in blocks)
        begins = "yes" if role == (self._last or "assistant") and not results_only else ""
        # Not in a reasoning block: that may be withheld, and the notes with it.
        anchor = next((number for number, block in enumerate(blocks) if not isinstance(block, Reasoning)), 0)
        blocks[anchor] = marked(self.form, blocks[anchor], message=note, begins=begins)
        if role == "assistant":
            made = [block for block in blocks if isinstance(block, ToolCall)]
            self.asked = [*self.asked, *made] if self._last == role else made
            self._open = [call for call in self._open if call in self.asked] + made
        self._last = "tool" if results_only else role
        found = [tool_result(block) for at in order if isinstance(block := blocks[at], ToolResult)]
        said = tuple(block for block in blocks if not isinstance(block, ToolResult))
        if said:
            model = self.model if role == "assistant" else ""
            found.append(Message(role=role, blocks=said, kind=kind, user_visible=not kind, model=model))
        return found

    def result(
        self, call: ToolCall, parts: Sequence[Text | Image], fields: Json, *, is_error: bool = False
    ) -> ToolResult:
        """The result of a call, with the texts and pictures of its content."""
        texts = [part.text for part in parts if isinstance(part, Text)]
        images = tuple(part for part in parts if isinstance(part, Image))
        result = ToolResult(call.id, "\n".join(texts), is_error=is_error, images=images)
        if self.by_itself(result, "user") == [fields]:
            return result
        return with_original(self.form, result, [fields], texts)


def in_place(form: Form, blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a message in the order in which they were read."""
    places = {int(place): block for block in blocks if (place := notes(form, block).get("place"))}
    if not places:
        return list(blocks)
    others = iter([block for block in blocks if "place" not in notes(form, block)])
    found = [block for at in range(len(blocks)) if (block := places.pop(at, None) or next(others, None)) is not None]
    return [*found, *places.values(), *others]


def note_around(form: Form, blocks: Iterable[Block]) -> Json | None:
    """What is around the message that these blocks are of, if it was read from this form and is anything special."""
    note = next((note for block in blocks if (note := notes(form, block).get("message"))), None)
    found: Json | None = json.loads(note) if note is not None else None
    return found


def filled(around: Json, key: str, parts: Sequence[Json]) -> Json:
    """The message with its parts, or with its only text, under a key."""
    if around.get(key) == TEXT and len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return {**around, key: str(parts[0]["text"])}
    return {**around, key: list(parts)} if around.get(key) in (TEXT, PARTS) else around
