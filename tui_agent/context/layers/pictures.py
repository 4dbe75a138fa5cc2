"""Pictures of a request that a provider does not take: made smaller, then a note, the oldest first. No model is asked.

Each picture is brought to its own limits when it enters the conversation; here all pictures of one request are held
within what it may have of bytes and of pictures, and what a provider refused all the same is given way to.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from tui_agent.context.economics import ModelFacts
from tui_agent.context.layers.recovery import NO_PICTURE, images_of, shown_of
from tui_agent.conversation.blocks import Block, Image, Text, ToolResult
from tui_agent.conversation.view import View

AIM_SHARE: Final = 0.6
"""How much of a limit the pictures may take afterwards: room for the next ones, so that the prefix changes seldom."""
SMALLER_BYTES: Final = 0.1
"""What a picture with half the sides has of the bytes at best; where it has more, the next pass sees that."""

PICTURE_PASSES: Final = range(4)
"""How often the pictures are looked at anew, their sizes then being known."""

TOO_MUCH: Final = "the pictures were more than one request may hold"
REFUSED: Final = "the provider refused a picture"

Fate: TypeAlias = Literal["smaller", "none"]


class PictureLoad(NamedTuple):
    """All pictures of a request: how many, and their bytes in base64."""

    pictures: int = 0
    bytes: int = 0

    def fits(self, model: ModelFacts) -> bool:
        """Whether the model's provider takes them; a limit of 0 is none."""
        return (not model.most_pictures or self.pictures <= model.most_pictures) and (
            not model.picture_bytes or self.bytes <= model.picture_bytes
        )


class Change(NamedTuple):
    """A message or result whose pictures change: what it shows now, and what becomes of which picture."""

    seq: int
    blocks: tuple[Block, ...]
    fates: Mapping[Image, Fate]


class _Shown(NamedTuple):
    seq: int
    blocks: tuple[Block, ...]
    image: Image


def load_of(view: View) -> PictureLoad:
    """The pictures of the next request. Costs nothing where there are none, else a look at each block."""
    if not any(size.images > 0 for size in view.sizes().values()):
        return PictureLoad()
    images = [image for message in view.messages() for block in message.blocks for image in images_of(block)]
    return PictureLoad(len(images), sum(len(image.data) for image in images))


def plan_fewer(view: View, model: ModelFacts) -> tuple[Change, ...]:
    """What must become of pictures so that the request holds no more of them than it may; empty: nothing must."""
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
    """What becomes of pictures after the provider refused one: of full size it becomes smaller, else a note.

    `refused` are those it named (empty: any may be meant); `others`: the rest become smaller too. Where nothing is left
    to become smaller, no picture is shown any more; empty where there was none.
    """

    def fate(image: Image) -> Fate | None:
        if image in refused:
            return "smaller" if image.weight == 1.0 else "none"
        return "smaller" if image.weight == 1.0 and (others or not refused) else None

    shown = list(_all_shown(view))
    changes = _changes((each, fate(each.image)) for each in shown)
    return changes or _changes((each, "none") for each in shown)


def to_shrink(changes: Iterable[Change]) -> tuple[Image, ...]:
    """The pictures that are to become smaller, each once."""
    return tuple(dict.fromkeys(image for each in changes for image, fate in each.fates.items() if fate == "smaller"))


def changed(change: Change, smaller: Mapping[Image, Image]) -> tuple[Block, ...]:
    """The blocks to show; a picture that could not be made smaller is a note."""
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
    """Each picture that the next request shows, the oldest first."""
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
