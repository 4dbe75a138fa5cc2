"""Every fault, at every provider: one clear message or an answer, the same request again only where that helps, and
never a second call for an answer that came.
"""

import re

import pytest

from tests.models.talking import MODELS, ONE_EACH, closing, create_model, finish, point_at, request, user
from tests.models.test_every_provider import Waits
from tests.servers.script import Fault, Script, Step
from tui_agent.conversation.blocks import Text
from tui_agent.models.adapter import IDLE_TIMEOUT_S
from tui_agent.models.base import (
    AuthFailed,
    Completed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    ModelRetrying,
    Overloaded,
    RateLimited,
    RequestTooLarge,
    StreamEvent,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.ollama.adapter import IDLE_TIMEOUT_S as OLLAMA_IDLE_TIMEOUT_S
from tui_agent.models.retry import stream_with_retries

ANSWER = "All of it, in the end."
PAGES = (
    "<html><head><title>502 Bad Gateway</title></head></html>",
    '[{"error": {"message": "a <b>bad</b> gateway"}}]',
    '{"error": {"message": null}}',
    "<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>",
    "null",
    "",
)
FAULTS: dict[str, tuple[Fault, tuple[type[ModelError], ...]]] = {
    "dropped before an answer": (Fault(kind="disconnect", times=2), (ConnectionLost,)),
    "dropped in the middle": (Fault(kind="reset", after=2, times=2), (ConnectionLost,)),
    "ended before its end": (Fault(kind="truncate", after=2, times=2), (ConnectionLost,)),
    "half a JSON": (Fault(kind="half_json", after=2), (ConnectionLost,)),
    "an empty stream": (Fault(kind="empty_stream", times=2), (ConnectionLost,)),
    "an error in the stream": (Fault(kind="stream_error", after=2, times=2), (Overloaded, Unavailable)),
    "429": (Fault(kind="rate_limited", retry_after=3.0, times=2), (RateLimited,)),
    "500": (Fault(kind="server_error", times=2), (Unavailable,)),
    "503": (Fault(kind="unavailable"), (Overloaded, Unavailable)),
    "529": (Fault(kind="overloaded", times=2), (Overloaded,)),
    **{f"502: {body}": (Fault(kind="gateway", message=body), (Unavailable,)) for body in PAGES},
    "dropped after the end": (Fault(kind="lost_after_end", times=9), ()),
    "slow to begin": (Fault(kind="stall", after=0, seconds=0.2), ()),
    "400": (Fault(kind="bad_request", times=9), (InvalidRequest,)),
    "401": (Fault(kind="unauthorized", times=9), (AuthFailed,)),
    "403": (Fault(kind="forbidden", times=9), (AuthFailed,)),
    "404": (Fault(kind="not_found", times=9), (UnknownModel,)),
    "413": (Fault(kind="too_large", times=9), (RequestTooLarge,)),
    "a page": (Fault(kind="html", times=9), (InvalidRequest,)),
    "a smaller window": (Fault(kind="context_overflow", times=9), (ContextOverflow,)),
}
"""What is struck, and what it is said to be: nothing, if the answer comes all the same."""


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_ends_in_one_answer_or_one_clear_error(
    fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck, meant = FAULTS[fault]
    async with MODELS[name](Script.of(Step(text=ANSWER, fault=struck))) as server:
        point_at(server, monkeypatch.setenv)
        waits, error, events = Waits(), None, list[StreamEvent]()
        async with closing(create_model(name)) as model:
            try:
                events, _ = await finish(stream_with_retries(model, request(user("go")), sleep=waits))
            except ModelError as raised:
                error = raised
    retries = [event for event in events if isinstance(event, ModelRetrying)]
    told = [error] if error is not None else [event.error for event in retries]
    assert len(told) == (0 if not meant else 1 if error is not None else struck.times)
    assert {type(each) for each in told} <= set(meant)
    assert (error is not None) == (struck.times == 9 and bool(meant))
    assert [(event.attempt, event.delay_s) for event in retries] == list(enumerate(waits, 1))
    assert len(server.model_requests) == 1 + len(retries)
    assert len({recorded.body for recorded in server.model_requests}) == 1
    assert sum(answer.outcome == "completed" for answer in server.answers) == (error is None)
    for each in told:
        assert each.message.isprintable()
        assert "<" not in each.message
        assert not re.search(r"None|null|\{|said: *$", each.message)
        assert len(each.message) < 400
        # What is tried again by itself is not advised.
        assert not each.happened.rstrip(".").endswith(": try again")
        if type(each) is ContextOverflow:
            assert each.tokens > each.limit > 0 or name.startswith("responses")
    if error is None:
        completed = events[-1]
        assert isinstance(completed, Completed)
        assert "".join(block.text for block in completed.blocks if isinstance(block, Text)) == ANSWER
    if fault == "429" and "ollama" not in name:
        assert waits == [3.0, 3.0]


def test_a_minute_to_the_first_token_is_waited_for() -> None:
    assert min(IDLE_TIMEOUT_S, OLLAMA_IDLE_TIMEOUT_S) > 60
