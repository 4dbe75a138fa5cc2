"""Limits of `models/`, each at its value and one beyond: where something is cut, left out, or called another name."""

import json
from base64 import b64decode, b64encode
from pathlib import Path

import msgspec
import pytest

from tests.models.talking import request, user
from tests.models.test_errors import ACME
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolDefinition
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import Prices
from tui_agent.models.base import (
    Completed,
    RateLimited,
    StopReason,
)
from tui_agent.models.call_repair import MAX_SEARCHED, fit, read_object, repaired, repaired_answer
from tui_agent.models.catalogue import Catalogue
from tui_agent.models.clouds import _address as region_address
from tui_agent.models.errors import SHORTEST_KEY, TEXT_LIMIT, ErrorReply, failure, plain, redact, too_long
from tui_agent.models.offline.answers import summary_of
from tui_agent.models.openai.facts import ServerFacts, facts_in, facts_of_gateway
from tui_agent.models.originals import stands_for
from tui_agent.models.pictures import LARGEST_SIDE, fitted, halved
from tui_agent.models.prices import sold_anywhere
from tui_agent.models.provider import MOST_KEPT, Learned, load_refused, save_refused
from tui_agent.models.refusals import seconds_to_reset
from tui_agent.models.tokens import CHUNK_CHARS, SAMPLED_CHUNKS, KnownSize, LastMeasured, TiktokenTokenizer, most_tokens
from tui_agent.settings.schema import Endpoint, EndpointModel


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (60, "a while"),
        (61, "2 minutes"),
        (7_200, "120 minutes"),
        (7_201, "3 hours"),
        (172_800, "48 hours"),
        (172_801, "3 days"),
        (365 * 86_400, "365 days"),
        (365 * 86_400 + 1, "more than a year"),
    ],
)
def test_a_wait_is_told_in_its_unit(seconds: float, said: str) -> None:
    error = failure(ACME, "m", ErrorReply(429, "", "slow", retry_after=seconds))
    assert isinstance(error, RateLimited)
    assert f"wait {said}, or" in error.message


def test_what_a_provider_says_is_cut_at_its_limit_and_text_alone_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain("a" * TEXT_LIMIT) == "a" * 300
    assert plain("a" * 301) == "a" * 299 + "…"
    assert plain("aa\x01") == "aa"
    assert plain("aa\x01\x01") == "something that is no text"
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh")
    monkeypatch.setenv("OTHER_TOKEN", "zyxwvut")
    assert SHORTEST_KEY == 8
    assert redact("abcdefgh zyxwvut") == "[key] zyxwvut"
    assert redact("AIza" + "x" * 10) == "[key]"
    assert redact("AIza" + "x" * 9) == "AIza" + "x" * 9


