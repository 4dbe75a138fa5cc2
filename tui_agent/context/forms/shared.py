"""The common part of reading and writing message lists, independent of their form."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import structs

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Kind, Message, Role, tool_result
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.conversation.wire import fresh_id, is_object, read_opaque, safe_id, safe_name, write_opaque

Form: TypeAlias = Literal["anthropic", "gemini", "openai"]
Json: TypeAlias = dict[str, object]
Fields: TypeAlias = Mapping[str, object]

USER: Final[Role] = "user"
ASSISTANT: Final[Role] = "assistant"

_COMMON_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types of pictures that every provider accepts."""

_BlockT = TypeVar("_BlockT", bound=Block)


class UnknownForm(ValueError):
    """A message cannot be read: number `index` of the list, at `key` in it, such as ``content[1].source.type``."""

    def __init__(self, index: int, key: str, why: str) -> None:
        super().__init__(f"messages[{index}]{'.' if key else ''}{key}: {why}")
        self.index = index
        self.key = key


class Place(NamedTuple):
    """A place in a list: the message's index, and the key in it."""

    message: int
    key: str = ""

    def at(self, key: str | int) -> "Place":
        if isinstance(key, int):
            return self._replace(key=f"{self.key}[{key}]")
        return self._replace(key=f"{self.key}.{key}" if self.key else key)

    def unknown(self, why: str) -> UnknownForm:
        return UnknownForm(self.message, self.key, why)


# A block's opaque text
#
# `signature`, `redacted`, `model`, `id` and `apart` are fields of our adapters. The others are of these modules, and
# count only where `form` names the form that is written:
#   extra, inner    keys of the block, and of the object inside it, that nothing here understands; as JSON
#   message         those of its message
#   begins          a message of its own begins here, though the one before it has the same role
#   list            its text stands alone in a list of parts, and is no string
#   content         how the content was spelled, where the text does not tell
#   call_id, name   a call's, where it has others here
# and a few that only one form needs.


def marked(form: Form, block: _BlockT, **fields: str) -> _BlockT:
    """The block with the non-empty fields added to its opaque text."""
    given = {name: text for name, text in fields.items() if text}
    if not given:
        return block
    return structs.replace(block, opaque=write_opaque(**{**read_opaque(block.opaque), "form": form, **given}))


def own(form: Form, block: Block) -> Mapping[str, str]:
    """The fields of a block's opaque text, if it was read in this form; else empty."""
    fields = read_opaque(block.opaque)
    return fields if fields.get("form") == form else {}


def kept(fields: Mapping[str, str], name: str = "extra") -> Json:
    """The unknown keys saved in a field of this name."""
    found: object = json.loads(fields.get(name, "{}"))
    return found if isinstance(found, dict) else {}


def apart(form: Form, messages: Iterable[RequestMessage]) -> Iterator[RequestMessage]:
    """The messages of a request, split where they were separate messages when read."""
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if blocks and "begins" in own(form, block):
                yield RequestMessage(message.role, tuple(blocks))
                blocks = []
            blocks.append(block)
        yield RequestMessage(message.role, tuple(blocks))


# Reading


def mapping(value: object, place: Place) -> Fields:
    """`value` as a mapping; of an SDK's object, the fields that were set."""
    if not isinstance(value, Mapping) and isinstance(value, _Dumpable):
        value = value.model_dump(mode="json", exclude_unset=True)
    if not isinstance(value, Mapping):
        raise place.unknown("is missing" if value is None else f"expected an object, got {value!r:.80}")
    return value


@runtime_checkable
class _Dumpable(Protocol):
    """An object of a provider's SDK."""

    def model_dump(self, *, mode: str, exclude_unset: bool) -> object: ...


def items(value: object, place: Place) -> Iterator[tuple[Fields, Place]]:
    """The objects of a list, each with its place."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise place.unknown("is missing" if value is None else f"expected a list, got {value!r:.80}")
    for number, item in enumerate(value):
        yield mapping(item, place.at(number)), place.at(number)


def text_at(fields: Fields, key: str, place: Place) -> str:
    """The text under a key."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise place.at(key).unknown("is missing" if value is None else f"expected a text, got {value!r:.80}")
    return valid_text(value)


