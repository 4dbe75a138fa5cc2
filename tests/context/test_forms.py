"""Message lists of other programs, in and out."""

import json
from collections.abc import Sequence

import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.context.message_lists import CLAUDE, GEMINI, LISTS, Json
from tests.conversation.logs import broken_rules
from tests.examples import examples
from tests.servers import anthropic_rules, catalogue, gemini_rules
from tests.servers.pictures import PNG
from tui_agent.context.forms import Form, UnknownForm, read, split_system, write
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Message, encode, tool_result, user_message
from tui_agent.conversation.request import OPENING, ModelRequest, ReasoningPolicy, RequestMessage
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.conversation.view import View
from tui_agent.models.anthropic import request as anthropic_request
from tui_agent.models.gemini import request as gemini_request

FEWER = settings(max_examples=examples(12))
"""A list takes many draws."""
FORMS: tuple[Form, ...] = ("anthropic", "gemini", "openai")
MODELS = {"anthropic": f"anthropic:{CLAUDE}", "gemini": f"gemini:{GEMINI}", "openai": ""}
SPECS = {spec.id: spec for spec in (*catalogue.ANTHROPIC, *catalogue.GEMINI)}


def conversation(form: Form, messages: Sequence[object]) -> View:
    view = View()
    append(view, read(form, messages, model=MODELS[form]))
    return view


def append(view: View, entries: Sequence[Message]) -> None:
    for entry in entries:
        view.apply(view.log.stamp(entry, 0.0))


def requested(view: View, form: Form = "anthropic") -> list[RequestMessage]:
    messages = view.messages(ReasoningPolicy(MODELS[form], bound=False))
    assert broken_rules(messages) == []
    calls = [block.id for message in messages for block in message.blocks if isinstance(block, ToolCall)]
    assert len(set(calls)) == len(calls)
    return messages


def check_anthropic(messages: list[Json]) -> None:
    body = {"model": CLAUDE, "max_tokens": 1_000, "messages": messages}
    headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
    anthropic_rules.check(headers, json.dumps(body).encode(), SPECS)


def check_gemini(messages: list[Json]) -> None:
    gemini_rules.check(json.dumps({"contents": messages}).encode(), SPECS[GEMINI])


def check_openai(messages: list[Json]) -> None:
    """Each call is answered once, right after the message that made it; no message is empty."""
    open_ids: list[object] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_ids
            open_ids.remove(message["tool_call_id"])
            continue
        assert open_ids == []
        calls = message.get("tool_calls") or []
        assert isinstance(calls, list)
        assert message.get("content") or calls or message.get("refusal")
        open_ids = [call["id"] for call in calls]
        assert len(set(map(str, open_ids))) == len(open_ids)
    assert open_ids == []


CHECKS = {"anthropic": check_anthropic, "gemini": check_gemini, "openai": check_openai}


@pytest.mark.parametrize("form", FORMS)
@FEWER
@given(data=st.data())
def test_a_valid_list_comes_back_as_it_was(form: Form, data: st.DataObject) -> None:
    messages = data.draw(LISTS[form]())
    CHECKS[form](messages)
    assert write(form, requested(conversation(form, messages), form)) == messages


@pytest.mark.parametrize("form", FORMS)
@FEWER
@given(data=st.data())
def test_so_do_keys_that_nobody_has_heard_of(form: Form, data: st.DataObject) -> None:
    messages = data.draw(LISTS[form](odd=True))
    assert write(form, requested(conversation(form, messages), form)) == messages


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("source", FORMS)
@FEWER
@given(data=st.data())
def test_written_in_another_form_it_is_valid_there(source: Form, target: Form, data: st.DataObject) -> None:
    messages = data.draw(LISTS[source](odd=source != target))
    written = write(target, requested(conversation(source, messages), source))
    CHECKS[target](written)
    assert write(target, requested(conversation(target, written), target)) == written


@pytest.mark.parametrize("form", FORMS)
@FEWER
@given(data=st.data())
def test_a_list_read_in_two_parts_is_the_same(form: Form, data: st.DataObject) -> None:
    messages = data.draw(LISTS[form](odd=True))
    cut = data.draw(st.integers(0, len(messages)))
    view = conversation(form, messages[:cut])
    taken = [block.id for message in requested(view, form) for block in message.blocks if isinstance(block, ToolCall)]
    append(view, read(form, messages[cut:], model=MODELS[form], open_calls=view.unanswered(), taken_ids=taken))
    written = write(form, requested(view, form))
    same_role = 0 < cut < len(messages) and messages[cut - 1]["role"] == messages[cut]["role"]
    if same_role and messages[cut]["role"] != "tool":
        assert len(written) in (len(messages), len(messages) - 1)
    else:
        assert written == messages


