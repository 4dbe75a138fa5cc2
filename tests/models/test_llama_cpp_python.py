"""llama-cpp-python's server breaks off a streamed answer when another request arrives: they are sent one at a time."""

import asyncio

import pytest

from tests.models.talking import closing, create_model, finish, point_at, request, user
from tests.servers.llama_cpp_python import LlamaCppPythonServer
from tests.servers.script import Script, Step
from tui_agent.conversation.blocks import Text
from tui_agent.models.base import Completed, ConnectionLost
from tui_agent.models.http import HttpClient
from tui_agent.models.retry import stream_with_retries

MODEL = "llamacpp:deepseek-v4-pro"
LONG = Step(text="An answer of a good many words, which takes a while.", delay=0.01, chunk=4)


def text_of(completed: Completed) -> str:
    return "".join(block.text for block in completed.blocks if isinstance(block, Text))


@pytest.mark.parametrize("described", [True, False])
async def test_a_turn_a_summary_and_a_small_model_wait_for_each_other(
    described: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LlamaCppPythonServer(Script(after=LONG)) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(MODEL)) as main, closing(create_model(MODEL)) as small:
            if described:
                await main.describe()
            asked = [finish(each.stream(request(user("go")))) for each in (main, main, small)]
            answers, _ = await asyncio.gather(asyncio.gather(*asked), small.describe())
        assert [text_of(completed) for _, completed in answers] == [LONG.text] * 3
        assert server.interrupted == 0
        assert server.violations == []


async def test_an_answer_that_another_program_broke_off_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first_piece = asyncio.Event()
    async with LlamaCppPythonServer(Script(after=LONG)) as server:
        point_at(server, monkeypatch.setenv)
        other = HttpClient(f"{server.url}/v1", server.api_key, 30.0)

        async def wait(_: float) -> None:
            await interrupting

        async def interrupt() -> None:
            await first_piece.wait()
            await other.fetch(f"{server.url}/v1/models", 30.0)

        interrupting = asyncio.ensure_future(interrupt())
        async with closing(create_model(MODEL)) as model:
            events = []
            async for event in stream_with_retries(model, request(user("go")), sleep=wait):
                events.append(event)
                first_piece.set()
        await other.close()
        assert server.interrupted == 1
        assert isinstance(events[-1], Completed)
        assert text_of(events[-1]) == LONG.text


async def test_an_answer_of_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LlamaCppPythonServer(Script(after=Step())) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(MODEL)) as model:
            with pytest.raises(ConnectionLost, match="empty answer"):
                await finish(model.stream(request(user("go"))))
