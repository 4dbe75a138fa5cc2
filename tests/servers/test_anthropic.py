"""The Anthropic server, spoken to by the real SDK: good traffic, thinking, the prompt cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_client import DROP, MARK, TOOLS, Talk, assistant, body, result, text, use, user
from tests.servers.anthropic_rules import estimate_tokens
from tests.servers.anthropic_schema import BINDING_BETA
from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.script import Call, ParsedRequest, Script, Step


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with AnthropicServer(Script.of(Step(text="Hello there.", reasoning="Greet."))) as server:
        yield Talk(server)


async def test_coding_task_completes_with_no_rule_broken() -> None:
    async with AnthropicServer(coding_task_script()) as server:
        talk = Talk(server)
        messages: list[Any] = [user("fix the bug")]
        calls: list[list[str]] = []
        while True:
            message = await talk.ask(messages)
            uses = [block for block in message.content if block.type == "tool_use"]
            calls.append([block.name for block in uses])
            if message.stop_reason == "end_turn":
                break
            content = [block.model_dump(exclude_none=True) for block in message.content]
            messages += [assistant(content), user([result(block.id) for block in uses])]
        assert calls == [["read_file"], ["grep", "list_dir"], ["edit_file"], ["run_command"], []]
        assert "".join(block.text for block in message.content if block.type == "text") == ANSWER
        assert server.violations == []
        assert [answer.outcome for answer in server.answers] == ["completed"] * 5
        assert len(server.model_requests) == 5


async def test_a_script_sees_the_request(talk: Talk) -> None:
    seen: list[ParsedRequest] = []

    def script(request: ParsedRequest) -> Step:
        seen.append(request)
        return Step(text=f"{request.position} {request.results}")

    talk.server.script = script
    called = [user("go"), assistant([use()]), user([result(content="42 lines")])]
    for messages, said in ((called, "1 ('42 lines',)"), ([*called, user("also be brief")], "1 ('42 lines',)")):
        message = await talk.ask(messages, system="Be brief.", thinking={"type": "adaptive"})
        assert [block.text for block in message.content if block.type == "text"] == [said]
    assert (seen[0].prompt, seen[0].system, seen[0].tools[0]) == ("go", "Be brief.", "read_file")


async def test_a_failing_script_shows_in_the_violations() -> None:
    def script(request: ParsedRequest) -> Step:
        raise LookupError(request.prompt)

    async with AnthropicServer(script) as server:
        with pytest.raises(anthropic.APIConnectionError):
            await Talk(server).ask([user("go")])
        assert server.violations == ["request 0: the server failed: LookupError('go')"]


async def test_output_is_cut_at_max_tokens() -> None:
    step = Step(text="four words of text", calls=(Call("grep", {"pattern": "x" * 30}),))
    async with AnthropicServer(Script.of(step)) as server:
        cut = await Talk(server).ask([user("go")], max_tokens=10)
        shorter = await Talk(server).ask([user("go")], max_tokens=3)
        warmed = await Talk(server).ask([user("go")], max_tokens=0)
    assert [block.type for block in cut.content] == ["text"]
    assert shorter.content[0].type == "text"
    assert shorter.content[0].text == "four word"
    assert {cut.stop_reason, shorter.stop_reason, warmed.stop_reason} == {"max_tokens"}
    assert warmed.content == []


async def test_models_tokens_keys_and_the_window() -> None:
    async with AnthropicServer(Script.of(Step(text="x")), windows={"claude-opus-5-5": 500}) as server:
        talk = Talk(server)
        models = {model.id: model async for model in talk.client.models.list(limit=4)}
        assert len(models) == 6
        assert models["claude-opus-5-5"].max_input_tokens == 500
        model = await talk.client.models.retrieve("claude-haiku-4-5")
        assert (model.max_input_tokens, model.max_tokens, model.line) == (200_000, 64_000, "haiku")
        assert model.capabilities is not None
        assert not model.capabilities.thinking.types.adaptive.supported
        request: Any = {"model": "claude-opus-5-5", "messages": [user("hi" * 300)]}
        counted = await talk.client.messages.count_tokens(**request)
        assert counted.input_tokens == estimate_tokens(request) > 200
        with pytest.raises(anthropic.NotFoundError):
            await talk.client.models.retrieve("claude-2")
        wrong = anthropic.AsyncAnthropic(base_url=server.url, api_key="wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
            await wrong.models.list()
        long = body([user("a" * 3000)])
        refused = f"prompt is too long: {estimate_tokens(long)} tokens > 500 maximum"
        assert await talk.refusal(long) == (400, refused)
        assert server.violations[-1].endswith(f": 400 {refused}")


async def test_thinking_is_shown_or_left_out_as_asked(talk: Talk) -> None:
    whole: Any = body()
    unstreamed = await talk.client.messages.create(**whole)
    hidden = await talk.ask([user("hi")])
    shown = await talk.ask([user("hi")], thinking={"type": "adaptive", "display": "summarized"})
    off = await talk.ask([user("hi")], model="claude-sonnet-5-5", thinking={"type": "disabled"})
    assert [block.type for block in unstreamed.content] == ["thinking", "text"]
    assert hidden.content[0].type == shown.content[0].type == "thinking"
    assert (hidden.content[0].thinking, shown.content[0].thinking) == ("", "Greet.")
    assert hidden.content[0].signature
    assert [block.type for block in off.content] == ["text"]


async def test_thinking_is_bound_to_what_came_before(talk: Talk) -> None:
    made = await talk.ask([user("hi")], system="one")
    content = [block.model_dump(exclude_none=True) for block in made.content]
    after: list[Any] = [user("hi"), assistant(content), user("more")]
    await talk.ask(after, system="one")
    await talk.ask([user("hi"), assistant(content), user([text("more", **MARK)])], system="one")
    for changed in ({"system": "two"}, {"system": "one", "tools": TOOLS[:1]}):
        with pytest.raises(anthropic.BadRequestError, match="different conversation"):
            await talk.ask(after, **changed)
    dropping = await talk.ask(after, system="two", thinking=DROP, betas=(BINDING_BETA,))
    assert dropping.input_transformations is not None
    assert talk.server.dropped_thinking == ["request 5: messages.1.content.0 prefix_binding_mismatch"]
    kept = await talk.ask(after, system="one", thinking=DROP, betas=(BINDING_BETA,))
    assert kept.input_transformations == []
    await talk.ask(after, model="claude-sonnet-4-6")  # another model's is left out, and that is told
    told = await talk.ask(after, model="claude-sonnet-5-5", thinking=DROP, betas=(BINDING_BETA,))
    assert told.input_transformations is not None
    assert told.input_transformations[0].reason == "model_binding_mismatch"


async def test_cache_reads_what_an_earlier_request_wrote(talk: Talk) -> None:
    system = [text("rules " * 1000, **MARK)]
    cold = await talk.ask([user([text("hi", **MARK)])], system=system)
    warm = await talk.ask([user("hi there")], system=system)
    elsewhere = await talk.ask([user([text("hi", **MARK)])], system=system, model="claude-sonnet-5-5")
    talk.server.cache.clear()
    cleared = await talk.ask([user("hi there")], system=system)
    total = sum((warm.usage.input_tokens, warm.usage.cache_read_input_tokens or 0))
    assert cold.usage.cache_read_input_tokens == 0
    assert (cold.usage.cache_creation_input_tokens or 0) > 2000
    assert (warm.usage.cache_read_input_tokens or 0) > 2000
    assert warm.usage.cache_creation_input_tokens == 0
    assert elsewhere.usage.cache_read_input_tokens == cleared.usage.cache_read_input_tokens == 0
    assert total == estimate_tokens({"tools": TOOLS, "system": system, "messages": [user("hi there")]})
    used = [cold, warm, elsewhere, cleared]
    assert talk.server.usage_total["input_tokens"] == sum(message.usage.input_tokens for message in used)
    assert talk.server.usage_total["output_tokens"] == sum(message.usage.output_tokens for message in used)


async def test_short_prompts_are_not_cached(talk: Talk) -> None:
    for _ in range(2):
        message = await talk.ask([user([text("hi", **MARK)])], model="claude-opus-4-7")
        assert message.usage.cache_creation_input_tokens == message.usage.cache_read_input_tokens == 0
