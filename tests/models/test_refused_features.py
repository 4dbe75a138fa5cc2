"""What is left out once a server has refused it, and what a refusal is taken for."""

from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from anthropic import APIStatusError

from tests.models.talking import create_model, request, user
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.wire import write_opaque
from tui_agent.models.anthropic.adapter import AnthropicModel, _is_supported
from tui_agent.models.base import AuthFailed, InvalidRequest, ToolsRefused, Unavailable
from tui_agent.models.clouds import BedrockModel
from tui_agent.models.errors import ErrorReply
from tui_agent.models.openai.adapter import OpenAiModel


@pytest.mark.parametrize("status", [400, 404, 422, 500])
@pytest.mark.parametrize(
    ("model", "said", "left_out"),
    [
        ("deepseek:deepseek-v4-pro", "unknown field stream_options", "counts"),
        ("openai:gpt-6.1-sol", "verify to generate reasoning summaries", "summaries"),
        ("openai:gpt-6.1-sol", "unknown reasoning.summary", "summaries"),
        ("openai:gpt-6.1-sol", "encrypted content is not supported", "reasons"),
        ("openai:gpt-6.1-sol", "unknown reasoning.effect", "reasons"),
        ("deepseek:deepseek-v4-pro", "no reasoning. and no encrypted summaries", ""),
        ("vllm:m", "'max_tokens' is not supported: use another", "limit"),
        ("vllm:m", "'max_tokens' must be smaller", ""),
        ("vllm:m", "a-zA-Z0-9, with a length of 9", "strict"),
        ("deepseek:deepseek-v4-pro", "This is not a multimodal model", "images"),
        ("vllm:m", "thinking is enabled but reasoning_content is missing in call message 3", "thoughts"),
        ("llamacpp:m", "the `reasoning_content` in the thinking mode must be passed back", ""),
        ("lmstudio:m", "Invalid 'content': 'content' field must be a string or an array of objects.", "empty"),
        ("vllm:m", "something else", ""),
        ("vllm:m", "stream_options: context_length_exceeded, maximum context length is 8192 tokens", ""),
        ("vllm:m", "stream_options: Invalid signature in thinking block", ""),
    ],
)
def test_what_a_server_refused_is_left_out_once(model: str, said: str, left_out: str, status: int) -> None:
    asked = create_model(model)
    assert isinstance(asked, OpenAiModel)

    def now() -> dict[str, object]:
        names = {"counts": asked._counts, "summaries": asked._summaries, "reasons": asked._reasons}
        more = {"limit": asked._service.limit, "strict": asked._strict, "images": asked._profile.images}
        return {**names, **more, "thoughts": asked._service.thoughts, "empty": asked._empty}

    before = now()
    assert not asked._drops_refused(ErrorReply(403, "", said))
    assert asked._drops_refused(ErrorReply(status, "", said)) == bool(left_out)
    assert [name for name, value in now().items() if value != before[name]] == ([left_out] if left_out else [])
    if left_out not in ("", "summaries"):  # without summaries it may still reason
        assert not asked._drops_refused(ErrorReply(status, "", said))


@pytest.mark.parametrize("status", [400, 403, 404, 422, 500, 501, 502])
async def test_a_model_without_tools_is_told_by_what_its_server_says(status: int) -> None:
    asked = create_model("vllm:m")
    assert isinstance(asked, OpenAiModel)
    for said in ("m does not support tools", "`tool calling` is not supported with this model"):
        refused = await asked._refused(ErrorReply(status, "", said))
        assert isinstance(refused, ToolsRefused) == (status not in (403, 502))
    assert not isinstance(await asked._refused(ErrorReply(400, "", "no")), ToolsRefused)


def _refusal(status: int, said: str, code: str = "") -> APIStatusError:
    details = {"error_code": code} if code else {}
    body = {"error": {"type": "invalid_request_error", "message": said, "details": details}}
    answer = httpx2.Response(status, json=body, request=httpx2.Request("POST", "https://a.example"))
    return APIStatusError(said, response=answer, body=body)


