"""Shortens what the model has not answered yet, and the pictures of a request, without asking a model.

If a request is too large, old results are cleared first, then older turns are replaced by an extract, then newer
results are cleared; what is here comes last. Long texts are cut to their ends and saved in a file, pictures are made
smaller and then replaced by notes, and of a very long list of calls only the first are shown. The log does not change.

Each picture is brought within its own limits when it enters the conversation. Here all pictures of one request are kept
within the provider's limits on bytes and number, and pictures that it refuses all the same are dealt with.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.context.changes import preview_change
from tui_agent.context.compaction.plan import Plan, merge_of, plan_compaction
from tui_agent.context.cutting import head, quoted, tail
from tui_agent.context.economics import Situation
from tui_agent.context.effects import SaveText, ShrinkImages, Steps, expect
from tui_agent.context.layers.clearing import ClearingLayer
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Artifact, Cleared, Digested, Shortened
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.sizes import NOTHING, TextSize, size_of_block, total_size
from tui_agent.conversation.states import sent_blocks
from tui_agent.conversation.view import Group, View
from tui_agent.system.lenient import object_in

OverflowStep: TypeAlias = Literal[
    "fewer_pictures", "clear_old", "extract_if_enough", "clear_newest", "extract", "shorten"
]
OVERFLOW_STEPS: Final[tuple[OverflowStep, ...]] = (
    *(("fewer_pictures",) * 4),
    "clear_old",
    "extract_if_enough",
    "clear_newest",
    "extract",
    "shorten",
)
"""The steps against an overflow, mildest first. Each pass over the pictures knows the actual sizes after the one
before; the first extract is made only if it is enough by itself.
"""

TOO_LARGE: Final = "the request was too large for the model"
TOO_MUCH: Final = "the pictures were more than one request may hold"
REFUSED: Final = "the provider refused a picture"

KEPT_SHARE: Final = 0.5
"""The share of the limit that stays word for word after an extract."""
AIM_SHARE: Final = 0.9
"""A request is shortened to this share of the limit, because estimates may be a little low."""
PICTURES_SHARE: Final = 0.6
"""Pictures are reduced to this share of a limit, which leaves room for more, so that the prefix seldom changes."""
SMALLER_PICTURE: Final = 0.25
"""The weight of a picture with halved sides, relative to one of full size."""
SMALLER_BYTES: Final = 0.1
"""The assumed share of bytes left after halving a picture's sides; if it is more, the next pass corrects that."""
NO_PICTURE: Final = "[A picture stood here. It was too large to be sent; it is kept in the conversation's log.]"

_LEAST_FREED_CHARS: Final = 200
_NOTICE_CHARS: Final = 400

Fate: TypeAlias = Literal["smaller", "none"]
"""What happens to a picture."""


class ShorteningLevel(msgspec.Struct, frozen=True):
    """A degree of shortening: characters of a text, calls of one answer, and the fate of pictures (None: whole)."""

    characters: int
    calls: int
    pictures: Fate | None


LEVELS: Final = (
    ShorteningLevel(12_000, 64, None),
    ShorteningLevel(4_000, 32, "smaller"),
    ShorteningLevel(1_000, 16, "none"),
    ShorteningLevel(300, 8, "none"),
)


class ShownItem(NamedTuple):
    """A message or result in the next request, and its blocks there."""

    seq: int
    blocks: tuple[Block, ...]


class Target(msgspec.Struct, frozen=True):
    """A message or result to shorten: its blocks, and how far.

    path: the file that already has its full text; empty: only the log has it.
    """

    seq: int
    blocks: tuple[Block, ...]
    level: ShorteningLevel
    path: str = ""


class PictureLoad(msgspec.Struct, frozen=True):
    """The number of pictures in a request, and their bytes in base64."""

    pictures: int = 0
    bytes: int = 0

    def fits(self, model: ModelProfile) -> bool:
        """Whether the model's provider accepts them; 0 means no limit."""
        return (not model.most_pictures or self.pictures <= model.most_pictures) and (
            not model.picture_bytes or self.bytes <= model.picture_bytes
        )


# Pictures


def load_of(view: View) -> PictureLoad:
    """The pictures of the next request. Free if there are none, else it reads each block."""
    if not any(size.images > 0 for size in view.sizes().values()):
        return PictureLoad()
    images = [image for message in view.messages() for image in images_of(message.blocks)]
    return PictureLoad(len(images), sum(len(image.data) for image in images))


