"""How a tool has a subtask done: it describes one, and whoever implements `Subtasks` runs it in a new conversation."""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from tui_agent.conversation.entries import Usage
from tui_agent.tools.base import Tool, ToolFailure


class SubtaskSpec(msgspec.Struct, frozen=True):
    """What a subtask is to do. It sees `system` and `prompt` and nothing else, and has only the tools named in `tools`.

    `model` is the model that answers (``provider:id``), or empty for the session's small model. `steps` is the most
    calls of the model it may take. `title` is what people see of it.
    """

    system: str
    prompt: str
    tools: tuple[str, ...] = ()
    title: str = "subtask"
    model: str = ""
    steps: int = 20
    window: int = 0
    """Tokens of the model's window that it may use; 0: all of it."""
    budget_usd: float = 0.0
    """What it may cost, in dollars; it is stopped once it has. 0: what the session's ceilings leave."""


class SubtaskResult(msgspec.Struct, frozen=True):
    """How a subtask ended.

    `text` is its answer, or what there is of one; then `error` says why it is not whole. `id` names its record. `usage`
    and `cost_usd` (None where prices are not known) are part of the session's totals already. `steps` counts the calls
    of the model.
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
        """Run a subtask to its end; several may run at once.

        `progress` is called with what should be seen of it now, whole; `call_id` is the call it works for. Raises
        `NobodyToAsk` where one of its own calls needs an approval that nobody can give, and `StorageError`. Cancelling
        this ends the subtask; what it did until then stays in its record.
        """
        ...


def subtask_tools(spec: SubtaskSpec, offered: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools among those `offered` that a subtask is to have. Raises ToolFailure where one is not there."""
    by_name = {tool.definition.name: tool for tool in offered}
    absent = [name for name in spec.tools if name not in by_name]
    if absent:
        raise ToolFailure(f"A subtask cannot have the tool {', '.join(absent)}: there is none here.")
    return tuple(by_name[name] for name in spec.tools)