@pytest.mark.parametrize(
    ("address", "status", "said", "left_out"),
    [
        ("https://other.example", 400, "anthropic-beta: unexpected", True),
        ("https://other.example", 422, "anthropic-beta: unexpected", True),
        ("https://other.example", 403, "anthropic-beta: unexpected", False),
        ("https://other.example", 400, "max_tokens: too large", False),
        ("", 400, "anthropic-beta: unexpected", False),
    ],
)
async def test_only_another_server_may_lack_a_feature(
    address: str, status: int, said: str, left_out: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path))
    asked = create_model("claude-opus-5-5")
    assert isinstance(asked, AnthropicModel)
    asked._use_other_server(address)
    assert await asked._drops_refused(_refusal(status, said)) is left_out
    assert bool(asked._without) is left_out
    again = create_model("claude-opus-5-5")
    assert isinstance(again, AnthropicModel)
    again._use_other_server(address)
    assert again._without == asked._without


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("status", "said", "code", "dropped"),
    [
        (400, "compaction: Extra inputs are not permitted", "", True),
        (422, "compaction: Extra inputs are not permitted", "", True),
        (403, "compaction: Extra inputs are not permitted", "", False),
        (400, "max_tokens: too large", "", False),
        (400, "compaction: nothing to summarise", "compaction_empty", False),  # about these messages
    ],
)
async def test_signed_summaries_that_are_refused_go_as_text(
    status: int, said: str, code: str, dropped: bool, signed: bool, asked: bool
) -> None:
    model = create_model("claude-opus-5-5")
    assert isinstance(model, AnthropicModel)
    block = Text("so far", write_opaque(compaction='{"type":"compaction"}') if signed else "")
    sent = request(user(block), summarize="" if asked else None)
    dropped = dropped or (bool(code) and signed and not asked)
    again = await model._drops_signed(_refusal(status, said, code), sent)
    assert again is (dropped and signed and not asked)
    assert ("compaction" in model._without) is (dropped and (signed or asked))
    assert model.profile.signs_summaries is not (dropped and (signed or asked))


@pytest.mark.parametrize(
    ("told", "supported"),
    [
        ({"a": {"supported": True, "b": {"supported": True}}}, True),
        (SimpleNamespace(a={"supported": True, "b": SimpleNamespace(supported=True)}), True),
        ({"a": {"supported": False, "b": {"supported": True}}}, False),
        ({"a": {"supported": "yes", "b": {"supported": True}}}, False),
        ({"a": {"supported": True, "b": {}}}, False),
        ({"a": {"supported": True}}, False),
        (None, False),
    ],
)
def test_what_is_supported_is_so_at_every_level(told: object, supported: bool) -> None:
    assert _is_supported(told, "a", "b") is supported


async def test_what_a_cloud_lacks_is_told_with_what_to_set() -> None:
    asked = create_model("bedrock:global.anthropic.claude-opus-5-5")
    assert isinstance(asked, BedrockModel)
    told = [
        await asked._failure(error)
        for error in (
            _refusal(401, "no"),
            _refusal(400, "no"),
            RuntimeError("could not find credentials"),
            RuntimeError("other"),
            type("NoRegion", (Exception,), {"__module__": "botocore.exceptions"})("no region\x00"),
            type("NoRegion", (Exception,), {"__module__": "other.botocore"})("no region"),
            _refusal(503, "credentials"),
        )
    ]
    kinds = [AuthFailed, InvalidRequest, AuthFailed, type(None), AuthFailed, type(None), Unavailable]
    assert [type(each) for each in told] == kinds
    messages = [each.message for each in told if isinstance(each, AuthFailed)]
    assert messages[0].endswith("AWS's credentials and AWS_REGION have to allow it.")
    assert messages[1:] == [
        "There are no AWS credentials: set AWS_PROFILE, or run `aws configure`.",
        "There are no AWS credentials: set AWS_PROFILE, or run `aws configure`. (no region)",
    ]