def shrink(
    step: OverflowStep, view: View, here: Situation, clearing: ClearingLayer
) -> Steps[Shortened | Cleared | Plan | None]:
    """What this step enters: an entry, or the plan of an extract; None if it changes nothing."""
    match step:
        case "fewer_pictures":
            return (yield from fewer_pictures(view, here))
        case "clear_old" | "clear_newest":
            return clearing.asked_for(view, here, keep=0 if step == "clear_newest" else None, reason=TOO_LARGE)
        case "extract" | "extract_if_enough":
            keep = int(min(here.budget.limit or here.tokens, here.tokens) * KEPT_SHARE)
            plan = plan_compaction(view, here, asked=True, keep=keep, reason=TOO_LARGE, by_provider=False)
            if isinstance(plan, Plan):
                return plan if step == "extract" or here.budget.fits(plan.after) else None
            shown = view.boundaries()
            return merge_of(shown, view, here) if step == "extract" and len(shown) > 1 else None
        case "shorten":
            return (yield from shorten_newest(view, here))


def fewer_pictures(view: View, here: Situation) -> Steps[Shortened | None]:
    """Bring the pictures within the model's limits; None if they are."""
    shown = [(each.seq, image) for each in shown_in(view) for image in images_of(each.blocks)]
    load, model = PictureLoad(len(shown), sum(len(image.data) for _, image in shown)), here.model
    if load.fits(model):
        return None
    room = int(model.picture_bytes * PICTURES_SHARE) if model.picture_bytes else load.bytes
    most = int(model.most_pictures * PICTURES_SHARE) if model.most_pictures else load.pictures
    fates: list[Fate | None] = [None] * len(shown)
    if load.pictures > model.most_pictures > 0:
        fates[: load.pictures - most] = ["none"] * (load.pictures - most)
    left = sum(len(image.data) for (_, image), fate in zip(shown, fates, strict=True) if fate is None)
    passes: tuple[Fate, ...] = ("smaller", "none")
    for fate in passes:
        for index, (_, image) in enumerate(shown):
            if left <= room or fates[index] == "none" or (fate == "smaller" and image.weight < 1.0):
                continue
            size = len(image.data)
            now = int(size * SMALLER_BYTES) if fates[index] == "smaller" else size
            left -= now - (int(size * SMALLER_BYTES) if fate == "smaller" else 0)
            fates[index] = fate
    decided = ((seq, image, fate) for (seq, image), fate in zip(shown, fates, strict=True))
    return (yield from _with_fates(view, here, decided, TOO_MUCH))


def without_refused(
    view: View, here: Situation, refused: Collection[Image], *, others: bool
) -> Steps[Shortened | None]:
    """After the provider refused a picture: full-size pictures are made smaller, others become notes.

    `refused`: those it named (empty: it may be any). `others`: shrink the remaining pictures too. If none can be made
    smaller, all become notes; None if there were no pictures.
    """

    def fate(image: Image) -> Fate | None:
        if image in refused:
            return "smaller" if image.weight == 1.0 else "none"
        return "smaller" if image.weight == 1.0 and (others or not refused) else None

    shown = [(each.seq, image) for each in shown_in(view) for image in images_of(each.blocks)]
    decided: list[tuple[int, Image, Fate | None]] = [(seq, image, fate(image)) for seq, image in shown]
    if not any(each for _, _, each in decided):
        decided = [(seq, image, "none") for seq, image in shown]
    return (yield from _with_fates(view, here, decided, REFUSED)) if shown else None


def _with_fates(
    view: View, here: Situation, decided: Iterable[tuple[int, Image, Fate | None]], reason: str
) -> Steps[Shortened]:
    fates: dict[int, dict[Image, Fate]] = {}
    for seq, image, fate in decided:
        if fate is not None:
            fates.setdefault(seq, {})[image] = fate
    smaller = yield from _smaller(image for each in fates.values() for image, fate in each.items() if fate == "smaller")
    changed = [
        (each.seq, _with_pictures(each.blocks, fates[each.seq], smaller))
        for each in shown_in(view)
        if each.seq in fates
    ]
    return _entry(view, here, changed, reason)


def _smaller(images: Iterable[Image]) -> Steps[dict[Image, Image]]:
    """Have these pictures made smaller, each once."""
    wanted = tuple(dict.fromkeys(images))
    made = (yield ShrinkImages(wanted)) if wanted else None
    return dict(zip(wanted, made, strict=True)) if isinstance(made, tuple) else {}


