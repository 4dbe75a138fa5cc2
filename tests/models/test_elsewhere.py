"""Claude and Gemini where others serve them: servers that know a part of Anthropic's API, Bedrock and Vertex AI."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.models.talking import Talk, answered_by, closing, create_model, finish, point_at, request, user
from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.elsewhere import (
    AWS,
    ClaudeOnBedrockServer,
    ClaudeOnVertexServer,
    GeminiOnVertexServer,
    PartialServer,
    frame,
    service_account,
)
from tests.servers.script import Fault, Script, Step
from tests.servers.wire import Exchange, Request
from tui_agent.conversation.blocks import Text
from tui_agent.models.anthropic.claude import FEATURES_FILE, other_server, refused_feature
from tui_agent.models.base import (
    AuthFailed,
    ConnectionLost,
    InvalidRequest,
    ModelError,
    RateLimited,
    Unavailable,
)
from tui_agent.models.catalogue import CATALOGUE

WITH_BOTO = pytest.mark.skipif(find_spec("boto3") is None, reason="boto3 is missing (pip install 'tui-agent[bedrock]')")
EVERYTHING = ("betas", "binding", "display", "adaptive", "thinking", "caching")


@pytest.mark.parametrize("lacks", [(), ("betas",), ("binding", "caching"), ("display",), ("adaptive",), EVERYTHING])
async def test_what_a_server_lacks_is_found_out_once(
    lacks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path))
    async with PartialServer(coding_task_script(), lacks=lacks) as server:
        point_at(server, monkeypatch.setenv)
        for _ in range(2):
            async with closing(create_model("anthropic:claude-sonnet-4-6" if lacks else "claude-opus-5-5")) as model:
                last = await Talk(model).say("fix the bug")
                assert "".join(block.text for block in last.blocks if isinstance(block, Text)) == ANSWER
        assert server.violations == []
        assert len(server.refusals) == len(set(server.refusals)) <= len(lacks)
        assert (tmp_path / FEATURES_FILE).exists() == bool(server.refusals)


async def test_another_refusal_stays_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path))
    async with PartialServer(Script.of(Step(fault=Fault(kind="bad_request", times=9)))) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("claude-sonnet-4-6")) as model:
            with pytest.raises(InvalidRequest):
                await finish(model.stream(request(user("go"))))
        assert len(server.model_requests) == 1
    assert not (tmp_path / FEATURES_FILE).exists()


def test_anthropic_s_own_address_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for own in ("", "https://api.anthropic.com", "https://eu.api.anthropic.com/"):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", own)
        assert other_server() == ""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://api.anthropic.com.evil.test/")
    assert other_server() == "https://api.anthropic.com.evil.test"
    assert refused_feature("max_tokens: too large", frozenset()) is None


@pytest.mark.parametrize("name", ["vertex:claude-opus-5-5", "vertex:claude-haiku-4-5", "vertex:gemini-3.8-flash"])
async def test_vertex(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make = ClaudeOnVertexServer if "claude" in name else GeminiOnVertexServer
    async with make(coding_task_script()) as server:
        account = tmp_path / "account.json"
        account.write_text(service_account(server.url))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
        point_at(server, monkeypatch.setenv)
        async with closing(create_model(name)) as model:
            last = await Talk(model).say("fix the bug")
            profile = await model.describe()
            server.script = Script(after=Step(fault=Fault(kind="bad_request", times=9)))
            with pytest.raises(InvalidRequest):
                await finish(model.stream(request(user("go"))))
        assert "".join(block.text for block in last.blocks if isinstance(block, Text)) == ANSWER
        assert [each for each in server.violations if "404" not in each] == []
        assert profile.prices is not None


@WITH_BOTO
async def test_bedrock(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ClaudeOnBedrockServer(coding_task_script()) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("bedrock:global.anthropic.claude-opus-5-5")) as model:
            last = await Talk(model).say("fix the bug")
        assert "".join(block.text for block in last.blocks if isinstance(block, Text)) == ANSWER
        assert server.violations == []


@WITH_BOTO
@pytest.mark.parametrize(
    ("failure", "meant"),
    [
        (frame(b"data: {}", checksum=0), ConnectionLost),
        (frame(b'data: {"message":"slower"}', exception="throttlingException"), RateLimited),
        (frame(b'data: {"message":"busy"}', exception="serviceUnavailableException"), Unavailable),
        (frame(b'data: {"message":"wrong"}', exception="validationException"), InvalidRequest),
        (frame(b'data: {"message":"broken"}', exception="modelStreamErrorException"), Unavailable),
    ],
)
async def test_a_failure_in_the_middle_of_a_stream_of_bedrock(
    failure: bytes, meant: type[ModelError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: Request, exchange: Exchange) -> None:
        await exchange.start({"content-type": "application/vnd.amazon.eventstream"})
        await exchange.send(frame(b'data: {"type":"message_start","message":{"id":"m"}}') + failure)
        await exchange.finish()

    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    async with answered_by(answer, "bedrock:global.anthropic.claude-opus-5-5", monkeypatch.setenv) as model:
        with pytest.raises(ModelError) as caught:
            await finish(model.stream(request(user("go"))))
    assert type(caught.value) is meant


@WITH_BOTO
async def test_bedrock_without_a_region_or_credentials_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # A region of its own: the SDK keeps the credentials it has found for one as long as the process lives.
    for region, problem in (("", "set AWS_REGION"), ("eu-west-3", "set AWS_PROFILE")):
        monkeypatch.setenv("AWS_REGION", region)
        async with closing(create_model("bedrock:global.anthropic.claude-opus-5-5")) as model:
            with pytest.raises(ModelError, match=problem):
                await finish(model.stream(request(user("go"))))


async def test_no_credentials_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("vertex:claude-opus-5-5", "vertex:gemini-3.8-flash"):
        async with closing(create_model(name)) as model:
            with pytest.raises(AuthFailed, match="gcloud auth application-default login"):
                await finish(model.stream(request(user("go"))))


async def test_a_cloud_whose_sdk_is_missing_says_how_to_get_it() -> None:
    async with closing(create_model("bedrock:global.anthropic.claude-opus-5-5")) as model:
        with pytest.raises(ModelError) as caught:
            await finish(model.stream(request(user("go"))))
        profile = await model.describe()
    assert ("pip install 'tui-agent[bedrock]'" in caught.value.message) == (find_spec("boto3") is None)
    assert profile.window == 1_000_000
    assert profile.prices is not None


def test_what_a_claude_of_a_cloud_is_by_its_name() -> None:
    for name in ("bedrock:global.anthropic.claude-opus-5-5", "vertex:claude-opus-5-5", "claude-opus-5-5"):
        profile = CATALOGUE.quick_profile(name)
        assert (profile.tier, profile.bound_reasoning, profile.cache) == ("frontier", True, "marked")
    assert CATALOGUE.missing_key("bedrock:x") is CATALOGUE.missing_key("vertex:claude-x") is None
