"""What is said beside a summary of tools that were found."""

import json

from tests.context.talks import Talk
from tui_agent.context.counting import estimate
from tui_agent.context.deferring import HEADING, MOST_TOKENS, found_tools
from tui_agent.conversation.blocks import ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Message, tool_result
from tui_agent.conversation.sizes import size_of_text


class Work(Talk):
    """A conversation in which tools are looked up and called."""

    def find(self, *names: str, words: int = 10) -> None:
        self._call("find_tool", {})
        found = tuple(ToolDefinition(name, "word " * words, '{"type":"object"}') for name in names)
        self.add(tool_result(ToolResult(f"c{self.calls}", "text", tools=found)))

    def use(self, name: str) -> None:
        self._call("call_tool", {"name": name, "arguments": {}})
        self.add(tool_result(ToolResult(f"c{self.calls}", "done")))

    def _call(self, name: str, arguments: dict[str, object]) -> None:
        self.calls += 1
        self.add(Message(role="assistant", blocks=(ToolCall(f"c{self.calls}", name, json.dumps(arguments)),)))

    def order(self) -> list[str]:
        heading, *tools = found_tools(self.view).split("\n\n")
        assert heading == HEADING
        return [tool.split("\n")[0] for tool in tools]


def test_nothing_is_said_where_nothing_was_found() -> None:
    work = Work()
    work.ask("hello")
    assert found_tools(work.view) == ""


def test_each_is_said_once_the_one_used_last_first() -> None:
    work = Work()
    work.ask("hello")
    work.find("a", "b")
    work.find("c", "b")
    work.use("a")
    assert work.order() == ["a", "b", "c"]


def test_of_what_does_not_fit_the_names_are_said() -> None:
    work = Work()
    work.ask("hello")
    for number in range(30):
        work.find(f"tool_{number}", words=200)
    text = found_tools(work.view)
    assert estimate(size_of_text(text)) <= MOST_TOKENS + 400
    assert text.split("\n\n")[1].startswith("tool_29\n")
    assert text.endswith("tool_0")
