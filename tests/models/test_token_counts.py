"""Requests are counted by a local server's own tokenizer: before they are sent where they might not fit, and after
where the server tells nothing.
"""

import pytest

from tests.models.talking import PNG, assistant, closing, create_model, finish, point_at, request, user
from tests.servers.openai_chat import ChatServer
from tests.servers.script import Script, Step
from tui_agent.models.base import ContextOverflow

MODEL = "deepseek-v4-pro"
ANSWER = "Twelve words are enough for an answer that is to be counted."
TOKENIZERS = ["llama-server", "vllm", "llama-cpp-python"]


def serving(tokenizer: str, *, window: int, counts: bool = False) -> ChatServer:
    server = ChatServer(Script(after=Step(text=ANSWER)), make="llamacpp", windows={MODEL: window})
    server.tokenizer, server.counts = tokenizer, counts  # type: ignore[assignment]
    return server


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
async def test_what_does_not_fit_is_not_sent_and_what_is_not_told_is_counted(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tokenizer, window=2_000) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(f"llamacpp:{MODEL}")) as model:
            await model.describe()
            said = user("word " * 500)
            _, completed = await finish(model.stream(request(said, tools=(), max_tokens=100)))
            (told,) = [answer.usage for answer in server.answers if answer.usage]
            assert completed.usage.input_tokens == pytest.approx(told["prompt_tokens"], rel=0.05)
            assert completed.usage.output_tokens == pytest.approx(told["completion_tokens"], rel=0.2)
            more = (said, assistant(*completed.blocks), user("short"))
            await finish(model.stream(request(*more, tools=(), max_tokens=100)))
            with pytest.raises(ContextOverflow, match="too long") as refused:
                await finish(model.stream(request(*more[:2], user("word " * 800), tools=(), max_tokens=100)))
            assert refused.value.limit == 2_000
            assert 2_000 - 100 < refused.value.tokens < 2_500
        assert len(server.model_requests) == 2
        # The first is how the way to count was found.
        assert server.violations == []


async def test_a_server_that_tells_is_not_asked_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving("vllm", window=100_000, counts=True) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(f"llamacpp:{MODEL}")) as model:
            await model.describe()
            before = len(server.requests)
            for _ in range(2):
                await finish(model.stream(request(user("word " * 500, PNG), max_tokens=100)))
            assert len(server.requests) - before == len(server.model_requests)


async def test_where_nothing_counts_a_dense_text_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving("", window=1_000) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(f"llamacpp:{MODEL}")) as model:
            await model.describe()
            await finish(model.stream(request(user("word " * 300), tools=(), max_tokens=100)))
            with pytest.raises(ContextOverflow):
                await finish(model.stream(request(user("word " * 500), tools=(), max_tokens=100)))
        assert len(server.model_requests) == 1
