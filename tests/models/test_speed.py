"""Speeds of local models: from the server's own timings, else from when the answer began."""

import msgspec
import pytest

from tui_agent.conversation.entries import Usage
from tui_agent.models.base import Timings
from tui_agent.models.ollama.reply import OllamaReply
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.usage import Speed, Speedometer

MODEL = "ollama:qwen3:8b"


def test_ollama_tells_durations_in_nanoseconds() -> None:
    reply = OllamaReply("qwen3:8b")
    reply.read(b'{"message":{"content":"Hello."}}')
    last = {
        "prompt_eval_count": 900,
        "prompt_eval_duration": 3_000_000_000,
        "eval_count": 20,
        "eval_duration": 2 * 10**9,
    }
    reply.read(msgspec.json.encode({"done": True, "done_reason": "stop", **last}))
    assert reply.completed().timings == Timings(3.0, 2.0)


def test_llama_cpp_tells_what_it_had_to_read() -> None:
    reply = ChatReply("m")
    reply.read(b'{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}')
    reply.read(
        b'{"choices":[],"timings":{"cache_n":800,"prompt_n":100,"prompt_ms":500.0,"predicted_n":8,"predicted_ms":250}}'
    )
    assert reply.completed().timings == Timings(0.5, 0.25, 100)


@pytest.mark.parametrize(
    ("timings", "usage", "kept", "speed"),
    [
        (Timings(2.0, 4.0, 100), Usage(input_tokens=900, output_tokens=40), 0, Speed(50.0, 10.0)),
        (Timings(2.0, 4.0), Usage(input_tokens=900, output_tokens=40), 700, Speed(100.0, 10.0)),
        (Timings(2.0, 4.0), Usage(input_tokens=900, cache_read_tokens=800, output_tokens=40), 0, Speed(50.0, 10.0)),
        # Of a few tokens no speed is told: what is measured is how long it takes to begin.
        (Timings(2.0, 4.0), Usage(input_tokens=900, output_tokens=2), 890, Speed()),
        # Nor of what came at once.
        (Timings(0.001, 0.002), Usage(input_tokens=900, output_tokens=40), 0, Speed()),
        (Timings(), Usage(), 0, Speed()),
    ],
)
def test_a_speed_is_what_was_read_anew_by_its_time(timings: Timings, usage: Usage, kept: int, speed: Speed) -> None:
    meter = Speedometer()
    assert meter.measure(MODEL, timings, usage, kept) == speed == meter.of(MODEL)
    assert meter.of("another") == Speed()


def test_a_speed_follows_the_machine() -> None:
    meter, usage = Speedometer(), Usage(input_tokens=1_000, output_tokens=100)
    for _ in range(12):
        meter.measure(MODEL, Timings(10.0, 10.0), usage, 0)
    assert meter.measure(MODEL, Timings(2.0, 10.0), usage, 0).reading == pytest.approx(100 + 0.4 * 400)
