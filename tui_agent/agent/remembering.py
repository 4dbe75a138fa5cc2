"""Notes that the small model proposes from what the user said, once a session is idle: only if the settings say so."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tui_agent.agent.inbox import MOST_CHARS, MemoryProposals
from tui_agent.conversation.blocks import text_in
from tui_agent.conversation.entries import Message
from tui_agent.system.resources import prompt_text
from tui_agent.text import clean, one_line
from tui_agent.tools.subtasks import SubtaskSpec

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

IDLE_S: Final = 120.0
MOST: Final = 5
SAID_CHARS: Final = 20_000
"""Characters of what the user said that are given to the model, from the end."""
LEAST_CHARS: Final = 200


class Remembering:
    """Follows one session. What is said is looked at once."""

    def __init__(self, agent: "Agent", inbox: MemoryProposals, session: str) -> None:
        self._agent, self._inbox, self._session = agent, inbox, session
        self._seen = len(agent.engine.view.log)
        self._waiting: asyncio.Task[None] | None = None
        agent.turns.on_begin.append(self._began)

    def _began(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.create_task(self._wait(), name="remembering")

    async def _wait(self) -> None:
        await asyncio.sleep(IDLE_S)
        if self._agent.busy:
            self._waiting = asyncio.create_task(self._wait(), name="remembering")
            return
        log = self._agent.engine.view.log
        new = log.path().after(self._seen).of(Message)
        said = (text_in(message.blocks) for message in new if message.role == "user" and not message.kind)
        text = "\n\n".join(filter(None, said))[-SAID_CHARS:]
        if len(text) < LEAST_CHARS:
            return
        self._seen = len(log)
        spec = SubtaskSpec(system=prompt_text("remember").strip(), prompt=text, title="memory", steps=1)
        result = await self._agent.run_subtask(spec)
        found = (line[1:] for line in result.text.splitlines() if line.startswith("-"))
        lines = [one_line(clean(line), MOST_CHARS).strip() for line in found]
        if lines and not result.error:
            with suppress(OSError):
                await asyncio.to_thread(self._inbox.add, self._session, lines[:MOST])

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait((self._waiting,))
