"""The tools of a session, by name and in a fixed order."""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.tools.base import Tool, ToolFailure
from tui_agent.tools.functions import tool
from tui_agent.tools.gate.workspace import shown


class ToolRegistry:
    """Tools by name, sorted, so that the prefix of requests does not depend on the order in which they were given."""

    def __init__(
        self, tools: Iterable[Tool | Callable[..., object]], more: Callable[[str], Tool | None] = lambda _: None
    ) -> None:
        """A plain function among `tools` is wrapped by `functions.tool`. `more` looks up tools that come and go, by
        name; they are not among the `definitions`.

        Raises TypeError for what cannot be a tool, and ValueError for two tools of the same name.
        """
        self._tools: dict[str, Tool] = {}
        self._more = more
        offered = [given if isinstance(given, Tool) else tool(given) for given in tools]
        for one in sorted(offered, key=lambda one: one.definition.name):
            name = one.definition.name
            if name in self._tools:
                raise ValueError(f"two tools are called {name}")
            self._tools[name] = one

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """The definitions for the model, sorted by name."""
        return tuple(tool.definition for tool in self)

    def get(self, name: str) -> Tool:
        """The tool called `name`. Otherwise raises ToolFailure that suggests the most similar name, or lists all."""
        tool = self._tools.get(name) or self._more(name)
        if tool is not None:
            return tool
        near = get_close_matches(name.lower(), self._tools, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(self._tools) or 'none'}."
        raise ToolFailure(f"There is no tool {shown(name, 60)}.", hint)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
