"""What a tool may ask of the agent above it: a subtask, in a conversation of its own."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from tui_agent.conversation.entries import Usage


class SubtaskSpec(msgspec.Struct, frozen=True):
    """A subtask sees only `system` and `prompt`, and has only the tools named in `tools`.

    `model` answers (``provider:id``); empty: the session's small model. `steps` bounds its model calls. `title` is for
    people.
    """

    system: str
    prompt: str
    tools: tuple[str, ...] = ()
    title: str = "subtask"
    model: str = ""
    steps: int = 20


class SubtaskResult(msgspec.Struct, frozen=True):
    """How it ended. `text` is its answer, or as much of one as there is; `error` says why it has none or no whole one.

    `id` names its record, `cost_usd` is None where prices are not known. All of it is in the session's totals already.
    """

    id: str
    text: str
    model: str
    usage: Usage
    cost_usd: float | None
    steps: int
    error: str = ""


class Subtasks(Protocol):
    """Runs subtasks for the tools of a session."""

    async def run(self, spec: SubtaskSpec, progress: Callable[[str], None], call_id: str = "") -> SubtaskResult:
        """Run one to its end; several may run at once. `progress` is told what should be seen of it now; `call_id` is
        the call it works for.

        Raises `NobodyToAsk` where one of its calls needs an approval nobody can give, and `StorageError`. Cancelling it
        ends the subtask; what it did until then stays in its record.
        """
        ...
