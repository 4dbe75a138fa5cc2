"""A large cache that is about to expire, and one that has: in the app, at a server that speaks Anthropic's protocol."""

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from tests.agent.serving import MODELS, serving
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import say, talking
from tests.agent.test_nothing_bricks import prose
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.tui.app_of_parts import agent_of, blocks, project_of_parts, running, send, until, workers_finished
from tests.tui.context.test_panel import text_of
from tui_agent.agent.agent import Agent
from tui_agent.context.cache_life import Pauses
from tui_agent.session_parts import PAUSES_FILE
from tui_agent.settings import load_settings
from tui_agent.text import clock_text
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import BoundaryBlock, NoticeBlock
from tui_agent.tui.context import steering
from tui_agent.tui.context.steering import BEFORE_EXPIRY_S

SETTINGS = {
    "model.id": MODELS["anthropic"],
    "context.cold_notice_usd": "0.05",
    "compaction.thrift": "0",
    "compaction.keep_recent_tokens": "2000",
    "compaction.user_words_tokens": "500",
    "clearing.by_price": "false",
}
TTL_S = 300


class Expiring:
    """The app with a conversation of 45,000 tokens, and a clock that is moved by hand."""

    def __init__(self, app: TuiAgent, pilot: Pilot[object], agent: Agent, asked: Reader) -> None:
        self.app, self.pilot, self.agent, self.asked = app, pilot, agent, asked

    async def watched(self, left_s: float) -> None:
        """Let so many seconds be left until the cache expires, and the app look ahead anew."""
        engine = self.agent.engine
        call = engine.view.last_call
        assert call is not None
        now = engine.view.last_read(call) + TTL_S - left_s
        engine.clock = lambda: now
        self.app.steering.watch(self.agent)
        await self.until(lambda: not [each for each in self.app.workers if each.group == "forecast"])

    async def until(self, true: Callable[[], object]) -> None:
        await until(self.pilot, true)

    def told(self, beginning: str) -> list[str]:
        return [each.title for each in blocks(self.app, NoticeBlock) if each.title.startswith(beginning)]

    @property
    def written(self) -> list[BoundaryBlock]:
        return blocks(self.app, BoundaryBlock)


@asynccontextmanager
async def expiring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: Step, key: str | None = None, **settings: str
) -> AsyncIterator[Expiring]:
    """It, resumed; `key`: that of the provider, if another than the right one."""
    arguments = project_of_parts(monkeypatch, tmp_path, parts=1)
    often = Pauses()
    for _ in range(40):
        often.learn(900, 60_000, 1_000)
    asked = Reader(lambda _: Step(text="I have read it."), lambda _: summary)
    server = serving("anthropic", asked, 1_000_000)
    with in_thread(server):
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        async with talking(tmp_path, SETTINGS) as session:
            for seed in range(3):
                await say(session, prose(50_000, seed))
        (tmp_path / "home" / PAUSES_FILE).write_bytes(msgspec.json.encode(often.all))
        if key is not None:
            monkeypatch.setenv("ANTHROPIC_API_KEY", key)
        assert arguments.project is not None
        given = {**SETTINGS, **settings}
        loaded = load_settings(arguments.home, arguments.project, trusted=False, environ={}, overrides=given)
        async with running(arguments._replace(resume=session.id), loaded, size=(120, 40)) as (app, pilot):
            await workers_finished(pilot)
            yield Expiring(app, pilot, agent_of(app), asked)
    assert server.violations == []


async def test_it_is_announced_written_once_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER)) as it:
        await it.watched(200)
        status, engine = it.app.status.status, it.agent.engine
        assert status.soon == f"summary at {clock_text(time.time() + 200 - BEFORE_EXPIRY_S)}"
        assert "If you are away" in status.ahead
        await it.pilot.press("f2")
        await it.until(lambda: it.app.steering.panel and "If you are away" in text_of(it.app.steering.panel))
        await it.pilot.press("f2")
        assert not it.asked.summaries
        before = engine.tokens
        await it.watched(BEFORE_EXPIRY_S)
        await it.until(lambda: it.written and not it.app.status.status.summarising)
        (line,) = it.told("The cache is about to expire")
        assert line.count("$") == 3
        assert "/undo-step" in line
        assert it.written[0].saved.startswith("saved $"), "it is weighed against reading all of it again"
        assert engine.tokens < before / 2
        # The same pause brings no second one.
        await it.watched(BEFORE_EXPIRY_S)
        assert "summary at" not in it.app.status.status.soon
        await send(it.app, it.pilot, "/undo-step")
        await it.until(lambda: engine.tokens > 0.9 * before)
        await it.watched(BEFORE_EXPIRY_S)
        assert len(it.asked.summaries) == 1


async def test_esc_stops_it_and_what_is_typed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER, held=held)) as it:
        await it.watched(BEFORE_EXPIRY_S)
        await it.until(lambda: it.app.status.status.summarising and it.asked.summaries)
        assert it.app.status.status.soon == ""
        it.app.entry.prompt.focus()
        it.app.entry.prompt.type("And now")
        await it.pilot.press("escape")
        await it.until(lambda: not it.app.status.status.summarising)
        held.set()
        assert it.app.entry.prompt.text == "And now"
        await it.watched(BEFORE_EXPIRY_S)
        assert len(it.asked.summaries) == 1
        assert len(it.told("The cache is about to expire")) == 1


async def test_a_prompt_is_answered_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER, held=held)) as it:
        await it.watched(BEFORE_EXPIRY_S)
        await it.until(lambda: it.app.status.status.summarising and it.asked.summaries)
        answered = len(it.asked.own)
        await send(it.app, it.pilot, "And now?")
        await it.until(lambda: len(it.asked.own) > answered and not it.app.conductor.busy)
        assert not it.written
        held.set()
        await it.until(lambda: it.written and not it.app.status.status.summarising)


@pytest.mark.parametrize("setting", [("compaction.before_expiry", "false"), ("agent.max_session_cost_usd", "0.01")])
async def test_where_none_may_be_written_none_is_announced(
    setting: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER), **dict([setting])) as it:
        await it.watched(BEFORE_EXPIRY_S)
        assert "summary at" not in it.app.status.status.soon
        assert not it.asked.summaries
        assert not it.told("The cache is about to expire")


async def test_after_the_machine_slept_the_expiry_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "LOOK_AGAIN_S", 0.1)
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER)) as it:
        await it.watched(200)
        engine = it.agent.engine
        woken = engine.clock() + 3_600
        engine.clock = lambda: woken
        await it.until(lambda: it.told("The cache expired: your next message costs $0."))
        assert not it.asked.summaries


async def test_back_after_a_pause_the_price_is_told_before_the_provider_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with expiring(tmp_path, monkeypatch, Step(text=HANDOVER), key="") as it:
        # Without a key nobody is asked for the prices.
        assert it.agent.profile.prices is None
        await it.watched(0)
        await it.until(lambda: it.told("The cache expired: your next message costs $0."))
        await it.watched(0)
        assert len(it.told("The cache expired")) == 1
