"""What each provider is sent for one conversation, under every option that changes it, against what it was sent before.

`bodies.txt` has a body a line. After a change that is meant: ``.venv/bin/python -m tests.models.test_bodies`` writes it
anew; look at what changed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from tests.models.talking import assistant, user
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.wire import write_opaque
from tui_agent.models.anthropic.request import (
    THINKING_BUDGET,
    AnthropicEncoder,
    AnthropicOptions,
    betas,
    block_at,
    picture_at,
)
from tui_agent.models.gemini.request import GeminiEncoder
from tui_agent.models.ollama.request import OllamaEncoder, OllamaOptions
from tui_agent.models.openai.chat_request import ChatEncoder, ChatOptions
from tui_agent.models.openai.responses_request import ResponsesEncoder, ResponsesOptions

KEPT: Final = Path(__file__).with_name("bodies.txt")
PNG: Final = Image("image/png", "AAAA")
ODD: Final = Image("image/heic", "BBBB")
LONG: Final = "x" * 70
SCHEMA: Final = '{"type":"object"}'
FOUND: Final = ToolDefinition("later", "Found.", SCHEMA, deferred=True)
TOOLS: Final = (
    FOUND,
    ToolDefinition("grep", "Finds\ud800.", SCHEMA),
    ToolDefinition("bad", "", "no schema"),
    ToolDefinition("web_search", "", SCHEMA, hosted=True),
)


def _talk(**signed: str) -> ModelRequest:
    """A conversation of all kinds of blocks, whose signed ones are `signed` so; numbers are of the blocks."""
    opaque = write_opaque(**signed)
    messages = (
        user("one", PNG, " ", Reasoning("never")),
        assistant(
            Reasoning("two-a\n\ntwo-b", opaque),
            Reasoning("foreign"),
            " \n",
            Text("three", opaque),
            Text("said apart", write_opaque(**signed, apart="yes")),
            ToolCall("c1", "grep", '{"a":1}', opaque),
            ToolCall(LONG, LONG, "[]"),
            ToolCall("c3", "läuft", "{}"),
            ToolCall("c4", "find_tool", "{}"),
        ),
        user(
            ToolResult("c1", "four", images=(PNG, ODD)),
            ToolResult(LONG, " ", is_error=True, images=(PNG,)),
            ToolResult("c3", " ", images=(PNG,)),
            ToolResult("c4", "later", tools=(FOUND,)),
            "five\udfff",
        ),
        assistant("six", ToolCall("c5", "grep", "{}")),
        user(ToolResult("c5", "seven"), ODD, ToolResult("c9", "of no call")),
        assistant(Reasoning("eight", opaque)),
        assistant("nine", Reasoning("unfinished", opaque), " "),
        user("ten"),
    )
    return ModelRequest("You help\ud800.", TOOLS, messages, 9_000, cache_edges=(0, 2, 4, 7, 9))


def _anthropic() -> Iterator[tuple[str, bytes]]:
    talk = _talk(signature="s")
    plain = AnthropicOptions("claude", "adaptive", bound=True)
    signed = Text("so far", write_opaque(compaction='{"type":"compaction","content":"x"}'))
    short = ModelRequest("", (), (user(signed, "on"),), 100)
    budget = replace(plain, thinking="enabled", bound=False)
    for name, request, options in (
        ("all", talk, plain),
        ("no system", replace(talk, system=" "), plain),
        ("one-off", replace(talk, one_off=True), plain),
        ("hour for the prefix", replace(short, system="S", cache_hours="prefix"), plain),
        ("hour for all", replace(short, system="S", tools=TOOLS, cache_hours="all"), plain),
        ("hour without", replace(short, cache_hours="all"), replace(plain, without=frozenset({"hour"}))),
        ("signed summary alone", replace(short, messages=(user(signed),)), plain),
        ("signed summary as text", short, replace(plain, without=frozenset({"compaction"}))),
        ("summarise", replace(short, summarize="", follows="m"), replace(plain, diagnoses=True)),
        ("summarise so", replace(short, summarize="y" * 16_385), replace(plain, without=frozenset({"compaction"}))),
        ("follows", replace(short, follows="m1"), replace(plain, diagnoses=True)),
        ("follows none", replace(short, follows=""), replace(plain, diagnoses=True)),
        ("follows unasked", replace(short, follows="m1"), plain),
        ("only deferred tools", replace(short, tools=(FOUND,)), plain),
        ("budget", replace(short, max_tokens=THINKING_BUDGET + 1), budget),
        ("no room for a budget", replace(short, max_tokens=THINKING_BUDGET), budget),
        ("budget bound", replace(short, max_tokens=9_000), replace(budget, bound=True)),
        ("budget in a loop of another's", replace(talk, messages=(*talk.messages[:1], *talk.messages[3:5])), budget),
        ("budget in a loop of its own", replace(talk, messages=talk.messages[:3]), budget),
        ("budget behind a loop", replace(talk, messages=(*talk.messages[3:5], user("go"))), budget),
        ("off", short, replace(plain, thinking="off")),
        ("effort", short, replace(plain, effort="max")),
        ("cloud", short, replace(plain, version="v1")),
        ("cloud with betas", short, replace(plain, version="v1", betas_inside=True)),
        ("nothing", replace(short, messages=()), replace(plain, thinking="off", version="v1", betas_inside=True)),
        *(
            (f"without {feature}", short, replace(plain, without=frozenset({feature})))
            for feature in ("betas", "binding", "display", "caching")
        ),
    ):  # fmt: skip
        yield f"anthropic {name}", AnthropicEncoder().encode(request, options) + f" {betas(options, request)}".encode()


def _gemini() -> Iterator[tuple[str, bytes]]:
    short = ModelRequest("", (), (user("go"),), 10)
    for model in ("gemini-3.8-flash", "gemini-2.5-pro"):
        yield f"{model} all", GeminiEncoder(model).encode(_talk(model=model, signature="s", id="i"))
    yield "gemini only search", GeminiEncoder("gemini-3").encode(replace(short, tools=TOOLS[3:]))
    yield "gemini no search", GeminiEncoder("gemini-3").encode(replace(short, tools=TOOLS[:2]))
    for model in ("gemini-3", "gemini-2.5"):
        for effort in ("", "low", "medium", "high", "max"):
            yield f"{model} {effort}", GeminiEncoder(model).encode(short, effort)
    for model in ("gemini-2.0", "gemini-1.5", "gemma-3"):  # these do not think
        yield f"{model} high", GeminiEncoder(model).encode(short, "high")


def _openai() -> Iterator[tuple[str, bytes]]:
    short = ModelRequest("", (), (user("go"),), 10)
    chat = ChatOptions("m", "max_tokens", "content", sees=True)
    talk = _talk(details='["{\\"n\\":1}"]')
    called = replace(short, messages=(user("go"), assistant(ToolCall("c", "see", "{}")), user(ToolResult("c", "it"))))
    for name, request, options in (
        ("all", talk, chat),
        ("blind, details", talk, replace(chat, sees=False, thoughts="details")),
        ("strict", talk, replace(chat, strict=True)),
        ("counted", talk, replace(chat, counted=True, model="kimi-k2")),
        ("no thoughts", talk, replace(chat, thoughts="")),
        ("excused", called, replace(chat, thoughts="details", model="google/gemini-3-pro")),
        ("not excused", called, replace(chat, thoughts="details", model="google/gemini-2.5-pro", empty=True)),
        ("other", short, replace(chat, counts=False, limit="max_completion_tokens", effort="high")),
        ("most effort", short, replace(chat, effort="max")),
    ):  # fmt: skip
        yield f"chat {name}", ChatEncoder().encode(request, options)
    reasoning = ResponsesOptions("m", reasons=True, summaries=True)
    sealed = _talk(encrypted="e", parts="5,5", id="r", phase="final")
    window = Text("so far", write_opaque(compacted='{"type":"compaction"}'))
    for name, request, wanted in (
        ("all", sealed, reasoning),
        ("one-off", replace(short, one_off=True), reasoning),
        ("summarise", replace(sealed, messages=(user(window, "on"),), summarize=""), reasoning),
        ("foreign", _talk(signature="s"), replace(reasoning, status=True)),
        ("blind, no reasoning", sealed, replace(reasoning, reasons=False, sees=False)),
        ("no summaries", short, replace(reasoning, summaries=False)),
        ("effort", short, replace(reasoning, summaries=False, effort="low")),
        ("most effort", short, replace(reasoning, effort="max")),
    ):
        yield f"responses {name}", ResponsesEncoder().encode(request, wanted)
    ollama = OllamaOptions("m", 8_192, thinks=True, sees=True)
    for asked in (ollama, replace(ollama, context=0, thinks=False, sees=False)):
        encoded = OllamaEncoder().encode(talk, asked)
        yield f"ollama {'sees' if asked.sees else 'blind'} {encoded.size}", encoded.data
    for effort in ("low", "medium", "high", "max"):
        yield f"ollama {effort}", OllamaEncoder().encode(short, replace(ollama, effort=effort)).data


def _written() -> str:
    cases = [*_anthropic(), *_gemini(), *_openai()]
    return "".join(f"{name}: {body.decode()}\n" for name, body in cases)


def test_each_provider_is_sent_what_it_was_sent() -> None:
    kept = KEPT.read_text("utf-8").splitlines()
    assert _written().splitlines() == kept


_PICTURES: Final = (Image("image/png", "A"), Image("image/png", "B"))


@pytest.mark.parametrize(
    ("place", "block", "pictures"),
    [
        ("messages.0.content.0", "Text", ""),
        ("messages.0.content.1.source", "Image", "C"),
        ("messages.0.content.2", None, ""),
        ("messages.0", None, ""),
        ("messages.1.content.0", "ToolCall", ""),
        ("messages.2.content.0", "ToolResult", "AB"),
        ("messages.2.content.0.content.0", "ToolResult", "AB"),  # its text
        ("messages.2.content.0.content.1", "ToolResult", "A"),
        ("messages.2.content.0.content.2.source", "ToolResult", "B"),
        ("messages.2.content.0.content.3", "ToolResult", "AB"),
        ("messages.2.content.1.content.0", "ToolResult", "A"),  # has no text
        ("messages.3.content.0", None, ""),
        ("", None, ""),
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_what_a_path_of_a_request_names(place: str, block: str | None, pictures: str, signed: bool) -> None:
    first = user("look", Image("image/png", "C"), " ")
    called = assistant(ToolCall("c", "see", "{}"), ToolCall("d", "see", "{}"), Reasoning("cut off"))
    results = user(ToolResult("c", "seen", images=_PICTURES), ToolResult("d", "", images=_PICTURES))
    request = ModelRequest("", (), (first, assistant(Reasoning("nothing else")), called, results), 10)
    if signed:  # a message of its own stands in front
        summary = Text("so far", write_opaque(compaction='{"type":"compaction"}'))
        request = replace(request, messages=(user(summary, *first.blocks), *request.messages[1:]))
        place = ".".join(str(int(part) + 1) if at == 1 else part for at, part in enumerate(place.split(".")))
    found = block_at(request, place)
    assert (type(found).__name__ if found is not None else None) == block
    assert "".join(image.data for image in picture_at(request, place)) == pictures


if __name__ == "__main__":
    KEPT.write_text(_written(), "utf-8")