@pytest.mark.parametrize("form", FORMS)
@FEWER
@given(data=st.data())
def test_cleared_results_are_written_as_what_stands_for_them(form: Form, data: st.DataObject) -> None:
    view = conversation(form, data.draw(LISTS[form]()))
    results = tuple(result.seq for result in view.live_results())
    if results:
        entry = Cleared(results=results, texts=("[cleared]",) * len(results))
        view.apply(view.log.stamp(entry, 0.0))
    written = write(form, requested(view, form))
    CHECKS[form](written)
    assert json.dumps(written).count("[cleared]") == len(results)


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_the_same_in_every_form(form: Form) -> None:
    own = {"anthropic": "content", "openai": "content", "gemini": "parts"}[form]
    said: object = [{"text": "go"}] if form == "gemini" else "go"
    messages = [{"role": "user", own: said}]
    assert read(form, messages) == [user_message("go")]
    assert write(form, [RequestMessage("user", (Text("go"),))]) == messages


def test_our_adapters_send_what_was_read_from_anthropic() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                thinking,
                {"type": "redacted_thinking", "data": "secret"},
                {"type": "tool_use", "id": "toolu_1", "name": "grep", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}]},
    ]
    request = ModelRequest("", (), tuple(requested(conversation("anthropic", messages))), 100)
    body = anthropic_request.RequestEncoder().encode(request, anthropic_request.Options(CLAUDE, "adaptive", False))
    sent = json.loads(body)["messages"]
    sent[-1]["content"][-1].pop("cache_control")
    assert sent == messages


def test_our_adapters_send_what_was_read_from_gemini() -> None:
    call = {"functionCall": {"id": "7", "name": "grep", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
    messages = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"text": "I look"}, {"text": "", "thoughtSignature": "dGV4dA=="}, call]},
        {"role": "user", "parts": [{"functionResponse": {"id": "7", "name": "grep", "response": {"output": "found"}}}]},
    ]
    request = ModelRequest("", (), tuple(requested(conversation("gemini", messages), "gemini")), 100)
    assert json.loads(gemini_request.RequestEncoder(GEMINI).encode(request))["contents"] == messages


def test_objects_of_the_sdks_are_read_like_mappings() -> None:
    said = [
        ThinkingBlock(type="thinking", thinking="hm", signature="sig"),
        TextBlock(type="text", text="I look"),
        ToolUseBlock(type="tool_use", id="c1", name="grep", input={"a": 1}),
    ]
    (message,) = read("anthropic", [{"role": "assistant", "content": said}], model="anthropic:claude-opus-5-5")
    assert message.model == "anthropic:claude-opus-5-5"
    assert [type(block) for block in message.blocks] == [Reasoning, Text, ToolCall]
    content = types.Content(
        role="model",
        parts=[types.Part(function_call=types.FunctionCall(name="grep", args={"a": 1}), thought_signature=b"sig")],
    )
    (message,) = read("gemini", [content])
    (call,) = message.blocks
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("grep", '{"a":1}')
    assert '"signature":"c2ln' in call.opaque


def test_what_is_spelled_in_two_ways_comes_back_in_one() -> None:
    snake = [
        {"parts": [{"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}}, {"text": "  "}, {"text": "go"}]},
        {"role": "model", "parts": [{"function_call": {"name": "a"}}, {"function_call": {"name": "b", "args": None}}]},
        {
            "role": "user",
            "parts": [
                {"text": "here"},
                {"function_response": {"name": "b", "response": {"output": "2"}}},
                {"function_response": {"name": "a", "response": {"output": "1"}}},
            ],
        },
    ]
    assert write("gemini", requested(conversation("gemini", snake), "gemini")) == [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}, {"text": "go"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "a"}}, {"functionCall": {"name": "b", "args": {}}}],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "a", "response": {"output": "1"}}},
                {"functionResponse": {"name": "b", "response": {"output": "2"}}},
                {"text": "here"},
            ],
        },
    ]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    written = write("openai", requested(conversation("openai", messages)))
    assert written == [*messages, {"role": "tool", "tool_call_id": "c1", "content": f"Error: {INTERRUPTED}"}]


