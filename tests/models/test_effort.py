"""How much a model is asked to think and write, with every provider's own word for it."""

import json
from typing import Any

import pytest

from tests.models.talking import MODELS, closing, create_model, finish, point_at, request, user
from tests.servers.script import Script, Step
from tui_agent.conversation.blocks import Text


def _asked(body: dict[str, Any]) -> object:
    """What a request says of effort, in any provider's words."""
    thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
    return (
        body.get("output_config", {}).get("effort")
        or body.get("reasoning_effort")
        or body.get("reasoning", {}).get("effort")
        or thinking.get("thinkingLevel")
        or thinking.get("thinkingBudget")
    )


@pytest.mark.parametrize(
    ("name", "effort", "asked"),
    [
        ("claude-opus-5-5", "max", "max"),
        ("claude-opus-5-5", "low", "low"),
        ("claude-haiku-4-5", "high", None),
        ("gemini-3.8-flash", "medium", "medium"),
        ("gemini-3.1-pro-preview", "max", "high"),
        ("gemini-2.5-pro", "low", 1_024),
        ("gemini-2.5-pro", "max", 24_576),
        ("responses:gpt-6.1-sol", "max", "xhigh"),
        ("responses:gpt-4.1", "high", None),
        ("openrouter:qwen/qwen3-coder", "medium", "medium"),
        ("claude-opus-5-5", "", None),
        ("gemini-3.8-flash", "", None),
        ("responses:gpt-6.1-sol", "", None),
    ],
)
async def test_the_effort_is_asked_for_where_the_model_takes_it_and_the_turn_never_fails(
    name: str, effort: str, asked: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MODELS[name](Script(after=Step(text="done"))) as server:
        point_at(server, monkeypatch.setenv)
        for described in (True, False):
            async with closing(create_model(name, effort=effort)) as model:
                if described:
                    await model.describe()
                _, completed = await finish(model.stream(request(user("hello"), tools=())))
                assert "".join(block.text for block in completed.blocks if isinstance(block, Text)) == "done"
                bodies = [json.loads(each.body) for each in server.requests if each.body]
                assert _asked(bodies[-1]) == asked
                assert model.profile.effort == (effort if asked else "")
