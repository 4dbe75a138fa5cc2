"""Pictures that no provider takes as they are: the session goes on, and the original is kept."""

import asyncio
import io
import os
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path

import pytest
from PIL import Image as Pillow

from tests.agent.serving import MODELS, OPUS, Serve, serving
from tests.agent.talking import failures, goes_on, of, put, say, talking
from tests.profiles import model_named
from tests.servers.pictures import picture_size
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent import Agent, ContextEngine
from tui_agent.agent import events
from tui_agent.context.effects import MemoryHost
from tui_agent.context.layers.shortening import NO_PICTURE, load_of
from tui_agent.conversation.blocks import Image, Text, ToolResult
from tui_agent.conversation.entries import Shortened, user_message
from tui_agent.conversation.view import View
from tui_agent.models.pictures import LARGEST_SIDE, MOST_BYTES, UnreadablePicture, fitted
from tui_agent.session import Session

LARGE = (4_000, 3_000)
DRAWN = 2
"""Different large pictures that are drawn, which takes a quarter of a second each."""
SLOWEST_S = 0.25
"""How long the event loop may work without a pause."""


def photograph(seed: int = 0, size: tuple[int, int] = LARGE, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """A picture with some detail everywhere. Of large ones few are drawn: the others differ by what follows the end."""
    if size == LARGE and kind == "JPEG" and seed >= DRAWN:
        return photograph(seed % DRAWN) + bytes((seed,))
    return drawn(seed, size, kind, mode)


@cache
def drawn(seed: int, size: tuple[int, int], kind: str, mode: str) -> bytes:
    chance = random.Random(seed)
    bands = len(mode)
    small = Pillow.frombytes(mode, (64, 48), chance.randbytes(64 * 48 * bands))
    target = io.BytesIO()
    small.resize(size).save(target, kind)
    return target.getvalue()


@cache
def noise(size: tuple[int, int], kind: str = "PNG") -> bytes:
    """A picture that nothing compresses."""
    target = io.BytesIO()
    Pillow.frombytes("RGB", size, random.Random(1).randbytes(size[0] * size[1] * 3)).save(target, kind)
    return target.getvalue()


def given(data: bytes, media: str = "image/jpeg") -> Image:
    return Image(media, b64encode(data).decode())


def shown(view: View) -> list[Image]:
    found: list[Image] = []
    for message in view.messages():
        for block in message.blocks:
            found += [block] if isinstance(block, Image) else block.images if isinstance(block, ToolResult) else ()
    return found


async def longest_wait(work: Callable[[], Awaitable[object]]) -> float:
    """Run the coroutine function `work`; the longest that the event loop worked meanwhile without a pause, in seconds.

    Seconds of its own thread's work: how busy the machine is with other things counts for nothing.
    """
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        before = time.thread_time()
        while not over.is_set():
            await asyncio.sleep(0.001)
            longest, before = max(longest, time.thread_time() - before), time.thread_time()

    watching = asyncio.ensure_future(watch())
    await work()
    over.set()
    await watching
    return longest


# One picture


@pytest.mark.parametrize(
    ("draw", "media"),
    [
        pytest.param(photograph, "image/jpeg", id="12 megapixels"),
        pytest.param(partial(photograph, size=(3_000, 10)), "image/jpeg", id="wide"),
        pytest.param(partial(photograph, size=(1, 9_000), kind="PNG"), "image/jpeg", id="a line"),
        pytest.param(partial(photograph, kind="PNG", mode="RGBA", size=(2_400, 300)), "image/png", id="transparent"),
        pytest.param(partial(photograph, size=(2_500, 600), kind="WEBP"), "image/jpeg", id="WebP"),
        pytest.param(partial(photograph, size=(100, 100), kind="BMP"), "image/jpeg", id="a kind nobody takes"),
        pytest.param(partial(noise, (1_999, 1_400)), "image/jpeg", id="bytes alone"),
    ],
)
def test_a_picture_is_brought_to_the_limits(draw: Callable[[], bytes], media: str) -> None:
    data = draw()
    made = fitted(data)
    assert made.changed
    assert made.media_type == media
    assert len(made.data) <= MOST_BYTES
    with Pillow.open(io.BytesIO(made.data)) as image:
        assert image.size == made.after
        assert max(image.size) <= LARGEST_SIDE
        # The proportions stay, as far as whole pixels let them.
        assert abs(image.width * made.before[1] - image.height * made.before[0]) <= max(made.before)
    assert fitted(made.data) == fitted(made.data)
    assert not fitted(made.data).changed


def test_a_picture_within_the_limits_stays_as_it_is() -> None:
    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        data = photograph(size=(640, 480), kind=kind)
        assert fitted(data).data is data
        assert fitted(data).media_type == f"image/{kind.lower()}"


def test_a_photograph_taken_upright_stays_upright() -> None:
    target, exif = io.BytesIO(), Pillow.Exif()
    exif[0x0112] = 6
    Pillow.new("RGB", (3_000, 2_200)).save(target, "JPEG", exif=exif)
    made = fitted(target.getvalue())
    assert made.after[1] == LARGEST_SIDE > made.after[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a picture"),
        (b"words", "not a picture"),
        (b"\xff\xd8\xff" + bytes(500), "not a picture"),
        (photograph()[:50_000], "damaged"),
    ],
)
def test_what_is_no_picture_is_told(data: bytes, why: str) -> None:
    with pytest.raises(UnreadablePicture, match=why):
        fitted(data)


