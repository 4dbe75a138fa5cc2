"""Message lists of other programs, in and out."""

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from anthropic.types.beta import BetaContentBlockParam
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conversation.logs import broken_rules
from tests.examples import examples
from tests.models.message_lists import CLAUDE, GEMINI, LISTS, Json
from tests.models.sdk_shapes import of_type
from tests.servers import anthropic_rules, catalogue, gemini_rules
from tests.servers.pictures import PNG
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Message, encode, tool_result, user_message
from tui_agent.conversation.request import OPENING, ModelRequest, ReasoningPolicy, RequestMessage
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.conversation.view import View
from tui_agent.models.anthropic import request as anthropic_request
from tui_agent.models.forms import FORMS as FORMS_BY_NAME
from tui_agent.models.forms import Form, UnknownForm, read, split_system, write
from tui_agent.models.gemini import request as gemini_request

FEWER = settings(max_examples=examples(12))
"""A list takes many draws."""
FORMS: tuple[Form, ...] = ("anthropic", "gemini", "openai")
MODELS = {"anthropic": f"anthropic:{CLAUDE}", "gemini": f"gemini:{GEMINI}", "openai": "", "responses": "openai:gpt-5"}
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


@pytest.mark.parametrize(("source", "target"), [*permutations(FORMS, 2)])
@FEWER
@given(data=st.data())
def test_written_in_another_form_it_is_valid_there(source: Form, target: Form, data: st.DataObject) -> None:
    messages = data.draw(LISTS[source](odd=True))
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
    append(view, read(form, messages[cut:], model=MODELS[form], after=view))
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


def test_our_adapters_send_what_was_read() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "grep", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
    messages: list[Json] = [
        block("user", **PDF),
        {"role": "assistant", "content": [thinking, {"type": "redacted_thinking", "data": "secret"}, use]},
        {"role": "user", "content": [result]},
    ]
    marked = block("user", **PDF, cache_control={"type": "ephemeral"})
    told = requested(conversation("anthropic", [marked, *messages[1:]]))
    request = ModelRequest("", (), tuple(told), 100, one_off=True)
    options = anthropic_request.AnthropicOptions(CLAUDE, "adaptive", False)
    assert json.loads(anthropic_request.AnthropicEncoder().encode(request, options))["messages"] == messages
    call = {"functionCall": {"id": "7", "name": "grep", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"text": "I look"}, {"text": "", "thoughtSignature": "dGV4dA=="}, call]},
        {"role": "user", "parts": [{"functionResponse": {"id": "7", "name": "grep", "response": {"output": "found"}}}]},
    ]
    request = ModelRequest("", (), tuple(requested(conversation("gemini", contents), "gemini")), 100)
    assert json.loads(gemini_request.GeminiEncoder(GEMINI).encode(request))["contents"] == contents


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


def test_what_can_be_spelled_in_two_ways_comes_back_as_it_was() -> None:
    snake: list[Json] = [
        {"parts": [{"inline_data": {"mime_type": "image/png", "data": "iVBORw=="}}, {"text": "  "}, {"text": "go"}]},
        {"role": "model", "parts": [{"function_call": {"name": "a"}}, {"function_call": {"name": "b", "args": None}}]},
        {
            "role": "user",
            "parts": [
                {"text": "here"},
                {"function_response": {"name": "b", "response": {"output": "2"}}},
                {"function_response": {"name": "a", "response": {"output": "1"}}},
            ],
        },
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "model"},
        {"role": "user", "parts": [{"text": "and?"}]},
    ]
    view = conversation("gemini", snake)
    assert write("gemini", requested(view, "gemini")) == snake
    results = [block for message in requested(view) for block in message.blocks if isinstance(block, ToolResult)]
    assert [result.text for result in results] == ["1", "2"], "a conversation has results in the order of their calls"


def test_results_that_came_in_another_order_go_back_in_it() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "a", "arguments": "{}"}} for n in range(4)]
    answers: list[Json] = [{"role": "tool", "tool_call_id": f"c{n}", "content": str(n)} for n in (0, 3, 1, 2)]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": calls}, *answers]
    assert write("openai", requested(conversation("openai", messages))) == messages
    blocks = [{"type": "tool_use", "id": f"c{n}", "name": "a", "input": {}} for n in range(3)]
    told: list[Json] = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": str(n)} for n in (2, 0, 1)]
    told.insert(1, {"type": "text", "text": "while you wait"})
    messages = [ASKED_FIRST, {"role": "assistant", "content": blocks}, {"role": "user", "content": told}]
    told[-1]["is_error"] = True
    view = conversation("anthropic", messages)
    assert write("anthropic", requested(view)) == messages
    assert [each["content"] for each in write("openai", requested(view))[2:5]] == ["0", "Error: 1", "2"]


ASKED_FIRST: Json = {"role": "user", "content": "go"}
PDF: Json = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x" * 100},
}
AUDIO = {"type": "input_audio", "input_audio": {"data": "a", "format": "wav"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "e" * 500}]}
COMPACTED = {"type": "compaction", "content": "so far", "encrypted_content": "EqoB"}
CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
PATCH = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "x"}}
PATCHED = {"role": "tool", "tool_call_id": "c1", "content": "done"}
OLD_CALL = {"name": "grep", "arguments": "{}"}
OLD_RESULT = {"role": "function", "name": "grep", "content": "found"}
ITEMS: list[Json] = [
    {"role": "user", "content": "go"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "g"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "grep", "arguments": "{}", "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "found"}]},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is.", "annotations": []}]},
    {"type": "compaction", "encrypted_content": "gAAA"},
    {"type": "message", "role": "user", "content": [{"type": "input_file", "file_id": "f_1"}]},
]


