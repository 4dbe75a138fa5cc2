"""Limits on the pictures of a request: the oldest are made smaller first, then replaced by notes. No model is asked.

Each picture is brought within its own limits when it enters the conversation. Here all pictures of one request are kept
within the provider's limits on bytes and number, and pictures that it refuses all the same are dealt with.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from tui_agent.context.layers.recovery import NO_PICTURE, images_of, shown_of
from tui_agent.conversation.blocks import Block, Image, Text, ToolResult
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.view import View

AIM_SHARE: Final = 0.6
"""Pictures are reduced to this share of a limit, which leaves room for more, so that the prefix seldom changes."""
SMALLER_BYTES: Final = 0.1
"""The assumed share of bytes left after halving a picture's sides; if it is more, the next pass corrects that."""

PICTURE_PASSES: Final = range(4)
"""Passes over the pictures, each with the actual sizes after the one before."""

TOO_MUCH: Final = "the pictures were more than one request may hold"
REFUSED: Final = "the provider refused a picture"

Fate: TypeAlias = Literal["smaller", "none"]


class PictureLoad(NamedTuple):
    """The number of pictures in a request, and their bytes in base64."""

    pictures: int = 0
    bytes: int = 0

    def fits(self, model: ModelProfile) -> bool:
        """Whether the model's provider accepts them; 0 means no limit."""
        return (not model.most_pictures or self.pictures <= model.most_pictures) and (
            not model.picture_bytes or self.bytes <= model.picture_bytes
        )


class Change(NamedTuple):
    """A message or result whose pictures change: its present blocks, and the fate of each picture."""

    seq: int
    blocks: tuple[Block, ...]
    fates: Mapping[Image, Fate]


class _Shown(NamedTuple):
    seq: int
    blocks: tuple[Block, ...]
    image: Image


def load_of(view: View) -> PictureLoad:
    """The pictures of the next request. Free if there are none, else it reads each block."""
    if not any(size.images > 0 for size in view.sizes().values()):
        return PictureLoad()
    images = [image for message in view.messages() for block in message.blocks for image in images_of(block)]
    return PictureLoad(len(images), sum(len(image.data) for image in images))


def plan_fewer(view: View, model: ModelProfile) -> tuple[Change, ...]:
    """The changes of pictures needed to stay within the limits; empty if none are."""
    shown = list(_all_shown(view))
    load = PictureLoad(len(shown), sum(len(each.image.data) for each in shown))
    if load.fits(model):
        return ()
    room = int(model.picture_bytes * AIM_SHARE) if model.picture_bytes else load.bytes
    most = int(model.most_pictures * AIM_SHARE) if model.most_pictures else load.pictures
    fates: list[Fate | None] = [None] * len(shown)
    if load.pictures > model.most_pictures > 0:
        fates[: load.pictures - most] = ["none"] * (load.pictures - most)
    left = sum(len(each.image.data) for each, fate in zip(shown, fates, strict=True) if fate is None)
    passes: tuple[Fate, ...] = ("smaller", "none")
    for fate in passes:
        for index, (_, _, image) in enumerate(shown):
            if left <= room or fates[index] == "none" or (fate == "smaller" and image.weight < 1.0):
                continue
            size = len(image.data)
            now = int(size * SMALLER_BYTES) if fates[index] == "smaller" else size
            left -= now - (int(size * SMALLER_BYTES) if fate == "smaller" else 0)
            fates[index] = fate
    return _changes(zip(shown, fates, strict=True))


def plan_without(view: View, refused: Collection[Image], *, others: bool) -> tuple[Change, ...]:
    """The changes of pictures after the provider refused one: full-size pictures are made smaller, others become notes.

    `refused`: those it named (empty: it may be any). `others`: shrink the remaining pictures too. If none can be made
    smaller, all become notes; empty if there were no pictures.
    """

    def fate(image: Image) -> Fate | None:
        if image in refused:
            return "smaller" if image.weight == 1.0 else "none"
        return "smaller" if image.weight == 1.0 and (others or not refused) else None

    shown = list(_all_shown(view))
    changes = _changes((each, fate(each.image)) for each in shown)
    return changes or _changes((each, "none") for each in shown)


def to_shrink(changes: Iterable[Change]) -> tuple[Image, ...]:
    """The pictures to make smaller, each once."""
    return tuple(dict.fromkeys(image for each in changes for image, fate in each.fates.items() if fate == "smaller"))


def changed(change: Change, smaller: Mapping[Image, Image]) -> tuple[Block, ...]:
    """The blocks to show; a picture that could not be made smaller becomes a note."""
    told: list[Block] = []
    for block in change.blocks:
        match block:
            case Image() if block in change.fates:
                told += _instead((block,), change, smaller) or (Text(NO_PICTURE),)
            case ToolResult() if any(image in change.fates for image in block.images):
                images = _instead(block.images, change, smaller)
                text = f"{block.text}\n{NO_PICTURE}".lstrip() if len(images) < len(block.images) else block.text
                told.append(ToolResult(block.call_id, text, is_error=block.is_error, images=images))
            case _:
                told.append(block)
    return tuple(told)


def _instead(images: Iterable[Image], change: Change, smaller: Mapping[Image, Image]) -> tuple[Image, ...]:
    kept: list[Image] = []
    for image in images:
        fate = change.fates.get(image)
        made = smaller.get(image, image)
        if fate is None or (fate == "smaller" and made.weight < image.weight):
            kept.append(made if fate == "smaller" else image)
    return tuple(kept)


def _all_shown(view: View) -> Iterable[_Shown]:
    """Each picture in the next request, oldest first."""
    for group in view.groups():
        for seq, blocks in shown_of(group):
            for block in blocks:
                for image in images_of(block):
                    yield _Shown(seq, blocks, image)


def _changes(decided: Iterable[tuple[_Shown, Fate | None]]) -> tuple[Change, ...]:
    blocks: dict[int, tuple[Block, ...]] = {}
    fates: dict[int, dict[Image, Fate]] = {}
    for shown, fate in decided:
        if fate is not None:
            blocks[shown.seq] = shown.blocks
            fates.setdefault(shown.seq, {})[shown.image] = fate
    return tuple(Change(seq, blocks[seq], fates[seq]) for seq in fates)
