"""Recovery: making a request that is too large smaller, by ways that need no model.

Old results are cleared first, then older turns give way to their extract, then newer results are cleared; what the
model has not answered yet is shortened last: a long text keeps its ends and lies whole in a file, a picture becomes a
smaller one and then a note, and of a very long list of calls only the first are shown. Nothing in the log changes.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context.economics import Situation
from tui_agent.context.layers.limits import Evicted, head, tail
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.groups import Group
from tui_agent.conversation.sizes import NOTHING, Size, size_of_block
from tui_agent.conversation.view import View

OverflowStep: TypeAlias = Literal["clear_old", "extract_if_enough", "clear_newest", "extract", "shorten"]
OVERFLOW_STEPS: Final[tuple[OverflowStep, ...]] = (
    "clear_old",
    "extract_if_enough",
    "clear_newest",
    "extract",
    "shorten",
)
"""The ways out of an overflow, mildest first; the first extract is only made where it is enough."""

TOO_LARGE: Final = "the request was too large for the model"
KEPT_SHARE: Final = 0.5
"""How much of the limit an extract may keep word for word."""
AIM_SHARE: Final = 0.9
"""How much of the limit a shortened request may take: the estimate of what is left may be a little low."""
SMALLER_PICTURE: Final = 0.25
"""What a picture with half the sides counts against one of full size."""
NO_PICTURE: Final = "[A picture stood here. It was too large to be sent; it is kept in the conversation's log.]"

_LEAST_FREED_CHARS: Final = 200
_NOTICE_CHARS: Final = 400


class Level(NamedTuple):
    """How far items are shortened: characters of a text, calls of one answer, and what becomes of pictures."""

    characters: int
    calls: int
    pictures: Literal["whole", "smaller", "none"]


LEVELS: Final = (
    Level(12_000, 64, "whole"),
    Level(4_000, 32, "smaller"),
    Level(1_000, 16, "none"),
    Level(300, 8, "none"),
)


class Target(NamedTuple):
    """A message or result that is to be shown shortened: as it is shown now, and how far to go."""

    seq: int
    blocks: tuple[Block, ...]
    level: Level


def plan_shortening(view: View, situation: Situation) -> tuple[Target, ...]:
    """What to shorten so that the request fits, the largest first; empty where nothing can be."""
    tokens_of, limit = situation.mixed_tokens_of, situation.budget.limit
    excess = situation.tokens - int(limit * AIM_SHARE) if limit else situation.tokens // 2
    if excess <= 0:
        # The estimate says that it fits, and the provider that it does not: the estimate is too low.
        excess = situation.tokens // 4
    items = sorted(
        (item for group in view.groups() for item in _items_of(group)),
        key=lambda item: tokens_of(_size(item[1])),
        reverse=True,
    )
    chosen: dict[int, Target] = {}
    freed: dict[int, int] = {}
    for level in LEVELS:
        for seq, blocks in items:
            if sum(freed.values()) >= excess:
                return tuple(chosen.values())
            saved = tokens_of(_size(blocks)) - tokens_of(_size_at(blocks, level))
            if saved > freed.get(seq, 0) + tokens_of(Size(ascii=_LEAST_FREED_CHARS)):
                chosen[seq], freed[seq] = Target(seq, blocks, level), saved
    return tuple(chosen.values())


def pictures_in(targets: Iterable[Target]) -> tuple[Image, ...]:
    """The pictures that are to become smaller, each once."""
    found: dict[Image, None] = {}
    for target in targets:
        if target.level.pictures == "smaller":
            for block in target.blocks:
                images = block.images if isinstance(block, ToolResult) else (block,)
                found |= {image: None for image in images if isinstance(image, Image) and image.weight == 1.0}
    return tuple(found)


def text_to_keep(target: Target) -> str:
    """The user's text or the tool's result that is to lie in a file; empty where nothing of it is cut."""
    for block in target.blocks:
        if isinstance(block, Text | ToolResult) and len(block.text) > target.level.characters:
            return block.text
    return ""


def shortened(target: Target, *, path: str, smaller: dict[Image, Image]) -> tuple[Block, ...]:
    """The blocks to show. `path`: where the text lies whole (empty: in the log alone); `smaller`: pictures to use."""
    calls = [block for block in target.blocks if isinstance(block, ToolCall)]
    kept_calls = calls[: target.level.calls]
    told: list[Block] = []
    for block in target.blocks:
        match block:
            case Reasoning():
                continue
            case ToolCall():
                if block in kept_calls:
                    told.append(_short_call(block, max(target.level.characters // len(kept_calls), 60)))
            case Text():
                short = _short_text(block.text, target.level, path, "text")
                told.append(block if short == block.text else Text(short))
            case ToolResult():
                text = _short_text(block.text, target.level, path, "result")
                images = _pictures(block.images, target, smaller)
                if len(images) < len(block.images):
                    text = f"{text}\n{NO_PICTURE}".lstrip()
                told.append(ToolResult(block.call_id, text, is_error=block.is_error, images=images))
            case Image():
                told += _pictures((block,), target, smaller) or (Text(NO_PICTURE),)
    if len(calls) > len(kept_calls):
        place = next((index for index, block in enumerate(told) if isinstance(block, ToolCall)), len(told))
        left_out = len(calls) - len(kept_calls)
        told.insert(place, Text(f"[{left_out:,} more calls of this answer, and their results, are not shown.]"))
    return tuple(told)


def _items_of(group: Group) -> Iterable[tuple[int, tuple[Block, ...]]]:
    """Each message and result of a group by number, as it is shown now."""
    if group.role == "user":
        for segment in group.segments:
            yield group.first, segment.blocks
        return
    for segment in group.segments:
        if segment.role == "assistant":
            yield group.first, segment.blocks
            continue
        for block in segment.blocks:
            if isinstance(block, ToolResult) and block.call_id in group.results:
                yield group.results[block.call_id], (block,)


def _size(blocks: Sequence[Block]) -> Size:
    total = NOTHING
    for block in blocks:
        total = total.plus(size_of_block(block))
    return total


def _size_at(blocks: Sequence[Block], level: Level) -> Size:
    """About how large the blocks are at a level."""
    total = NOTHING
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    for block in (*(each for each in blocks if not isinstance(each, ToolCall | Reasoning)), *calls[: level.calls]):
        size = size_of_block(block)
        most = level.characters
        if isinstance(block, ToolCall):
            most = max(level.characters // min(len(calls), level.calls), 60)
        if size.characters > most:
            share = min(1.0, (most + _NOTICE_CHARS) / size.characters)
            size = Size(int(size.ascii * share), int(size.other * share), size.images)
        if size.images and level.pictures != "whole":
            size = size._replace(images=size.images * SMALLER_PICTURE if level.pictures == "smaller" else 0)
        total = total.plus(size)
    return total


def _pictures(images: Sequence[Image], target: Target, smaller: dict[Image, Image]) -> tuple[Image, ...]:
    match target.level.pictures:
        case "whole":
            return tuple(images)
        case "smaller":
            made = (smaller.get(image, image) for image in images)
            # One that could not be made smaller, being damaged, is not shown any more.
            return tuple(image for image in made if image.weight < 1.0)
        case "none":
            return ()


def _short_text(text: str, level: Level, path: str, what: str) -> str:
    if len(text) <= level.characters:
        return text
    first, last = head(text, level.characters // 2), tail(text, level.characters // 2)
    if path:
        return Evicted(text, first, last, what).text(path)
    return f"{first}\n[... {len(text) - len(first) - len(last):,} characters left out; recall finds them ...]\n{last}"


def _short_call(call: ToolCall, characters: int) -> ToolCall:
    if len(call.arguments) <= characters:
        return call
    arguments = msgspec.json.decode(call.arguments)
    names = arguments if isinstance(arguments, dict) else {}
    room = max(20, characters // max(1, len(names)))
    short = {name[:80]: _short_value(value, room) for name, value in list(names.items())[:20]}
    # Without what its provider signed it with: a signature holds for the arguments as they were.
    return ToolCall(call.id, call.name, msgspec.json.encode(short).decode())


def _short_value(value: object, characters: int) -> object:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) <= characters:
        return value
    return f"{head(text, characters)} [{len(text) - characters:,} characters left out]"