def _wrong_sum(chunk: bytes) -> bytes:
    """A PNG whose chunk of this name has a wrong check sum."""
    target = io.BytesIO()
    with Pillow.open(io.BytesIO(drawn(0, (300, 200), "PNG", "RGB"))) as opened:
        opened.save(target, "PNG", dpi=(72, 72))
    data = bytearray(target.getvalue())
    at = data.index(chunk)
    data[at + 4 + int.from_bytes(data[at - 4 : at], "big")] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize("chunk", [b"pHYs", b"IHDR"])
def test_a_wrong_check_sum_that_others_do_not_look_at_is_mended(chunk: bytes) -> None:
    found = fitted(_wrong_sum(chunk))
    assert found.changed
    with Pillow.open(io.BytesIO(found.data)) as opened:
        opened.load()
        assert opened.size == found.after


def test_a_picture_of_too_many_pixels_is_never_decoded() -> None:
    """Its pixels are damaged, which only who decodes them can tell."""
    for side, why in ((20_000, "more than 89 megapixels"), (2_000, "damaged")):
        target = io.BytesIO()
        Pillow.new("1", (side, side)).save(target, "PNG")
        begins = target.getvalue().index(b"IDAT") + 4
        with pytest.raises(UnreadablePicture, match=why):
            fitted(target.getvalue()[:begins] + bytes(100))


# Through the agent


@pytest.mark.parametrize(
    ("provider", "size"),
    [
        ("anthropic", (2_100, 600)),
        pytest.param("anthropic", LARGE, marks=pytest.mark.soak),
        pytest.param("gemini", LARGE, marks=pytest.mark.soak),
    ],
)
async def test_twenty_pictures_that_are_too_large(
    provider: str, size: tuple[int, int], tmp_path: Path, serve: Serve
) -> None:
    server = serve(serving(provider, lambda _: Step(text="I see."), 200_000))
    originals = [photograph(seed % DRAWN, size) + bytes((seed,)) for seed in range(20)]
    waits: list[float] = []
    async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
        await session.agent.connect()

        async def turn() -> None:
            told = await goes_on(session, "What is this?", images=tuple(map(given, originals)))
            assert [notice.title for notice in of(events.Notice, told)] == ["Sent smaller"]

        waits.append(await longest_wait(turn))
        assert len(shown(session.agent.engine.view)) == 20
        for image, original in zip(shown(session.agent.engine.view), originals, strict=True):
            sent = picture_size(image.data)
            assert sent is not None
            assert max(sent) <= 2_000
            assert (session.folder / image.original).read_bytes() == original
        await goes_on(session, "And now?")
        # One more makes them many, whose smaller limit holds for all of them.
        await goes_on(session, "And this?", images=(given(photograph(0, size) + b"another"),))
    async with talking(tmp_path, {"model.id": MODELS[provider]}, resume=session.id) as session:
        before = len(server.model_requests)
        await goes_on(session, "Are you still there?")
        assert len(server.model_requests) == before + 1
    assert waits[0] < SLOWEST_S


