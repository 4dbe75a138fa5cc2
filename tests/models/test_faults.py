"""Every fault, at every provider: one clear message or an answer, the same request again only where that helps, and
never a second call for an answer that came.
"""

import re
from typing import NamedTuple

import pytest

from tests.models.talking import MODELS, ONE_EACH, create_model, finish, point_at, request, user
from tests.models.test_every_provider import Waits
from tests.servers.ollama import OllamaServer
from tests.servers.script import Fault, Script, Step
from tui_agent.conversation.blocks import Text
from tui_agent.models.adapter import IDLE_TIMEOUT_S
from tui_agent.models.base import (
    AuthFailed,
    Completed,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    ModelRetrying,
    RequestTooLarge,
    UnknownModel,
)
from tui_agent.models.ollama.adapter import IDLE_TIMEOUT_S as OLLAMA_IDLE_TIMEOUT_S
from tui_agent.models.retry import stream_with_retries

NAMES = (*ONE_EACH, "vllm:qwen/qwen3-coder", "ollama:qwen3:8b")
ANSWER = "All of it, in the end."


class Ends(NamedTuple):
    """How a fault ends: with the answer (None) or an error, after so many calls."""

    error: type[ModelError] | None
    calls: int


FAULTS: dict[str, tuple[Fault, Ends]] = {
    "dropped before an answer": (Fault(kind="disconnect"), Ends(None, 2)),
    "dropped in the middle": (Fault(kind="reset", after=2), Ends(None, 2)),
    "ended before its end": (Fault(kind="truncate", after=2), Ends(None, 2)),
    "half a JSON": (Fault(kind="half_json", after=2), Ends(None, 2)),
    "an empty stream": (Fault(kind="empty_stream"), Ends(None, 2)),
    "an error in the stream": (Fault(kind="stream_error", after=2), Ends(None, 2)),
    "dropped after the end": (Fault(kind="lost_after_end", times=9), Ends(None, 1)),
    "429": (Fault(kind="rate_limited", retry_after=3.0), Ends(None, 2)),
    "500": (Fault(kind="server_error"), Ends(None, 2)),
    "503": (Fault(kind="unavailable"), Ends(None, 2)),
    "529": (Fault(kind="overloaded"), Ends(None, 2)),
    **{
        f"502: {body}": (Fault(kind="gateway", message=body), Ends(None, 2))
        for body in (
            "<html><head><title>502 Bad Gateway</title></head></html>",
            '[{"error": {"message": "a <b>bad</b> gateway"}}]',
            '{"error": {"message": null}}',
            "<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>",
            "null",
            "",
        )
    },
    "slow to begin": (Fault(kind="stall", after=0, seconds=0.2), Ends(None, 1)),
    "400": (Fault(kind="bad_request", times=9), Ends(InvalidRequest, 1)),
    "401": (Fault(kind="unauthorized", times=9), Ends(AuthFailed, 1)),
    "403": (Fault(kind="forbidden", times=9), Ends(AuthFailed, 1)),
    "404": (Fault(kind="not_found", times=9), Ends(UnknownModel, 1)),
    "413": (Fault(kind="too_large", times=9), Ends(RequestTooLarge, 1)),
    "a page": (Fault(kind="html", times=9), Ends(InvalidRequest, 1)),
    "a smaller window": (Fault(kind="context_overflow", times=9), Ends(ContextOverflow, 1)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_ends_in_one_answer_or_one_clear_error(
    fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck, ends = FAULTS[fault]
    make = OllamaServer if name.startswith("ollama") else MODELS[name]
    async with make(Script.of(Step(text=ANSWER, fault=struck))) as server:
        point_at(server, monkeypatch.setenv)
        model, waits, error = create_model(name), Waits(), None
        events: list[object] = []
        try:
            events, _ = await finish(stream_with_retries(model, request(user("go")), sleep=waits))  # type: ignore[assignment]
        except ModelError as raised:
            error = raised
        await model.close()

    assert type(error) is (ends.error or type(None)), error
    assert len(server.model_requests) == ends.calls
    assert sum(answer.outcome == "completed" for answer in server.answers) == (ends.error is None)
    told = [error] if error is not None else [event.error for event in events if isinstance(event, ModelRetrying)]
    for each in told:
        assert each.message.isprintable()
        assert "<" not in each.message
        assert not re.search(r"None|null|\{|said: *$", each.message)
        assert len(each.message) < 400
        # What is tried again by itself is not advised.
        assert not each.happened.rstrip(".").endswith(": try again")
    if error is None:
        completed = events[-1]
        assert isinstance(completed, Completed)
        assert "".join(block.text for block in completed.blocks if isinstance(block, Text)) == ANSWER
    if fault == "429" and "ollama" not in name:
        assert waits == [3.0]


def test_a_minute_to_the_first_token_is_waited_for() -> None:
    assert min(IDLE_TIMEOUT_S, OLLAMA_IDLE_TIMEOUT_S) > 60
