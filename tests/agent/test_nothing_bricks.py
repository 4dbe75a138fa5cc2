"""Nothing that a user, a model or a server puts into a conversation makes it one that cannot go on."""

import asyncio
import io
import random
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image as Pillow

from tests.agent.talking import saved, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Script, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Message, Partial
from tui_agent.conversation.view import View
from tui_agent.session import Session
from tui_agent.settings import Settings

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
PROVIDERS = pytest.mark.parametrize("provider", MODELS)


def serving(provider: str, script: Callable[[ParsedRequest], Step] | Script, window: int) -> ProtocolServer:
    made = AnthropicServer if provider == "anthropic" else GeminiServer
    return made(script, windows={MODELS[provider]: window})


def run_with(server: ProtocolServer, monkeypatch: pytest.MonkeyPatch, talk: Callable[[], object]) -> None:
    """Run the coroutine function `talk` while the server answers, which must find no rule broken."""
    with in_thread(server):
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        asyncio.run(talk())  # type: ignore[arg-type]
        assert server.violations == []


def failures(told: Sequence[events.AgentEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.message) for event in told if isinstance(event, events.TurnFailed)]


async def goes_on(session: Session, *prompts: str) -> None:
    for prompt in prompts:
        told = await say(session, prompt)
        assert failures(told) == []
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"
        assert broken_rules(session.agent.engine.view.messages()) == []


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


async def test_the_programs_own_refusal_is_not_learned_as_the_providers_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    async with talking(tmp_path, {"context.context_window": "4000"}) as session:
        for number in range(6):
            ((kind, message),) = failures(await say(session, f"hello {number}"))
            assert kind == "context_overflow"
            assert "4,000" in message
            assert session.agent.context_stats().window == 4_000
        name = session.id
    # The window that was given stays with the session until it is taken back.
    async with talking(tmp_path, {"context.context_window": "0"}, resume=name) as session:
        assert session.agent.context_stats().window > 4_000
        await goes_on(session, "read calc.py")


