"""A request larger than the model takes: made smaller once and sent again, and a clear error when that fails too."""

import json
from pathlib import Path

import pytest

from tests.agent.serving import MODELS, Serve, serving
from tests.agent.summaries import Reader
from tests.agent.talking import failures, goes_on, of, pages, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Message
from tui_agent.session import Session

PRESETS = ["layered", "digest", "summary-only", "off"]
SOAKED = [pytest.param(preset, marks=pytest.mark.soak) for preset in ("digest", "summary-only")]
MARKER = "the-needle-of-line-four-hundred"


def reading(request: ParsedRequest) -> Step:
    """Four pages, then an answer."""
    if request.position < 4:
        return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{request.position}.txt"}),))
    return Step(text="All pages are read.")


def size_of(request: ParsedRequest) -> int:
    return len(json.dumps(request.body.get("messages") or request.body.get("contents")))


@pytest.mark.parametrize(
    ("provider", "preset", "auto"),
    [
        *(("anthropic", preset, "true") for preset in PRESETS),
        ("anthropic", "layered", "false"),
        ("gemini", "layered", "true"),
        *(pytest.param("gemini", preset, "false", marks=pytest.mark.soak) for preset in PRESETS),
    ],
)
async def test_an_overflow_is_recovered_from_once_and_a_second_is_a_clear_error(
    provider: str, preset: str, auto: str, tmp_path: Path, serve: Serve
) -> None:
    pages(tmp_path, 4, lines=300)
    reader = Reader(reading)
    server = serve(serving(provider, reader))
    settings = {"model.id": MODELS[provider], "context.preset": preset, "compaction.auto": auto}
    async with talking(tmp_path, settings) as session:
        await goes_on(session, "Read the pages.")
        server.inject(Fault(kind="context_overflow"))
        before = len(reader.own)
        assert of(events.ContextStep, await goes_on(session, "Read the pages again, please."))
        refused, accepted = reader.own[before : before + 2]
        assert size_of(accepted) < size_of(refused)
        assert (await session.agent.context.recall("line 299 of page 2")).hits
        kept = list(session.agent.engine.view.log)
        server.inject(Fault(kind="context_overflow", times=2))
        (failed,) = of(events.TurnFailed, await say(session, "And once more, please."))
        assert (failed.kind, bool(failed.hint)) == ("context_overflow", True)
        log = list(session.agent.engine.view.log)
        assert log[: len(kept)] == kept
        assert said_last(log) == "And once more, please."
        assert broken_rules(session.agent.engine.view.messages()) == []
        assert failures(await say(session)) == []
    async with talking(tmp_path, {**settings, "compaction.max_compaction_recoveries": "0"}) as session:
        await goes_on(session, "Read the pages.")
        server.inject(Fault(kind="context_overflow"))
        before = len(reader.own)
        assert failures(await say(session, "Again.")) == ["context_overflow"]
        assert len(reader.own) == before + 1


@pytest.mark.parametrize("preset", [*SOAKED, "layered", "off"])
async def test_a_window_smaller_than_believed_is_learned_from_the_overflow(
    preset: str, tmp_path: Path, serve: Serve
) -> None:
    pages(tmp_path, 4, lines=300)
    server = serve(AnthropicServer(Reader(reading), windows={"claude-opus-5-5": 20_000}), may_break=True)
    settings = {"model.id": "claude-opus-5-5", "context.context_window": "200000", "context.preset": preset}
    async with talking(tmp_path, settings) as session:
        for turn in range(4):
            await goes_on(session, f"Read the pages, time {turn}.")
        assert session.agent.context_stats().window == 20_000
    refused = [answer for answer in server.answers if "prompt is too long" in answer.detail]
    assert len(refused) == 1


def said_last(log: list[AnyEntry]) -> str:
    texts = [
        block.text
        for entry in log
        if isinstance(entry, Message) and entry.role == "user" and not entry.kind
        for block in entry.blocks
        if isinstance(block, Text)
    ]
    return texts[-1]


def paste() -> str:
    lines = [f"{number} of a very long paste" for number in range(30_000)]
    lines[400] = MARKER
    return "\n".join(lines)


async def found_again(session: Session, path: str) -> None:
    assert MARKER in (session.folder / path).read_text()
    recalled = await session.agent.context.recall(MARKER)
    assert any(MARKER in hit.excerpt for hit in recalled.hits)


async def test_a_text_larger_than_the_window_becomes_a_file(session: Session) -> None:
    told = await say(session, paste())
    assert failures(told) == []
    assert [event.title for event in of(events.Notice, told)] == ["The text is too large for the window"]
    entered = next(
        entry for entry in session.agent.engine.view.log if isinstance(entry, Message) and entry.artifact is not None
    )
    assert entered.artifact is not None
    assert entered.artifact.path in said_last([entered])
    assert (session.folder / entered.artifact.path).read_text() == paste()
    await found_again(session, entered.artifact.path)
    assert failures(await say(session, "read calc.py")) == []
    again = await say(session, f"read {entered.artifact.path}")
    pages = [event.status for event in of(events.ToolFinished, again)]
    assert pages == ["ok"]


async def test_so_does_one_sent_while_a_turn_runs(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        queued, told = 0, []
        async for event in session.agent.run("read calc.py"):
            told.append(event)
            if isinstance(event, events.ToolStarted) and not queued:
                queued = await session.agent.queue(paste())
        assert failures(told) == []
        heard = of(events.UserMessage, told)
        assert [event.queued for event in heard] == [0, queued]
        assert "[Cut at half of" in heard[1].text
        assert session.agent.turns.queued() == ()
    async with talking(tmp_path, resume=session.id) as session:
        assert session.agent.turns.queued() == ()
        shown = [event.text for event in session.agent.branches.history() if isinstance(event, events.UserMessage)]
        assert shown == [event.text for event in heard]
        assert failures(await say(session, "read calc.py")) == []
