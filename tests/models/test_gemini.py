"""Gemini alone: signatures, ids, answers in step with calls, and the reasons an answer ends."""

import warnings
from collections.abc import AsyncIterator

import pytest

from tests.models.talking import Talk, create_model, finish, point_at, request, user
from tests.servers.gemini import GeminiServer
from tests.servers.script import Script, Step

FLASH = "gemini-3.8-flash"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GeminiServer]:
    async with GeminiServer(Script()) as running:
        point_at(running, monkeypatch.setenv)
        yield running


async def test_text_signatures_come_back_as_they_came(server: GeminiServer) -> None:
    server.script = Script.of(Step(text="Hello there, you.", reasoning="Greet."))
    model = create_model(FLASH)
    talk = Talk(model)
    await talk.say("hi")
    await talk.say("hi again")
    assert server.model_requests[-1].path == f"/v1beta/models/{FLASH}:streamGenerateContent"
    sent = server.model_requests[-1].json
    assert sent is not None
    parts = sent["contents"][1]["parts"]
    assert [part["text"] for part in parts] == ["Hello there, you.", ""]
    assert "thoughtSignature" in parts[1]
    assert b"Greet." not in server.model_requests[-1].body
    assert server.violations == []
    await model.close()


async def test_a_reason_to_stop_that_is_new_reaches_no_screen(
    server: GeminiServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.script = Script.of(Step(text="so far", stop_reason="BRAND_NEW"))
    model = create_model(FLASH)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, completed = await finish(model.stream(request(user("hi"))))
    await model.close()
    assert completed.stop_reason == "end_turn"
    assert [str(each.message) for each in told] == []
    assert capfd.readouterr() == ("", "")
