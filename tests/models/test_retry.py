"""Retrying, with a model that fails on cue."""

from collections.abc import AsyncIterator

import pytest

from tests.models.talking import finish, request, user
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import (
    AuthFailed,
    Completed,
    ConnectionLost,
    ModelError,
    ModelRetrying,
    RateLimited,
    StreamEvent,
    TextDelta,
)
from tui_agent.models.retry import stream_with_retries

DONE = Completed((Text("ok"),), Usage(), "end_turn")


class Failing:
    """A model whose calls do, in turn, what they were told: fail, end, or answer and then fail."""

    profile = ModelProfile("test", "failing")

    def __init__(self, *plan: ModelError | Completed | None, late: ModelError | None = None) -> None:
        self._plan = list(plan)
        self._late = late
        self.asked: list[ModelRequest] = []
        self.closed = 0

    async def stream(self, asked: ModelRequest) -> AsyncIterator[StreamEvent]:
        self.asked.append(asked)
        try:
            yield TextDelta("so far")
            match self._plan.pop(0):
                case ModelError() as error:
                    raise error
                case Completed() as completed:
                    yield completed
                    if self._late is not None:
                        raise self._late
                case None:
                    return
        finally:
            self.closed += 1

    async def describe(self) -> ModelProfile:
        return self.profile

    async def close(self) -> None:
        return None


async def sleepless(_seconds: float) -> None:
    return None


async def test_the_delay_doubles_and_is_capped() -> None:
    model = Failing(*(ConnectionLost("lost") for _ in range(6)), DONE)
    events, _ = await finish(
        stream_with_retries(
            model, request(user("a")), attempts=7, longest_delay_s=9, sleep=sleepless, jitter=lambda: 1.0
        )
    )
    retries = [event for event in events if isinstance(event, ModelRetrying)]
    assert [event.delay_s for event in retries] == [1, 2, 4, 8, 9, 9]
    assert (retries[-1].attempt, retries[-1].retries) == (6, 6)
    assert all(asked is model.asked[0] for asked in model.asked)
    assert model.closed == 7


async def test_attempts_come_to_an_end() -> None:
    model, waits = Failing(*(ConnectionLost("lost") for _ in range(4))), list[float]()

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    with pytest.raises(ConnectionLost):
        await finish(stream_with_retries(model, request(user("a")), attempts=3, sleep=wait, jitter=lambda: 1.0))
    assert (waits, len(model.asked)) == ([1.0, 2.0], 3)


async def test_the_providers_own_delay_holds() -> None:
    model = Failing(RateLimited("a", retry_after=0.0), RateLimited("b", retry_after=60.0), DONE)
    events, _ = await finish(stream_with_retries(model, request(user("a")), sleep=sleepless))
    assert [event.delay_s for event in events if isinstance(event, ModelRetrying)] == [0.0, 60.0]


async def test_who_asks_for_an_hour_is_not_asked_before() -> None:
    model = Failing(RateLimited("b", retry_after=3600.0), DONE)
    with pytest.raises(RateLimited):
        await finish(stream_with_retries(model, request(user("a")), sleep=sleepless))
    assert len(model.asked) == 1


async def test_an_answer_without_an_end_is_tried_again() -> None:
    events, completed = await finish(stream_with_retries(Failing(None, DONE), request(user("a")), sleep=sleepless))
    assert [type(event) for event in events] == [TextDelta, ModelRetrying, TextDelta, Completed]
    assert completed is DONE


async def test_what_goes_wrong_after_the_answer_does_not_matter() -> None:
    model = Failing(DONE, DONE, late=ConnectionLost("late"))
    _, completed = await finish(stream_with_retries(model, request(user("a")), sleep=sleepless))
    assert completed is DONE
    assert (len(model.asked), model.closed) == (1, 1)


async def test_an_error_that_lasts_goes_straight_up() -> None:
    model = Failing(AuthFailed("no"), DONE)
    with pytest.raises(AuthFailed):
        await finish(stream_with_retries(model, request(user("a")), sleep=sleepless))
    assert len(model.asked) == 1


async def test_leaving_early_closes_the_stream() -> None:
    model = Failing(DONE)
    stream = stream_with_retries(model, request(user("a")), sleep=sleepless)
    await anext(stream)
    await stream.aclose()
    assert model.closed == 1