def _with_pictures(
    blocks: Iterable[Block], fates: Mapping[Image, Fate], smaller: Mapping[Image, Image]
) -> tuple[Block, ...]:
    """The blocks to show; a picture that could not be made smaller, as a damaged one cannot, becomes a note."""
    shown: list[Block] = []
    for block in blocks:
        images: list[Image] = []
        for image in images_of((block,)):
            fate, made = fates.get(image), smaller.get(image, image)
            if fate is None or (fate == "smaller" and made.weight < 1.0):
                images.append(image if fate is None else made)
        match block:
            case Image():
                shown += images or [Text(NO_PICTURE)]
            case ToolResult() if images != list(block.images):
                text = f"{block.text}\n{NO_PICTURE}".lstrip() if len(images) < len(block.images) else block.text
                shown.append(ToolResult(block.call_id, text, is_error=block.is_error, images=tuple(images)))
            case _:
                shown.append(block)
    return tuple(shown)


# Texts, calls and pictures


def shorten_newest(view: View, here: Situation) -> Steps[Shortened | None]:
    """Shorten messages and results until the request fits; None if that frees nothing."""
    targets = plan_shortening(view, here)
    if not targets:
        return None
    smaller = yield from _smaller(
        image
        for target in targets
        for image in images_of(target.blocks)
        if target.level.pictures == "smaller" and image.weight == 1.0
    )
    changed = []
    for target in targets:
        path, texts = target.path, [each.text for each in target.blocks if isinstance(each, Text | ToolResult)]
        kept = "\n\n".join(text for text in texts if len(text) > target.level.characters)
        if kept and not path:
            path = expect(Artifact, (yield SaveText(f"message-{target.seq}", kept))).path
        changed.append((target.seq, _shortened(target, path, smaller)))
    entry = _entry(view, here, changed, TOO_LARGE)
    return entry if entry.after < entry.before else None


def plan_shortening(view: View, situation: Situation) -> tuple[Target, ...]:
    """What to shorten so that the request fits, largest first; empty if nothing can be shortened."""
    tokens_of, limit = situation.mixed_tokens_of, situation.budget.limit
    excess = situation.tokens - int(limit * AIM_SHARE) if limit else situation.tokens // 2
    if excess <= 0:
        # By the estimate the request fits, but the provider refused it: the estimate is too low.
        excess = situation.tokens // 4
    items = sorted(_items(view, situation), key=lambda item: item.tokens, reverse=True)
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
            if saved <= freed.get(item.seq, 0) + tokens_of(TextSize(ascii=_LEAST_FREED_CHARS)):
                continue
            chosen[item.seq] = Target(item.seq, item.blocks, level, item.path)
            total += saved - freed.get(item.seq, 0)
            freed[item.seq] = saved
            for seq, _ in left_out:
                not_shown.add(seq)
                chosen.pop(seq, None)
                total -= freed.pop(seq, 0)
    return tuple(chosen.values())


class _Item(msgspec.Struct, frozen=True):
    """A message or result that could be shortened: its full blocks, the tokens shown now, and for a message with calls
    the numbers and tokens of their results by call id.
    """

    seq: int
    blocks: tuple[Block, ...]
    tokens: int
    path: str
    results: dict[str, tuple[int, int]]


def _items(view: View, here: Situation) -> Iterator[_Item]:
    before: set[int] = set()
    if view.counts().shortened:
        before = {item.seq for item in view.items() if item.state == "shortened"}
    for group in view.groups():
        answers = (block for segment in group.segments for block in segment.blocks)
        results = {
            block.call_id: (group.results[block.call_id], here.mixed_tokens_of(size_of_block(block)))
            for block in answers
            if isinstance(block, ToolResult) and block.call_id in group.results
        }
        for seq, blocks in _shown_of(group):
            entry, message = view.log[seq], view.log.message(seq)
            tokens = here.mixed_tokens_of(total_size(map(size_of_block, blocks)))
            path = message.artifact.path if message is not None and message.artifact is not None else ""
            # Shorten from the full text again: otherwise the notice would be about the previous cut.
            if seq in before and isinstance(entry, Digested):
                blocks = (Text(entry.text),)
            elif seq in before:
                blocks = sent_blocks(message) if message is not None else ()
            yield _Item(seq, blocks, tokens, path, results if seq == group.first else {})