@pytest.mark.parametrize(
    ("tokens", "limit", "said"),
    [
        (11, 10, "11 tokens of at most 10; "),
        (10, 10, "it takes 10 tokens with the answer; "),
        (0, 0, "for m: compact"),
    ],
)
def test_an_overflow_says_what_it_knows(tokens: int, limit: int, said: str) -> None:
    assert said in too_long("m", tokens, limit).message
    assert (too_long("m").tokens, too_long("m").limit) == (0, 0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2d", 172_800),
        ("1d1h1m1s1ms", 90_061.001),
        ("5m", 300),
        ("5ms", 0.005),
        ("0.5s", 0.5),
        ("90", 90),
        ("0s", None),  # nothing to wait for
    ],
)
def test_a_duration_is_read_in_every_unit(value: str, seconds: float | None) -> None:
    for rate in ("requests", "tokens", "input-tokens", "output-tokens"):
        headers = {f"x-ratelimit-remaining-{rate}": "0", f"x-ratelimit-reset-{rate}": value}
        assert seconds_to_reset(headers) == (pytest.approx(seconds) if seconds else None)
        assert seconds_to_reset({**headers, f"x-ratelimit-remaining-{rate}": "1"}) is None


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (str(10**11), 10**11 - 1_000),  # seconds still
        (str(2 * 10**11), 2 * 10**8 - 1_000),  # milliseconds
        ("999", None),  # past
        ("1970-01-01T00:20:00+00:00", 200),
    ],
)
def test_a_moment_is_read_in_seconds_milliseconds_or_words(
    moment: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_agent.models.refusals.time", lambda: 1_000.0)
    headers = {"anthropic-ratelimit-unified-5h-status": "rejected", "anthropic-ratelimit-unified-5h-reset": moment}
    assert seconds_to_reset(headers) == seconds
    assert seconds_to_reset({**headers, "anthropic-ratelimit-unified-5h-status": "allowed"}) is None
    assert seconds_to_reset({}, {"error": {"resets_at": moment}}) == (seconds or 0.0)
    assert seconds_to_reset({}, {"error": {"resets_in_seconds": -1}}) == 0.0


@pytest.mark.parametrize(
    ("first", "last", "tokens"),
    [
        ("\x80", "\u017f", 2.10),
        ("\u0180", "\u03ff", 1.14),
        ("\u0400", "\u04ff", 0.70),
        ("\u0500", "\u05bf", 2.10),
        ("\u05c0", "\u07ff", 1.24),
        ("\u0800", "\u08ff", 3.15),
        ("\u0900", "\u09ff", 1.59),  # Devanagari, Bengali
        ("\u0a00", "\u0aff", 3.15),
        ("\u0b80", "\u0bff", 1.59),  # Tamil
        ("\u0c00", "\u0dff", 3.15),
        ("\u0e00", "\u0e7f", 1.59),  # Thai
        ("\u1000", "\u1fff", 3.15),
        ("\u2000", "\u2fff", 1.65),
        ("\u3000", "\u3fff", 1.26),
        ("\u4000", "\u9fff", 1.95),
        ("\ua000", "\ud7ff", 2.01),
        ("\ue000", "\uffff", 3.15),
        ("\U00010000", "\U0010ffff", 4.20),
    ],
)
def test_a_characters_tokens_are_those_of_its_script(first: str, last: str, tokens: float) -> None:
    assert most_tokens(first.encode() * 1_000) == pytest.approx(tokens * 1_000, abs=2)
    assert most_tokens(last.encode() * 1_000) == pytest.approx(tokens * 1_000, abs=2)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("word " * 1_000, 1_900),
        ("." * 1_000, 850),
        ("\n." * 1_000, 1_900),
        (" " * 1_000, 400),
        ("0123456789" * 100, 1_100),
    ],
)
def test_a_texts_tokens_are_those_of_its_kind(text: str, tokens: int) -> None:
    assert most_tokens(text.encode()) == pytest.approx(tokens, abs=2)


class _Letters:
    """An encoding with a token for each letter, which knows how much it was given."""

    name = "letters"

    def __init__(self) -> None:
        self.given = 0

    def encode_ordinary(self, text: str) -> list[int]:
        self.given += len(text)
        return [0] * len(text)


@pytest.mark.parametrize(("chunks", "read"), [(SAMPLED_CHUNKS, SAMPLED_CHUNKS), (SAMPLED_CHUNKS + 6, SAMPLED_CHUNKS)])
def test_of_a_very_long_text_evenly_spread_chunks_are_read(chunks: int, read: int) -> None:
    letters = _Letters()
    counted = TiktokenTokenizer(letters)  # type: ignore[arg-type]
    assert counted.count("a" * (chunks * CHUNK_CHARS)) == chunks * CHUNK_CHARS
    assert letters.given == read * 16_384
    assert counted.count("a" * (chunks * CHUNK_CHARS + 1)) == chunks * CHUNK_CHARS + 1


def _nested(levels: int, value: object) -> tuple[dict[str, object], dict[str, object]]:
    schema: dict[str, object] = {"type": "integer"}
    for _ in range(levels):
        value, schema = {"a": value}, {"type": "object", "properties": {"a": schema}}
    assert isinstance(value, dict)
    return value, schema


@pytest.mark.parametrize(("levels", "is_mended"), [(20, True), (21, False)])
def test_types_are_mended_down_to_a_depth(levels: int, is_mended: bool) -> None:
    given, schema = _nested(levels, "5")
    mended, _ = _nested(levels, 5)
    assert fit(given, schema) == (mended if is_mended else given)


@pytest.mark.parametrize(
    ("given", "kind", "found"),
    [
        (5, "string", "5"),
        (True, "string", True),
        ("TRUE", "boolean", True),
        ("yes", "boolean", "yes"),
        (" 5 ", "integer", 5),
        ("5.5", "integer", "5.5"),
        ("5.5", "number", 5.5),
        ("0x5", "integer", "0x5"),
        ("1" * 18, "integer", int("1" * 18)),
        ("1" * 19, "integer", "1" * 19),
        ("[1]", "array", [1]),
        ("1", "array", "1"),
        ('{"a": 1}', "object", {"a": 1}),
        ("[1]", "object", "[1]"),
        ("5", "unheard", "5"),
    ],
)
def test_a_value_becomes_what_it_has_to_be_if_that_is_certain(given: object, kind: str, found: object) -> None:
    assert fit({"a": given}, {"properties": {"a": {"type": kind}}}) == {"a": found}


