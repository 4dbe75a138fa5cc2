"""Sessions of this program that are on no screen: each runs one turn, then it is closed."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from tui_agent.text import counted, money_text, one_line
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host

if TYPE_CHECKING:
    from tui_agent.session import Session
    from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

MOST: Final = 5
"""How many sessions may run in the background at once."""
TITLE: Final = 40


class Background:
    """The sessions in the background of one app. Their questions wait for an answer in the list of sessions."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._closing = False
        self._turns: dict[asyncio.Task[None], asyncio.Task[None]] = {}

    @property
    def running(self) -> int:
        return len(self._turns)

    def has_room(self) -> bool:
        """Whether one more may run; says so if not."""
        if self.running >= MOST:
            running = f"{counted(MOST, 'session')} run in the background already"
            self._host.say(Level.WARNING, running, hint="/sessions shows them")
        return self.running < MOST

    async def begin(self, prompt: str) -> None:
        """Send this prompt in a new session of this folder, with the model and mode of the present one."""
        from tui_agent.session import SessionError, open_session

        if not self.has_room():
            return
        host = self._host
        await host.agent()
        target = host.arguments._replace(prompt=None, resume=None, continue_last=False, fork=False)
        try:
            session = await open_session(host.kept_choices, target, _unanswered)
        except SessionError as error:
            host.say(Level.ERROR, "The session could not be opened", error.message, error.hint)
            return

        async def run() -> None:
            async with aclosing(session.agent.run(prompt)) as events:
                async for _ in events:
                    pass

        self.tell(self.keep(session, run(), prompt))

    def tell(self, title: str) -> None:
        """Say that it goes on in the background."""
        self._host.say(Level.INFO, f"“{title}” goes on in the background", hint="/sessions shows what it does")

    def keep(self, session: "Session", turn: "Coroutine[None, None, None]", words: str) -> str:
        """Take over a session with its turn. `words`: what it is about; returns what it is called."""
        title = one_line(words, TITLE) or session.id

        async def ask(question: "PermissionQuestion") -> "PermissionAnswer":
            message = f"“{title}” asks: {one_line(question.asked, 80)}"
            self._host.say(Level.WARNING, message, hint="/sessions answers it")
            self._host.call_attention(message)
            return await _unanswered(question)

        session.presence.background, session.presence.ask_here = True, ask
        session.background.on_change = lambda: None
        running = asyncio.create_task(turn, name="background turn")
        whole = asyncio.create_task(self._ended(session, running, title), name="background")
        self._turns[whole] = running
        whole.add_done_callback(self._turns.pop)
        return title

    async def _ended(self, session: "Session", turn: asyncio.Task[None], title: str) -> None:
        try:
            await asyncio.wait((turn,))
        finally:
            turn.cancel()
            await session.close()
        if self._closing:
            return
        message = f"“{title}” has ended, {money_text(session.agent.tracker.session.cost_usd)}"
        self._host.say(Level.INFO, message, hint=f"/resume {session.id} opens it")
        self._host.call_attention(message)

    async def close(self) -> None:
        """Stop the turns and close the sessions; everything is kept."""
        self._closing = True
        for turn in self._turns.values():
            turn.cancel()
        if self._turns:
            await asyncio.wait(tuple(self._turns))


async def _unanswered(question: "PermissionQuestion") -> "PermissionAnswer":
    answer: asyncio.Future[PermissionAnswer] = asyncio.get_running_loop().create_future()
    return await answer