def _size_at(blocks: Sequence[Block], level: ShorteningLevel) -> TextSize:
    """Approximate size of the blocks at a level of shortening."""
    total, calls = NOTHING, _calls(blocks)
    for block in (*(each for each in blocks if not isinstance(each, ToolCall | Reasoning)), *calls[: level.calls]):
        size = size_of_block(block)
        most = level.characters
        if isinstance(block, ToolCall):
            most = max(level.characters // min(len(calls), level.calls), 60)
        if size.characters > most:
            share = min(1.0, (most + _NOTICE_CHARS) / size.characters)
            size = TextSize(int(size.ascii * share), int(size.other * share), size.images)
        if size.images and level.pictures is not None:
            small = (min(image.weight, SMALLER_PICTURE) for image in images_of((block,)))
            size = TextSize(size.ascii, size.other, sum(small) if level.pictures == "smaller" else 0)
        total = total.plus(size)
    return total


def _shortened(target: Target, path: str, smaller: Mapping[Image, Image]) -> tuple[Block, ...]:
    """The blocks to show. `path`: the file with the full text (empty: only in the log). `smaller`: shrunk pictures."""
    level, calls = target.level, _calls(target.blocks)
    kept = calls[: level.calls]
    shown: list[Block] = []
    for block in target.blocks:
        match block:
            case Reasoning():
                continue
            case ToolCall() if block not in kept:
                continue
            case ToolCall():
                shown.append(_short_call(block, max(level.characters // len(kept), 60)))
            case Text():
                short = _short_text(block.text, level, path)
                shown.append(block if short == block.text else Text(short))
            case ToolResult():
                text = _short_text(block.text, level, path)
                shown.append(ToolResult(block.call_id, text, is_error=block.is_error, images=block.images))
            case Image():
                shown.append(block)
    if left_out := len(calls) - len(kept):
        place = next((index for index, block in enumerate(shown) if isinstance(block, ToolCall)), len(shown))
        shown.insert(place, Text(f"[{left_out:,} more calls of this answer, and their results, are not shown.]"))
    if level.pictures is None:
        return tuple(shown)
    return _with_pictures(shown, dict.fromkeys(images_of(shown), level.pictures), smaller)


def _short_text(text: str, level: ShorteningLevel, path: str) -> str:
    if len(text) <= level.characters:
        return text
    first, last = head(text, level.characters // 2), tail(text, level.characters // 2)
    where = f"read_file(path={quoted(path)}) shows the whole" if path else "recall finds them"
    return f"{first}\n[... {len(text) - len(first) - len(last):,} characters left out; {where} ...]\n{last}"


def _short_call(call: ToolCall, characters: int) -> ToolCall:
    if len(call.arguments) <= characters:
        return call
    names = object_in(call.arguments)
    room, short = max(20, characters // max(1, len(names))), {}
    for name, value in list(names.items())[:20]:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        cut = len(text) > room
        short[name[:80]] = f"{head(text, room)} [{len(text) - room:,} characters left out]" if cut else value
    # Drop the provider's signature: it is valid only for the original arguments.
    return ToolCall(call.id, call.name, msgspec.json.encode(short).decode())


# Shared


def shown_in(view: View) -> Iterator[ShownItem]:
    """Each message and result in the next request, oldest first."""
    for group in view.groups():
        yield from _shown_of(group)


def _shown_of(group: Group) -> Iterator[ShownItem]:
    for segment in group.segments:
        if segment.role == group.role:
            yield ShownItem(group.first, segment.blocks)
            continue
        for block in segment.blocks:
            if isinstance(block, ToolResult) and block.call_id in group.results:
                yield ShownItem(group.results[block.call_id], (block,))


def images_of(blocks: Iterable[Block]) -> Iterator[Image]:
    for block in blocks:
        if isinstance(block, Image):
            yield block
        elif isinstance(block, ToolResult):
            yield from block.images


def _calls(blocks: Iterable[Block]) -> list[ToolCall]:
    return [block for block in blocks if isinstance(block, ToolCall)]


def _entry(view: View, here: Situation, changed: Sequence[tuple[int, tuple[Block, ...]]], reason: str) -> Shortened:
    entry = Shortened(
        items=tuple(seq for seq, _ in changed),
        blocks=tuple(blocks for _, blocks in changed),
        reason=reason,
        before=here.tokens,
    )
    return structs.replace(entry, after=preview_change(view, [entry], here).after)