def test_a_value_becomes_only_one_of_its_choices() -> None:
    schema = {"properties": {"a": {"type": ["integer", "null"], "enum": [1, 2]}}}
    assert [fit({"a": text}, schema)["a"] for text in ("1", "3")] == [1, "3"]


@pytest.mark.parametrize(("times", "found"), [(2, {"a": 1}), (3, None)])
def test_arguments_are_unpacked_three_times(times: int, found: object) -> None:
    text = '{"a": 1}'
    for _ in range(times):
        text = json.dumps(text)
    assert read_object(text) == found


@pytest.mark.parametrize("more", [0, 1])
def test_only_answers_up_to_a_size_are_searched_for_calls(more: int) -> None:
    call = '{"name": "grep", "arguments": {"a": 1}}'
    tool = ToolDefinition("grep", "", '{"type":"object"}')
    text = " " * (MAX_SEARCHED + more - len(call)) + call
    blocks = repaired((Text(text),), [tool], in_text=True)
    assert [isinstance(block, ToolCall) for block in blocks] == [not more]
    assert (read_object(" " * (MAX_SEARCHED - 2 + more) + "{}") is None) == bool(more)


@pytest.mark.parametrize(
    ("written", "is_call"),
    [
        ({"name": "grep", "arguments": {"a": 1}}, True),
        ({"function": {"name": "grep", "arguments": {"a": 1}}, "type": "function", "id": "1"}, True),
        ({"function": {"name": "grep", "arguments": {"a": 1}}}, True),
        ({"function": {"name": "grep", "arguments": {"a": 1}}, "result": 5}, False),
        ({"name": "grep", "arguments": {"a": 1}, "id": "1"}, True),
        ({"name": "grep", "arguments": {"a": 1}, "result": 5}, False),
        ({"name": "grep"}, False),
        ({"arguments": {"a": 1}}, False),
        ({"tool": "grep", "input": '{"a": 1}'}, True),
        ({"name": 5, "arguments": {"a": 1}}, False),
        ({"name": "grep", "arguments": [1]}, False),
        ({"name": "other", "arguments": {"a": 1}}, False),
    ],
)
def test_only_a_name_with_arguments_is_a_call(written: dict[str, object], is_call: bool) -> None:
    tool = ToolDefinition("grep", "", '{"type":"object"}')
    for text in (json.dumps(written), f"<tool_call>{json.dumps(written)}</tool_call>", f"[{json.dumps(written)}]"):
        blocks = repaired((Text(text),), [tool], in_text=True)
        assert [getattr(block, "arguments", "") for block in blocks] == (['{"a":1}'] if is_call else [""])


@pytest.mark.parametrize(
    ("in_text", "ended", "found"),
    [(True, "end_turn", True), (True, "max_tokens", False), (False, "end_turn", False), (False, "refusal", False)],
)
def test_only_where_calls_are_text_and_the_answer_ended_are_they_looked_for(
    in_text: bool, ended: StopReason, found: bool
) -> None:
    completed = Completed((Text('{"name": "grep", "arguments": {}}'),), Usage(), ended)
    repaired = repaired_answer(completed, [ToolDefinition("grep", "", '{"type":"object"}')], in_text=in_text)
    assert isinstance(repaired.blocks[0], ToolCall) == found
    assert repaired.stop_reason == ("tool_calls" if found else ended)


def test_the_newest_of_what_was_learned_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path))
    learned = Learned("learned.json", most=2)
    for key in ("a", "b", "a", "c"):
        learned.keep(key, [key])
    assert [list(learned.of(key)) for key in "abc"] == [["a"], [], ["c"]]
    save_refused(ACME, "m", [f"{number:05}" for number in range(MOST_KEPT)])
    save_refused(ACME, "m", ["00000", "new"])
    kept = load_refused(ACME, "m")
    assert (len(kept), "new" in kept, "00000" in kept) == (5_000, True, False)
    (tmp_path / "refused-reasoning.json").write_text(json.dumps({f"acme  m{number}": ["x"] for number in range(50)}))
    save_refused(ACME, "new", ["x"])
    assert [sorted(load_refused(ACME, model)) for model in ("m0", "m1", "new")] == [[], ["x"], ["x"]]


