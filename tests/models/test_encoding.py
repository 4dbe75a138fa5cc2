"""The pieces requests are made of."""

from typing import Any

import pytest

from tests.models.talking import assistant, request, user
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.models.anthropic.request import AnthropicEncoder, AnthropicOptions
from tui_agent.models.gemini.request import GeminiEncoder
from tui_agent.models.ollama.request import OllamaEncoder, OllamaOptions
from tui_agent.models.openai.chat_request import ChatEncoder, ChatOptions
from tui_agent.models.openai.responses_request import ResponsesEncoder, ResponsesOptions


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        (AnthropicEncoder(), [AnthropicOptions("m", "adaptive", True)]),
        (GeminiEncoder("gemini-3"), []),
        (OllamaEncoder(), [OllamaOptions("m", 4_096, True, False)]),
        (ChatEncoder(), [ChatOptions("m", "max_tokens", "content", sees=True)]),
        (ResponsesEncoder(), [ResponsesOptions("m", reasons=True, summaries=True)]),
    ],
)
def test_older_messages_are_encoded_once(encoder: Any, options: list[object]) -> None:
    messages = (user("go"), assistant(ToolCall("a", "grep", "{}")), user(ToolResult("a", "r")))
    encoder.encode(request(*messages), *options)
    before = {key: kept[2] for key, kept in encoder._pieces._made.items()}
    encoder.encode(request(*messages, assistant("done"), user("more")), *options)
    assert len(before) == 3
    assert all(encoder._pieces._made[key][2] is piece for key, piece in before.items())
    encoder.encode(request(user("only this")), *options)
    assert len(encoder._pieces._made) == 1