@PROVIDERS
@pytest.mark.parametrize("alike", [True, False], ids=["the same text", "another text each time"])
def test_a_paste_sent_again_and_again_while_the_server_refuses(
    provider: str, alike: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving(provider, lambda _: Step(text="I have read it."), 100_000)
    settings = {"model.id": MODELS[provider]}

    async def talk() -> None:
        async with talking(tmp_path, settings) as session:
            server.inject(Fault(kind="unauthorized", times=3))
            for number in range(3):
                # About 45,000 tokens as the servers count.
                text = prose(135_000, seed=0 if alike else number)
                told = await say(session, text)
                assert [kind for kind, _ in failures(told)] == ["auth"]
                assert len([event for event in told if isinstance(event, events.UserMessage)]) == 1
                name = session.id
            assert len(prompts_in(session)) == (1 if alike else 3)
            await goes_on(session, prose(135_000, seed=0 if alike else 2), "And now?")
            assert len(prompts_in(session)) == (2 if alike else 4)
        async with talking(tmp_path, settings, resume=name) as session:
            await goes_on(session, "Are you still there?")

    run_with(server, monkeypatch, talk)


@PROVIDERS
def test_a_paste_larger_than_the_window_sent_again_is_there_once(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving(provider, lambda _: Step(text="I have read it."), 50_000)

    async def talk() -> None:
        async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
            server.inject(Fault(kind="unauthorized", times=2))
            for _ in range(2):
                assert [kind for kind, _ in failures(await say(session, prose(400_000)))] == ["auth"]
            await goes_on(session, prose(400_000))
            assert len(prompts_in(session)) == 1

    run_with(server, monkeypatch, talk)


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
def test_nine_pictures_in_a_small_window(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving(provider, lambda _: Step(text="I see."), 16_000)

    async def talk() -> None:
        async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
            told = [event async for event in session.agent.run("What is this?", pictures(9))]
            assert failures(told) == []
            await goes_on(session, "And now?")
            name = session.id
        async with talking(tmp_path, {"model.id": MODELS[provider]}, resume=name) as session:
            await goes_on(session, "Are you still there?")
            # One after the other, they do not fit either.
            for picture in pictures(9):
                assert failures([event async for event in session.agent.run("And this?", (picture,))]) == []

    run_with(server, monkeypatch, talk)


@pytest.mark.parametrize("data", [b"\xff\xd8\xff", b"\xff\xd8\xff" + bytes(5_000), b"\xff\xd8\xff\xe0" * 500])
def test_damaged_pictures_in_a_small_window(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving("anthropic", lambda _: Step(text="I see nothing."), 16_000)
    damaged = tuple(Image("image/jpeg", b64encode(data + bytes([number])).decode()) for number in range(9))

    async def talk() -> None:
        async with talking(tmp_path, {"model.id": MODELS["anthropic"]}) as session:
            assert failures([event async for event in session.agent.run("What is this?", damaged)]) == []
            await goes_on(session, "And now?")

    run_with(server, monkeypatch, talk)


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
        for provider, soak in zip(MODELS, (place % 4 != 0, place % 4 != 2), strict=True)
    ],
)
def test_an_answer_out_of_all_measure(
    step: Step, window: int, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving(provider, first(step), window)
    settings = {"model.id": MODELS[provider], "permissions.mode": "allow"}

    async def talk() -> None:
        async with talking(tmp_path, settings) as session:
            await goes_on(session, "Begin.")
            name = session.id
        # As it was left, and opened anew.
        async with talking(tmp_path, settings, resume=name) as session:
            await goes_on(session, "Go on.", "And on.")
            assert session.agent.context_stats().tokens < window
            await session.agent.compact()
            await goes_on(session, "And on.")
        assert broken_rules(View(await saved(tmp_path)).messages()) == []

    run_with(server, monkeypatch, talk)


@PROVIDERS
def test_of_very_many_calls_the_first_are_done_and_the_others_refused(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tuple(Call("read_file", {"path": "calc.py", "limit": 1, "offset": number + 1}) for number in range(130))
    server = serving(provider, first(Step(calls=calls, boundless=True)), 200_000)

    async def talk() -> None:
        async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
            told = await say(session, "Begin.")
            assert failures(told) == []
            finished = [event for event in told if isinstance(event, events.ToolFinished)]
            order = [event.call_id for event in told if isinstance(event, events.ToolStarted)]
            refused = [event for event in finished if "One answer may ask for 100 calls" in event.text]
            assert len(finished) == len(order) == 130
            assert sorted(event.call_id for event in refused) == sorted(order[Settings().agent.max_calls :])
            assert {event.status for event in refused} == {"error"}

    assert Settings().agent.max_calls == 100
    run_with(server, monkeypatch, talk)


# What was void


@pytest.mark.parametrize("restart", [False, True])
def test_text_that_a_retry_made_void_does_not_come_back(
    restart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt streams for more than a second and breaks; the second is refused for good."""
    broken = Step(text="Void words. " * 20, delay=0.1, fault=Fault(kind="reset", after=18))

    def script(request: ParsedRequest) -> Step:
        return broken if request.prompt == "Begin." else Step(text="Here I am.")

    server = serving("anthropic", script, 200_000)

    async def talk() -> None:
        async with talking(tmp_path, {"model.id": MODELS["anthropic"]}) as session:
            told = []
            async for event in session.agent.run("Begin."):
                told.append(event)
                if isinstance(event, events.Retrying):
                    server.inject(Fault(kind="unauthorized"))
            assert [kind for kind, _ in failures(told)] == ["auth"]
            log = list(session.agent.engine.view.log)
            assert any("Void" in entry.text for entry in log if isinstance(entry, Partial))
            name = session.id
            if not restart:
                await goes_on(session, "Hello?")
                assert "Void" not in str(session.agent.engine.view.messages())
        async with talking(tmp_path, {"model.id": MODELS["anthropic"]}, resume=name) as session:
            await goes_on(session, "Hello again?")
            assert "Void" not in str(session.agent.engine.view.messages())
        assert "Void" not in str([request.body for request in server.model_requests])

    run_with(server, monkeypatch, talk)
