"""Nothing that a user, a model or a server puts into a conversation makes it one that cannot go on."""

import io
import random
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Pillow

from tests.agent.serving import MODELS, OPUS, PROVIDERS, Serve, serving
from tests.agent.talking import failures, goes_on, of, saved, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Message, Partial
from tui_agent.conversation.view import View
from tui_agent.session import Session
from tui_agent.settings import Settings


def prompts_in(session: Session) -> list[Message]:
    log = session.agent.engine.view.log
    return [entry for entry in log if isinstance(entry, Message) and entry.role == "user" and not entry.kind]


LETTERS = bytes(b"abcdefghijklmnop      \n"[byte % 23] for byte in range(256))
"""What random bytes become in a text."""


def prose(characters: int, seed: int = 1) -> str:
    """Words that no tokenizer finds short."""
    words = random.Random(seed).randbytes(characters).translate(LETTERS).decode()
    return re.sub(r"\s{2,}", " ", words)


# The window


async def test_the_programs_own_refusal_is_not_learned_as_the_providers_window(tmp_path: Path) -> None:
    async with talking(tmp_path, {"context.context_window": "2000"}) as session:
        for number in range(6):
            (failed,) = of(events.TurnFailed, await say(session, f"hello {number}"))
            assert failed.kind == "context_overflow"
            assert "2,000" in failed.message
            assert session.agent.context_stats().window == 2_000
    # The window that was given stays with the session until it is taken back.
    async with talking(tmp_path, {"context.context_window": "0"}, resume=session.id) as session:
        assert session.agent.context_stats().window > 2_000
        await goes_on(session, "read calc.py")


@pytest.mark.parametrize(("provider", "alike"), [("anthropic", True), ("gemini", False)])
async def test_a_paste_sent_again_and_again_while_the_server_refuses(
    provider: str, alike: bool, tmp_path: Path, serve: Serve
) -> None:
    server = serve(serving(provider, lambda _: Step(text="I have read it."), 100_000))
    settings = {"model.id": MODELS[provider]}
    async with talking(tmp_path, settings) as session:
        server.inject(Fault(kind="unauthorized", times=3))
        for number in range(3):
            # About 45,000 tokens as the servers count.
            text = prose(135_000, seed=0 if alike else number)
            told = await say(session, text)
            assert failures(told) == ["auth"]
            assert len(of(events.UserMessage, told)) == 1
        assert len(prompts_in(session)) == (1 if alike else 3)
        await goes_on(session, prose(135_000, seed=0 if alike else 2), "And now?")
        assert len(prompts_in(session)) == (2 if alike else 4)
    async with talking(tmp_path, settings, resume=session.id) as session:
        await goes_on(session, "Are you still there?")


async def test_a_paste_larger_than_the_window_sent_again_is_there_once(tmp_path: Path, serve: Serve) -> None:
    server = serve(serving("anthropic", lambda _: Step(text="I have read it."), 50_000))
    async with talking(tmp_path, OPUS) as session:
        server.inject(Fault(kind="unauthorized", times=2))
        for _ in range(2):
            assert failures(await say(session, prose(400_000))) == ["auth"]
        await goes_on(session, prose(400_000))
        assert len(prompts_in(session)) == 1


def pictures(count: int) -> tuple[Image, ...]:
    """Photographs, each another one."""
    found = []
    for seed in range(count):
        noise = random.Random(seed).randbytes(64 * 64 * 3)
        target = io.BytesIO()
        Pillow.frombytes("RGB", (64, 64), noise).resize((800, 600)).save(target, "JPEG")
        found.append(Image("image/jpeg", b64encode(target.getvalue()).decode()))
    return tuple(found)


@PROVIDERS
async def test_nine_pictures_in_a_small_window(provider: str, tmp_path: Path, serve: Serve) -> None:
    serve(serving(provider, lambda _: Step(text="I see."), 16_000))
    async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
        await goes_on(session, "What is this?", images=pictures(9))
        await goes_on(session, "And now?")
    async with talking(tmp_path, {"model.id": MODELS[provider]}, resume=session.id) as session:
        await goes_on(session, "Are you still there?")
        # One after the other, they do not fit either.
        for picture in pictures(9):
            await goes_on(session, "And this?", images=(picture,))


@pytest.mark.parametrize("data", [b"\xff\xd8\xff", b"\xff\xd8\xff" + bytes(5_000), b"\xff\xd8\xff\xe0" * 500])
async def test_damaged_pictures_in_a_small_window(data: bytes, tmp_path: Path, serve: Serve) -> None:
    serve(serving("anthropic", lambda _: Step(text="I see nothing."), 16_000))
    damaged = tuple(Image("image/jpeg", b64encode(data + bytes([number])).decode()) for number in range(9))
    async with talking(tmp_path, OPUS) as session:
        await goes_on(session, "What is this?", images=damaged)
        await goes_on(session, "And now?")


# What a model answers