def test_reasoning_of_another_provider_is_left_out_and_a_foreign_call_is_signed() -> None:
    blocks = (
        Reasoning("hm", '{"signature":"s"}'),
        Text("I look"),
        ToolCall("c 1", "grep it", "{}"),
        ToolCall("c2", "b", "{}"),
    )
    messages = [RequestMessage("user", (Text("go"),)), RequestMessage("assistant", blocks)]
    messages.append(RequestMessage("user", (ToolResult("c 1", "x", is_error=True), ToolResult("c2", "y"))))
    contents = write("gemini", messages)
    check_gemini(contents)
    assert contents[1]["parts"] == [
        {"text": "I look"},
        {"functionCall": {"name": "grep_it", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"},
        {"functionCall": {"name": "b", "args": {}}},
    ]
    completions = write("openai", messages)
    check_openai(completions)
    assert [message["content"] for message in completions[2:]] == ["Error: x", "y"]
    messages[1] = RequestMessage("assistant", blocks[1:])
    check_anthropic(write("anthropic", messages))


@pytest.mark.parametrize("form", FORMS)
def test_pictures_of_results_are_shown_where_the_form_takes_them(form: Form) -> None:
    image, heic = Image("image/png", PNG), Image("image/heic", PNG)
    call = ToolCall("c1", "look", "{}")
    messages = [
        RequestMessage("user", (Text("go"), heic)),
        RequestMessage("assistant", (call,)),
        RequestMessage("user", (ToolResult("c1", "seen", images=(image,)),)),
    ]
    written = write(form, messages)
    CHECKS[form](written)
    text = json.dumps(written)
    assert text.count(PNG) == 1
    assert "(a picture that cannot be shown here: image/heic)" in text


def test_an_openai_list_may_begin_with_the_assistant() -> None:
    messages = [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "go"}]
    view = conversation("openai", messages)
    assert requested(view)[0].blocks == (Text(OPENING),)
    assert write("openai", requested(view)) == messages


def test_the_system_prompt_of_an_openai_list() -> None:
    rest = [{"role": "user", "content": "go"}, {"role": "system", "content": "now"}]
    system = [
        {"role": "system", "content": "You help."},
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
    ]
    assert split_system([*system, *rest]) == ("You help.\n\nBe\n\nbrief.", rest)
    assert split_system(system) == ("You help.\n\nBe\n\nbrief.", ())
    assert split_system(rest) == ("", rest)
    assert [message.kind for message in read("openai", [*system, *rest])] == ["notice", "notice", "", "notice"]
    assert write("anthropic", requested(conversation("openai", rest))) == [
        {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": "now"}]}
    ]


def test_a_form_costs_a_log_nothing_where_it_is_not_used() -> None:
    assert b"opaque" not in encode(tool_result(ToolResult("c1", "found", images=(Image("image/png", PNG),))))
    assert b"opaque" not in encode(read("openai", [{"role": "user", "content": "go"}])[0])


CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "grep", "input": {}}]}
MODEL_CALLED = {"role": "model", "parts": [{"functionCall": {"name": "grep", "args": {}}}]}
ASKED = {"role": "user", "content": "go"}


def block(role: str, **fields: object) -> Json:
    return {"role": role, "content": [{"type": "text", "text": "a"}, fields]}


@pytest.mark.parametrize(
    ("form", "messages", "index", "key"),
    [
        ("anthropic", [ASKED, "go"], 1, ""),
        ("anthropic", [{"role": "system", "content": "a"}], 0, "role"),
        ("anthropic", [{"role": "user"}], 0, "content"),
        ("anthropic", [{"role": "user", "content": []}], 0, ""),
        ("anthropic", [block("user", type="document")], 0, "content[1].type"),
        ("anthropic", [block("user", type="tool_use")], 0, "content[1].type"),
        ("anthropic", [block("assistant", type="server_tool_use")], 0, "content[1].type"),
        ("anthropic", [block("user", type="image", source={"type": "url"})], 0, "content[1].source.type"),
        ("anthropic", [block("user", type="text")], 0, "content[1].text"),
        ("anthropic", [block("assistant", type="thinking", thinking="a")], 0, "content[1].signature"),
        ("anthropic", [block("user", type="tool_result", tool_use_id="c1")], 0, "content[1].tool_use_id"),
        (
            "anthropic",
            [CALLED, ASKED, CALLED, block("user", type="tool_result", tool_use_id="c9")],
            3,
            "content[1].tool_use_id",
        ),
        (
            "anthropic",
            [block("assistant", type="tool_use", id="c", name="a", input={"a": float("nan")})],
            0,
            "content[1].input",
        ),
        ("gemini", [{"role": "function", "parts": []}], 0, "role"),
        ("gemini", [{"role": "user"}], 0, "parts"),
        ("gemini", [{"role": "user", "parts": [{"fileData": {}}]}], 0, "parts[0].fileData"),
        ("gemini", [{"role": "user", "parts": [{"text": "a", "inlineData": {}}]}], 0, "parts[0].inlineData"),
        ("gemini", [{"role": "user", "parts": [{"functionCall": {}}]}], 0, "parts[0].functionCall"),
        ("gemini", [{"role": "model", "parts": [{"inlineData": {}}]}], 0, "parts[0].inlineData"),
        (
            "gemini",
            [{"role": "user", "parts": [{"inlineData": {"mimeType": "application/pdf", "data": ""}}]}],
            0,
            "parts[0].inlineData.mimeType",
        ),
        (
            "gemini",
            [MODEL_CALLED, {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {}}}]}],
            1,
            "parts[0].functionResponse",
        ),
        ("openai", [{"role": "function", "content": "a"}], 0, "role"),
        ("openai", [{"role": "user", "content": None}], 0, "content"),
        ("openai", [block("user", type="input_audio")], 0, "content[1].type"),
        (
            "openai",
            [block("user", type="image_url", image_url={"url": "https://a/b.png"})],
            0,
            "content[1].image_url.url",
        ),
        ("openai", [{"role": "tool", "tool_call_id": "c1", "content": "a"}], 0, "tool_call_id"),
        ("openai", [{"role": "assistant", "tool_calls": [{"type": "custom"}]}], 0, "tool_calls[0].type"),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(
    form: Form, messages: list[object], index: int, key: str
) -> None:
    with pytest.raises(UnknownForm) as caught:
        read(form, messages)
    assert (caught.value.index, caught.value.key) == (index, key)
    assert str(caught.value).startswith(f"messages[{index}]{'.' if key else ''}{key}: ")
