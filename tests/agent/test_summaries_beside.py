"""A due summary is written while the conversation goes on: nobody waits, and nothing is lost whatever comes between."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.agent.serving import Serve
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import of, saved, say, shown, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Summarized, UnattributedCall
from tui_agent.conversation.view import View
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.session import Session

CLAUDE = "claude-opus-5-5"
SLOW = Step(text=HANDOVER, delay=30.0, chunk=20)
"""So slow that it is only over when it is stopped."""
SOON = {
    "model.id": CLAUDE,
    "compaction.threshold_by_tier.frontier": "0.4",
    "compaction.keep_recent_tokens": "2000",
    "compaction.thrift": "0",
    "clearing.by_price": "false",
    "context.preset": "summary-only",
}


class Reading:
    """What the model does: reads three pages for a prompt that says so, six where it says all, then is done.

    A prompt that says it is too much overflows once.
    """

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()

    def __call__(self, request: ParsedRequest) -> Step:
        asked = request.prompt[:40]
        if "too much" in asked and not self._read[asked]:
            self._read[asked] += 1
            return Step(fault=Fault(kind="context_overflow"))
        if "Read" in asked and self._read[asked] < (6 if "all" in asked else 3):
            self._read[asked] += 1
            return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{self._read[asked] - 1}.txt"}),))
        return Step(text=f"Done: {asked}")


class Watched:
    """A session, its server, and what its listeners were told."""

    def __init__(self, session: Session, server: AnthropicServer, reader: Reader) -> None:
        self.session, self.server, self.reader = session, server, reader
        self.told: list[events.AgentEvent] = []
        self._wanted: list[tuple[Callable[[events.AgentEvent], bool], asyncio.Event]] = []
        session.agent.listen(self._hear)

    def _hear(self, event: events.AgentEvent) -> None:
        self.told.append(event)
        for wanted, seen in self._wanted:
            if wanted(event):
                seen.set()

    async def until(self, wanted: Callable[[events.AgentEvent], bool]) -> None:
        """Wait until such an event is told, unless it was told already."""
        seen = asyncio.Event()
        self._wanted.append((wanted, seen))
        if not any(map(wanted, self.told)):
            await asyncio.wait_for(seen.wait(), 60)

    async def until_it_costs(self) -> None:
        """Wait until the provider has said what the summary that is being written has used so far."""
        writing = self.session.agent._steps._background
        assert writing is not None
        for _ in range(60_000):
            if writing.account._running is not None:
                return
            await asyncio.sleep(0.001)
        raise TimeoutError

    @property
    def summaries(self) -> list[Summarized]:
        return [entry for entry in self.session.agent.engine.view.log if isinstance(entry, Summarized)]

    @property
    def errors(self) -> list[str]:
        return [event.error for event in self.told if isinstance(event, events.ContextStep) and event.error]

    @property
    def shown(self) -> str:
        return shown(self.session.agent.engine.view)

    def check(self) -> None:
        view = self.session.agent.engine.view
        assert self.server.violations == []
        assert broken_rules(view.messages()) == []
        assert View(list(view.log)).messages(view.policy) == view.messages()


def begins(event: events.AgentEvent) -> bool:
    return isinstance(event, events.ContextStepStarted) and event.in_background


def enters(event: events.AgentEvent) -> bool:
    return isinstance(event, events.ContextStep) and event.step == "summary" and not event.error


def waits(event: events.AgentEvent) -> bool:
    """A turn stands still until the summary is there."""
    return isinstance(event, events.ContextStepStarted) and not event.in_background


async def say_until_it_waits(it: Watched, text: str, held: Event) -> list[events.AgentEvent]:
    """Say it; once the turn waits for the summary, that is written."""
    told: list[events.AgentEvent] = []
    async for event in it.session.agent.run(text):
        told.append(event)
        if waits(event):
            held.set()
    return told


@asynccontextmanager
async def watched(
    folder: Path, serve: Serve, summary: Step, *, tight: bool = False, resume: str | None = None
) -> AsyncIterator[Watched]:
    """A session whose third page makes a summary due; `summary` is how it is written. `tight`: six pages do not fit."""
    if not (folder / "project").exists():
        (folder / "project").mkdir(parents=True)
        for number in range(6):
            text = "".join(f"line {each} of page {number} names item_{number}_{each}\n" for each in range(500))
            (folder / "project" / f"page_{number}.txt").write_text(text)
    reader = Reader(Reading(), lambda _: summary)
    window = 20_000 if tight else 60_000
    server = serve(AnthropicServer(reader, windows={CLAUDE: window}))
    # Set, too: the server's word comes too late for a busy machine.
    settings = {**SOON, "context.context_window": str(window), **({"context.max_tokens": "1024"} if tight else {})}
    async with talking(folder, settings, resume=resume) as session:
        yield Watched(session, server, reader)


async def test_the_turn_goes_on_while_it_is_written(tmp_path: Path, serve: Serve) -> None:
    held = Event()
    async with watched(tmp_path, serve, Step(text=HANDOVER, held=held)) as it:
        told = await say(it.session, "Read the pages. Never touch page_2.txt!")
        await it.until(begins)
        # The turn is over, and nothing of it waited for the summary.
        assert told[-1].__class__ is events.TurnFinished
        assert not it.summaries
        assert len(it.reader.own) == 4
        held.set()
        await it.until(enters)
        (entry,) = it.summaries
        assert entry.waited_s == 0.0
        assert it.shown.startswith(entry.text)
        # What was said while it was written stays word for word after it.
        assert "Done: Read the pages" in it.shown
        assert "Never touch page_2.txt!" in it.shown
        await say(it.session, "Go on.")
        it.check()


async def test_a_turn_that_runs_takes_it_in_before_its_next_call(tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, Step(text=HANDOVER)) as it:
        await say(it.session, "Read the pages.")
        await it.until(lambda event: begins(event) or enters(event))
        told = await say(it.session, "Read the pages again.")
        await it.until(lambda _: bool(it.summaries))
        it.check()
        entered = [event for event in (*told, *it.told) if enters(event)]
        assert len(entered) == len(it.summaries) > 0


async def test_it_is_stopped_alone(tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, SLOW) as it:
        await say(it.session, "Read the pages.")
        await it.until_it_costs()
        before = it.shown
        assert it.session.agent.context.stop_writing()
        await it.until(lambda event: isinstance(event, events.ContextStep))
        (error,) = it.errors
        assert error.startswith("Stopped by the user. Writing it has cost $")
        assert it.shown == before
        # What it took is counted in the session and in its log.
        spent = [each for each in it.session.agent.engine.view.log if isinstance(each, UnattributedCall)]
        assert [each.purpose for each in spent] == ["unfinished"]
        assert not it.session.agent.context.stop_writing()
        assert (await say(it.session, "Say it."))[-1].__class__ is events.TurnFinished
        it.check()


@pytest.mark.parametrize("change", ["pin", "rewind", "undo", "swap", "compact"])
async def test_what_makes_it_wrong_drops_it(change: str, tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, SLOW) as it:
        agent = it.session.agent
        await say(it.session, "Say something first.")
        plan_of = agent.engine.view.groups()[0].first
        pinned = await agent.context.pin([plan_of]) if change == "undo" else None
        await say(it.session, "Read the pages.")
        assert not it.errors
        await it.until_it_costs()
        match change:
            case "pin":
                assert not isinstance(await agent.context.pin([plan_of]), Refusal)
            case "undo":
                assert isinstance(pinned, events.ContextStep)
                assert not isinstance(await agent.context.undo(pinned.seq), Refusal)
            case "rewind":
                await agent.branches.rewind(agent.branches.prompts()[0].seq)
            case "swap":
                await agent.swap_model(CATALOGUE.create_model("claude-sonnet-5-5"))
            case _:
                it.reader._summary = lambda _: Step(text=HANDOVER)
                assert (await agent.compact()).seq
        assert not it.session.agent.context.stop_writing()
        (error,) = it.errors
        assert "Writing it has cost $" in error
        assert error.startswith("Another summary was asked for.") == (change == "compact")
        it.check()


async def test_what_comes_after_it_leaves_it_right(tmp_path: Path, serve: Serve) -> None:
    held = Event()
    async with watched(tmp_path, serve, Step(text=HANDOVER, held=held)) as it:
        agent = it.session.agent
        await say(it.session, "Read the pages.")
        await say(it.session, "Say this.")
        await agent.branches.rewind(agent.branches.prompts()[-1].seq)
        assert agent.engine.writing is not None
        held.set()
        await it.until(enters)
        assert "Say this." not in it.shown
        it.check()


async def test_a_writer_that_fails_leaves_an_extract(tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, Step(fault=Fault(kind="bad_request"))) as it:
        await say(it.session, "Read the pages.")
        await it.until(enters)
        (entry,) = it.summaries
        assert entry.model == ""
        it.check()


async def test_a_turn_waits_only_where_its_request_does_not_fit(tmp_path: Path, serve: Serve) -> None:
    held = Event()
    async with watched(tmp_path, serve, Step(text=HANDOVER, held=held), tight=True) as it:
        told = await say_until_it_waits(it, "Read all the pages.", held)
        await it.until(lambda _: bool(it.summaries))
        (waited,) = [entry.waited_s for entry in it.summaries if entry.waited_s]
        assert told[-1].__class__ is events.TurnFinished
        stats = it.session.agent.context_stats()
        assert (stats.waits, stats.waited_s) == (1, waited)
        it.check()


async def test_an_overflow_takes_in_the_summary_that_is_being_written(tmp_path: Path, serve: Serve) -> None:
    held = Event()
    async with watched(tmp_path, serve, Step(text=HANDOVER, held=held)) as it:
        await say(it.session, "Read the pages.")
        await it.until(begins)
        told = await say_until_it_waits(it, "Is this too much?", held)
        # The summary made room enough, so nothing was cut for it.
        assert [event.step for event in of(events.ContextStep, told)] == ["summary"]
        (entry,) = it.summaries
        assert entry.model
        assert told[-1].__class__ is events.TurnFinished
        it.check()


async def test_the_wait_is_stopped_and_the_turn_goes_on(tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, SLOW, tight=True) as it:
        told: list[events.AgentEvent] = []
        async for event in it.session.agent.run("Read all the pages."):
            told.append(event)
            if waits(event):
                assert it.session.agent.context.awaits_summary
                assert it.session.agent.context.stop_writing()
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"
        assert any("Stopped by the user." in error for error in it.errors)
        it.check()


async def test_a_session_that_is_closed_meanwhile_is_as_it_was(tmp_path: Path, serve: Serve) -> None:
    async with watched(tmp_path, serve, SLOW) as it:
        await say(it.session, "Read the pages.")
        assert it.session.agent.engine.writing is not None
        before, name = it.shown, it.session.id
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "summary"]
    assert shown(View(await saved(tmp_path))) == before
    async with watched(tmp_path, serve, Step(text=HANDOVER), resume=name) as it:
        # The user begins to write: what is due before the next turn is done meanwhile.
        await it.session.agent.prepare_ahead()
        await it.until(enters)
        assert it.shown.startswith(it.summaries[0].text)
        await say(it.session, "Go on.")
        it.check()


async def test_the_record_of_a_finished_task_is_there_before_the_next_task_is_sent(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "project" / "long.txt").write_text("".join(f"line {i} of the file\n" for i in range(1_500)))
    await say(session, "read long.txt")
    await say(session, "mark task done the file is known")
    assert "line 12 of" in shown(session.agent.engine.view)
    told = await say(session, "list .")
    kinds = [event for event in told if isinstance(event, events.ContextStep | events.ModelCallStarted)]
    assert isinstance(kinds[0], events.ContextStep)
    assert (kinds[0].step, kinds[0].error) == ("checkpoint", "")
    assert "line 12 of" not in shown(session.agent.engine.view)
    assert not any(isinstance(event, events.ContextStepStarted) and event.in_background for event in told)
