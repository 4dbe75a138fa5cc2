"""What a conversation begins with, its system prompt and tools, and what is said of changes to it later."""

import asyncio
from collections.abc import Callable, Sequence

from tui_agent.agent.knowledge import Knowledge
from tui_agent.agent.system_prompt import Sections, is_news, news
from tui_agent.conversation.blocks import Text, ToolDefinition
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.log import Log


class Briefing:
    """Owns the prefix as it should be now. A conversation keeps the one in its log until a point where it is renewed.

    `write` makes the system prompt of the sections. Without `knowledge` it stays the same.
    """

    def __init__(
        self, write: Callable[[Sections], str], tools: Sequence[ToolDefinition], knowledge: Knowledge | None = None
    ) -> None:
        self._write = write
        self._tools = tuple(tools)
        self._knowledge = knowledge
        self._sections = Sections()
        self._prefix = Prefix(system=write(self._sections), tools=self._tools)
        self._settled: tuple[Sections, int, int] | None = None

    @property
    def prefix(self) -> Prefix:
        """The prefix as of the last `refresh`."""
        return self._prefix

    async def refresh(self) -> None:
        """Look at the files again; cheap while nothing has changed."""
        if self._knowledge is None:
            return
        sections = await asyncio.to_thread(self._knowledge.sections)
        if sections != self._sections:
            self._sections = sections
            self._prefix = Prefix(system=self._write(sections), tools=self._tools)

    async def skills_text(self) -> str:
        """The skills there are, for a person to read."""
        return await asyncio.to_thread(self._knowledge.skills_text) if self._knowledge else "There are no skills."

    async def memory_text(self) -> str:
        """The notes there are about the project, for a person to read."""
        return await asyncio.to_thread(self._knowledge.memory_text) if self._knowledge else "There are no notes."

    def news(self, log: Log, begun: Prefix) -> tuple[str, ...]:
        """The notices that a conversation which began with `begun` needs now; what it was told already is left out.

        Costs what has been appended since it last had nothing to say.
        """
        if self._knowledge is None:
            return ()
        settled = self._settled
        if settled is not None and settled[:2] == (self._sections, begun.seq) and _goes_on(log, settled[2]):
            self._settled = (self._sections, begun.seq, log.head)
            return ()
        told = [text for text in _notices(log) if is_news(text)] if begun.seq else []
        found = news(begun.system, self._sections, told, own_memory=self._knowledge.own_memory)
        self._settled = None if found else (self._sections, begun.seq, log.head)
        return found


def _goes_on(log: Log, seq: int) -> bool:
    """Whether entry `seq` is on the conversation's path."""
    return log.fork_point(seq, log.head) == seq


def _notices(log: Log) -> list[str]:
    """The notices given since the prefix in force, oldest first."""
    texts: list[str] = []
    for entry in reversed(log.path()):
        if isinstance(entry, Prefix):
            break
        if isinstance(entry, Message) and entry.kind == "notice":
            texts.extend(block.text for block in entry.blocks if isinstance(block, Text))
    texts.reverse()
    return texts
