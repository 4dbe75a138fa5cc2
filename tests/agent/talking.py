"""A real session in this process: a home and a project of its own, and a person who answers every question alike."""

import shutil
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.conversation.logs import broken_rules
from tests.servers.coding_task import make_coding_workspace
from tui_agent.agent.agent import Agent
from tui_agent.agent.events import AgentEvent, TurnFailed, TurnFinished
from tui_agent.agent.turn.watchdog import Watchdog
from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry
from tui_agent.conversation.view import View
from tui_agent.session import Session, open_session
from tui_agent.settings import GivenValue, Settings, load_settings
from tui_agent.storage.log import LogStore
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion

Kind = TypeVar("Kind")


class Person:
    """Answers every question alike, and keeps them."""

    def __init__(self, allowed: bool = True, **answer: Any) -> None:
        self.asked: list[PermissionQuestion] = []
        self._answer = PermissionAnswer(allowed, **answer)

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        self.asked.append(question)
        return self._answer

    @property
    def tools(self) -> list[str]:
        """What each question was about."""
        return [question.tool for question in self.asked]


@asynccontextmanager
async def talking(
    folder: Path,
    settings: Mapping[str, GivenValue] | Settings | None = None,
    *,
    ask: Ask | None = None,
    resume: str | None = None,
    trusted: bool = False,
    one_shot: bool = False,
    yolo: bool = False,
    watchdog: Watchdog | None = None,
    user_home: Path | None = None,
) -> AsyncIterator[Session]:
    """An open session below `folder`; `settings` are loaded ones, or what is to be set with the offline model. Without
    `ask`, everything is allowed.
    """
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True, exist_ok=True)
    if not project.exists():
        make_coding_workspace(project)
    loaded = settings
    if not isinstance(loaded, Settings):
        overrides = {"model.id": "offline", "file_history.max_seconds": "60", **(loaded or {})}
        loaded = load_settings(home, project, trusted=trusted, environ={}, overrides=overrides)
    arguments = Arguments(
        folder=project,
        home=home,
        project=project,
        user_home=user_home,
        resume=resume,
        trusted=trusted,
        one_shot=one_shot,
        yolo=yolo,
    )
    session = await open_session(loaded, arguments, ask or Person(), watchdog=watchdog)
    try:
        yield session
    finally:
        await session.close()


async def say(to: Session | Agent, prompt: str = "", images: tuple[Image, ...] = ()) -> list[AgentEvent]:
    """One turn; its events."""
    agent = to if isinstance(to, Agent) else to.agent
    return [event async for event in agent.run(prompt, images)]


async def goes_on(session: Session, *prompts: str, images: tuple[Image, ...] = ()) -> list[AgentEvent]:
    """Turns that end well and leave a valid conversation; the events of the last one."""
    told: list[AgentEvent] = []
    for prompt in prompts:
        told = await say(session, prompt, images)
        assert failures(told) == []
        assert isinstance(told[-1], TurnFinished)
        assert told[-1].stop_reason == "end_turn"
        assert broken_rules(session.agent.engine.view.messages()) == []
    return told


def failures(told: Iterable[AgentEvent]) -> list[str]:
    """The kinds of what ended turns."""
    return [event.kind for event in of(TurnFailed, told)]


def of(kind: type[Kind], told: Iterable[object]) -> list[Kind]:
    """The events, entries or blocks of this kind."""
    return [each for each in told if isinstance(each, kind)]


def results(session: Session) -> list[ToolResult]:
    """All the results that the model is shown."""
    return of(ToolResult, [block for message in session.agent.engine.view.messages() for block in message.blocks])


def texts(view: View) -> list[str]:
    """All the texts that the model is shown, results aside."""
    return [block.text for message in view.messages() for block in message.blocks if isinstance(block, Text)]


def pages(folder: Path, count: int, *, lines: int = 200) -> None:
    """The files ``page_N.txt`` in the project below `folder`."""
    project = folder / "project"
    project.mkdir(parents=True)
    for number in range(count):
        text = "".join(f"line {each} of page {number} names item_{number}_{each}\n" for each in range(lines))
        (project / f"page_{number}.txt").write_text(text)


ASKED = ("read calc.py", "read test_calc.py", "find 'return' in .", "read calc.py and test_calc.py")
NEVER_BY_PRICE = {"compaction.thrift": "0", "clearing.by_price": "false"}


def copied(talked: Path, to: Path) -> tuple[Path, str]:
    """A copy of a folder with one session, and the session's name."""
    folder = Path(shutil.copytree(talked, to, dirs_exist_ok=True))
    (name,) = (each.name for each in (folder / "home" / "sessions").iterdir())
    return folder, name


async def put(session: Session, *entries: AnyEntry) -> int:
    """Bring entries into the session's log, as something that happened; the number of the last one."""
    engine = session.agent.engine
    for entry in entries:
        stamped = engine.view.log.stamp(entry, time.time())
        await session.persistence.store.append([stamped])
        engine.apply(stamped)
    return len(engine.view.log)


def shown(view: View) -> str:
    """All the model reads, as one text."""
    texts: list[str] = []
    for message in view.messages():
        for block in message.blocks:
            if isinstance(block, Text | ToolResult):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                texts.append(block.arguments)
    return "\n".join(texts)


async def saved(folder: Path) -> list[AnyEntry]:
    """What lies on disk of the one session below `folder`."""
    (session,) = (folder / "home" / "sessions").iterdir()
    return await saved_in(session)


async def saved_in(session: Path) -> list[AnyEntry]:
    store = await LogStore.open(session)
    try:
        return list(await store.load())
    finally:
        await store.close()