def test_a_request_that_goes_on_is_known_by_what_was_counted() -> None:
    first, second = user("a"), user("b")
    last = LastMeasured()
    assert last.known(request(first), 10) == KnownSize(0, 10)
    last.take(request(first, one_off=True), 10, 5)
    assert last.known(request(first), 10) == KnownSize(0, 10)
    last.take(request(first, second), 10, 5)
    assert last.known(request(first), 10) == KnownSize(0, 10)  # has fewer messages
    last.take(request(first), 10, 5)
    assert last.known(request(first), 10) == KnownSize(5, 0)
    assert last.known(request(first, second), 14) == KnownSize(5, 4)
    assert last.known(request(first), 9) == KnownSize(0, 9)  # shorter than what was counted
    assert last.known(request(), 10) == KnownSize(0, 10)
    assert last.known(request(user("a")), 10) == KnownSize(0, 10)  # another message, though it says the same
    assert last.known(request(first, system="Other."), 10) == KnownSize(0, 10)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"type": "odd", "a": "x" * 200}, f'(odd: {{"a": "{"x" * 200}"}})'),
        ({"type": "odd", "a": "x" * 201}, '(odd: {"a": "201 characters"})'),
        ({"odd": ["y" * 1_000]}, '(odd: {"odd": ["1,000 characters"]})'),
        ({}, "(nothing: {})"),
    ],
)
def test_what_cannot_be_expressed_is_named_without_what_is_long(fields: dict[str, object], said: str) -> None:
    assert stands_for(fields).text == said


@pytest.mark.parametrize(("more", "is_cut"), [(4, False), (5, True)])
def test_what_cannot_be_expressed_is_cut_at_a_thousand_characters(more: int, is_cut: bool) -> None:
    fields: dict[str, object] = {"type": "odd", "a": [100] * 196, "b": "x" * more}
    assert stands_for(fields).text.endswith("…)") == is_cut


def test_a_picture_is_scaled_from_one_pixel_beyond_its_largest_side() -> None:
    from io import BytesIO

    from PIL import Image as Pillow

    def made(width: int, height: int) -> bytes:
        target = BytesIO()
        Pillow.new("L", (width, height)).save(target, "PNG")
        return target.getvalue()

    def sizes(width: int, height: int) -> tuple[tuple[int, int], bool]:
        found = fitted(made(width, height))
        return found.after, found.changed

    assert sizes(LARGEST_SIDE, 10) == ((2_000, 10), False)
    assert sizes(LARGEST_SIDE + 1, 10) == ((2_000, 10), True)
    assert sizes(10, 4_000) == ((5, 2_000), True)
    assert sizes(8_000, 1) == ((2_000, 1), True)
    assert sizes(1, 8_000) == ((1, 2_000), True)

    def half(data: bytes) -> tuple[float, tuple[int, int]]:
        found = halved(Image("image/png", b64encode(data).decode(), weight=4.0, original="p.png"))
        assert found.original == "p.png"
        return found.weight, Pillow.open(BytesIO(b64decode(found.data))).size

    assert half(made(400, 100)) == (1.0, (200, 50))
    assert half(made(4_000, 2_004)) == (1.0, (1_000, 501))
    assert half(made(1, 1)) == (1.0, (1, 1))
    assert halved(Image("image/png", "eA==", weight=4.0)) == Image("image/png", "eA==", weight=4.0)


