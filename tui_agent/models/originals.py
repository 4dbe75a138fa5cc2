"""The JSON that a block was read from, kept with the block, so that it goes out as it came in.

A block's opaque text has it as the field `as`, with the provider's format as `form`, if what is written for the block
by itself is something else: it has keys that nothing here understands, or the block only stands for what it cannot
express. The block's own text is left out of that JSON and put in again when it is written. A block that shows something
else by then, such as a cleared result, is written like any other.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import structs

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.conversation.wire import is_object, read_opaque, write_opaque

Form: TypeAlias = Literal["anthropic", "gemini", "openai", "responses"]
Json: TypeAlias = dict[str, object]
BlockT = TypeVar("BlockT", bound=Block)

_HOLE: Final = "\0"
"""Begins the text of a place to fill: a span of the block's text, its number in the result's pictures, or its JSON."""
_WORTH: Final = 16
"""Shorter texts are not left out."""


def marked(form: Form, block: BlockT, **fields: str) -> BlockT:
    """The block with the non-empty fields added to its opaque text."""
    given = {name: text for name, text in fields.items() if text}
    if not given:
        return block
    return structs.replace(block, opaque=write_opaque(**{**read_opaque(block.opaque), "form": form, **given}))


def notes(form: Form, block: Block) -> dict[str, str]:
    """The fields of a block's opaque text, if it was read from this form; else empty."""
    fields = read_opaque(block.opaque)
    return fields if fields.get("form") == form else {}


def with_original(form: Form, block: BlockT, originals: Sequence[Json], parts: Sequence[str] = ()) -> BlockT:
    """The block with the JSON it was read from; `parts`: the texts that a result's text was joined from."""
    written = as_json(originals)
    if r"\u0000" in written:
        return marked(form, block, **{"as": written, "digest": _digest(block), "whole": "yes"})
    text, start = _said(block), 0
    holes: list[tuple[object, str]] = []
    for part in parts or (text,):
        if text and len(part) >= _WORTH:
            holes.append((part, f"{_HOLE}{start}:{start + len(part)}"))
        start += len(part) + 1
    holes += [(image.data, f"{_HOLE}{number}") for number, image in enumerate(_pictures(block))]
    if isinstance(block, ToolCall | ToolResult) and not parts and len(text) >= _WORTH and is_object(text):
        holes.append((json.loads(text), _HOLE))
    return marked(form, block, **{"as": as_json(_replaced(list(originals), holes)), "digest": _digest(block)})


def original(form: Form, block: Block) -> list[Json] | None:
    """The JSON the block was read from; None if it was not read from this form, or shows something else now."""
    if not block.opaque:
        return None
    fields = notes(form, block)
    if "as" not in fields or fields.get("digest") != _digest(block):
        return None
    found: list[Json] = json.loads(fields["as"])
    return found if "whole" in fields else [_fields(_filled(each, block)) for each in found]


_LONGEST, _MOST = 200, 1_000


def stands_for(fields: Json) -> Text:
    """A text in place of what cannot be expressed: what it is, with everything that is long left out."""
    kind = fields.get("type") or next(iter(fields), "nothing")
    said = json.dumps(_brief(fields), ensure_ascii=False)
    return Text(f"({kind}: {said if len(said) <= _MOST else said[:_MOST] + '…'})")


def _brief(value: object) -> object:
    match value:
        case str() if len(value) > _LONGEST:
            return f"{len(value):,} characters"
        case dict():
            return {key: _brief(each) for key, each in value.items() if key != "type"}
        case list():
            return [_brief(each) for each in value]
        case _:
            return value


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fields(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _said(block: Block) -> str:
    match block:
        case Text() | Reasoning():
            return block.text
        case ToolCall():
            return block.malformed or block.arguments
        case ToolResult():
            return "" if block.text == NO_OUTPUT or not block.text.strip() else block.text
        case Image():
            return block.data


def _pictures(block: Block) -> Sequence[Image]:
    return block.images if isinstance(block, ToolResult) else ()


def _digest(block: Block) -> str:
    said = blake2b(_said(block).encode(errors="replace"), digest_size=8)
    for image in _pictures(block):
        said.update(image.data.encode())
    return said.hexdigest()


def _replaced(value: object, holes: Sequence[tuple[object, str]]) -> object:
    """`value` with holes in place of what the block itself says."""
    for known, hole in holes:
        if type(known) is type(value) and known == value:
            return hole
    match value:
        case dict():
            return {key: _replaced(each, holes) for key, each in value.items()}
        case list():
            return [_replaced(each, holes) for each in value]
        case _:
            return value


def _filled(value: object, block: Block) -> object:
    match value:
        case str() if value.startswith(_HOLE):
            start, colon, end = value.removeprefix(_HOLE).partition(":")
            if colon:
                return _said(block)[int(start) : int(end)]
            return _pictures(block)[int(start)].data if start else json.loads(_said(block))
        case dict():
            return {key: _filled(each, block) for key, each in value.items()}
        case list():
            return [_filled(each, block) for each in value]
        case _:
            return value