@pytest.mark.parametrize("provider", ["anthropic", pytest.param("gemini", marks=pytest.mark.soak)])
async def test_more_bytes_of_pictures_than_a_request_may_have(provider: str, tmp_path: Path, serve: Serve) -> None:
    """Each is within its own limit; all together are 45 MB."""
    serve(serving(provider, lambda _: Step(text="I see."), 200_000))
    heavy = noise((1_100, 1_000))
    assert 2_500_000 < len(heavy) < MOST_BYTES
    many = tuple(given(heavy + bytes([number]), "image/png") for number in range(10))
    async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
        told = await goes_on(session, "What is this?", images=many)
        assert [step.step for step in of(events.ContextStep, told)] == ["shortened"]
        pictures = shown(session.agent.engine.view)
        # The newest stay as they are.
        assert pictures[-1] == many[-1]
        assert len(pictures) == 10
        await goes_on(session, "And now?")
        await goes_on(session, "And these?", images=many)


async def test_what_is_no_picture_is_a_note(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", lambda _: Step(text="I see nothing."), 200_000))
    async with talking(tmp_path, OPUS) as session:
        broken = (given(b"no picture"), Image("image/png", "not base64!"), given(photograph(size=(64, 64))))
        told = await goes_on(session, "What is this?", images=broken)
        assert [notice.title for notice in of(events.Notice, told)] == ["Not sent as a picture"]
        assert len(shown(session.agent.engine.view)) == 1
        assert server.requests[-1].body.decode().count("cannot be sent: it is damaged") == 2
        await goes_on(session, "And now?")


async def test_a_tool_that_shows_large_pictures_and_none(tmp_path: Path, serve: Serve) -> None:
    def script(request: ParsedRequest) -> Step:
        paths = ("large.png", "broken.png")
        calls = tuple(Call("read_file", {"path": path}) for path in paths)
        return Step(calls=calls) if request.prompt == "Look." and not request.position else Step(text="Seen.")

    serve(serving("anthropic", script, 200_000))
    async with talking(tmp_path, OPUS) as session:
        large = noise((2_400, 2_000))
        (tmp_path / "project" / "large.png").write_bytes(large)
        (tmp_path / "project" / "broken.png").write_bytes(large[:9_000])
        await goes_on(session, "Look.", "And now?")
        (image,) = shown(session.agent.engine.view)
        assert (session.folder / image.original).read_bytes() == large
        assert "cannot be sent: it is damaged" in str(session.agent.engine.view.messages())


async def test_a_queued_picture_is_brought_to_the_limits(tmp_path: Path) -> None:
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        # The turn lasts until this pipe is written to: after the picture was scaled, however long that takes.
        os.mkfifo(tmp_path / "project" / "gate")
        picture, queued = given(photograph()), False
        async for event in session.agent.run("run cat gate"):
            if isinstance(event, events.ToolStarted) and not queued:
                queued = True
                await session.agent.queue("and this", (picture,))
                await asyncio.to_thread((tmp_path / "project" / "gate").write_text, "open")
        (image,) = shown(session.agent.engine.view)
        assert image.original


# What the provider refuses all the same


def refusing(place: str) -> Fault:
    return Fault(kind="bad_request", message=f"{place}.image.source.base64.data: Could not process image")


async def with_three(session: Session) -> None:
    three = tuple(given(photograph(seed, (300, 200))) for seed in range(3))
    await goes_on(session, "What is this?", images=three)


async def test_a_refused_picture_gives_way_and_no_other(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", lambda _: Step(text="I see."), 200_000))
    async with talking(tmp_path, OPUS) as session:
        server.inject(refusing("messages.0.content.2"))
        await with_three(session)
        assert [image.weight for image in shown(session.agent.engine.view)] == [1.0, 0.25, 1.0]
        # Once more, and the one that is small already is a note.
        server.inject(refusing("messages.0.content.2"))
        await goes_on(session, "And now?")
        assert [image.weight for image in shown(session.agent.engine.view)] == [1.0, 1.0]
        assert NO_PICTURE in str(session.agent.engine.view.messages())
        # Nothing is lost: each step can be undone.
        step = [each for each in session.agent.engine.view.log if isinstance(each, Shortened)][-1]
        await session.agent.context.undo(step.seq)
        assert [image.weight for image in shown(session.agent.engine.view)] == [1.0, 0.25, 1.0]


async def test_a_provider_that_refuses_every_picture(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("gemini", lambda _: Step(text="I see nothing."), 200_000))
    async with talking(tmp_path, {"model.id": MODELS["gemini"]}) as session:
        server.inject(Fault(kind="bad_request", message="Unable to process input image.", times=2))
        await with_three(session)
        assert shown(session.agent.engine.view) == []
        await goes_on(session, "And now?")
        # Without a picture the same words are an error like any other.
        server.inject(Fault(kind="bad_request", message="Unable to process input image."))
        assert len(failures(await say(session, "And again?"))) == 1
        await goes_on(session, "And now?")


async def test_a_log_that_holds_pictures_no_longer_taken(tmp_path: Path, serve: Serve) -> None:
    """Written before pictures were brought to the limits: the twenty-first brings them all down."""
    server = serve(serving("anthropic", lambda _: Step(text="I see."), 200_000))
    wide = tuple(given(photograph(seed, (2_500, 100))) for seed in range(21))
    async with talking(tmp_path, OPUS) as session:
        await goes_on(session, "Begin.")
        await put(session, user_message("What is this?", *wide))
        assert failures(await say(session)) == []
        assert len(shown(session.agent.engine.view)) == 21
        assert all("many-image requests" in each for each in server.violations)
        assert len(server.violations) == 2
        server.violations.clear()
        await goes_on(session, "And now?")


async def test_a_request_too_large_for_the_provider(tmp_path: Path, serve: Serve) -> None:
    """An unknown limit is learned from the refusal, and pictures give way before anything said does."""
    server = serve(serving("gemini", lambda _: Step(text="I see."), 200_000))
    heavy = noise((1_100, 1_000))
    async with talking(tmp_path, {"model.id": MODELS["gemini"]}) as session:
        server.inject(Fault(kind="bad_request", message="Request payload size exceeds the limit: 1 bytes."))
        await goes_on(session, "This?", images=(given(heavy, "image/png"),))
        (image,) = shown(session.agent.engine.view)
        assert image.weight == 0.25


# Within what one request may hold


def test_the_oldest_pictures_give_way_first() -> None:
    engine = ContextEngine(model=model_named("x", window=200_000, most_pictures=10, picture_bytes=4_000))
    for number in range(12):
        engine.extend([user_message(f"picture {number}", Image("image/png", f"{number:03}" * 100))])
    before = engine.fits
    MemoryHost(engine).run(engine.recover())
    assert (before, engine.fits) == (False, True)
    assert load_of(engine.view).pictures == 6
    assert [image.data[:3] for image in shown(engine.view)] == [f"{number:03}" for number in range(6, 12)]
    # What is said besides stays.
    texts = [block.text for each in engine.view.messages() for block in each.blocks if isinstance(block, Text)]
    assert [text for text in texts if text != NO_PICTURE] == [f"picture {number}" for number in range(12)]


async def test_pictures_given_to_an_agent_in_memory() -> None:
    async with Agent("offline") as agent:
        told = await say(agent, "look", (given(photograph()),))
        assert isinstance(told[-1], events.TurnFinished)
        (image,) = shown(agent.engine.view)
        size = picture_size(image.data)
        assert size == (2_000, 1_500)
        assert b64decode(image.data) != photograph()