def first(step: Step) -> Callable[[ParsedRequest], Step]:
    """This answer at first, and a plain one for all that follows."""
    return lambda request: step if request.prompt == "Begin." and not request.position else Step(text="Done.")


MANY_CALLS = Step(
    calls=tuple(Call("read_file", {"path": f"file_{number}.txt"}) for number in range(500)), boundless=True
)
LONG_ARGUMENTS = Step(
    calls=(Call("write_file", {"path": "x.txt", "content": prose(1_600_000)}),), boundless=True, chunk=100_000
)
MANY_ARGUMENTS = Step(
    calls=(Call("read_file", {f"name_{number}": f"a value {number:x}" for number in range(50_000)}),),
    boundless=True,
    chunk=100_000,
)
LONG_TEXT = Step(text=prose(2_000_000), boundless=True, chunk=100_000)
LONG_REASONING = Step(reasoning=prose(2_000_000), text="So.", boundless=True, chunk=100_000)
MUCH_READ = Step(text="Hi.", input_tokens=1_000_000)
LITTLE_READ = Step(text="Hi.", input_tokens=1)


OUT_OF_ALL_MEASURE = {
    "500 calls": (MANY_CALLS, 32_000),
    "1.6 MB of arguments": (LONG_ARGUMENTS, 32_000),
    "50,000 arguments": (MANY_ARGUMENTS, 32_000),
    "2 MB of text": (LONG_TEXT, 32_000),
    "2 MB of text, 200k": (LONG_TEXT, 200_000),
    "2 MB of reasoning": (LONG_REASONING, 32_000),
    "1,000,000 tokens for a word": (MUCH_READ, 200_000),
    "1 token for a system prompt": (LITTLE_READ, 200_000),
}


@pytest.mark.parametrize(
    ("provider", "step", "window"),
    [
        pytest.param(provider, *case, id=f"{provider}, {name}", marks=[pytest.mark.soak] if soak else [])
        for place, (name, case) in enumerate(OUT_OF_ALL_MEASURE.items())
        # By turns in the quick run, and half of them: what holds after an answer is the same code for both.
        for provider, soak in zip(MODELS, (place % 4 != 0 or not place, place % 4 != 2), strict=True)
    ],
)
async def test_an_answer_out_of_all_measure(
    step: Step, window: int, provider: str, tmp_path: Path, serve: Serve
) -> None:
    serve(serving(provider, first(step), window))
    settings = {"model.id": MODELS[provider], "permissions.mode": "allow"}
    async with talking(tmp_path, settings) as session:
        await goes_on(session, "Begin.")
    # As it was left, and opened anew.
    async with talking(tmp_path, settings, resume=session.id) as session:
        await goes_on(session, "Go on.", "And on.")
        assert session.agent.context_stats().tokens < window
        await session.agent.compact()
        await goes_on(session, "And on.")
    assert broken_rules(View(await saved(tmp_path)).messages()) == []


async def test_of_very_many_calls_the_first_are_done_and_the_others_refused(tmp_path: Path, serve: Serve) -> None:
    calls = tuple(Call("read_file", {"path": "calc.py", "limit": 1, "offset": number + 1}) for number in range(130))
    serve(serving("anthropic", first(Step(calls=calls, boundless=True)), 200_000))
    assert Settings().agent.max_calls == 100
    async with talking(tmp_path, OPUS) as session:
        told = await goes_on(session, "Begin.")
    order = [event.call_id for event in of(events.ToolStarted, told)]
    finished = of(events.ToolFinished, told)
    refused = [event for event in finished if "One answer may ask for 100 calls" in event.text]
    assert len(finished) == len(order) == 130
    assert sorted(event.call_id for event in refused) == sorted(order[100:])
    assert {event.status for event in refused} == {"error"}


# What was void


@pytest.mark.parametrize("restart", [False, True])
async def test_text_that_a_retry_made_void_does_not_come_back(restart: bool, tmp_path: Path, serve: Serve) -> None:
    """The first attempt streams for more than a second and breaks; the second is refused for good."""
    broken = Step(text="Void words. " * 20, delay=0.1, chunk=16, fault=Fault(kind="reset", after=18))

    def script(request: ParsedRequest) -> Step:
        return broken if request.prompt == "Begin." else Step(text="Here I am.")

    server = serve(serving("anthropic", script, 200_000))
    async with talking(tmp_path, OPUS) as session:
        told = []
        async for event in session.agent.run("Begin."):
            told.append(event)
            if isinstance(event, events.Retrying):
                server.inject(Fault(kind="unauthorized"))
        assert failures(told) == ["auth"]
        log = list(session.agent.engine.view.log)
        assert any("Void" in entry.text for entry in log if isinstance(entry, Partial))
        if not restart:
            await goes_on(session, "Hello?")
            assert "Void" not in str(session.agent.engine.view.messages())
    async with talking(tmp_path, OPUS, resume=session.id) as session:
        await goes_on(session, "Hello again?")
        assert "Void" not in str(session.agent.engine.view.messages())
    assert "Void" not in str([request.body for request in server.model_requests])
