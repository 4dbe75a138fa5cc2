"""Speeds of local models: from the server's own timings, else from when the answer began."""

import pytest

from tui_agent.conversation.entries import Usage
from tui_agent.models.base import Timings
from tui_agent.models.openai.chat_reply import ChatReply
from tui_agent.models.usage import Speed, Speedometer

MODEL = "ollama:qwen3:8b"


def test_llama_cpp_tells_what_it_had_to_read() -> None:
    reply = ChatReply("m")
    reply.read(b'{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}')
    reply.read(b'{"choices":[],"timings":{"prompt_n":100,"prompt_ms":500.0,"predicted_n":8,"predicted_ms":250}}')
    assert reply.completed().timings == Timings(0.5, 0.25, 100)


@pytest.mark.parametrize(
    ("timings", "usage", "kept", "speed"),
    [
        (Timings(2.0, 4.0, 100), Usage(input_tokens=900, output_tokens=40), 0, Speed(50.0, 10.0)),
        (Timings(2.0, 4.0), Usage(input_tokens=900, output_tokens=40), 700, Speed(100.0, 10.0)),
        (Timings(2.0, 4.0), Usage(input_tokens=900, cache_read_tokens=800, output_tokens=40), 0, Speed(50.0, 10.0)),
        # Of a few tokens no speed is told: what is measured is how long it takes to begin. Nor of what came at once.
        (Timings(0.05, 0.05), Usage(input_tokens=64, output_tokens=8), 0, Speed(64 / 0.05, 8 / 0.05)),
        (Timings(1.0, 1.0), Usage(input_tokens=63, output_tokens=8), 0, Speed(0.0, 8.0)),
        (Timings(1.0, 1.0), Usage(input_tokens=64, output_tokens=7), 0, Speed(64.0, 0.0)),
        (Timings(0.049, 0.049), Usage(input_tokens=64, output_tokens=8), 0, Speed()),
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