def checked_picture(media_type: str, place: Place) -> str:
    """Check that a media type is a picture's; a conversation can hold no other media."""
    if not media_type.startswith("image/"):
        raise place.unknown(f"only pictures can be read, got {media_type!r:.80}")
    return media_type


def as_json(value: object, place: Place) -> str:
    try:
        return valid_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError) as error:
        raise place.unknown(f"this is not JSON: {error}") from None


def rest(fields: Fields, known: Collection[str], place: Place) -> str:
    """The keys that are not among the known ones, as JSON; empty if there are none."""
    left = {key: value for key, value in fields.items() if key not in known}
    return as_json(left, place) if left else ""


def arguments_at(value: object, place: Place) -> str:
    """A call's arguments, as the text of a JSON object."""
    arguments = as_json(dict(mapping(value, place)), place)
    if not is_object(arguments):
        raise place.unknown("these arguments cannot be sent: nested too deeply, or a number too large")
    return arguments


def listed(form: Form, blocks: list[_BlockT]) -> list[_BlockT]:
    """The blocks of a list of parts; a single text is marked, because it could also have been a string."""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return [marked(form, blocks[0], list="yes")]
    return blocks


def with_text(form: Form, result: ToolResult, text: str) -> ToolResult:
    """A result with a text as its content; the spelling of a blank one is noted, since conversations change it."""
    return marked(form, structs.replace(result, text=text), content="" if text.strip() else f"={text}")


def with_parts(form: Form, result: ToolResult, parts: Sequence[Text | Image]) -> ToolResult:
    """A result with a list of texts and pictures as its content; their order is noted."""
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    images = tuple(part for part in parts if isinstance(part, Image))
    mixture = [[len(part.text), part.opaque] if isinstance(part, Text) else [] for part in parts]
    noted = json.dumps({"parts": mixture, "digest": digest(text)})
    return marked(form, structs.replace(result, text=text, images=images), content=noted)


def digest(text: str) -> str:
    """A digest by which to tell whether a text is still the one that was read."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


class Call(NamedTuple):
    """A call's id and name in the list, and its id in the conversation (`own_id`)."""

    id: str
    name: str
    own_id: str


class Reader:
    """Reads one list. Keeps track of calls without a result, and of taken ids."""

    form: Form

    def __init__(self, model: str, open_calls: Sequence[ToolCall], taken_ids: Collection[str]) -> None:
        self.model = model
        self._open = [Call(_written_id(call), call.name, call.id) for call in open_calls]
        self._taken = {*taken_ids, *(call.id for call in open_calls)}
        self.last_role = ""

    def read(self, place: Place, message: object) -> list[Message]:
        """The entries of one message. Raises `UnknownForm`."""
        raise NotImplementedError

    def called(self, call_id: str, name: str) -> Call:
        """Note a call. It keeps its id in the conversation unless another call has that."""
        call = Call(call_id, name, call_id if call_id and call_id not in self._taken else fresh_id())
        self._taken.add(call.own_id)
        self._open.append(call)
        return call

    def answered(self, place: Place, call_id: str, name: str = "") -> Call:
        """The call that is answered, found by its id or, without one, by its name."""
        for call in self._open:
            if call.id == call_id if call_id else call.name == name:
                self._open.remove(call)
                return call
        raise place.unknown(f"this answers no call of the message before it ({call_id or name})")

    def entries(self, place: Place, role: Role, blocks: Sequence[Block], keys: str, named: str = "") -> list[Message]:
        """The entries of a message: one for each of its results, then one for the rest.

        `keys`: the message's other keys, as JSON. `named`: its role in the list if that is not the user's but the
        program's, such as "system".
        """
        if not blocks:
            raise place.unknown("the message is empty")
        begins = "yes" if self.last_role == (named or role) else ""
        self.last_role = named or role
        # Not in a reasoning block: that may be withheld, and the notes with it.
        anchor = next((number for number, block in enumerate(blocks) if not isinstance(block, Reasoning)), 0)
        noted = list(blocks)
        noted[anchor] = marked(self.form, noted[anchor], message=keys, begins=begins)
        found = [tool_result(block) for block in noted if isinstance(block, ToolResult)]
        said = tuple(block for block in noted if not isinstance(block, ToolResult))
        if role == "assistant":
            made = {block.id for block in said if isinstance(block, ToolCall)}
            self._open = [call for call in self._open if call.own_id in made]
        if said:
            model = self.model if role == "assistant" else ""
            kind: Kind = "notice" if named else ""
            found.append(Message(role=role, blocks=said, kind=kind, user_visible=not named, model=model))
        return found


