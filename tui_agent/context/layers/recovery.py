"""Recovery: shrinks a request that is too large, without asking a model.

Old results are cleared first, then older turns are replaced by an extract, then newer results are cleared. Content that
the model has not answered yet is shortened last: long texts are cut to their ends and saved in a file, pictures are
made smaller and then replaced by notes, and of a very long list of calls only the first are shown. The log does not
change.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.context.cutting import head, tail
from tui_agent.context.economics import Situation
from tui_agent.context.layers.limits import quoted
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Digested
from tui_agent.conversation.groups import Group
from tui_agent.conversation.sizes import NOTHING, Size, size_of_block
from tui_agent.conversation.states import sent_blocks
from tui_agent.conversation.view import View

OverflowStep: TypeAlias = Literal["clear_old", "extract_if_enough", "clear_newest", "extract", "shorten"]
OVERFLOW_STEPS: Final[tuple[OverflowStep, ...]] = (
    "clear_old",
    "extract_if_enough",
    "clear_newest",
    "extract",
    "shorten",
)
"""The steps against an overflow, mildest first. The first extract is made only if it is enough by itself."""

TOO_LARGE: Final = "the request was too large for the model"
KEPT_SHARE: Final = 0.5
"""The share of the limit that stays word for word after an extract."""
AIM_SHARE: Final = 0.9
"""A request is shortened to this share of the limit, because estimates may be a little low."""
SMALLER_PICTURE: Final = 0.25
"""The weight of a picture with halved sides, relative to one of full size."""
NO_PICTURE: Final = "[A picture stood here. It was too large to be sent; it is kept in the conversation's log.]"

_LEAST_FREED_CHARS: Final = 200
_NOTICE_CHARS: Final = 400


class Level(NamedTuple):
    """A degree of shortening: characters of a text, calls of one answer, and the fate of pictures."""

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
    """A message or result to shorten: its blocks, and how far.

    path: the file that already has its full text; empty: only the log has it.
    """

    seq: int
    blocks: tuple[Block, ...]
    level: Level
    path: str = ""


class _Item(NamedTuple):
    """A message or result that could be shortened: its full blocks, the tokens shown now, and for a message with calls
    the numbers and tokens of their results by call id.
    """

    seq: int
    blocks: tuple[Block, ...]
    tokens: int
    path: str
    results: dict[str, tuple[int, int]]


def plan_shortening(view: View, situation: Situation) -> tuple[Target, ...]:
    """What to shorten so that the request fits, largest first; empty if nothing can be shortened."""
    tokens_of, limit = situation.mixed_tokens_of, situation.budget.limit
    excess = situation.tokens - int(limit * AIM_SHARE) if limit else situation.tokens // 2
    if excess <= 0:
        # By the estimate the request fits, but the provider refused it: the estimate is too low.
        excess = situation.tokens // 4
    items = sorted(_items(view, tokens_of), key=lambda item: item.tokens, reverse=True)
    chosen: dict[int, Target] = {}
    freed: dict[int, int] = {}
    not_shown: set[int] = set()
    total = 0
    for level in LEVELS:
        for item in items:
            if total >= excess:
                return tuple(chosen.values())
            if item.seq in not_shown:
                continue
            left_out = [item.results[call.id] for call in _calls(item.blocks)[level.calls :] if call.id in item.results]
            saved = item.tokens - tokens_of(_size_at(item.blocks, level)) + sum(tokens for _, tokens in left_out)
            if saved <= freed.get(item.seq, 0) + tokens_of(Size(ascii=_LEAST_FREED_CHARS)):
                continue
            chosen[item.seq] = Target(item.seq, item.blocks, level, item.path)
            total += saved - freed.get(item.seq, 0)
            freed[item.seq] = saved
            for seq, _ in left_out:
                not_shown.add(seq)
                chosen.pop(seq, None)
                total -= freed.pop(seq, 0)
    return tuple(chosen.values())


def pictures_in(targets: Iterable[Target]) -> tuple[Image, ...]:
    """The pictures to make smaller, each once."""
    found: dict[Image, None] = {}
    for target in targets:
        if target.level.pictures == "smaller":
            for block in target.blocks:
                found |= {image: None for image in images_of(block) if image.weight == 1.0}
    return tuple(found)


def text_to_keep(target: Target) -> str:
    """The texts to save in a file because they are cut; empty if there are none, or a file has them already."""
    texts = [block.text for block in target.blocks if isinstance(block, Text | ToolResult)]
    return "" if target.path else "\n\n".join(text for text in texts if len(text) > target.level.characters)


def shortened(target: Target, *, path: str, smaller: dict[Image, Image]) -> tuple[Block, ...]:
    """The blocks to show. `path`: the file with the full text (empty: only in the log). `smaller`: shrunk pictures."""
    calls = _calls(target.blocks)
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
                short = _short_text(block.text, target.level, path)
                told.append(block if short == block.text else Text(short))
            case ToolResult():
                text = _short_text(block.text, target.level, path)
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


def _items(view: View, tokens_of: Callable[[Size], int]) -> Iterable[_Item]:
    """Each message and result in the next request."""
    shortened_before = (
        {item.seq for item in view.items() if item.state == "shortened"} if view.counts().shortened else ()
    )
    for group in view.groups():
        for seq, shown in shown_of(group):
            entry = view.log[seq]
            message = view.log.message(seq)
            path = message.artifact.path if message is not None and message.artifact is not None else ""
            # Shorten from the full text again: otherwise the notice would be about the previous cut.
            whole = _said_in(entry, view) if seq in shortened_before else shown
            results: dict[str, tuple[int, int]] = {}
            if seq == group.first:
                answers = (block for segment in group.segments for block in segment.blocks)
                results = {
                    block.call_id: (group.results[block.call_id], tokens_of(size_of_block(block)))
                    for block in answers
                    if isinstance(block, ToolResult) and block.call_id in group.results
                }
            yield _Item(seq, whole, tokens_of(_size(shown)), path, results)


def shown_of(group: Group) -> Iterable[tuple[int, tuple[Block, ...]]]:
    """Each message and result of a group, with its number and present blocks."""
    for segment in group.segments:
        if segment.role == group.role:
            yield group.first, segment.blocks
            continue
        for block in segment.blocks:
            if isinstance(block, ToolResult) and block.call_id in group.results:
                yield group.results[block.call_id], (block,)


def _said_in(entry: AnyEntry, view: View) -> tuple[Block, ...]:
    """The blocks of an entry in the log."""
    if isinstance(entry, Digested):
        return (Text(entry.text),)
    message = view.log.message(entry.seq)
    return sent_blocks(message) if message is not None else ()


def _calls(blocks: Iterable[Block]) -> list[ToolCall]:
    return [block for block in blocks if isinstance(block, ToolCall)]


def _size(blocks: Sequence[Block]) -> Size:
    total = NOTHING
    for block in blocks:
        total = total.plus(size_of_block(block))
    return total


def _size_at(blocks: Sequence[Block], level: Level) -> Size:
    """Approximate size of the blocks at a level of shortening."""
    total, calls = NOTHING, _calls(blocks)
    for block in (*(each for each in blocks if not isinstance(each, ToolCall | Reasoning)), *calls[: level.calls]):
        size = size_of_block(block)
        most = level.characters
        if isinstance(block, ToolCall):
            most = max(level.characters // min(len(calls), level.calls), 60)
        if size.characters > most:
            share = min(1.0, (most + _NOTICE_CHARS) / size.characters)
            size = Size(int(size.ascii * share), int(size.other * share), size.images)
        if size.images and level.pictures != "whole":
            small = (min(image.weight, SMALLER_PICTURE) for image in images_of(block))
            size = Size(size.ascii, size.other, sum(small) if level.pictures == "smaller" else 0)
        total = total.plus(size)
    return total


def _pictures(images: Sequence[Image], target: Target, smaller: dict[Image, Image]) -> tuple[Image, ...]:
    match target.level.pictures:
        case "whole":
            return tuple(images)
        case "smaller":
            made = (smaller.get(image, image) for image in images)
            # Leave out a picture that could not be made smaller because it is damaged.
            return tuple(image for image in made if image.weight < 1.0)
        case "none":
            return ()


def images_of(block: Block) -> tuple[Image, ...]:
    match block:
        case Image():
            return (block,)
        case ToolResult():
            return block.images
        case _:
            return ()


def _short_text(text: str, level: Level, path: str) -> str:
    if len(text) <= level.characters:
        return text
    first, last = head(text, level.characters // 2), tail(text, level.characters // 2)
    where = f"read_file(path={quoted(path)}) shows the whole" if path else "recall finds them"
    return f"{first}\n[... {len(text) - len(first) - len(last):,} characters left out; {where} ...]\n{last}"


def _short_call(call: ToolCall, characters: int) -> ToolCall:
    if len(call.arguments) <= characters:
        return call
    arguments = msgspec.json.decode(call.arguments)
    names = arguments if isinstance(arguments, dict) else {}
    room = max(20, characters // max(1, len(names)))
    short = {name[:80]: _short_value(value, room) for name, value in list(names.items())[:20]}
    # Drop the provider's signature: it is valid only for the original arguments.
    return ToolCall(call.id, call.name, msgspec.json.encode(short).decode())


def _short_value(value: object, characters: int) -> object:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) <= characters:
        return value
    return f"{head(text, characters)} [{len(text) - characters:,} characters left out]"