def test_a_price_is_rounded_to_a_millionth_and_needs_both_sides() -> None:
    priced = {"input_cost_per_token": 1.23456789e-6, "output_cost_per_token": 2e-6, "cache_read_input_token_cost": 0}
    offer = {"data": [{"model_name": "m", "model_info": priced}, {"model_name": "n", "model_info": {}}]}
    found = facts_of_gateway(json.dumps(offer).encode(), "m").prices
    assert found == Prices(1.234568, 2.0)
    for half in ("input_cost_per_token", "output_cost_per_token"):
        rest = {"data": [{"model_name": "m", "model_info": {**priced, half: None}}]}
        assert facts_of_gateway(json.dumps(rest).encode(), "m").prices is None
    free = {"data": [{"model_name": "m", "model_info": dict.fromkeys(priced, 0)}]}
    assert facts_of_gateway(json.dumps(free).encode(), "m").prices is None
    for told, read in (
        ({"prompt": "0.0000012345678", "completion": "2e-6", "input_cache_read": "-1"}, Prices(1.234568, 2.0)),
        ({"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}, Prices(3.0, 15.0, 0.3)),
        ({"prompt": "-1", "completion": "-1"}, None),  # a model that is chosen for each request
    ):
        assert facts_in(json.dumps({"data": [{"id": "m", "pricing": told}]}).encode(), "m").prices == read
    for said in (EndpointModel(input=1.0), EndpointModel(output=1.0), EndpointModel(input=1.0, output=2.0)):
        endpoint = Endpoint(url="https://a.example/v1", models={"m": said})
        prices = Catalogue({"mine": endpoint}).quick_profile("mine:m").prices
        assert prices == (Prices(1.0, 2.0) if said.input and said.output else None)


@pytest.mark.parametrize(
    ("listed", "facts"),
    [
        ({"context_length": 5}, ServerFacts(window=5)),
        ({"context_length": 5, "context_window": 6}, ServerFacts(window=5)),
        ({"context_length": 0, "max_context_length": 7}, ServerFacts(window=7)),
        ({"top_provider": {"context_length": 4, "max_completion_tokens": 3}, "context_length": 5}, ServerFacts(4, 3)),
        ({"context_length": 5, "max_model_len": 2}, ServerFacts(2, loaded=True)),
        ({"meta": {"n_ctx": 8}, "loaded_context_length": 9}, ServerFacts(9, loaded=True)),
        ({"max_completion_tokens": -1}, ServerFacts()),
        ({"type": "vlm"}, ServerFacts(images=True)),
        ({"architecture": {"input_modalities": ["text", "image"]}}, ServerFacts(images=True)),
        ({"architecture": {"input_modalities": ["text"]}, "type": "vlm"}, ServerFacts(images=False)),
        ({"supported_parameters": ["tools"]}, ServerFacts(tools=True)),
        ({"supported_parameters": []}, ServerFacts(tools=False)),
    ],
)
def test_a_server_says_the_size_of_a_model_under_many_names(listed: dict[str, object], facts: ServerFacts) -> None:
    one = {"data": [{"id": "m", **listed}]}
    assert facts_in(json.dumps(one).encode(), "m") == facts_in(json.dumps(one).encode(), "any") == facts
    two = {"data": [{"id": "m", **listed}, {"id": "n"}]}
    assert facts_in(json.dumps(two).encode(), "m") == facts
    assert facts_in(json.dumps(two).encode(), "any") == ServerFacts()


def test_a_refused_key_is_named_by_the_variable_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    two = msgspec.structs.replace(ACME, keys=("ACME_TOKEN", "ACME_PROFILE"))
    monkeypatch.setenv("ACME_PROFILE", "work")
    assert failure(two, "m", ErrorReply(401, "", "")).message.endswith("check ACME_PROFILE.")
    assert "The key in ACME_PROFILE may not" in failure(two, "m", ErrorReply(403, "", "")).message


def test_a_provider_without_a_key_has_credentials() -> None:
    keyless = msgspec.structs.replace(ACME, keys=())
    assert failure(keyless, "m", ErrorReply(401, "", "")).message.endswith("check the credentials.")
    assert "This account may not use m" in failure(keyless, "m", ErrorReply(403, "", "")).message


@pytest.mark.parametrize(
    ("region", "address"),
    [
        ("global", "https://aiplatform.googleapis.com"),
        ("us", "https://aiplatform.us.rep.googleapis.com"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "https://us-east5-aiplatform.googleapis.com"),
    ],
)
def test_a_region_has_its_address(region: str, address: str) -> None:
    assert region_address(region) == address


def test_a_summary_without_a_model_has_headings_definitions_and_first_sentences() -> None:
    text = "# One\nFirst here. Not this.\nNor this.\n\n    def f(a):\n  Second!  Nor this.\n\n(third)\n- no\n\n42"
    text += "\n\n```sh\n# Not this\n```"
    assert summary_of(text) == "- **One**\n- First here.\n- `def f(a):`\n- (third)\n- 42"
    assert summary_of(text, 5).count("\n") == 4
    assert summary_of(text, 4).endswith("- (third)\n- … and 1 more")
    assert summary_of("\n- \n") == "- (it is empty)"


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("there:openai/gpt-4.1", "openai"),
        ("gemini-2.5-flash", "google"),
        ("no-such-model-at-all", ""),
    ],
)
def test_a_model_by_its_id_alone_is_its_makers(model: str, maker: str) -> None:
    found = sold_anywhere(model)
    assert (found.catalogue if found else "") == maker
    assert found is None or (found.prices is not None and found.cache == "implicit")