def call_fields(call: Call) -> dict[str, str]:
    """The fields to note with a call so that it can be written under its original id and name."""
    as_it_is = call.id == call.own_id == safe_id(call.own_id)
    return {"call_id": "" if as_it_is else call.id, "name": "" if call.name == safe_name(call.name) else call.name}


def _written_id(call: ToolCall) -> str:
    fields = read_opaque(call.opaque)
    return fields.get("call_id") or fields.get("id") or call.id


# Writing


class Writer:
    """Writes one list. Keeps track of how its calls were written."""

    form: Form

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def write(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        """Write one message of a request."""
        raise NotImplementedError

    def called(self, block: ToolCall, call_id: str, name: str) -> Call:
        """Note the id and name under which a call was written."""
        self._calls[block.id] = Call(call_id, name, block.id)
        return self._calls[block.id]

    def answered(self, result: ToolResult) -> Call:
        """The written call that a result answers."""
        return self._calls.get(result.call_id) or Call(safe_id(result.call_id), "unnamed", result.call_id)

    def message_keys(self, blocks: Iterable[Block]) -> Json:
        """The unknown keys of the messages from which these blocks were read."""
        keys: Json = {}
        for block in blocks:
            keys = {**kept(own(self.form, block), "message"), **keys}
        return keys


def parts_of(form: Form, result: ToolResult) -> list[Text | Image] | None:
    """The parts a result was read from; None if it was not a list, or is shown differently now."""
    noted = own(form, result).get("content", "")
    if not noted.startswith("{"):
        return None
    known: dict[str, str | list[list[int | str]]] = json.loads(noted)
    mixture, images = known["parts"], iter(result.images)
    text = "" if result.text == NO_OUTPUT and known["digest"] == digest("") else result.text
    if not isinstance(mixture, list) or mixture.count([]) != len(result.images) or known["digest"] != digest(text):
        return None
    found: list[Text | Image] = []
    start = 0
    for part in mixture:
        match part:
            case [int(length), str(opaque)]:
                found.append(Text(text[start : start + length], opaque))
                start += length + 1
            case _:
                found.append(next(images))
    return found


def text_of(form: Form, result: ToolResult) -> str | None:
    """A result's text to write; a blank one in its original spelling, None if there was none at all."""
    if result.text.strip() and result.text != NO_OUTPUT:
        return result.text
    noted = own(form, result).get("content", "")
    if noted == "absent":
        return None
    return noted[1:] if noted.startswith("=") else NO_OUTPUT


def content_of(form: Form, blocks: Sequence[Block], written: Sequence[Json]) -> object:
    """The content of a message: a string if it is a single text that was read from one, else the list of parts."""
    texts = [block for block in blocks if isinstance(block, Text) and block.text.strip()]
    plain = len(written) == len(texts) == 1 and written[0] == {"type": "text", "text": texts[0].text}
    return texts[0].text if plain and "list" not in own(form, texts[0]) else list(written)


def can_be_shown(form: Form, image: Image) -> bool:
    """Whether a picture may be written in this form: its type is common to all, or it was read in this form."""
    return image.media_type in _COMMON_PICTURES or bool(own(form, image))


def unseen(image: Image) -> str:
    """The text in place of a picture that cannot be written."""
    return f"(a picture that cannot be shown here: {image.media_type})"
