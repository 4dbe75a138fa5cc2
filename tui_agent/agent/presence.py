"""What a running session tells other programs of this user about itself, and what they may tell it.

While a session is open, a small file in ``running/`` says what it does: its state, its cost, how full its window is,
and the question that waits for an answer. Another program answers or stops it by a second file, which is looked for
while a turn runs. Only the user may write there: no tool and no sandboxed command can. A file whose session nobody
holds the lock of was left by a program that was killed.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.sessions import SESSIONS_FOLDER
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded
from tui_agent.system.regular import read_bytes
from tui_agent.tools.base import Ask, PermissionAnswer, PermissionQuestion

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

FOLDER: Final = "running"
LOOK_S: Final = 1.0
"""How often a running turn looks whether it is answered or stopped from elsewhere, and says what has changed."""
MOST_BYTES: Final = 4_000_000

State = Literal["idle", "working", "waiting"]


class SessionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session says of itself. Untrusted text.

    `turn`: names the running turn, `asked` the open question; what is told to the session names one of them. `since`:
    when the state began, in seconds since the epoch.
    """

    state: State = "idle"
    since: float = 0.0
    model: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    window: int = 0
    background: bool = False
    turn: str = ""
    asked: str = ""
    question: PermissionQuestion | None = None


class Instruction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What another program tells a session: the answer to the question `to`; without one, to stop the turn `to`."""

    to: str
    answer: PermissionAnswer | None = None


def statuses(home: Path) -> Mapping[str, SessionStatus]:
    """What the sessions that are open now say of themselves, by their ids. Reads files."""
    found: dict[str, SessionStatus] = {}
    for path in sorted((home / FOLDER).glob("*.json")):
        if SessionLock.is_held(home / SESSIONS_FOLDER / path.stem):
            with suppress(OSError):
                if (status := decoded(read_bytes(path, MOST_BYTES), SessionStatus)) is not None:
                    found[path.stem] = status
    return found


def tell(home: Path, session: str, message: Instruction) -> None:
    """Tell a session. Writes a file; raises OSError."""
    write_file(home / FOLDER / f"{session}.told", msgspec.json.encode(message), durable=False)


class Presence:
    """The part of the session called `name`. `ask` is asked first-hand; an answer from elsewhere ends its question."""

    def __init__(self, home: Path, name: str, ask: Ask) -> None:
        self.ask_here = ask
        self.background = False
        """Whether it is on no screen."""
        self._file, self._instructions = (home / FOLDER / f"{name}.{end}" for end in ("json", "told"))
        self._agent: Agent | None = None
        self._questions: dict[str, tuple[PermissionQuestion, asyncio.Future[PermissionAnswer]]] = {}
        self._last = SessionStatus()
        self._turn = ""
        self._task: asyncio.Task[None] | None = None

    async def show(self, agent: "Agent") -> None:
        """Begin to say what this agent does."""
        self._agent = agent
        agent.turns.on_begin.append(self._began)
        await asyncio.to_thread(self._instructions.unlink, missing_ok=True)
        await self._look()

    def _began(self) -> None:
        self._turn = secrets.token_hex(8)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow(), name="presence")

    async def _follow(self) -> None:
        while self._agent is not None:
            await self._look()
            if self._last.state == "idle" and not self._agent.busy:
                return
            await asyncio.sleep(LOOK_S)

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        """The answer, given here or elsewhere."""
        number, elsewhere = secrets.token_hex(8), asyncio.get_running_loop().create_future()
        self._questions[number] = (question, elsewhere)
        here = asyncio.ensure_future(self.ask_here(question))
        try:
            await asyncio.wait((here, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            return here.result() if here.done() else elsewhere.result()
        finally:
            del self._questions[number]
            here.cancel()
            await asyncio.wait((here,))

    async def _look(self) -> None:
        """Take in what was told, and say what is new."""
        message = await asyncio.to_thread(self._taken)
        if message is not None and (open_ := self._questions.get(message.to)) and message.answer is not None:
            if not open_[1].done():
                open_[1].set_result(message.answer)
        elif message is not None and message.answer is None and message.to == self._turn and self._agent is not None:
            self._agent.interrupt()
        now = self._status()
        if now != self._last:
            self._last = now
            with suppress(OSError):
                await asyncio.to_thread(self._write, msgspec.json.encode(now))

    def _status(self) -> SessionStatus:
        agent = self._agent
        if agent is None:
            return self._last
        busy, full = agent.busy, agent.context.fullness()
        asked, (question, _) = next(iter(self._questions.items()), ("", (None, None)))
        state: State = "waiting" if question is not None else "working" if busy else "idle"
        return SessionStatus(
            state=state,
            since=self._last.since if state == self._last.state and self._last.since else time.time(),
            model=agent.profile.name,
            cost_usd=agent.tracker.session.cost_usd,
            tokens=full.tokens,
            window=full.window,
            background=self.background,
            turn=self._turn if busy else "",
            asked=asked,
            question=question,
        )

    def _taken(self) -> Instruction | None:
        with suppress(OSError):
            message = decoded(read_bytes(self._instructions, MOST_BYTES), Instruction)
            self._instructions.unlink()
            return message
        return None

    def _write(self, data: bytes) -> None:
        make_private_folder(self._file.parent)
        write_file(self._file, data, durable=False)

    async def close(self) -> None:
        """Say no more; the files are removed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._agent = None
        for path in (self._file, self._instructions):
            with suppress(OSError):
                await asyncio.to_thread(path.unlink, missing_ok=True)
