"""How a tool runs a subtask: it passes a `SubtaskSpec` to a `Subtasks`, which runs it in a new conversation."""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from tui_agent.conversation.entries import Usage
from tui_agent.tools.base import SubtaskProgress, Tool, ToolFailure


class SubtaskSpec(msgspec.Struct, frozen=True):
    """A subtask. It sees only `system` and `prompt`, and has only the tools named in `tools`.

    `model` is the model to use (``provider:id``), or empty for the session's small model. `steps` is the most model
    calls it may make. `title` is shown to the user.
    """

    system: str
    prompt: str
    tools: tuple[str, ...] = ()
    title: str = "subtask"
    model: str = ""
    steps: int = 20
    window: int = 0
    """Tokens of the model's context window that it may use; 0: all."""
    budget_usd: float = 0.0
    """The cost in USD at which it is stopped; 0: only the session's ceilings apply."""
    searches: bool = False
    """Its model may search the web by its provider's own tool."""
    hooked: bool = True
    """The user's hooks run in it too."""


class SubtaskResult(msgspec.Struct, frozen=True):
    """The outcome of a subtask.

    `text` is its answer; if that is incomplete, `error` says why. `id` names its record. `usage` and `cost_usd` (USD,
    None if prices are not known) are already part of the session's totals. `steps` is the number of model calls.
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

    async def run(
        self, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None], call_id: str = ""
    ) -> SubtaskResult:
        """Run a subtask to its end; several may run at once.

        `progress` is called whenever it stands differently; `call_id` is the call it works for. Raises `NobodyToAsk` if
        one of its calls needs approval and nobody can be asked, and `StorageError`. Cancelling this ends the subtask;
        its record keeps what it did until then.
        """
        ...


def subtask_tools(spec: SubtaskSpec, offered: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools for a subtask, out of those `offered`. Raises ToolFailure if one is missing."""
    by_name = {tool.definition.name: tool for tool in offered}
    absent = [name for name in spec.tools if name not in by_name]
    if absent:
        raise ToolFailure(f"A subtask cannot have the tool {', '.join(absent)}: there is none here.")
    return tuple(by_name[name] for name in spec.tools)
