"""The real app on a fixed stage: a small project, the offline model, and nothing that differs from run to run."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace
from textual.pilot import Pilot

from tests.gallery import conversations
from tui_agent.agent.events import AgentEvent
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock, ReasoningBlock
from tui_agent.tui.session.turns import TurnView
from tui_agent.version import __version__

SHOWN_VERSION: Final = "1.0"
"""Stands in for the version, so that a release changes no picture."""

OFFLINE: Final = Settings(model=ModelSettings(id="offline"))

_UNSET: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "NO_COLOR",
)


@dataclass(slots=True)
class Stage:
    """An app that runs, and how a state brings it to where its picture is taken.

    working: seconds since the running turn began, as the picture shows them; None: no turn runs.
    """

    app: TuiAgent
    pilot: Pilot[object]
    folder: Path
    working: float | None = None
    _view: TurnView = field(init=False)

    def __post_init__(self) -> None:
        self._view = TurnView(self.app.pane.transcript, self.app.status, self.app.conductor)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something; a minute at most."""
        async with asyncio.timeout(60):
            while not true():
                await self.pilot.pause(0.01)

    async def open(self) -> None:
        """Wait for the session, and for what is learned of its model."""
        await self.until(lambda: self.app.conductor.session is not None and bool(self.app.status.status.model))
        await self.idle()

    async def idle(self) -> None:
        """Wait until nothing runs any more; what a later worker replaced counts as done."""
        await self.until(lambda: all(worker.is_finished for worker in self.app.workers))

    async def write(self, text: str) -> None:
        """Type into the prompt; in one go, since pressing each key takes a tenth of a second."""
        self.app.entry.prompt.type(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Type a text and send it."""
        await self.write(text)
        await self.pilot.press("enter")

    def play(self, events: Sequence[AgentEvent], *, running: float | None = None) -> None:
        """Show a turn from its events. running: it goes on, and has done so for this many seconds."""
        self._view.begin()
        for event in events:
            self._view.show(event)
        self.working = running
        if running is None:
            self._view.end()

    def fill(self) -> None:
        """Say how full the window is, whatever the system prompt and the tools have grown to."""
        self.app.status.show(tokens=2_900, measured=True)

    def time_reasoning(self, *seconds: float) -> None:
        """Say how long each piece of reasoning took; nothing took any time here."""
        transcript = self.app.pane.transcript
        thoughts = [block for block in transcript.blocks if isinstance(block, ReasoningBlock)]
        for block, length in zip(thoughts, seconds, strict=True):
            transcript.finish(block, seconds=length, tokens=block.tokens)


@asynccontextmanager
async def staged(
    settings: Settings, arrange: Callable[[Arguments], Awaitable[Arguments]], size: tuple[int, int]
) -> AsyncIterator[Stage]:
    """The app as it is after its start, in a new home and a new copy of the project."""
    with TemporaryDirectory(prefix="tui-agent-gallery-") as place:
        home = Path(place)
        folder = conversations.make_project(home / "ledger")
        with _pinned_environment(home):
            arguments = await arrange(Arguments(folder=folder, home=home / "state", project=folder))
            app = TuiAgent(arguments, _without_sandbox(settings))
            app.animation_level = "none"
            async with app.run_test(size=size) as pilot:
                stage = Stage(app, pilot, folder)
                await stage.until(lambda: app.completed)
                _pin_version(app)
                try:
                    yield stage
                finally:
                    await app.conductor.close()


def _without_sandbox(settings: Settings) -> Settings:
    """Whether a system offers a sandbox is not part of a picture."""
    return replace(settings, permissions=replace(settings.permissions, sandbox="off"))


@contextmanager
def _pinned_environment(home: Path) -> Iterator[None]:
    before = dict(os.environ)
    for name in _UNSET:
        os.environ.pop(name, None)
    os.environ |= {
        "HOME": str(home),
        "TUI_AGENT_HOME": str(home / "state"),
        "TUI_AGENT_OFFLINE_DELAY_S": "0",
        "OLLAMA_HOST": "127.0.0.1:9",  # nobody listens there
        "TERM": "xterm-256color",
        "TZ": "UTC",
    }
    time.tzset()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
        time.tzset()


def _pin_version(app: TuiAgent) -> None:
    greeting = app.pane.transcript.blocks[0]
    assert isinstance(greeting, NoticeBlock)
    assert __version__ in greeting.title
    greeting.title = greeting.title.replace(__version__, SHOWN_VERSION)
    app.pane.show(app.pane.transcript)