@pytest.mark.parametrize(
    ("form", "messages"),
    [
        ("anthropic", [ASKED_FIRST, {"role": "assistant", "content": [SEARCH, FOUND]}]),
        ("anthropic", [ASKED_FIRST, {"role": "assistant", "content": [COMPACTED, {"type": "text", "text": "so"}]}]),
        ("gemini", [{"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": [CODE]}]),
        ("openai", [{"role": "user", "content": [AUDIO]}]),
        ("openai", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]),
        ("openai", [ASKED_FIRST, {"role": "assistant", "tool_calls": [PATCH]}, PATCHED]),
        ("openai", [ASKED_FIRST, {"role": "assistant", "content": None, "function_call": OLD_CALL}, OLD_RESULT]),
        ("responses", ITEMS),
    ],
)
def test_what_only_its_provider_understands_goes_out_unchanged(form: Form, messages: list[Json]) -> None:
    view = View()
    reader = FORMS_BY_NAME[form](MODELS[form])
    for message in messages:  # one by one: the reader keeps what it has to know
        append(view, reader.read(message))
    assert write(form, requested(view, form)) == messages
    append(view, [user_message("And now?")])
    for other in FORMS:
        if other != form:
            CHECKS[other](write(other, requested(view, form)))


CONTENT = of_type(BetaContentBlockParam)


@settings(FEWER, suppress_health_check=list(HealthCheck))
@given(st.lists(CONTENT, min_size=1, max_size=3), st.sampled_from(["user", "assistant"]))
def test_every_content_of_anthropics_sdk_goes_out_unchanged(content: list[Any], role: str) -> None:
    theirs = {"tool_result"} if role == "assistant" else {"tool_result", "tool_use"}
    said = [block for block in content if block.get("type") and block["type"] not in theirs]
    said.append({"type": "text", "text": "so"})
    messages: list[Json] = [ASKED_FIRST, {"role": role, "content": said}]
    assert write("anthropic", requested(conversation("anthropic", messages)))[:2] == messages


@settings(FEWER, suppress_health_check=list(HealthCheck))
@given(st.lists(of_type(types.PartDict), min_size=1, max_size=3), st.sampled_from(["user", "model"]))
def test_every_part_of_googles_sdk_goes_out_unchanged(content: list[Any], role: str) -> None:
    kept = [part for part in content if not {"function_response", "function_call"} & part.keys()]
    messages: list[Json] = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": role, "parts": [*kept, {"text": "so"}]},
    ]
    assert write("gemini", requested(conversation("gemini", messages), "gemini")) == messages


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
OTHER_RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {}}}]}
NOT_JSON = {"a": float("nan")}
ASKED = {"role": "user", "content": "go"}


def block(role: str, **fields: object) -> Json:
    return {"role": role, "content": [{"type": "text", "text": "a"}, fields]}


def result(call: str) -> Json:
    return block("user", type="tool_result", tool_use_id=call)


@pytest.mark.parametrize(
    ("form", "messages", "index", "key"),
    [
        ("anthropic", [ASKED, "go"], 1, ""),
        ("anthropic", [{"role": "model", "content": "a"}], 0, "role"),
        ("anthropic", [{"role": "user"}], 0, "content"),
        ("anthropic", [block("user", type="text")], 0, "content[1].text"),
        ("anthropic", [block("assistant", type="thinking", thinking="a")], 0, "content[1].signature"),
        ("anthropic", [result("c1")], 0, "content[1].tool_use_id"),
        ("anthropic", [CALLED, ASKED, CALLED, result("c9")], 3, "content[1].tool_use_id"),
        ("anthropic", [block("assistant", type="tool_use", id="c", name="a", input=NOT_JSON)], 0, "content[1].input.a"),
        ("gemini", [{"role": "assistant", "parts": []}], 0, "role"),
        ("gemini", [{"role": "user", "parts": "go"}], 0, "parts"),
        ("gemini", [MODEL_CALLED, OTHER_RESULT], 1, "parts[0].functionResponse"),
        ("openai", [{"role": "function", "name": "ls", "content": "a"}], 0, "name"),
        ("openai", [{"role": "user", "content": None}], 0, "content"),
        ("openai", [{"role": "tool", "tool_call_id": "c1", "content": "a"}], 0, "tool_call_id"),
        ("openai", [{"role": "assistant", "tool_calls": [{"type": "custom"}]}], 0, "tool_calls[0].custom"),
        ("responses", [{"type": "function_call_output", "call_id": "c1", "output": ""}], 0, "call_id"),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(
    form: Form, messages: list[object], index: int, key: str
) -> None:
    with pytest.raises(UnknownForm) as caught:
        read(form, messages)
    assert (caught.value.index, caught.value.key) == (index, key)
    assert str(caught.value).startswith(f"messages[{index}]{'.' if key else ''}{key}: ")
